"""Slots of shared nodes round up jointly, exactly as packing them would; the bound knows it; a limit counts whole nodes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.catalog.test_mig_packing import fewest
from tests.plan.fleets import EXACT, MIG, SHARED, A, B, brute_force, nodes_of, rounding

from trimtab.catalog.pools import SharedPool
from trimtab.errors import PlanError
from trimtab.fleet.settings import Planning
from trimtab.ledger import best_count
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.couplings.shared_nodes import shared_usage
from trimtab.plan.program.solve import solve_problem
from trimtab.plan.program.table import total_usage

RATE = 4_000_000


def fewest_nodes(sizes, room):
    """The fewest bins by trying every way to put each item into an open bin or a new one."""
    if not sizes:
        return 0
    best = len(sizes)

    def put(item, free):
        nonlocal best
        if len(free) >= best:
            return
        if item == len(sizes):
            best = len(free)
            return
        for at in range(len(free)):
            if free[at] >= sizes[item]:
                put(item + 1, [*free[:at], free[at] - sizes[item], *free[at + 1 :]])
        put(item + 1, [*free, room - sizes[item]])

    put(0, [])
    return best


@settings(max_examples=150)
@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=7))
def test_sizes_that_divide_one_another_pack_into_the_nodes_that_are_billed(sizes):
    shared = SharedPool(A, 8)

    use = shared_usage([{shared: np.array([sum(sizes)])}])

    assert use[A][0] == fewest_nodes(sizes, 8) * 3600


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_use_of_shared_nodes_is_their_slots_packed_hour_by_hour(held):
    shared = SharedPool(A, 7, "1g.5gb")

    use = shared_usage({shared: np.array(slots)} for slots in held)[A]

    expected = [fewest_nodes([1] * sum(slots[hour] for slots in held), 7) for hour in range(3)]
    assert (use / 3600).tolist() == expected


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_the_use_of_boards_cut_into_several_profiles_is_what_a_search_through_layouts_needs(counts):
    use = shared_usage({one: np.array([count])} for one, count in zip(MIG, counts, strict=True))

    small, second, third, fourth = counts
    nodes = int(use[A][0]) // 3600
    assert nodes == fewest("A100-40GB", (small, 0, second, third, fourth))


def small(count, hours=48, *, offers=False, quotas=None, slots=1):
    """Workloads that hold a node each and could share one."""
    shared = SharedPool(A, 4)
    offer = nodes_of(A, RATE * 6 // 10)
    return Problem(
        options=tuple((Option(usage={}, slots={shared: np.full(hours, slots)}),) for _ in range(count)),
        groups=tuple(
            NodeGroup(usage={A: np.full(hours, 3600)}, holders=frozenset({workload})) for workload in range(count)
        ),
        rates_micro_usd_hr={A: RATE, B: RATE},
        offers=(offer,) if offers else (),
        hours=hours,
        quotas=quotas or {},
    )


@pytest.mark.parametrize("offers", [False, True])
def test_three_small_workloads_share_a_node_and_that_is_proved_best(offers):
    chosen = solve_problem(small(3, offers=offers), Planning())

    assert chosen.choice == (0, 0, 0)
    assert (total_usage(small(3), chosen.choice)[A] == 3600).all()
    assert chosen.gap_frac <= 1e-4


def test_nobody_shares_where_it_saves_no_node():
    chosen = solve_problem(small(1), Planning())

    assert chosen.cost_micro_usd == 48 * RATE


def test_many_sharers_leave_at_most_one_node_in_the_gap():
    problem = small(40, slots=1)

    chosen = solve_problem(problem, Planning())

    assert chosen.cost_micro_usd == 10 * 48 * RATE
    assert chosen.gap_frac <= 1e-4


def test_a_quota_counts_the_whole_nodes_that_are_shared():
    assert solve_problem(small(5, quotas={A: 2}), Planning()).choice == (0,) * 5

    with pytest.raises(PlanError, match="quota"):
        solve_problem(small(9, quotas={A: 2}), Planning())


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=200, max_size=200), st.data())
def test_gathered_hours_of_shared_nodes_stay_a_bound(slots, data):
    hours = len(slots)
    rows = tuple(
        tuple(
            Option(
                usage={}, slots={data.draw(st.sampled_from(SHARED)): np.roll(np.array(slots), shift * (workload + 1))}
            )
            for shift in range(2)
        )
        for workload in range(3)
    )
    groups = tuple(NodeGroup(usage={B: np.full(hours, 7200)}, holders=frozenset({w})) for w in range(3))
    offer = nodes_of(A, RATE // 2)
    problem = Problem(
        options=rows, groups=groups, rates_micro_usd_hr={A: RATE, B: RATE * 2}, offers=(offer,), hours=hours
    )

    chosen = solve_problem(problem, EXACT)

    assert chosen.bound_micro_usd <= brute_force(problem) + rounding(problem)
    assert chosen.cost_micro_usd >= brute_force(problem) - rounding(problem)


def test_few_sharers_of_which_no_two_hours_are_alike_are_planned_without_a_gap():
    """Means over such hours would lose what whole nodes round up to."""
    rng, shared, hours = np.random.default_rng(7), SharedPool(A, 4), 200
    rows = tuple((Option(usage={}, slots={shared: rng.integers(0, 4, hours)}),) for _ in range(4))
    groups = tuple(NodeGroup(usage={A: np.full(hours, 3600)}, holders=frozenset({row})) for row in range(4))
    problem = Problem(options=rows, groups=groups, rates_micro_usd_hr={A: RATE}, offers=(), hours=hours)

    chosen = solve_problem(problem, Planning())

    assert chosen.cost_micro_usd == brute_force(problem)
    assert chosen.gap_frac <= 1e-4


def test_a_commitment_covers_the_nodes_that_are_shared():
    problem = small(4, offers=True)

    chosen = solve_problem(problem, Planning())

    usage = total_usage(problem, chosen.choice)
    assert [one.quantity for one in chosen.bought] == [best_count(usage[A], RATE, RATE * 6 // 10)] == [1]


def test_a_choice_costs_the_same_in_whatever_order_its_sharers_come():
    problem = small(3)

    totals = {int(total_usage(problem, choice)[A].sum()) for choice in product((0, -1), repeat=3) if sum(choice) == -1}

    assert totals == {2 * 48 * 3600}


def by_day(days, seed):
    """Three workloads whose replicas follow the hour of the day, on nodes of their own or in slots of three kinds."""
    rng = np.random.default_rng(seed)
    curve = np.tile(1 + 0.5 * np.sin(np.arange(24) * 2 * np.pi / 24), days)
    rows, groups = [], []
    for workload in range(3):
        replicas = np.rint(rng.integers(1, 5) * curve).astype(np.int64)
        own = [Option(usage={pool: replicas * 3600}) for pool in (A, B)]
        shared = [
            Option(usage={one.pool: replicas // one.slots_per_node * 3600}, slots={one: replicas % one.slots_per_node})
            for one in SHARED
        ]
        rows.append((*own, *shared))
        groups.append(NodeGroup(usage={B: np.full(24 * days, 4 * 3600)}, holders=frozenset({workload})))
    offer = nodes_of(A, RATE * 6 // 10)
    return Problem(
        options=tuple(rows),
        groups=tuple(groups),
        rates_micro_usd_hr={A: RATE, B: RATE},
        offers=(offer,),
        hours=24 * days,
    )


@pytest.mark.parametrize("seed", range(4))
def test_hours_that_are_alike_are_gathered_without_loss(seed):
    problem = by_day(28, seed)

    chosen = solve_problem(problem, Planning())

    assert chosen.cost_micro_usd <= brute_force(problem) * 1.0005
    assert chosen.gap_frac <= 0.0005 + 1e-9

"""Commitments to spend in the joint choice: equal to brute force on tiny fleets, a certified bound, an exact bill."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import EXACT, A, B, brute_force, choices, nodes_of, problems, rounding, so_much, spend_at

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.ledger import Usage, bill, nodes_committed
from trimtab.ledger.commitments import cover, order_of_application
from trimtab.plan.problem import KEEP, NodeGroup, Option, Problem
from trimtab.plan.program.best_discounts import best_discounts, convex_minimum
from trimtab.plan.program.couplings.node_commitments import beyond
from trimtab.plan.program.improve import Improver, improved
from trimtab.plan.program.master import Master, gather
from trimtab.plan.program.solve import choice_cost, solve_problem
from trimtab.plan.program.table import OptionTable, exact_bill, own_cost, total_usage
from trimtab.units import usd

ON_DEMAND = (A, B)
HALF_HOUR = 1800


@st.composite
def plan_rates(draw, problem):
    pools = draw(st.sets(st.sampled_from(ON_DEMAND), min_size=1))
    return {pool: int(problem.rates_micro_usd_hr[pool] * draw(st.floats(0.3, 0.95))) for pool in sorted(pools)}


@st.composite
def with_spend(draw, of=None, *, offers=1, may_own=True):
    """A small problem where one provider sells spend, and some is perhaps held already."""
    problem = draw(problems() if of is None else of)
    options = (BuyingOption.SAVINGS_PLAN_3Y, BuyingOption.SAVINGS_PLAN_1Y)[:offers]
    owned = ()
    if may_own and draw(st.booleans()):
        held = so_much(draw(st.integers(0, 9_000_000)), spend_at(draw(plan_rates(problem))))
        owned = (so_much(draw(st.integers(0, 2)), nodes_of(A, 200_000)), held)
    spend = tuple(spend_at(draw(plan_rates(problem)), one) for one in options)
    return replace(problem, offers=(*problem.offers, *spend), owned=owned)


def every_purchase(problem, usage):
    """Every count up to the use, and every spend at which some hour is covered whole up to some pool."""
    pools = sorted(problem.node_offers)
    counts = [range(1 + -int(-usage[pool].max() // 3600) if pool in usage else 1) for pool in pools]
    for chosen in product(*counts):
        nodes = tuple(so_much(count, problem.node_offers[pool]) for pool, count in zip(pools, chosen, strict=True))
        for spends in product(*(corners(problem, usage, nodes, offer) for offer in problem.spend_offers)):
            yield (*nodes, *map(so_much, spends, problem.spend_offers))


def corners(problem, usage, nodes, offer):
    rates, pools = problem.rates_micro_usd_hr, sorted(usage)
    covered = nodes_committed((*problem.owned, *nodes))
    left = np.array([beyond(usage[pool], covered.get(pool, 0)) for pool in pools]).reshape(len(pools), problem.hours)
    for plan in problem.owned_spend:
        left = left - cover(plan, pools, left, rates)
    found, need = {0}, np.zeros(problem.hours, dtype=np.int64)
    for pool in order_of_application(offer.rates_micro_usd_hr, rates):
        if pool in pools:
            need = need - (-left[pools.index(pool)] * offer.rates_micro_usd_hr[pool] // 3600)
            found |= set(need.tolist())
    return sorted(found)


def cost(problem, usage, bought):
    return exact_bill(usage, problem.rates_micro_usd_hr, (*problem.owned, *bought), problem.hours).total


def least_cost(problem, choice):
    usage = total_usage(problem, choice)
    return own_cost(problem, choice) + min(cost(problem, usage, bought) for bought in every_purchase(problem, usage))


@settings(max_examples=150)
@given(with_spend())
def test_what_is_bought_for_a_known_use_is_the_cheapest_of_every_count_and_corner(problem):
    kept = [KEEP] * problem.workloads

    assert choice_cost(problem, kept) <= least_cost(problem, kept) + rounding(problem)


@settings(max_examples=60)
@given(with_spend(offers=2))
def test_of_two_terms_on_offer_what_is_bought_is_within_a_thousandth_of_the_cheapest(problem):
    kept = [KEEP] * problem.workloads

    assert choice_cost(problem, kept) <= 1.001 * least_cost(problem, kept) + rounding(problem)


@settings(max_examples=50)
@given(with_spend())
def test_the_plan_equals_brute_force_on_tiny_fleets_and_its_bound_is_below(problem):
    chosen = solve_problem(problem, EXACT)

    best = min(least_cost(problem, choice) for choice in choices(problem))
    assert chosen.cost_micro_usd <= best + rounding(problem)
    assert chosen.bound_micro_usd <= best + rounding(problem) + 100


@settings(max_examples=25)
@given(with_spend(offers=2))
def test_the_bound_is_below_every_choice_with_two_terms_on_offer(problem):
    chosen = solve_problem(problem, EXACT)

    best = min(least_cost(problem, choice) for choice in choices(problem))
    assert chosen.bound_micro_usd <= best + rounding(problem) + 100
    assert chosen.cost_micro_usd <= 1.001 * best + rounding(problem)


@settings(max_examples=4)
@given(with_spend(problems(hours_of=st.just(400))))
def test_what_gathering_hours_loses_is_inside_the_stated_gap(problem):
    chosen = solve_problem(problem, EXACT)

    assert chosen.bound_micro_usd <= brute_force(problem) <= chosen.cost_micro_usd + rounding(problem)


@settings(max_examples=60)
@given(with_spend(offers=2))
def test_the_reported_cost_is_the_ledgers_bill_of_what_is_bought_to_the_micro_dollar(problem):
    chosen = solve_problem(problem, EXACT)

    usage, paid = total_usage(problem, chosen.choice), (*problem.owned, *chosen.bought)
    pools = tuple(sorted({*usage, *nodes_committed(paid)}))
    none = np.zeros(problem.hours, dtype=np.int64)
    seconds = np.array([usage.get(pool, none) for pool in pools], dtype=np.int64).reshape(len(pools), problem.hours)
    again = bill(Usage(pools=pools, node_seconds=seconds), problem.rates_micro_usd_hr, paid)
    assert again.total + own_cost(problem, chosen.choice) == chosen.cost_micro_usd


@settings(max_examples=60)
@given(with_spend(may_own=False))
def test_spend_on_offer_never_costs_more(problem):
    without = solve_problem(replace(problem, offers=tuple(problem.node_offers.values())), EXACT)

    assert solve_problem(problem, EXACT).cost_micro_usd <= without.cost_micro_usd + rounding(problem)


@settings(max_examples=40)
@given(with_spend(offers=2), st.data())
def test_a_move_gains_what_the_exact_bill_loses_at_what_is_held(problem, data):
    improver = Improver(OptionTable(problem), [KEEP] * problem.workloads)
    held = best_discounts(problem, improver.use)
    for _ in range(4):
        workload = data.draw(st.integers(0, problem.workloads - 1))
        option = data.draw(st.integers(KEEP, len(problem.options[workload]) - 1))
        before = cost(problem, improver.use, held) + own_cost(problem, improver.choice)
        gain = improver.gains(workload, [option])[0]

        improver.move(workload, option)

        after = cost(problem, improver.use, held) + own_cost(problem, improver.choice)
        assert usd(after) == pytest.approx(usd(before) - gain, abs=1e-5 * problem.hours)


@settings(max_examples=40)
@given(with_spend(offers=2))
def test_sweeps_never_make_a_choice_dearer(problem):
    start = tuple(len(options) - 1 for options in problem.options)

    better = improved(OptionTable(problem), start, [[KEEP, *range(len(options))] for options in problem.options]).choice

    assert choice_cost(problem, better) <= 1.001 * choice_cost(problem, start) + 10 * problem.hours


@settings(max_examples=40)
@given(with_spend(offers=2), st.integers(0, 2**32 - 1))
def test_the_bound_holds_at_any_prices(problem, seed):
    table = OptionTable(problem)
    master = Master(table, gather(table, table.use_of([KEEP] * problem.workloads), 24))
    duals = -np.random.default_rng(seed).exponential(20.0, len(master.program().row_low))

    bound = master.price(duals).bound + table.owned_usd

    best = min(choice_cost(problem, choice) for choice in choices(problem))
    assert bound <= usd(best + rounding(problem))


def test_periods_that_pools_share_keep_every_hour_once():
    rng = np.random.default_rng(3)
    seconds = {pool: rng.integers(0, 9, 300) * HALF_HOUR for pool in ON_DEMAND}
    problem = Problem(
        options=((),),
        groups=(NodeGroup(usage=seconds, holders=frozenset({0})),),
        rates_micro_usd_hr=dict.fromkeys(ON_DEMAND, 1_000_000),
        offers=(spend_at(dict.fromkeys(ON_DEMAND, 600_000)),),
        hours=300,
        quotas={A: 4},
    )
    table = OptionTable(problem)

    first, second = gather(table, table.use_of([KEEP]), 24)

    assert np.array_equal(first.weight_hr, second.weight_hr)
    assert len(first.weight_hr) == 24
    assert first.weight_hr.sum() == 300
    for gathered, pool in ((first, A), (second, B)):
        assert gathered.nodes[0] @ gathered.weight_hr == pytest.approx(seconds[pool].sum() / 3600)


def test_spend_follows_work_from_one_type_to_another_and_nodes_do_not():
    """By day A, by night B: nodes of either are used half the time, a dollar of spend always."""
    day = np.arange(48) % 24 < 12
    use = {A: np.where(day, 3600, 0), B: np.where(day, 0, 3600)}
    problem = Problem(
        options=((),),
        groups=(NodeGroup(usage=use, holders=frozenset({0})),),
        rates_micro_usd_hr={A: 1_000_000, B: 1_000_000},
        offers=(*(nodes_of(pool, 600_000) for pool in ON_DEMAND), spend_at(dict.fromkeys(ON_DEMAND, 700_000))),
        hours=48,
    )

    chosen = solve_problem(problem, EXACT)

    assert [(one.offer.is_spend, one.quantity) for one in chosen.bought] == [(True, 700_000)]
    assert chosen.cost_micro_usd == chosen.bound_micro_usd == 48 * 700_000


def test_work_stays_where_spend_that_is_held_covers_it():
    """B alone would be cheaper; what is spent on A anyway makes it free."""
    use = np.full(24, 3600, dtype=np.int64)
    held = so_much(700_000, spend_at({A: 700_000}))
    problem = Problem(
        options=((Option(usage={B: use}),),),
        groups=(NodeGroup(usage={A: use}, holders=frozenset({0})),),
        rates_micro_usd_hr={A: 1_000_000, B: 500_000},
        offers=(),
        hours=24,
    )

    assert solve_problem(problem, EXACT).choice == (0,)
    assert solve_problem(replace(problem, owned=(held,)), EXACT).choice == (KEEP,)


def test_spot_is_no_plans_business():
    spot = A.held_as(CapacityType.SPOT)
    use = np.full(24, 3600, dtype=np.int64)
    problem = Problem(
        options=((),),
        groups=(NodeGroup(usage={spot: use}, holders=frozenset({0})),),
        rates_micro_usd_hr={A: 1_000_000, spot: 400_000},
        offers=(spend_at({A: 100_000}),),
        hours=24,
    )

    assert not solve_problem(problem, EXACT).bought


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.data())
def test_the_least_of_a_convex_cost_is_found_from_any_start(rises, data):
    """Slopes that rise make a convex cost; equal ones make it flat at its least."""
    costs = np.concatenate(([0], np.cumsum(sorted(rise - 5 for rise in rises)))).tolist()
    start = data.draw(st.integers(0, len(costs) - 1))

    found = convex_minimum(costs.__getitem__, start, len(costs) - 1)

    assert costs[found] == min(costs)

"""Runs on GPUs that services leave over: free where these are spare, billed where they bring up nodes, proved and written."""

import numpy as np
import pytest
import yaml
from benchmarks.enact import proved_fleet, row_of
from hypothesis import given, settings, strategies as st
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import A, make_plan

from trimtab.catalog.pools import SharedPool
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.effects import DeferRuns, ReleaseIdle, UseSlots
from trimtab.emit.manifests.facts import NodeMaker
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import sharing
from trimtab.levers.lever import LeverRequest
from trimtab.plan.options.composition import candidate_of, places
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.couplings.shared_nodes import shared_usage
from trimtab.plan.program.solve import solve_problem
from trimtab.plan.proof.proof_window import prove
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.jobs_outcome import held_by_hour

SETTINGS = Settings(planning=Planning(engineer_week_usd=100.0))
DAYS = 21
LE_S = (1.0, 2.0, 4.0, float("inf"))
NIGHTLY = "b/nightly-batch"


def service(rows, name, node, devices):
    rows.hold(name, node, devices, owner_kind="Deployment")
    for device in devices:
        rows.use(name, node, device, range(DAYS * 24), sm=0.7, dram=0.5, tensor=0.4, memory_gib=30.0)
    rows.demand(name, lambda hour: 3_000.0, 1, LE_S, lambda hour: (1_000, 1_800, 200, 0), running=lambda hour: 3.0)


def runs(rows, name, node, devices, *, begins, hours):
    """One run a day, on some GPUs of a node that stays up all day."""
    for day in range(DAYS):
        begin = 24 * day + begins
        rows.hold(name, node, devices, begin, begin + hours, pod=f"{name}-{day}", owner_kind="CronJob")
        for device in devices:
            rows.use(name, node, device, range(begin, begin + hours), sm=0.9, dram=0.5, tensor=0.5, memory_gib=30.0)
        rows.job(name, begin, begin, begin + hours, len(devices))


def fleet_rows(services, *, run_gpus=2, spec=None):
    """Services on the GPUs of one node, and a nightly batch on a node of its own."""
    rows = FleetRows(DAYS).node("n0", "p4d.24xlarge").node("n1", "p4d.24xlarge")
    for name, devices in services.items():
        service(rows, name, "n0", devices)
    runs(rows, NIGHTLY, "n1", range(run_gpus), begins=2, hours=5)
    target = {"metric": "queue_wait", "quantile": 0.9, "limit_s": 1_800}
    rows.workloads[NIGHTLY] = {"kind": "batch", "targets": [target], **(spec or {})}
    return rows


def windows(rows):
    bundle = rows.bundle()
    whole = bundle_window(bundle)
    market = Market(catalog=few_machines(), at=whole.end.date(), max_term_years=1, assumptions=SETTINGS.assumptions)
    fit, later = (build_fleet(bundle, SETTINGS, whole.part(*hours)) for hours in ((0, 336), (336, 168)))
    return fit, later, market


def planned_of(rows):
    fit, later, market = windows(rows)
    return make_plan(fit, market, SETTINGS, seed=7, progress=lambda _stage, _share: None), later, market


SPARE = {"a/chat": (0, 1)}
FULL = {"a/chat": (0, 1, 2, 3), "a/rank": (4, 5, 6, 7)}


@pytest.fixture(scope="module")
def spare():
    return planned_of(fleet_rows(SPARE))


def asked(rows, name=NIGHTLY):
    """A workload of a fleet as levers are asked of it."""
    fit, _, market = windows(rows)
    case = cases_of(fit, SETTINGS, 7, market=market)[name]
    return LeverRequest(evaluator=Evaluator(case=case), market=market)


def beside(ask):
    """The ways in which runs would take GPUs beside services."""
    return [place for place in places(ask) if place.sharing is not None]


def test_a_nightly_batch_takes_the_gpus_that_a_service_leaves_over(spare):
    planned, _, market = spare
    (action,) = [one for one in planned.plan.actions if one.lever == sharing.NAME]

    assert {change.subject for change in action.changes} == {"a/chat", NIGHTLY}
    assert "its runs take at once" in " ".join(one.what for one in action.evidence)
    node = market.rate(planned.fleet.workloads[0].pool) * 336
    assert planned.plan.before_micro_usd == 2 * node
    assert planned.plan.after_micro_usd <= node, "one node, whatever is committed to of it"


def test_the_bill_with_the_batch_is_that_of_the_service_alone(spare):
    planned, _, _ = spare
    drafted = planned.drafted
    index = [workload.name for workload in planned.fleet.workloads].index("a/chat")
    alone = {index: planned.deployments["a/chat"]}
    both = drafted.in_force(drafted.everything)

    with_runs, without = (
        shared_usage(
            drafted.enacted.outcome(at, deployment).slots(drafted.enacted.evaluators[at].place(deployment))
            for at, deployment in chosen.items()
        )
        for chosen in (both, alone)
    )

    assert len(both) == 2
    assert {pool: use.tolist() for pool, use in with_runs.items()} == {p: u.tolist() for p, u in without.items()}


def test_shares_sum_to_the_saving_and_the_bound_holds(spare):
    plan = spare[0].plan

    assert sum(action.saving_micro_usd for action in plan.actions) == plan.joint_saving_micro_usd
    assert plan.bound_micro_usd <= plan.after_micro_usd
    assert plan.gap_frac <= 1e-4


def test_no_target_of_the_service_changes_and_the_runs_keep_theirs_in_the_proof(spare):
    planned, later, market = spare

    proven = prove(planned, later, market, SETTINGS, seed=7)

    assert all(target.kept for target in proven.proof.targets)
    assert proven.proof.after_micro_usd * 336 == planned.plan.after_micro_usd * 168
    chat = next(one for one in proven.enacted.evaluators.values() if one.case.workload.name == "a/chat")
    alone, together = (chat.outcome(way) for way in (AS_IT_IS, planned.deployments["a/chat"]))
    assert [one.frac for one in alone.attained] == [one.frac for one in together.attained]


def test_where_services_fill_their_node_the_batch_stays_away():
    planned, _, _ = planned_of(fleet_rows(FULL))

    assert planned.deployments[NIGHTLY].sharing is None
    assert planned.deployments[NIGHTLY].holding is not None, "on nodes of its own that come and go"


def test_a_run_is_offered_one_kind_of_slot_and_starts_at_once():
    (way,) = beside(asked(fleet_rows(SPARE)))

    assert isinstance(way.sharing, UseSlots)
    assert isinstance(way.holding, ReleaseIdle)
    assert way.levers == {sharing.NAME}


def test_runs_that_may_wait_are_also_tried_at_each_hour_for_which_they_may():
    found = beside(asked(fleet_rows(SPARE, spec={"deferrable": {"within_hr": 12, "start_hours": [22, 2]}})))

    assert sorted(way.holding.policy.start_hour for way in found if isinstance(way.holding, DeferRuns)) == [2, 22]
    assert len(found) == 3


def test_a_run_counts_as_wide_as_the_widest_service_so_that_no_gap_is_left_beside_it():
    narrow, wide = (beside(asked(fleet_rows({"a/chat": devices}, run_gpus=1)))[0] for devices in ((0,), (0, 1, 2, 3)))

    assert (narrow.sharing.slots, wide.sharing.slots) == (1, 4)


@pytest.mark.parametrize(
    ("services", "run_gpus", "kind"),
    [
        (FULL, 5, "batch"),  # its own pods fill most of a node
        ({"a/chat": (0, 1, 2, 3, 4)}, 2, "batch"),  # the service's do
        (SPARE, 2, "training"),
    ],
)
def test_nothing_is_offered_where_no_gpu_could_be_spare_or_to_training(services, run_gpus, kind):
    assert beside(asked(fleet_rows(services, run_gpus=run_gpus, spec={"kind": kind}))) == []


def test_nothing_is_offered_beside_services_of_another_cluster():
    rows = fleet_rows({"a/chat@east": (0, 1)})

    assert beside(asked(rows)) == []


def test_a_wider_run_of_a_later_window_takes_several_slots():
    rows = fleet_rows(SPARE, run_gpus=2)
    (way,) = beside(asked(rows))
    wider = asked(fleet_rows(SPARE, run_gpus=4))

    outcome = wider.evaluator.outcome(way)

    assert way.sharing.slots == 2
    assert outcome.replicas.max() == 2


def test_what_is_held_is_the_peak_of_an_hour_and_no_slot_is_let_go_with_nodes_filled_alone():
    ask = asked(fleet_rows({"a/chat": (0, 1, 2, 3)}, run_gpus=4))
    (way,) = beside(ask)
    candidate = candidate_of(ask.evaluator, way, ask.evaluator.outcome(way), ask.market)

    gpus, kept_up = (candidate.slots[one] for one in (way.sharing.shared, way.sharing.shared.kept_up))
    assert not candidate.usage
    # from 2:00 to 7:05, a start of five minutes included, and ten minutes in which an empty node is kept
    assert gpus[:9].tolist() == [0, 0, 4, 4, 4, 4, 4, 4, 0]
    assert kept_up[:9].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 0]


# --- the bill of whole nodes ------------------------------------------------------------------------------------------

WHOLE = SharedPool(A, 4)
PER_HR = 4


@st.composite
def held_by_all(draw, hours=6):
    """Slots of services by quarter of an hour, and runs of two slots: when each begins and how many quarters it takes."""
    services = draw(st.lists(st.integers(0, 9), min_size=hours * PER_HR, max_size=hours * PER_HR))
    begun = draw(st.lists(st.tuples(st.integers(0, hours * PER_HR - 1), st.integers(1, hours * PER_HR)), max_size=5))
    return services, [(begin, min(length, hours * PER_HR - begin)) for begin, length in sorted(begun)]


def in_slots(services, begun, hours=6, wide=2):
    """Return the slots by hour of services and of runs, as their replays state them."""
    by_hour = np.array(services).reshape(hours, PER_HR).max(axis=1)
    quarter_s = 3600 // PER_HR
    begins, ends = (
        np.array([moment * quarter_s for moment in moments], dtype=float)
        for moments in ([begin for begin, _ in begun], [begin + length for begin, length in begun])
    )
    most, standing = held_by_hour(begins, ends, np.ones(len(begun), dtype=np.int64), kept_s=0.0, hours=hours)
    return {WHOLE: by_hour}, {WHOLE: most * wide, WHOLE.kept_up: standing}


def nodes_in_a_cluster(services, begun, wide=2):
    """Return the nodes that are up in each quarter of an hour.

    Services are moved at will, and no run is; each new one is put on the node with fewest runs, so that runs keep as many nodes
    up as they can.
    """
    on_node: list[list[int]] = []
    up = []
    for quarter, slots in enumerate(services):
        on_node = [[end for end in node if end > quarter] for node in on_node]
        live = sum(map(len, on_node))
        # nodes without a run stay only as far as services need them
        needed = max(sum(map(bool, on_node)), -(-(slots + live * wide) // WHOLE.slots_per_node))
        on_node = sorted(on_node, key=len, reverse=True)[:needed] + [[] for _ in range(needed - len(on_node))]
        for length in [length for begin, length in begun if begin == quarter]:
            live += 1
            if -(-(slots + live * wide) // WHOLE.slots_per_node) > len(on_node):
                on_node.append([])
            room = [node for node in on_node if (len(node) + 1) * wide <= WHOLE.slots_per_node]
            min(room, key=len).append(quarter + length)
        assert slots <= sum(WHOLE.slots_per_node - len(node) * wide for node in on_node)
        up.append(len(on_node))
    return np.array(up)


@settings(max_examples=300)
@given(held_by_all())
def test_no_cluster_needs_more_nodes_than_are_billed_though_it_can_move_no_run(held):
    services, begun = held

    billed = shared_usage(in_slots(services, begun)).get(A, np.zeros(6)) // 3600

    assert (nodes_in_a_cluster(services, begun).reshape(6, PER_HR).max(axis=1) <= billed).all()


@settings(max_examples=200)
@given(held_by_all())
def test_services_and_runs_together_never_cost_more_than_apart(held):
    ours, theirs = in_slots(*held)
    none = np.zeros(6, dtype=np.int64)

    together, services_alone, runs_alone = (
        shared_usage(parts).get(A, none) for parts in ((ours, theirs), (ours,), (theirs,))
    )

    assert (together <= services_alone + runs_alone).all()
    assert (together >= services_alone).all()


@settings(max_examples=200)
@given(st.lists(st.sampled_from([1, 2, 5, 6, 9, 10]), min_size=24, max_size=24), held_by_all())
def test_a_run_adds_no_node_hour_where_its_gpus_are_spare_at_all_times(services, held):
    """The services leave two GPUs of a node over, or three, in every quarter of an hour: as many as one run takes."""
    ours, theirs = in_slots(services, held[1][:1])

    assert shared_usage([ours, theirs])[A].tolist() == shared_usage([ours])[A].tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(held_by_all(), min_size=1, max_size=3), st.booleans())
def test_the_bound_holds_with_runs_that_cannot_be_moved(sharers, apart):
    """Each may share, or stay on a node of its own; the choice is compared with all of them."""
    rows = tuple((Option(usage={}, slots=part),) for held in sharers for part in in_slots(*held))
    groups = tuple(
        NodeGroup(usage={A: np.full(6, 3600 * (1 + apart))}, holders=frozenset({row})) for row in range(len(rows))
    )
    problem = Problem(options=rows, groups=groups, rates_micro_usd_hr={A: 4_000_000}, offers=(), hours=6)

    chosen = solve_problem(problem, Planning(mip_gap_frac=0.0, mip_max_nodes=100_000))

    costs = []
    for mask in range(2 ** len(rows)):
        shared = [row for row in range(len(rows)) if mask >> row & 1]
        use = shared_usage(rows[row][0].slots for row in shared).get(A, np.zeros(6))
        costs.append((use.sum() + 6 * 3600 * (1 + apart) * (len(rows) - len(shared))) // 3600 * 4_000_000)
    assert chosen.bound_micro_usd <= min(costs) + 10
    assert chosen.cost_micro_usd >= min(costs)


# --- what is written, and read back -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["at once", "held back"])
def proved(request):
    rows = fleet_rows(SPARE)
    if request.param == "held back":
        # by day a notebook takes what the service leaves over
        rows.node("n2", "p4d.24xlarge")
        for day in range(DAYS):
            begin = 24 * day + 8
            rows.hold("c/notebook", "n2", range(4), begin, begin + 12, pod=f"c-{day}", owner_kind="Notebook")
            for device in range(4):
                rows.use("c/notebook", "n2", device, range(begin, begin + 12), sm=0.5, dram=0.3, memory_gib=20.0)
        rows.node("n3", "p4d.24xlarge")
        runs(rows, "b/eval", "n3", range(4), begins=12, hours=3)
        rows.workloads["b/eval"] = {"kind": "evaluation", "deferrable": {"within_hr": 14}}
    return request.param, proved_fleet("batch", rows.bundle(), SETTINGS)


def test_of_a_day_with_no_gpu_to_spare_runs_that_may_wait_are_held_until_there_is(proved):
    how, fleet = proved
    if how == "held back":
        assert isinstance(fleet.planned.deployments["b/eval"].holding, DeferRuns)
        assert fleet.planned.deployments["b/eval"].sharing is not None


@pytest.mark.parametrize("maker", NodeMaker)
def test_the_files_cost_what_the_proof_says_and_keep_what_it_kept(proved, maker, tmp_path):
    found = row_of(proved[1], maker, tmp_path)

    assert found.files_usd == pytest.approx(found.proof_usd, rel=0.02)
    assert found.targets_equal == found.targets > 0
    assert not found.not_judged
    assert not found.faults
    assert found.review_passes


def test_runs_go_to_the_pool_of_services_and_forbid_that_they_are_moved(proved, tmp_path):
    row_of(proved[1], NodeMaker.KARPENTER, tmp_path)

    (pool,) = (yaml.safe_load(path.read_text()) for path in tmp_path.glob("nodes/*.nodepool.yaml"))
    body = yaml.safe_load((tmp_path / "workloads" / "b" / "nightly-batch" / "kustomization.yaml").read_text())
    template = yaml.safe_load(body["patches"][0]["patch"])["spec"]["jobTemplate"]["spec"]["template"]
    assert template["spec"]["nodeSelector"]["karpenter.sh/nodepool"] == pool["metadata"]["name"]
    assert template["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}
    assert "priorityClassName" not in template["spec"], (
        "a service waits for a node, as it was replayed: it takes no run's GPUs"
    )
    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"

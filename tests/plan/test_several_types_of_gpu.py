"""Workloads that were on several types of GPU: runs are judged each by its own type, services by what one type does alone."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import ReleaseIdle, SetReplicas
from trimtab.deployment.fitting import home_speed, speed_on
from trimtab.deployment.placement import resolve
from trimtab.emit.manifests.cluster_facts import facts_of_fleet
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import idle_release, replica_count, right_size
from trimtab.physics.transfer import SAME_SPEED, work_ratio
from trimtab.pipeline import audit
from trimtab.plan.options.workload_options import options_of
from trimtab.plan.proof.clairvoyant import clairvoyant_bound
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

SETTINGS = Settings()
DAY = date(2026, 9, 30)
MARKET = Market(catalog=load_catalog(), at=DAY, max_term_years=1, assumptions=SETTINGS.assumptions)
RUNS = "ml/pretrain"
DAYS = 14
RELEASE = (idle_release.NAME, ReleaseIdle(startup_s=300.0))


def runs(slow_hr=12, fast_hr=4, days=DAYS, named=False, fast="p5.48xlarge"):
    """Every day a run on eight A100 and one on eight of a faster type, busy with tensor work, on a node each that stays."""
    fleet = FleetRows(days).node("a", "p4d.24xlarge").node("h", fast)
    for day in range(days):
        for node, begin, hours in (("a", 24 * day + 1, slow_hr), ("h", 24 * day + 5, fast_hr)):
            pod = f"{node}-{day}"
            fleet.hold(RUNS, node, range(8), begin, begin + hours, pod=pod, owner_kind="Job")
            for device in range(8):
                fleet.use(RUNS, node, device, range(begin, begin + hours), sm=0.9, util=1.0, tensor=0.6, dram=0.3)
            fleet.job(RUNS, begin, begin, begin + hours, 8, name=pod)
            if named:
                fleet.rows["jobs"][-1]["node"] = node
    fleet.workloads = {RUNS: {"kind": "training"}}
    return fleet


def evaluator_of(rows):
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7, market=MARKET).values()
    return Evaluator(case=case)


def faster(evaluator):
    """How many times as fast an H100 is for these runs as an A100."""
    a100, h100 = MARKET.gpu("A100-SXM4-40GB"), MARKET.gpu("H100-SXM5-80GB")
    return speed_on(evaluator.case.workload, a100, h100, SETTINGS.assumptions)


def node_hours(outcome):
    return outcome.on_demand.sum() / 3600


def throughput(outcome):
    (found,) = (one for one in outcome.attained if one.target.metric.value == "throughput")
    return found


@pytest.mark.parametrize("named", [True, False])
def test_a_run_knows_its_type_by_its_nodes_else_by_the_pods_of_its_time(named):
    jobs = build_fleet(runs(named=named).bundle(), SETTINGS).workload(RUNS).jobs

    hours = np.round((jobs.end_s - jobs.start_s) / 3600)
    assert {(gpu, hour) for gpu, hour in zip(jobs.gpu, hours, strict=True)} == {
        ("A100-SXM4-40GB", 12.0),
        ("H100-SXM5-80GB", 4.0),
    }


def test_runs_of_the_faster_type_take_longer_on_the_usual_one():
    evaluator = evaluator_of(runs())
    speed = faster(evaluator)
    assert speed.value > 1.5

    outcome = evaluator.outcome(Deployment.of(RELEASE))

    # a start of five minutes each, and what the replay keeps an empty node for: the same for both types
    alone = node_hours(evaluator_of(runs(fast="p4d.24xlarge")).outcome(Deployment.of(RELEASE)))
    assert node_hours(outcome) - alone == pytest.approx(DAYS * 4 * (speed.value - 1), rel=0.01)
    assert throughput(outcome).frac == pytest.approx((12 + 4) / (12 + 4 * speed.value), rel=1e-3)
    assert throughput(outcome).safe_frac == pytest.approx((12 + 4) / (12 + 4 * speed.high), rel=1e-3)


def test_runs_that_were_on_the_new_type_already_get_no_faster_there():
    evaluator = evaluator_of(runs())
    speed = faster(evaluator)
    (there,) = (
        size
        for size in right_size.propose(evaluator.case.workload, MARKET, SETTINGS.assumptions).fitting
        if size.pool.instance_type == "p5.48xlarge"
    )
    moved = Deployment.of((right_size.NAME, there)).plus(RELEASE)

    spent_hr = DAYS * (12 / speed.value + 4)
    kept_hr = node_hours(evaluator.outcome(moved)) - spent_hr
    assert 0 <= kept_hr < DAYS * 2 * 0.5  # starts and empty minutes


def test_as_it_is_every_run_keeps_its_speed():
    assert throughput(evaluator_of(runs()).outcome(AS_IT_IS)).frac == 1.0


def test_runs_of_which_the_types_cannot_be_compared_are_not_judged():
    rows = runs()
    for table in ("nodes", "devices"):
        for row in rows.rows[table]:
            if row["node"] == "h":
                row["gpu"] = "Riva X900"

    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7, market=MARKET).values()

    assert case == "some of its runs were on Riva X900, others on A100-SXM4-40GB, and how these compare is not known"


@given(slow_hr=st.integers(1, 14), fast_hr=st.integers(1, 14))
@settings(max_examples=8, deadline=None)
def test_no_option_of_runs_on_two_types_costs_less_than_the_bound(slow_hr, fast_hr):
    fleet = build_fleet(runs(slow_hr, fast_hr, days=4).bundle(), SETTINGS)
    options = options_of(cases_of(fleet, SETTINGS, seed=7, market=MARKET)[RUNS], MARKET)
    bound = clairvoyant_bound(fleet, {0: options.evaluator}, MARKET)

    as_it_is = (
        sum(
            MARKET.rate(pool) * int(used.sum())
            for pool, used in zip(fleet.usage.pools, fleet.usage.node_seconds, strict=True)
        )
        // 3600
    )
    costs = [
        sum(MARKET.rate(pool) * int(used.sum()) // 3600 for pool, used in one.usage.items())
        for one in options.candidates
    ]
    assert min([as_it_is, *costs]) >= bound > 0


def test_a_plan_for_runs_on_two_types_keeps_what_it_claims():
    found = audit(runs().bundle(), SETTINGS, at=DAY)

    assert found.proof.after_micro_usd >= found.proof.clairvoyant_micro_usd > 0
    assert all(target.kept for target in found.proof.targets)


CHAT = "prod/chat"
FEWER = Deployment.of((replica_count.NAME, SetReplicas(replicas=4, before=6)))
LE_S = (0.5, 1.0, 2.0, np.inf)


def service(usual="g5.xlarge", other="p4d.24xlarge", others=2, tensor=0.2, dram=0.4):
    """Four replicas on a type of GPU and some on one node of another, at the same requests each, by day more than by night."""
    fleet = FleetRows(DAYS).node("other", other)
    for at in range(4):
        fleet.node(f"usual-{at}", usual)
    nodes = [("other", device) for device in range(others)] + [(f"usual-{at}", 0) for at in range(4)]
    for number, (node, device) in enumerate(nodes):
        fleet.hold(CHAT, node, [device], pod=f"chat-{number}", owner_kind="Deployment")
        fleet.use(CHAT, node, device, range(DAYS * 24), sm=0.5, util=0.9, tensor=tensor, dram=dram)
    fleet.demand(
        CHAT,
        lambda hour: 3600 * (2 + hour % 24 / 6),
        len(nodes),
        LE_S,
        lambda hour: (2000 + 100 * (hour % 24), 800, 100, 4),
    )
    fleet.workloads = {CHAT: {"kind": "serving"}}
    return fleet


def workload_of(rows):
    return build_fleet(rows.bundle(), SETTINGS).workload(CHAT)


def test_a_service_has_the_speed_of_its_slow_type_alone_once_it_stays_on_that():
    evaluator = evaluator_of(service())
    home = evaluator.case.workload.home_speed
    a100 = speed_on(evaluator.case.workload, MARKET.gpu("A10G"), MARKET.gpu("A100-SXM4-40GB"), SETTINGS.assumptions)

    # of six replicas that are measured together two are on the faster type, at the careful end of its speed
    assert home.low == pytest.approx(6 / (4 + 2 * a100.high))
    assert home.low < home.value <= 1.0
    assert evaluator.place(FEWER).speed.low == pytest.approx(home.low)
    assert evaluator.place(AS_IT_IS).speed.value == 1.0


def test_a_faster_usual_type_is_given_no_credit():
    home = home_speed(workload_of(service(usual="p5.48xlarge", other="g5.12xlarge", dram=0.85)), MARKET)

    assert home.value == home.low == home.high == 1.0


def test_one_type_of_gpu_is_the_one_that_was_measured():
    workload = workload_of(service(other="g5.12xlarge"))

    assert workload.held_gpu_seconds == {"A10G": 6 * DAYS * 24 * 3600.0}
    assert home_speed(workload, MARKET) == SAME_SPEED


def test_where_only_gpu_util_was_read_the_data_sheets_bound_the_speed():
    rows = service()
    for row in rows.rows["gpu_usage"]:
        row |= {name: None for name in row if name.startswith(("sm_active", "tensor_active", "dram_active"))}
    home = home_speed(workload_of(rows), MARKET)
    most = work_ratio(MARKET.gpu("A10G"), MARKET.gpu("A100-SXM4-40GB")).high

    assert home.low == pytest.approx(6 / (4 + 2 * most))


@settings(max_examples=20, deadline=None)
@given(others=st.integers(1, 4), tensor=st.floats(0.0, 0.8), dram=st.floats(0.0, 0.9))
def test_more_replicas_of_a_faster_type_never_make_the_slow_one_look_faster(others, tensor, dram):
    fewer, more = (
        home_speed(workload_of(service(others=number, tensor=tensor, dram=dram)), MARKET) for number in (1, others)
    )

    assert more.low <= fewer.low + 1e-9
    assert 0 < more.low <= more.value <= more.high <= 1.0


def test_what_is_emitted_counts_on_the_same_speed_as_what_was_replayed():
    fleet = build_fleet(service().bundle(), SETTINGS)
    facts = facts_of_fleet(fleet, SETTINGS, MARKET, owner_kinds={}, pools=())
    (known,) = facts.workloads

    assert resolve(known.home, FEWER).speed == evaluator_of(service()).place(FEWER).speed

"""A time to the first token is judged by first tokens wherever a plan judges it: the prechecks, the replay, the proof."""

from dataclasses import replace
from datetime import date

import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import BatchForm, SetBatchPolicy, UseSlots
from trimtab.deployment.placement import resolve
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import batching, sharing
from trimtab.plan.proof.proof_window import prove
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.replica_law import contended_law, replica_law
from trimtab.replay.outcomes.service_outcome import baseline_attained
from trimtab.tables.workloads import TargetMetric

SETTINGS = Settings()
NAME = "chat/api"
LE_S = (0.05, 0.25, 0.5, 1.0, 8.0, 16.0, float("inf"))
WHOLE = (0.0, 0.0, 0.0, 0.0, 0.7, 0.3, 0.0)
FIRST = (0.97, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0)
SLOWED = Estimate(value=0.9, low=0.8, high=1.0, basis=Basis.MODELLED)


def requests(hour):
    return 9_000 if 8 <= hour % 24 < 20 else 900


def bundle(days=7, first_tokens=True, limit_s=0.5, instance_type="g5.xlarge"):
    """Four GPUs that stream long answers, 97 % of which begin within a twentieth of a second."""
    rows = FleetRows(days)
    for number in range(4):
        rows.node(f"n{number}", instance_type).hold(NAME, f"n{number}", [0], owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(days * 24), sm=lambda hour: requests(hour) / 30_000)
    rows.demand(
        NAME,
        requests,
        4,
        LE_S,
        lambda hour: [requests(hour) * share for share in WHOLE],
        running=lambda hour: requests(hour) / 3600 * 7,
        first_tokens=(lambda hour: [requests(hour) * share for share in FIRST]) if first_tokens else None,
    )
    promised = [{"metric": "ttft", "quantile": 0.95, "limit_s": limit_s}]
    rows.workloads = {NAME: {"targets": [*promised, {"metric": "latency", "quantile": 0.95, "limit_s": 120}]}}
    return rows.bundle()


def case(**how):
    return cases_of(build_fleet(bundle(**how), SETTINGS), SETTINGS, seed=7)[NAME]


def ttft(attained):
    (one,) = [one for one in attained if one.target.metric is TargetMetric.TTFT]
    return one


def test_the_replay_holds_a_first_token_against_first_tokens():
    assert ttft(Evaluator(case=case()).outcome(AS_IT_IS).attained).frac == pytest.approx(1.0)


def test_the_replay_holds_it_against_the_whole_request_where_first_tokens_were_not_measured():
    assert ttft(Evaluator(case=case(first_tokens=False)).outcome(AS_IT_IS).attained).frac == 0.0


def test_history_kept_of_it_what_first_tokens_say():
    measured, unmeasured = case(limit_s=0.05), case(limit_s=0.05, first_tokens=False)

    assert baseline_attained(measured, measured.targets[0]) == pytest.approx(0.97)
    assert baseline_attained(unmeasured, unmeasured.targets[0]) == 0.0


def test_history_without_first_tokens_kept_nothing_that_can_be_told_where_the_law_has_them():
    learnt, later = case(), case(first_tokens=False)

    assert baseline_attained(replace(later, law=learnt.law), learnt.targets[0]) is None


def slot(shares, isolation=Isolation.HARDWARE, busy_frac=0.0, speed=SLOWED):
    shared = SharedPool(Pool("aws", "g5.xlarge", "us-east-1"), shares, isolation=isolation.value, busy_frac=busy_frac)
    return UseSlots(shared=shared, gpu="A10G", gpus_per_node=1, slots=1, memory_gib=5.0, speed=speed, work_speed=speed)


def test_a_slower_place_is_not_refused_for_whole_requests_that_take_longer():
    shared = Deployment.of((sharing.NAME, slot(2)))

    assert Evaluator(case=case()).hopeless(shared) is None
    assert "slower than the latency target allows" in Evaluator(case=case(first_tokens=False)).hopeless(shared)
    assert "slower than the latency target allows" in Evaluator(case=case(limit_s=0.04)).hopeless(shared)


def test_first_tokens_wait_for_their_turn_as_whole_requests_do():
    law = case().law

    turns = contended_law(law, slot(2, Isolation.TIME_SLICING, busy_frac=0.2))

    # a quarter of the requests meet the neighbour and take twice as long: of them, those that took 0.025 s alone are in time
    first = turns.ok_frac(0.05, metric=TargetMetric.TTFT)
    assert first[0] == pytest.approx(0.75 * 0.97 + 0.25 * 0.485)
    assert turns.ok_frac(8.0)[0] == pytest.approx(0.75 * 0.7 + 0.25 * 0.7 * 3 / 7)


def test_replayed_batches_hold_a_first_token_against_the_whole_request():
    measured = case()
    policy = SetBatchPolicy(
        form=BatchForm.GREEDY,
        max_batch=4,
        window_s=0.0,
        replicas=None,
        before=4,
        sizes=(1, 4),
        seconds=(0.5, 0.8),
        basis=Basis.CALIBRATED,
    )

    place = resolve(measured.workload, Deployment.of((batching.NAME, policy)))
    law, _ = replica_law(measured.law, place)

    assert law.ok_frac(1.0, metric=TargetMetric.TTFT).tolist() == law.ok_frac(1.0).tolist()


def test_the_proof_shows_first_tokens_before_and_after():
    history = bundle(days=9, instance_type="g5.12xlarge")  # each alone on a node for four
    whole = bundle_window(history)
    market = Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)
    fit, later = (build_fleet(history, SETTINGS, whole.part(first, hours)) for first, hours in ((0, 144), (144, 72)))

    planned = make_plan(fit, market, SETTINGS, seed=7, progress=lambda _stage, _share: None)
    shown = ttft(prove(planned, later, market, SETTINGS, seed=7).proof.targets)

    assert shown.before_frac == pytest.approx(1.0)
    assert shown.attained_frac >= shown.target.required_frac

"""A time per token is judged by times per token wherever a plan judges it; where none were measured, nothing is promised."""

from datetime import date

import numpy as np
import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicas
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import replica_count
from trimtab.plan.proof.proof_window import prove
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.service_outcome import baseline_attained
from trimtab.tables.workloads import TargetMetric

SETTINGS = Settings()
NAME = "chat/api"
LE_S = (0.02, 0.04, 0.08, 1.0, 60.0, float("inf"))


def requests(hour):
    return 9_000 if 8 <= hour % 24 < 20 else 900


def tokens(hour):
    """Most answers come at 20 to 40 ms a token by day, below 20 ms by night."""
    shares = (0.0, 0.99, 0.01, 0.0, 0.0, 0.0) if requests(hour) > 1000 else (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return [requests(hour) * share for share in shares]


def bundle(days=7, limit_s=0.04, measured=True, instance_type="g5.xlarge"):
    """Four GPUs at 30 % by day; whole requests may take two minutes, so that tokens are all that binds."""
    rows = FleetRows(days)
    for number in range(4):
        rows.node(f"n{number}", instance_type).hold(NAME, f"n{number}", [0], owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(days * 24), sm=lambda hour: requests(hour) / 30_000)
    rows.demand(
        NAME,
        requests,
        4,
        LE_S,
        lambda hour: [0.0, 0.0, 0.0, 0.0, requests(hour), 0.0],
        running=lambda hour: requests(hour) / 3600 * 7,
        per_token=tokens if measured else None,
    )
    targets = [{"metric": "latency", "quantile": 0.95, "limit_s": 120}]
    if limit_s is not None:
        targets.append({"metric": "tpot", "quantile": 0.95, "limit_s": limit_s})
    rows.workloads = {NAME: {"targets": targets, "min_replicas": 1}}
    return rows.bundle()


def case(**how):
    return cases_of(build_fleet(bundle(**how), SETTINGS), SETTINGS, seed=7)[NAME]


def per_token(attained):
    (found,) = [result for result in attained if result.target.metric is TargetMetric.TPOT]
    return found


def with_replicas(number):
    return Deployment.of((replica_count.NAME, SetReplicas(replicas=number, before=4)))


def test_history_is_held_against_its_own_times_per_token():
    kept, missed = case(), case(limit_s=0.02)

    assert baseline_attained(kept, kept.targets[1]) == pytest.approx(0.99, abs=0.005)
    assert baseline_attained(missed, missed.targets[1]) < 0.15
    assert per_token(Evaluator(case=kept).outcome(AS_IT_IS).attained).frac == pytest.approx(0.99, abs=0.01)


def test_a_number_of_replicas_is_refused_where_tokens_would_come_too_late():
    tight, loose = Evaluator(case=case()), Evaluator(case=case(limit_s=0.1))

    # with the headroom of plans, replicas are busier than they were, and their tokens later
    assert not tight.keeps_targets(with_replicas(4))
    assert tight.keeps_targets(with_replicas(6))
    assert loose.keeps_targets(with_replicas(4))


def test_a_limit_on_tokens_that_nobody_measured_is_promised_to_nobody():
    unmeasured = case(measured=False)

    assert all(target.metric is not TargetMetric.TPOT for target in unmeasured.targets)
    assert not unmeasured.law.ok_frac(10.0, metric=TargetMetric.TPOT).any()


def test_more_load_never_makes_tokens_come_sooner():
    law = case().law

    for limit_s in (0.01, 0.02, 0.03, 0.05, 1.0):
        assert np.all(np.diff(law.ok_frac(limit_s, metric=TargetMetric.TPOT)) <= 1e-12)


def test_beyond_the_load_seen_tokens_come_later_by_the_square_of_the_load_besides():
    law = case().law
    seen_load, at = law.per_token.load[-1], 90

    share = law.within_frac(0.045, metric=TargetMetric.TPOT)[at]

    # the limit that stands for 0.045 s at the load seen: between 0.02 and 0.04 s, where 99 % of its requests are
    stretch = (1 - 0.9 * law.gpu_frac) / (1 - seen_load * law.gpu_frac)
    limit_s = 0.045 * stretch * (seen_load / 0.9) ** 2
    assert 0.02 < limit_s < 0.04
    assert share == pytest.approx(0.99 * (limit_s - 0.02) / 0.02, abs=0.005)


def test_a_wait_in_the_queue_is_no_part_of_a_time_per_token():
    evaluator = Evaluator(case=case(limit_s=None))
    asked = Evaluator(case=case(limit_s=5.0))

    # what keeps the other targets keeps this one: tokens are never 5 s apart
    for number in (2, 3, 4):
        assert asked.keeps_targets(with_replicas(number)) == evaluator.keeps_targets(with_replicas(number))


def test_the_proof_shows_the_time_per_token_before_and_after():
    history = bundle(days=9, instance_type="g5.12xlarge")
    whole = bundle_window(history)
    market = Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)
    fit, later = (build_fleet(history, SETTINGS, whole.part(first, hours)) for first, hours in ((0, 144), (144, 72)))

    planned = make_plan(fit, market, SETTINGS, seed=7, progress=lambda _stage, _share: None)
    shown = per_token(prove(planned, later, market, SETTINGS, seed=7).proof.targets)

    assert shown.before_frac == pytest.approx(0.99, abs=0.005)
    assert shown.attained_frac >= shown.target.required_frac

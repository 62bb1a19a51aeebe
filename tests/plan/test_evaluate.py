"""What a judged outcome may leave out: nothing that decides whether an option is kept."""

from dataclasses import replace
from datetime import date

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.placement import Placement, resolve
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling, right_size
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

SETTINGS = Settings()


@pytest.fixture(scope="module")
def case():
    rows = FleetRows(7)
    for number in range(4):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(168), sm=0.3, util=0.4)
    hours = range(rows.days * 24)
    requests = [40_000 if 8 <= hour % 24 < 20 else 4_000 for hour in hours]
    slow = [0.04 if count > 10_000 else 0.01 for count in requests]
    rows.demand(
        "prod/api",
        lambda hour: requests[hour],
        4,
        le_s=(0.5, 1.0, 2.0, float("inf")),
        counts=lambda hour: [requests[hour] * share for share in (0.8, 0.2 - slow[hour], slow[hour], 0.0)],
        running=lambda hour: requests[hour] / 3600 * 0.3,
    )
    rows.workloads = {"prod/api": {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 1.0}]}}
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7).values()
    return case


@pytest.fixture(scope="module")
def options(case):
    market = Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)
    scalers = autoscaling.propose(case)[::5]
    sizes = right_size.propose(case.workload, market, SETTINGS.assumptions).fitting[::4]
    return [Deployment.of((right_size.NAME, size), (autoscaling.NAME, scaler)) for size in sizes for scaler in scalers]


def test_a_judged_outcome_misses_what_the_whole_one_misses_and_is_the_whole_one_where_all_is_kept(case, options):
    margin = SETTINGS.planning.target_margin_frac
    judging = Evaluator(case=case)
    kept = 0
    for deployment in options:
        judged, whole = judging.judged(deployment), Evaluator(case=case).outcome(deployment)
        assert bool(judged.missed(margin)) == bool(whole.missed(margin))
        bold = all(one.frac >= one.target.required_frac for one in whole.attained)
        assert bold == all(one.frac >= one.target.required_frac for one in judged.attained)
        assert not whole.stopped
        if bold:
            assert judged.on_demand.tolist() == whole.on_demand.tolist()
            place = resolve(case.workload, deployment)
            assert judged.usage(place).keys() == whole.usage(place).keys()
        if not judged.stopped:
            kept += 1
            assert judged.attained == whole.attained
    assert 0 < kept < len(options)


def test_what_was_stopped_is_replayed_whole_when_asked_for(case, options):
    evaluator = Evaluator(case=case)
    stopped = next(deployment for deployment in options if evaluator.judged(deployment).stopped)

    evaluator.forget_replays()

    assert not evaluator.outcome(stopped).stopped
    assert not evaluator.judged(stopped).stopped


def test_a_place_is_made_for_replays_once_for_all_scaling_there_and_only_where_one_asks(case, options, monkeypatch):
    made, as_replayed = [], Placement.as_replayed

    def counted(place, **how):
        made.append(place)
        return as_replayed(place, **how)

    monkeypatch.setattr(Placement, "as_replayed", counted)
    evaluator = Evaluator(case=case)

    for deployment in options:
        evaluator.hopeless(deployment)
    refused = len(made)
    least = [evaluator.least(deployment) for deployment in options]

    assert refused == 0
    assert len(made) == len({deployment.offering for deployment in options}) < len(options)
    for deployment, found in zip(options, least, strict=True):
        assert found.on_demand.tolist() == Evaluator(case=case).least(deployment).on_demand.tolist()


def test_a_rule_that_gives_slow_replicas_more_than_they_serve_is_refused_before_any_replay(case, options):
    (_, size), (_, rule) = options[0].changes
    unsure = replace(size, speed=Estimate(value=1.0, low=0.5, high=2.0, basis=Basis.CALIBRATED))
    told = replace(case, law=replace(case.law, tested=None), targets=())

    def said(target_frac):
        busier = replace(rule, policy=rule.policy._replace(target_frac=target_frac))
        return Evaluator(case=told).hopeless(Deployment.of((right_size.NAME, unsure), (autoscaling.NAME, busier)))

    assert said(0.5) is None
    assert "more than they serve" in said(0.55)

"""A service goes to zero where its owner allows it and something holds who comes first and wakes it, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from tests.fleets import FleetRows, at, few_machines
from tests.plan.fleets import make_plan

from trimtab.deployment.deployment import Deployment
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import scale_to_zero
from trimtab.levers.lever import JudgedWays, LeverRequest
from trimtab.levers.scale_to_zero import cooldowns_s, impossible, longest_idle_s
from trimtab.plan.proof.proof_window import prove
from trimtab.plan.proof.undeclared import undeclared
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.tables.workloads import TargetMetric
from trimtab.units import per_month, usd

SETTINGS = Settings()
NAME = "office/assistant"
LE_S = (0.5, 1.0, 2.0, float("inf"))
DAYS = 14
WAKES = {"query": "sum(rate(gateway_requests_total[2m]))", "hold_s": 900.0}
ALLOWED = {"min_replicas": 0, "wakes_on": WAKES, "cold_start_s": 180.0}
MOSTLY = [{"metric": "latency", "quantile": 0.9, "limit_s": 2.0}]


def by_day(minute):
    """Ten requests a minute from 9 to 14 h, and one alone at 2:30."""
    hour = minute // 60 % 24
    return 10.0 if 9 <= hour < 14 else float(minute % 1440 == 150)


def fleet(requests=by_day, step_min=1, **declared):
    return build_fleet(bundle(requests, step_min, **declared), SETTINGS)


def bundle(requests=by_day, step_min=1, **declared):
    """One replica of eight GPUs on a node of its own, asked by day and hardly at night, for two weeks."""
    rows = FleetRows(DAYS)
    rows.node("n", "p4d.24xlarge").hold(NAME, "n", range(8), owner_kind="Deployment")
    for gpu in range(8):
        rows.use(NAME, "n", gpu, range(DAYS * 24), sm=lambda hour: requests(hour * 60) / 40, dram=0.2)
    for minute in range(0, DAYS * 1440, step_min):
        came = sum(requests(minute + one) for one in range(step_min))
        rows.rows["demand"].append(
            {
                "workload": NAME,
                "start": at(minute / 60),
                "interval_s": 60.0 * step_min,
                "arrivals": came,
                "replicas_ready": 1.0,
                "running_mean": None,
                "latency_le_s": list(LE_S),
                "latency_count": [0.9 * came, 0.08 * came, 0.02 * came, 0.0],
                "ttft_le_s": None,
                "ttft_count": None,
            }
        )
    rows.workloads = {NAME: {"kind": "serving", **declared}}
    return rows.bundle()


def market():
    return Market(catalog=few_machines(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)


def ask_of(history):
    (case,) = cases_of(history, SETTINGS, seed=7).values()
    return LeverRequest(evaluator=Evaluator(case=case), market=market())


def ways(ask):
    return list(scale_to_zero.LEVER.ways(Deployment(), ask))


def test_nights_without_requests_cost_nothing_and_who_comes_first_is_late():
    ask = ask_of(fleet(targets=MOSTLY, **ALLOWED))

    way = ways(ask)[0]
    outcome = ask.evaluator.outcome(way)

    asleep = outcome.on_demand.reshape(DAYS, 24)[1:, [0, 1, *range(4, 9), *range(15, 24)]]
    assert (asleep == 0).all()
    (latency,) = [one for one in outcome.attained if one.target.metric is TargetMetric.LATENCY]
    came = DAYS * (5 * 60 * 10 + 1)
    # of a day's 3,001 requests: the one at night, and ten a minute for a start of 8 min and what then stands in the queue
    assert (came - came * latency.frac) / DAYS > 1 + 8 * 10
    assert ask.evaluator.keeps_targets(way)


def test_it_is_the_plan_where_it_pays_and_the_proof_bears_it_out():
    history = fleet(targets=MOSTLY, **ALLOWED)
    planned = make_plan(history, market(), SETTINGS, seed=7, progress=lambda _stage, _share: None)

    (action,) = [one for one in planned.plan.actions if one.lever == "scale-to-zero"]
    assert planned.plan.joint_saving_micro_usd > 0
    assert any("without any replica" in line.what for line in action.evidence)
    proof = prove(planned, history, market(), SETTINGS, seed=7).proof
    assert all(one.kept for one in proof.targets)

    awake = fleet(targets=MOSTLY, **{**ALLOWED, "min_replicas": 1})
    kept_up = make_plan(awake, market(), SETTINGS, seed=7, progress=lambda _stage, _share: None)
    assert planned.plan.after_micro_usd < kept_up.plan.after_micro_usd


def test_what_nobody_declared_is_priced_as_the_plan_in_which_it_is_declared():
    planned = make_plan(
        fleet(targets=MOSTLY, cold_start_s=180.0), market(), SETTINGS, seed=7, progress=lambda _stage, _share: None
    )
    found = undeclared(planned, market(), SETTINGS, lambda _stage, _share: None)

    (line,) = [one for one in found if one.permission == "min_replicas"]
    (fields,) = line.declarations.values()
    assert fields["min_replicas"] == 0
    assert "waits up to 8 min" in line.gives_up
    declared = fleet(targets=MOSTLY, cold_start_s=180.0, **fields)
    asleep = make_plan(declared, market(), SETTINGS, seed=7, progress=lambda _stage, _share: None)
    saves = per_month(usd(planned.plan.after_micro_usd - asleep.plan.after_micro_usd), DAYS * 24)
    assert 0 < line.saves_usd_mo <= saves * 1.001


@pytest.mark.parametrize(
    ("declared", "because"),
    [
        ({"min_replicas": 0}, "nothing wakes it"),
        ({**ALLOWED, "wakes_on": {**WAKES, "hold_s": 60.0}}, "held for 60 s"),
        ({**ALLOWED, "requests": lambda _: 10.0}, "somebody asks at least every"),
        ({**ALLOWED, "step_min": 60}, "are not known every 5 min"),
    ],
)
def test_what_cannot_go_to_zero_says_why_and_what_is_needed(declared, because):
    ask = ask_of(fleet(**declared))

    assert ways(ask) == []
    assert because in impossible(ask.case)
    nothing = JudgedWays(kept=(), candidates=(), missed={})
    assert because in scale_to_zero.LEVER.why_not(ask, nothing)


def test_nobody_goes_to_zero_without_a_word_of_its_owner():
    ask = ask_of(fleet(wakes_on=WAKES))

    assert ways(ask) == []
    assert scale_to_zero.LEVER.why_not(ask, JudgedWays(kept=(), candidates=(), missed={})) is None


def test_a_declared_limit_counts_who_wakes_it_and_what_nobody_declared_does_not():
    strict = [{"metric": "latency", "quantile": 0.999, "limit_s": 2.0}]
    declared, silent = ask_of(fleet(targets=strict, **ALLOWED)), ask_of(fleet(**ALLOWED))

    assert not any(declared.evaluator.keeps_targets(way) for way in ways(declared))
    assert any(silent.evaluator.keeps_targets(way) for way in ways(silent))


def test_a_replica_that_starts_is_not_given_up_before_it_is_ready():
    for start_s in (30.0, 300.0, 1234.0):
        assert cooldowns_s(start_s)[0] >= max(start_s + 60, 300)


def test_a_gap_in_the_counts_is_no_idle_time():
    service = ask_of(fleet(**ALLOWED)).case.workload.service

    assert longest_idle_s(service) == 750 * 60  # from 14:00 to 2:30
    assert longest_idle_s(replace(service, arrivals=np.where(service.arrivals == 0, np.nan, 1.0))) == 0

"""Other windows of scaling down: tried on the autoscaler that was chosen, taken where they save enough and keep the targets."""

import math
from dataclasses import replace

from tests.fleets import FleetRows, at, few_machines

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers.autoscaling import TARGET_LOADS, other_windows
from trimtab.plan import needed_replays
from trimtab.plan.planner import plan_of
from trimtab.plan.proof.proof_window import prove
from trimtab.plan.prospects import judge
from trimtab.policies.forecast import forecast_policy
from trimtab.policies.scaling import HpaPolicy

SETTINGS = Settings()
NAME = "shop/search"
DAYS, REPLICAS = 4, 12
LE_S = (0.5, 1.0, 2.0, float("inf"))


def fleet(wave_min):
    """Twelve replicas of one GPU; requests rise and fall in waves of so many minutes."""
    rows = FleetRows(DAYS)
    rows.workloads = {NAME: {"kind": "serving", "min_replicas": 1, "cold_start_s": 30.0, "isolation": "hardware"}}
    rows.workloads[NAME]["targets"] = [{"metric": "latency", "quantile": 0.9, "limit_s": 2.0}]

    def rate(minute):
        return 300.0 * (1.0 + 0.8 * math.sin(2 * math.pi * minute / wave_min))

    for number in range(REPLICAS):
        rows.node(f"n{number}", "g5.xlarge").hold(NAME, f"n{number}", [0], owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(DAYS * 24), sm=300 / 60 / REPLICAS, dram=0.2)
    for minute in range(DAYS * 1440):
        rows.rows["demand"].append(
            {
                "workload": NAME, "start": at(minute / 60), "interval_s": 60.0, "arrivals": rate(minute),
                "replicas_ready": float(REPLICAS), "running_mean": None, "latency_le_s": list(LE_S),
                "latency_count": [0.95 * rate(minute), 0.05 * rate(minute), 0.0, 0.0], "ttft_le_s": None, "ttft_count": None,
            }
        )  # fmt: skip
    return build_fleet(rows.bundle(), SETTINGS)


def market():
    return Market(catalog=few_machines(), at=None, max_term_years=0, assumptions=SETTINGS.assumptions)


def planned(wave_min):
    prospects = judge(fleet(wave_min), market(), SETTINGS, seed=7, progress=lambda _stage, _share: None)
    return plan_of(prospects, lambda _stage, _share: None)


def rule(**said):
    return SetReplicaPolicy(policy=HpaPolicy(0.5, 1, 9, **said), metric="requests")


def test_a_rule_is_tried_with_a_short_window_and_hotter_with_a_long_one():
    short, long = other_windows(rule())

    assert short == rule(down_stabilization_s=60)
    assert long == replace(rule(down_stabilization_s=900), policy=long.hpa._replace(target_frac=0.55))
    assert long.hpa.down_stabilization_s == 900


def test_at_the_highest_load_there_is_no_hotter_rule():
    hottest = SetReplicaPolicy(policy=HpaPolicy(TARGET_LOADS[-1], 1, 9), metric="requests")

    assert [other.hpa.down_stabilization_s for other in other_windows(hottest)] == [60]


def test_what_has_another_window_already_or_follows_a_forecast_is_not_tried():
    forecast = forecast_policy(
        cold_start_s=60.0, mean_req_s=1.0, min_replicas=1, max_replicas=9, target_frac=0.5, required_frac=0.95,
        tolerance_frac=0.05,
    )  # fmt: skip

    assert other_windows(rule(down_stabilization_s=60)) == ()
    assert other_windows(SetReplicaPolicy(policy=forecast, metric="requests")) == ()


def windows(wave_min):
    plan = planned(wave_min)
    return plan, plan.deployments[NAME].scaling.hpa.down_stabilization_s


def test_a_window_that_saves_enough_is_the_plan_and_keeps_its_targets(monkeypatch):
    quick, quick_s = windows(180)
    monkeypatch.setattr(needed_replays, "WINDOW_GAIN_FRAC", 1.0)
    usual, usual_s = windows(180)

    assert (quick_s, usual_s) == (60, 300)
    assert quick.plan.after_micro_usd <= 0.98 * usual.plan.after_micro_usd
    assert "scaled down after 1 min below it" in quick.deployments[NAME].scaling.describe()
    assert all(target.kept for target in prove(quick, fleet(180), market(), SETTINGS, seed=7).proof.targets)
    # one more way was let through
    assert quick.plan.options == usual.plan.options + 1


def test_a_window_that_uses_up_a_target_s_slack_is_not_taken(monkeypatch):
    slow, slow_s = windows(120)
    monkeypatch.setattr(needed_replays, "SLACK_LEFT_FRAC", -9.0)
    bold, bold_s = windows(120)
    kept = [
        all(target.kept for target in prove(plan, fleet(120), market(), SETTINGS, seed=7).proof.targets)
        for plan in (slow, bold)
    ]

    assert (slow_s, bold_s) == (300, 60)
    assert kept == [True, False]


def test_a_window_that_saves_little_is_not_taken():
    assert windows(720)[1] == 300

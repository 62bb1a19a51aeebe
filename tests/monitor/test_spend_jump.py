"""The alert on spend, over weeks of a real Prometheus engine: a jump is found within a day, weekends are none."""

import numpy as np
import pytest
from benchmarks.alerts import surprise
from tests.monitor.fleet import WATCHED, Style, gpu

from trimtab.monitor.alerts import alert_rules
from trimtab.monitor.watched import Thresholds

# the rule's own expression: promtool evaluates groups in any order, and an alert could see the records of the step before
RULE = next(rule for rule in alert_rules(WATCHED, Thresholds()) if rule.name == "TrimtabSpendJump")
DAYS = 31
STEP_MIN = 60
WORKDAY = DAYS * 24 * 60 // STEP_MIN


def week_of_gpus(jump_day=None, factor=2):
    """Series of six GPUs that are there from Monday to Friday and two at weekends; `factor` times as many after a jump."""
    steps = range(WORKDAY)
    day_of = [step * STEP_MIN // (24 * 60) for step in steps]
    for number in range(6 * factor):
        values = []
        for day in day_of:
            there = 2 if day % 7 >= 5 else 6
            there *= factor if jump_day is not None and day >= jump_day else 1
            values.append("0.5" if number < there else "_")
        pod = (f"chat-api-{number}", "prod") if number < 6 else (f"sweep-{number}", "ml")
        readings = dict.fromkeys(("sm_occupancy", "temperature_c", "power_w", "reasons"))
        memory = " ".join("1000" if value != "_" else "_" for value in values)
        yield from gpu(
            Style(), "n0", number, *pod, **readings, sm_active=" ".join(values), used_mib=memory, free_mib=memory
        )


def alert(eval_time, **series):
    return {
        "interval": f"{STEP_MIN}m",
        "input_series": list(week_of_gpus(**series)),
        "promql_expr_test": [
            {
                "expr": f"count({RULE.expression}) or vector(0)",
                "eval_time": time,
                "exp_samples": [{"labels": "{}", "value": value}],
            }
            for time, value in eval_time.items()
        ],
    }


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({}, {"524h": 0, "548h": 0, "572h": 0, "644h": 0, "668h": 0}),
        ({"jump_day": 23}, {"551h": 0, "576h": 1}),
    ],
    ids=["weeks alike", "a jump on the 24th day"],
)
def test_a_jump_is_found_within_a_day_and_weekends_are_none(series, expected, promtool):
    run = promtool(alert(expected, **series), evaluated=f"{STEP_MIN}m", of=RULE.expression)

    assert run.returncode == 0, (run.stdout + run.stderr)[-2000:]


def test_the_benchmarks_twin_is_surprised_as_the_rules_are(promtool):
    gpus = [2 if day % 7 >= 5 else 6 for day in range(DAYS)]
    spend = np.repeat([count * (2 if day >= 23 else 1) for day, count in enumerate(gpus)], 24).astype(float)
    part, _ = surprise(spend)
    moments = (500, 530, 560, 576, 600)
    test = {
        "interval": f"{STEP_MIN}m",
        "input_series": list(week_of_gpus(jump_day=23)),
        "promql_expr_test": [
            {
                # a range of a day holds the samples at both its ends
                "expr": f"abs(trimtab:fleet_day_surprise_frac - {part[hour - 1]:.4f}) < bool 0.04",
                "eval_time": f"{hour}h",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for hour in moments
        ],
    }

    run = promtool(test, evaluated=f"{STEP_MIN}m", of=RULE.expression)

    assert len({round(part[hour - 1], 1) for hour in moments}) >= 3
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]

"""Generated weeks for alerts: samples are written as promtool reads them, and what fired is read back from what it says."""

import numpy as np
import pytest
from benchmarks.alert_scores import alerts_fired, scored_weeks, summary
from benchmarks.alert_weeks import FAULTS, WEEK_S, drawn_week, run_lengths, week_series
from hypothesis import given, strategies as st

from trimtab.monitor.watched import Thresholds

HOT = {"groups": [{"name": "all", "rules": [{"alert": "Hot", "expr": "temperature > 83", "for": "30m"}]}]}


def expanded(text):
    """Samples as promtool expands `axn` (n + 1 samples) and `_xn` (n that are missing)."""
    found = []
    for run in text.split(" "):
        value, length = run.split("x")
        found += [np.nan] * int(length) if value == "_" else [float(value)] * (int(length) + 1)
    return np.array(found)


@given(st.lists(st.sampled_from([0.0, 0.25, 7.0, np.nan]), min_size=1, max_size=50))
def test_runs_are_the_samples(values):
    np.testing.assert_array_equal(expanded(run_lengths(np.array(values))), np.array(values))


@pytest.mark.parametrize("alert", FAULTS)
def test_a_drawn_week_holds_its_fault_and_is_the_same_again(alert):
    week, planted = drawn_week(np.random.default_rng(1), alert, Thresholds())
    again, _ = drawn_week(np.random.default_rng(1), alert, Thresholds())

    series = list(week_series(week))

    assert series == list(week_series(again))
    assert planted.alert == alert
    assert 0 < planted.start_s < planted.end_s < WEEK_S
    assert {len(expanded(found["values"])) for found in series} == {WEEK_S // week.interval_s}


def test_what_fired_is_read_back_with_its_first_and_last_moment(promtool_bin):
    values = np.full(WEEK_S // 60, 60.0)
    values[600:900] = 90.0
    series = [{"series": 'temperature{gpu="0"}', "values": run_lengths(values)}]

    (fired,) = alerts_fired(series, 60, 10, HOT)

    assert (fired.alert, fired.labels["gpu"]) == ("Hot", "0")
    assert (fired.first_s, fired.last_s) == (630 * 60, 890 * 60)


def test_nothing_is_scored_of_no_weeks():
    assert summary(scored_weeks(0, 1, 10, 1))["weeks"] == 0

"""A canary against the present: the rule decides as stated, and intervals cover what they claim."""

import numpy as np
import pytest

from trimtab.diagnose.canary import CanaryRule, CanaryVerdict, compare, run_of

RULE = CanaryRule()


def run(seed, *, scale=1.0, rate=20.0, seconds=600.0, lost=0.0, usd_hr=None):
    """Requests by a clock that is drawn at random, latencies lognormal."""
    rng = np.random.default_rng(seed)
    start = np.sort(rng.uniform(0, seconds, round(rate * seconds)))
    latency = rng.lognormal(0.0, 0.5, len(start)) * scale
    failed = (rng.uniform(size=len(start)) < lost).astype(float)
    return run_of("run", latency, start, failed, usd_hr)


def by_name(found):
    return {one.what: one for one in found.contrasts}


def test_the_same_again_and_cheaper_is_promoted():
    found = compare(run(1, usd_hr=10.0), run(2, usd_hr=8.0), RULE, seed=7)

    assert found.verdict is CanaryVerdict.PROMOTE
    assert by_name(found)["$/request"].canary / by_name(found)["$/request"].present == pytest.approx(0.8, rel=0.01)


def test_a_p99_far_above_is_rolled_back_and_named():
    found = compare(run(1), run(2, scale=1.5), RULE, seed=7)

    assert found.verdict is CanaryVerdict.ROLL_BACK
    assert any("p99" in why for why in found.because)


def test_a_canary_that_has_seen_little_is_held():
    assert compare(run(1), run(2, seconds=8.0), RULE, seed=7).verdict is CanaryVerdict.HOLD


def test_fewer_requests_a_second_count_unless_the_traffic_was_split():
    assert compare(run(1), run(2, rate=10.0), RULE, seed=7).verdict is CanaryVerdict.ROLL_BACK
    assert compare(run(1), run(2, rate=10.0), CanaryRule(throughput=False), seed=7).verdict is CanaryVerdict.PROMOTE


def test_more_failures_are_rolled_back_however_quick_the_rest():
    assert compare(run(1), run(2, lost=0.05), RULE, seed=7).verdict is CanaryVerdict.ROLL_BACK


def test_a_canary_that_is_surely_dearer_is_rolled_back():
    assert compare(run(1, usd_hr=10.0), run(2, usd_hr=11.0), RULE, seed=7).verdict is CanaryVerdict.ROLL_BACK


def test_the_same_seed_gives_the_same_intervals():
    assert compare(run(1), run(2), RULE, seed=3) == compare(run(1), run(2), RULE, seed=3)


def test_intervals_of_two_runs_of_the_same_kind_hold_the_truth_nearly_always():
    held = [
        by_name(compare(run(2 * seed, rate=5.0), run(2 * seed + 1, rate=5.0), RULE, seed=seed))["p99 latency, s"]
        for seed in range(40)
    ]

    assert sum(one.low <= 1 <= one.high for one in held) >= 34

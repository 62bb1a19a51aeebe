import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.sources.demo.demand import LATENCY_LE_S, DemoService, LatencyLaw, answer


def _service(**changes):
    given = {
        "workload": "a/b",
        "team": "t",
        "replicas": 2,
        "requests_per_day": 86_400.0,
        "mean_util_frac": 0.25,
        "latency": LatencyLaw(base_s=0.2),
    }
    return DemoService(**(given | changes))


def test_capacity_follows_from_demand_and_mean_use():
    assert _service().capacity_req_s == pytest.approx(1 / 2 / 0.25)


@given(st.lists(st.integers(0, 600), min_size=1, max_size=50))
def test_a_backlog_is_answered_first_and_nothing_is_lost(arrivals):
    capacity, backlog, expected = 240, 0, []
    for arrived in arrivals:
        done = min(backlog + arrived, capacity)
        backlog += arrived - done
        expected.append(done)

    served = answer(_service(), np.array(arrivals, dtype=float), np.random.default_rng(0))

    np.testing.assert_allclose(served.columns["completed"], expected)
    np.testing.assert_allclose(served.latency_count.sum(axis=1), expected)


def test_latency_grows_smoothly_with_load_and_steeply_near_saturation():
    law = LatencyLaw(base_s=1.0)
    idle, half, full = law.median_s(np.array([0.0, 0.5, 0.97]))

    assert idle == pytest.approx(1.0)
    assert half == pytest.approx(1.125)
    assert full == pytest.approx((1 + 0.5 * 0.97**2) * 10)


def test_buckets_hold_the_law_of_a_lognormal():
    law = LatencyLaw(base_s=1.0, load_gain=0.0, sigma=0.35)
    fracs = law.bucket_fracs(np.array([0.1]), LATENCY_LE_S)[0]

    assert fracs.sum() == pytest.approx(1.0)
    assert fracs[: LATENCY_LE_S.index(1.0) + 1].sum() == pytest.approx(0.5, abs=1e-6)


def test_a_minute_with_a_backlog_gives_no_fast_answers():
    served = answer(_service(), np.array([100.0, 900.0]), np.random.default_rng(0))

    fast = LATENCY_LE_S.index(6.0)
    assert served.latency_count[1, : fast + 1].sum() == 0
    assert served.columns["waiting_mean"][1] > 600

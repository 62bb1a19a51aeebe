"""A replica that serves several requests at once: against closed forms, the interpreted batcher, and itself."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.deployment.effects import BatchForm
from trimtab.physics.colocation import BatchCurve
from trimtab.provenance import Basis
from trimtab.replay.batches import replay_batches
from trimtab.replay.outcomes.replica_law import (
    BatchSpeed,
    batch_latencies,
    batched_law,
    replayed_latencies,
    stream_latencies,
)
from trimtab_runtime.policies.batching import BatchRule

CURVE = BatchCurve(sizes=(1, 2, 4, 8, 16), seconds=(0.85, 0.92, 1.06, 1.34, 1.90))
STEADY = BatchSpeed(curve=CURVE, spread=0.0)


def times(curve, most):
    return np.array([0.0, *(curve.run_s(size) for size in range(1, most + 1))])


def poisson(rate, count=4_000):
    return np.cumsum(np.random.default_rng(3).standard_exponential(count)) / rate


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_at_a_time_waits_as_a_queue_with_fixed_service_does(load):
    service_s = 0.85
    expected_s = service_s + load * service_s / (2 * (1 - load))  # M/D/1 (Pollaczek-Khinchine)

    latency_s = replayed_latencies(BatchForm.GREEDY, 1, 0.0, STEADY, load / service_s)

    assert latency_s.mean() == pytest.approx(expected_s, rel=0.05)


@pytest.mark.parametrize(("most", "use", "draws"), [(4, 0.5, 1), (8, 0.8, 12), (16, 0.9, 24)])
def test_whole_batches_wait_as_bulk_service_does(most, use, draws):
    """M/M(1,b)/1 (Bailey 1954): waiting is geometric with the root of r^(b+1) - (l + 1) r + l = 0 in (0, 1), service mean 1."""
    rate = most * use
    low, high = 0.0, 1.0 - 1e-6
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle ** (most + 1) - (rate + 1) * middle + rate > 0 else (low, middle)
    busy_none_waiting = 1 / (1 / rate + 1 / (1 - low))
    expected_s = busy_none_waiting * low / (1 - low) ** 2 / rate + 1

    found = [bulk_latency_s(most, rate, seed) for seed in range(draws)]

    assert np.mean(found) == pytest.approx(expected_s, rel=0.01)


def bulk_latency_s(most, rate, seed, count=2_000_000):
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.standard_exponential(count))
    arrival_s *= count / rate / arrival_s[-1]
    latency_s = np.empty(count)
    batch_latencies(arrival_s, rng.standard_exponential(count), np.ones(most + 1), 1, 0.0, latency_s)
    return latency_s[count // 20 :].mean()


def test_batches_are_those_of_the_batcher_that_the_runtime_ships():
    arrival_s = poisson(4.0)
    latency_s = np.empty(len(arrival_s))

    batch_latencies(arrival_s, np.ones(len(arrival_s)), times(CURVE, 8), 1, 0.0, latency_s)

    shipped = replay_batches(arrival_s.tolist(), BatchRule(max_batch=8, learn=False), CURVE)
    assert latency_s == pytest.approx(np.array(shipped.latencies_s))


def test_full_batches_wait_for_their_window_as_the_shipped_batcher_does():
    arrival_s = poisson(2.0)
    latency_s = np.empty(len(arrival_s))

    batch_latencies(arrival_s, np.ones(len(arrival_s)), times(CURVE, 8), 8, 1.5, latency_s)

    rule = BatchRule(max_batch=8, min_batch=8, window_s=1.5, learn=False)
    assert latency_s == pytest.approx(np.array(replay_batches(arrival_s.tolist(), rule, CURVE).latencies_s))


def test_a_stream_of_one_place_is_a_queue():
    arrival_s = poisson(1.0)
    work = np.random.default_rng(5).lognormal(0, 0.3, len(arrival_s))
    latency_s, expected_s = np.empty(len(arrival_s)), np.empty(len(arrival_s))
    stream_latencies(arrival_s, work, times(CURVE, 1), latency_s)

    batch_latencies(arrival_s, work, times(CURVE, 1), 1, 0.0, expected_s)

    assert latency_s == pytest.approx(expected_s)


def test_two_requests_that_overlap_share_a_stream():
    latency_s = np.empty(2)

    stream_latencies(np.array([0.0, 1.0]), np.ones(2), np.array([0.0, 2.0, 4.0]), latency_s)

    # alone for 1 s (half done); both for 2 s (the first done at 3 s); the second, half done, alone for 1 s
    assert latency_s.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("form", [BatchForm.GREEDY, BatchForm.CONTINUOUS])
def test_compiled_and_interpreted_loops_give_the_same_bytes(form):
    arrival_s, work = poisson(3.0, 500), np.ones(500)
    ours, plain = np.empty(500), np.empty(500)
    if form is BatchForm.GREEDY:
        batch_latencies(arrival_s, work, times(CURVE, 4), 1, 0.0, ours)
        batch_latencies.py_func(arrival_s, work, times(CURVE, 4), 1, 0.0, plain)
    else:
        stream_latencies(arrival_s, work, times(CURVE, 4), ours)
        stream_latencies.py_func(arrival_s, work, times(CURVE, 4), plain)

    assert ours.tobytes() == plain.tobytes()


@settings(max_examples=10, deadline=None)
@given(
    form=st.sampled_from(BatchForm),
    most=st.sampled_from([2, 4, 16]),
    limit_s=st.floats(0.5, 12.0),
    spread=st.sampled_from([0.0, 0.3]),
)
def test_more_load_is_never_faster_and_a_longer_limit_never_worse(form, most, limit_s, spread):
    law = batched_law(form, most, 0.5, BatchSpeed(curve=CURVE, spread=spread), Basis.CALIBRATED)

    ok = law.ok_frac(limit_s)

    assert np.all(np.diff(ok) <= 1e-12)
    assert np.all(law.ok_frac(2 * limit_s) >= ok - 1e-12)


def test_a_batch_of_sixteen_serves_seven_times_as_much():
    law = batched_law(BatchForm.GREEDY, 16, 0.0, STEADY, Basis.CALIBRATED)

    assert law.capacity_req_s / (1 / 0.85) == pytest.approx(16 / 1.90 * 0.85)


def test_at_full_load_a_request_takes_the_batch_before_it_and_its_own():
    law = batched_law(BatchForm.GREEDY, 16, 0.0, STEADY, Basis.CALIBRATED)

    assert law.full_batch_s == pytest.approx(3.8)
    assert law.ok_frac(3.7)[-1] == 0
    assert law.ok_frac(30.0)[-1] > 0.99

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.sources.demo.quad_a100 import finish_times, mean_open, observe, play

QUEUE = st.lists(st.tuples(st.floats(0, 600), st.floats(0.01, 90)), min_size=1, max_size=40)


@given(QUEUE)
def test_a_single_server_finishes_each_request_after_the_one_before(requests):
    arrival = np.sort([request[0] for request in requests])
    service = np.array([request[1] for request in requests])

    expected, free = [], 0.0
    for at, lasts in zip(arrival, service, strict=True):
        free = max(free, at) + lasts
        expected.append(free)

    np.testing.assert_allclose(finish_times(arrival, service), expected, rtol=1e-9, atol=1e-6)


@given(QUEUE)
def test_open_intervals_add_up_to_their_lengths(requests):
    start = np.array([request[0] for request in requests])
    end = start + np.array([request[1] for request in requests])

    assert mean_open(start, end, 12).sum() * 60 == pytest.approx((end - start).sum())


def test_an_interval_over_two_minutes_counts_in_both_and_not_beyond_the_window():
    start, end = np.array([45.0, 100.0]), np.array([75.0, 500.0])

    np.testing.assert_allclose(mean_open(start, end, 2), [15 / 60, (15 + 20) / 60])


def test_answers_are_never_more_than_requests_and_fall_in_one_bucket_each():
    played = play(np.full(600, 30.0), 0.9, 0.3, 2, np.random.default_rng(1))

    served = observe(played, 600, 100.0, 10.0)

    arrived, done = served.columns["arrivals"], served.columns["completed"]
    assert (np.cumsum(done) <= np.cumsum(arrived)).all()
    np.testing.assert_array_equal(served.latency_count.sum(axis=1), done)
    assert served.columns["running_mean"].max() <= 2.0

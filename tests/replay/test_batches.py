"""A batcher replayed: the runtime's own rule on recorded arrivals and a measured curve."""

import math
import random
from bisect import bisect_right, insort

import pytest

from trimtab.errors import InputError
from trimtab.physics.colocation import BatchCurve
from trimtab.replay.batches import Replay, replay_batches
from trimtab_runtime.policies.batching import BatchRule

CURVE = BatchCurve(sizes=(1, 64), seconds=(0.0051, 0.0114))
GREEDY = BatchRule(learn=False)


def poisson(rate_req_s, number, seed=1):
    rng = random.Random(seed)
    arrivals, now = [], 0.0
    for _ in range(number):
        now += rng.expovariate(rate_req_s)
        arrivals.append(now)
    return arrivals


def closed_loop_req_s(rule, *, clients, first_return_s, spacing_s, horizon_s=5.0):
    """Serve clients that each return a while after their answer; return their throughput."""
    arrivals = [number * spacing_s for number in range(clients)]
    replay = Replay(arrivals, rule, CURVE.run_s)
    first, free_s, answered = 0, 0.0, 0
    while free_s < horizon_s:
        start_s = replay.dispatch_s(first, free_s)
        last = min(bisect_right(arrivals, start_s, lo=first), first + rule.max_batch)
        run_s = CURVE.run_s(last - first)
        free_s = start_s + run_s
        for number in range(last - first):
            insort(arrivals, free_s + first_return_s + number * spacing_s, lo=last)
        replay.answer(last - first, run_s, free_s, last)
        answered, first = answered + last - first, last
    return answered / free_s


@pytest.mark.parametrize(
    ("rate_req_s", "p50_ms", "p95_ms", "p99_ms"),
    [(561.4, 8.0, 10.5, 10.8), (2807, 10.5, 13.9, 14.7), (4491, 13.7, 18.3, 19.6)],
)
def test_greedy_agrees_with_an_independent_simulation(rate_req_s, p50_ms, p95_ms, p99_ms):
    # the figures are those of an independent discrete-event program for s(b) = 5 ms + 0.1 ms b, b <= 64
    replayed = replay_batches(poisson(rate_req_s, 60_000), GREEDY, CURVE)

    found = [replayed.latency_s(share) * 1e3 for share in (0.50, 0.95, 0.99)]
    assert found == pytest.approx([p50_ms, p95_ms, p99_ms], rel=0.03)


@pytest.mark.parametrize("rate_req_s", [112, 561, 2807, 4491, 5333])
def test_learned_waits_leave_independent_arrivals_alone(rate_req_s):
    arrivals = poisson(rate_req_s, 20_000)

    assert replay_batches(arrivals, BatchRule(), CURVE) == replay_batches(arrivals, GREEDY, CURVE)


def test_learned_waits_join_the_two_cohorts_of_a_closed_loop():
    slow_clients = {"clients": 32, "first_return_s": 0.0004, "spacing_s": 25e-6}

    greedy = closed_loop_req_s(GREEDY, **slow_clients)
    learned = closed_loop_req_s(BatchRule(), **slow_clients)

    # one cohort takes 8.2 ms + 0.4 ms + 32 x 25 us a round, two cohorts at least 13.2 ms
    assert greedy == pytest.approx(32 / 0.0132, rel=0.02)
    assert learned == pytest.approx(32 / 0.0094, rel=0.02)


def test_one_client_is_never_made_to_wait():
    one = {"clients": 1, "first_return_s": 0.0004, "spacing_s": 0.0}

    assert closed_loop_req_s(BatchRule(), **one) == pytest.approx(1 / 0.0055, rel=0.001)


def test_bursts_are_waited_for_when_they_come_again_and_again():
    bursts = [start * 0.05 + number * 0.0001 for start in range(500) for number in range(8)]

    greedy = replay_batches(bursts, GREEDY, CURVE)
    learned = replay_batches(bursts, BatchRule(), CURVE)

    assert greedy.mean_batch == 4
    assert learned.mean_batch > 7.5
    assert learned.latency_s(0.5) < greedy.latency_s(0.5)


def test_a_window_waits_and_costs_latency_but_saves_device_time():
    arrivals = poisson(561.4, 20_000)

    window = replay_batches(arrivals, BatchRule(min_batch=64, window_s=0.010, learn=False), CURVE)
    greedy = replay_batches(arrivals, GREEDY, CURVE)

    assert window.busy_s < 0.6 * greedy.busy_s
    assert window.latency_s(0.95) == pytest.approx(0.0158, rel=0.03)


def test_the_curve_is_linear_between_and_beyond_its_points():
    assert CURVE.run_s(1) == pytest.approx(0.0051)
    assert CURVE.run_s(32) == pytest.approx(0.0082)
    assert CURVE.run_s(128) == pytest.approx(0.0178)


@pytest.mark.parametrize(
    ("sizes", "seconds"), [((1,), (1.0,)), ((2, 1), (1.0, 2.0)), ((1, 2), (1.0, 0.0)), ((1, 2), (1.0, math.inf))]
)
def test_a_curve_that_makes_no_sense_is_refused(sizes, seconds):
    with pytest.raises(InputError):
        BatchCurve(sizes=sizes, seconds=seconds)


def test_no_arrivals_are_an_error():
    with pytest.raises(InputError, match="no arrivals"):
        replay_batches([], GREEDY, CURVE)

"""Request by request: queueing theory's closed forms, slots that come and go, bytes."""

import math

import numpy as np
import pytest
from benchmarks.reference import requests
from benchmarks.reference.requests import RequestHistory, replay_requests

from trimtab.policies.scaling import HpaPolicy, StaticReplicas


def poisson(rate, count, service_s, seed=0):
    rng = np.random.default_rng(seed)
    return RequestHistory(arrival_s=np.cumsum(rng.exponential(1 / rate, count)), service_s=service_s(rng, count))


def waits(history, slots):
    result = replay_requests(history, StaticReplicas(1), slots_per_replica=slots, cold_start_s=0.0, initial_replicas=1)
    served = result.wait_s[~np.isnan(result.wait_s)]
    return served[len(served) // 20 :]


def scaled(history, rate):
    """Return the same history at exactly this rate, with a mean service time of exactly 1 s."""
    count = len(history.arrival_s)
    return RequestHistory(
        arrival_s=history.arrival_s * (count / rate / history.arrival_s[-1]),
        service_s=history.service_s / history.service_s.mean(),
    )


def erlang_c(servers, load):
    """The chance to wait in M/M/c (Erlang 1917)."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "use", "draws"), [(1, 0.6, 1), (4, 0.7, 1), (32, 0.9, 8)])
def test_m_m_c_waits_as_erlang_says(servers, use, draws):
    """At 32 servers, nine tenths busy, a draw of 3 M requests is off by 2.8 % by chance; scaled to the exact load, by 1.1 %."""
    means = [
        waits(
            scaled(poisson(servers * use, 3_000_000, lambda rng, n: rng.exponential(1.0, n), seed), servers * use),
            servers,
        ).mean()
        for seed in range(draws)
    ]
    expected = erlang_c(servers, servers * use) / (servers * (1 - use))

    assert np.mean(means) == pytest.approx(expected, rel=0.01)


def test_m_m_c_waits_are_distributed_as_erlang_says():
    history = poisson(2.8, 3_000_000, lambda rng, n: rng.exponential(1.0, n))
    found = waits(history, 4)
    chance = erlang_c(4, 2.8)

    for limit in (0.0, 0.5, 1.0, 2.0):
        assert (found > limit).mean() == pytest.approx(chance * math.exp(-1.2 * limit), rel=0.02)


@pytest.mark.parametrize("use", [0.5, 0.8])
def test_m_d_1_waits_as_pollaczek_and_khinchine_say(use):
    history = poisson(use, 3_000_000, lambda rng, n: np.ones(n))
    assert waits(history, 1).mean() == pytest.approx(use / (2 * (1 - use)), rel=0.01)


def test_new_slots_serve_after_the_cold_start_and_the_queue_moves_to_them():
    history = RequestHistory(arrival_s=np.arange(100) * 1.0, service_s=np.full(100, 10.0))

    result = replay_requests(history, StaticReplicas(10), slots_per_replica=1, cold_start_s=30.0, initial_replicas=1)

    assert result.replicas.tolist() == [1, 10, 10, 10, 10, 10, 10]
    # requests 0-4 begin on the one slot at 0, 10, 20, 30, 40; the nine others open at 45
    assert result.wait_s[:5].tolist() == [0, 9, 18, 27, 36]
    assert result.wait_s[5:14].tolist() == [40, 39, 38, 37, 36, 35, 34, 33, 32]


def test_a_slot_that_goes_finishes_its_request():
    history = RequestHistory(arrival_s=np.array([0.0, 1.0, 40.0]), service_s=np.array([100.0, 100.0, 1.0]))

    result = replay_requests(history, StaticReplicas(1), slots_per_replica=1, cold_start_s=0.0, initial_replicas=2)

    assert result.latency_s[:2].tolist() == [100.0, 100.0]
    assert result.replicas.tolist() == [2, 1, 1]


def test_the_compiled_engine_gives_the_bytes_of_the_interpreted_one(monkeypatch):
    history = poisson(20.0, 100_000, lambda rng, n: rng.lognormal(0.0, 0.5, n))

    def run():
        return replay_requests(
            history, HpaPolicy(0.7, 1, 50), slots_per_replica=2, cold_start_s=60.0, initial_replicas=3
        )

    compiled = run()
    monkeypatch.setattr(requests, "serve_requests", requests.serve_requests.py_func)
    interpreted = run()

    assert compiled.wait_s.tobytes() == interpreted.wait_s.tobytes()
    assert compiled.replicas.tobytes() == interpreted.replicas.tobytes()

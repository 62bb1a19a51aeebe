"""The batching optimum: brute force on small queues, control limits, and the replayed batcher above its bound."""

from itertools import product

import numpy as np
import pytest
from benchmarks.reference.batch_optimum import batching, best_at_price, least_device_s_req, policy_cost

from trimtab.physics.colocation import BatchCurve
from trimtab.replay.batches import replay_batches
from trimtab_runtime.policies.batching import BatchRule

CURVE = BatchCurve(sizes=(1, 2, 4, 8), seconds=(0.011, 0.012, 0.014, 0.018))


def process(rate=100.0, max_batch=3, states=6):
    return batching(CURVE.run_s, rate_req_s=rate, max_batch=max_batch, states=states)


@pytest.mark.parametrize("price", [0.01, 0.3, 3.0])
def test_policy_iteration_finds_what_brute_force_finds(price):
    small = process()
    choices = [[action for action in range(4) if small.allowed[queue, action]] for queue in range(6)]
    costs = []
    for actions in product(*choices):
        if actions[-1] == 0:
            continue
        found = policy_cost(small, actions)
        costs.append(found.device_s_req + price * found.latency_s)

    best = best_at_price(small, price)

    assert best.device_s_req + price * best.latency_s == pytest.approx(min(costs), rel=1e-9)


def test_the_best_policy_is_a_control_limit():
    found = best_at_price(process(rate=200.0, max_batch=8, states=80), 0.05)
    served = np.flatnonzero(found.actions > 0)

    assert served[0] > 1
    assert np.all(found.actions[served[0] :] > 0)
    assert found.actions[served[0] : 40].tolist() == [min(queue, 8) for queue in range(served[0], 40)]


def test_greedy_in_the_process_is_greedy_in_the_replay():
    rate = 250.0
    whole = process(rate=rate, max_batch=8, states=120)
    greedy = policy_cost(whole, [min(queue, 8) for queue in range(120)])
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / rate, 40_000))

    replayed = replay_batches(arrivals.tolist(), BatchRule(max_batch=8, learn=False), CURVE)

    assert np.mean(replayed.latencies_s) == pytest.approx(greedy.latency_s, rel=0.02)
    assert replayed.busy_s / 40_000 == pytest.approx(greedy.device_s_req, rel=0.01)


def test_no_rule_needs_less_device_time_than_the_bound():
    whole = process(rate=200.0, max_batch=8, states=80)
    greedy = policy_cost(whole, [min(queue, 8) for queue in range(80)])

    assert least_device_s_req(whole, latency_s=greedy.latency_s) <= greedy.device_s_req + 1e-12
    assert least_device_s_req(whole, latency_s=2 * greedy.latency_s) < greedy.device_s_req

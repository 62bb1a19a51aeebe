"""The best any batcher could do: a semi-Markov decision process over the queue, solved exactly.

Requests arrive as a Poisson stream; a batch of `b` takes `s(b)` seconds; whenever the device is free one may start a batch of
the oldest `b` requests or wait for the next arrival. The cost is device time and, at a price, the time that requests spend
in the system (after Xu, Sun, Zhou, Niu: "SMDP-based dynamic batching for efficient inference on GPU-based platforms", arXiv
2301.12865). For a target on mean latency, the dual over that price bounds from below what any rule needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.ledger.arrays import FloatArray, IntArray

Flags = NDArray[np.bool_]

ROUNDS = 60
PRICE_ROUNDS = 24
RESTART = 1e-9
"""Chance per action that the queue empties by itself: it makes every policy one chain, and changes nothing that is measured."""
PRICES = (1e-4, 1e3)
"""Device seconds that a second of latency may be worth; far beyond either end nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batching:
    """Transitions and costs of every action in every queue length `0..n_states - 1`; action 0 waits, action b serves b.

    The last queue length stands for itself and all longer ones. `hold_s` is the request-seconds that pass during an action.
    """

    rate_req_s: float
    next_state: FloatArray
    duration_s: FloatArray
    device_s: FloatArray
    hold_s: FloatArray
    allowed: Flags


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optimum:
    """A policy (action per queue length) and what it costs: device seconds and mean latency of a request."""

    actions: IntArray
    device_s_req: float
    latency_s: float


def batching(run_s: Callable[[int], float], *, rate_req_s: float, max_batch: int, states: int) -> Batching:
    """Return the decision process of a batch-time curve at an arrival rate; the queue is cut at `states`."""
    shape = (states, max_batch + 1)
    nexts = np.zeros((*shape, states))
    duration, device, hold, allowed = np.ones(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    for queue in range(states):
        wait_s = 1.0 / rate_req_s
        nexts[queue, 0, min(queue + 1, states - 1)] = 1.0
        duration[queue, 0], hold[queue, 0], allowed[queue, 0] = wait_s, queue * wait_s, queue < states - 1
        for batch in range(1, min(queue, max_batch) + 1):
            busy_s = run_s(batch)
            nexts[queue, batch] = _after(queue - batch, rate_req_s * busy_s, states)
            duration[queue, batch], device[queue, batch], allowed[queue, batch] = busy_s, busy_s, True
            hold[queue, batch] = queue * busy_s + rate_req_s * busy_s**2 / 2.0
    nexts *= 1.0 - RESTART
    nexts[:, :, 0] += RESTART
    return Batching(
        rate_req_s=rate_req_s, next_state=nexts, duration_s=duration, device_s=device, hold_s=hold, allowed=allowed
    )


def _after(left: int, mean: float, states: int) -> FloatArray:
    """Return the chances of each queue length after a Poisson number of arrivals."""
    counts = np.arange(states - left)
    logs = counts * math.log(mean) - mean - np.array([math.lgamma(count + 1) for count in counts])
    chances = np.zeros(states)
    chances[left:] = np.exp(logs)
    chances[-1] += max(0.0, 1.0 - chances.sum())
    return chances


def best_at_price(process: Batching, latency_price: float) -> Optimum:
    """Return the policy of least device time plus price x time in the system, by policy iteration."""
    cost = process.device_s + latency_price * process.hold_s
    states = len(cost)
    actions = np.array([int(np.flatnonzero(process.allowed[queue])[-1]) for queue in range(states)])
    for _ in range(ROUNDS):
        gain, values = _evaluate(process, cost, actions)
        worth = cost - gain * process.duration_s + process.next_state @ values
        worth = np.where(process.allowed, worth, np.inf)
        better = worth.argmin(axis=1)
        keep = worth[np.arange(states), actions] <= worth.min(axis=1) + 1e-12
        better = np.where(keep, actions, better)
        if np.array_equal(better, actions):
            break
        actions = better
    return policy_cost(process, actions)


def policy_cost(process: Batching, actions: Sequence[int] | IntArray) -> Optimum:
    """Return the device time and mean latency of a policy."""
    chosen = np.asarray(actions, dtype=np.int64)
    device, _ = _evaluate(process, process.device_s, chosen)
    hold, _ = _evaluate(process, process.hold_s, chosen)
    return Optimum(
        actions=chosen,
        device_s_req=device / process.rate_req_s,
        latency_s=hold / process.rate_req_s,
    )


def _evaluate(process: Batching, cost: FloatArray, actions: IntArray) -> tuple[float, FloatArray]:
    """Return a policy's cost per second and relative values, the empty queue's being 0."""
    states = np.arange(len(actions))
    matrix = np.eye(len(actions)) - process.next_state[states, actions]
    matrix[:, 0] = process.duration_s[states, actions]
    solved: FloatArray = np.linalg.solve(matrix, cost[states, actions]).astype(np.float64)
    gain = float(solved[0])
    solved[0] = 0.0
    return gain, solved


def least_device_s_req(process: Batching, *, latency_s: float) -> float:
    """Return a lower bound on the device time a request for any rule whose mean latency is within a limit.

    It is the Lagrangian dual: the best price is found by bisection on whether its policy keeps the limit.
    """
    low, high = PRICES
    best = 0.0
    for _ in range(PRICE_ROUNDS):
        price = math.sqrt(low * high)
        found = best_at_price(process, price)
        best = max(best, found.device_s_req + price * (found.latency_s - latency_s))
        if found.latency_s > latency_s:
            low = price
        else:
            high = price
    return best

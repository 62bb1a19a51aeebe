"""What two types of node carry beyond the same number of the slower type, by how requests are dealt out.

Overflow plans every replica at the speed of the slower type. Here single requests are simulated on replicas of two speeds, each
a first-come queue before a number of slots, and the highest rate is sought at which a share of requests ends within a limit.
The figure is that rate over the one of as many slow replicas under the same dealing. A Kubernetes Service deals at random
(kube-proxy in iptables mode) or in turn (IPVS, `rr`), by connection: kubernetes.io, "Virtual IPs and Service Proxies". Gateways
may send a request where fewest are outstanding. Nothing here knows the plan's replay.

    python -m benchmarks.overflow_routing [--seed 1] [--requests 100000]
"""

from __future__ import annotations

import argparse
import heapq
import json
from typing import Final

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.replay.compiled import compiled

AT_RANDOM, IN_TURN, FEWER_OF_TWO, FEWEST = range(4)
DEALINGS: Final = {"at random": AT_RANDOM, "in turn": IN_TURN, "fewer of two": FEWER_OF_TWO, "fewest": FEWEST}
REPLICAS, SLOTS = 16, 8
SLOW = (0.33, 0.5, 0.7, 0.9)
"""Speed of the slow type beside the fast one."""
SLOW_FRACS = (0.25, 0.5, 0.75)
REQUIRED_FRAC = 0.95
LIMIT = 4.0
"""Limit of a request's latency, in mean times in service on a slow replica."""
STEPS = 12


@compiled
def latencies_of(
    arrival_s: FloatArray, work_s: FloatArray, speeds: FloatArray, slots: int, dealing: int, drawn: FloatArray
) -> FloatArray:
    """Return each request's latency (n_requests,); `drawn` (n_requests, 2) in 0..1 are the draws of chance."""
    replicas = len(speeds)
    free_s = np.zeros((replicas, slots))
    outstanding = np.zeros(replicas, dtype=np.int64)
    ends = [(0.0, 0)]
    ends.pop()
    found = np.empty(len(arrival_s))
    for request in range(len(arrival_s)):
        now_s = arrival_s[request]
        while len(ends) > 0 and ends[0][0] <= now_s:
            outstanding[heapq.heappop(ends)[1]] -= 1
        to = int(drawn[request, 0] * replicas)
        if dealing == IN_TURN:
            to = request % replicas
        elif dealing == FEWEST:
            # from a random one on, so that none is preferred
            for step in range(replicas):
                other = (int(drawn[request, 0] * replicas) + step) % replicas
                if outstanding[other] < outstanding[to]:
                    to = other
        elif dealing == FEWER_OF_TWO:
            other = int(drawn[request, 1] * replicas)
            if outstanding[other] < outstanding[to]:
                to = other
        slot = np.argmin(free_s[to])
        end_s = max(now_s, free_s[to, slot]) + work_s[request] / speeds[to]
        free_s[to, slot] = end_s
        outstanding[to] += 1
        heapq.heappush(ends, (end_s, to))
        found[request] = end_s - now_s
    return found


def highest_rate(speeds: FloatArray, limit_s: float, dealing: int, requests: int, seed: int) -> float:
    """Return the highest rate, as a share of what all slots can do, at which enough requests end in time (bisection)."""
    rng = np.random.default_rng(seed)
    gaps, drawn = rng.exponential(size=requests), rng.random((requests, 2))
    # a log-normal with as much spread as an exponential: answers' lengths vary as much
    work_s = rng.lognormal(-0.5 * np.log(2), np.sqrt(np.log(2)), size=requests)
    most = float(speeds.sum()) * SLOTS
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        share = (low + high) / 2
        found = latencies_of(np.cumsum(gaps) / (share * most), work_s, speeds, SLOTS, dealing, drawn)
        if float((found <= limit_s).mean()) >= REQUIRED_FRAC:
            low = share
        else:
            high = share
    return low * most


def gains(requests: int, seed: int) -> dict[str, dict[str, float]]:
    """Return by dealing, for each slow speed and share of slow replicas, the rate over that of slow replicas alone."""
    found: dict[str, dict[str, float]] = {name: {} for name in (*DEALINGS, "sum of speeds")}
    for slow in SLOW:
        alone = {
            name: highest_rate(np.full(REPLICAS, slow), LIMIT / slow, dealing, requests, seed)
            for name, dealing in DEALINGS.items()
        }
        for share in SLOW_FRACS:
            speeds = np.ones(REPLICAS)
            speeds[: round(share * REPLICAS)] = slow
            case = f"{slow:g} x, {share:.0%} slow"
            found["sum of speeds"][case] = round(float(speeds.sum()) / (REPLICAS * slow), 2)
            for name, dealing in DEALINGS.items():
                both = highest_rate(rolled(speeds), LIMIT / slow, dealing, requests, seed)
                found[name][case] = round(both / alone[name], 2) if alone[name] else float("nan")
    return found


def rolled(speeds: FloatArray) -> FloatArray:
    """Return the same replicas with slow and fast ones mixed, in an order that no dealing can use."""
    return np.asarray(np.random.default_rng(0).permutation(speeds), dtype=np.float64)


def main() -> None:
    """Print a line a case, and all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    found = gains(options.requests, options.seed)
    for case in found["sum of speeds"]:
        print(case, {name: by_case[case] for name, by_case in found.items()})
    print(json.dumps({"benchmark": "overflow_routing", "seed": options.seed, "rate_over_slow_alone": found}))


if __name__ == "__main__":
    main()

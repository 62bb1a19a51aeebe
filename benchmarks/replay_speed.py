"""How fast history is replayed: requests one by one, with a scaling rule, cold starts and a queue; and a fleet for a month.

`events_per_s` counts an arrival and a departure for each of 4 million requests with a day-and-night rate, scaled by an HPA
with a 120 s cold start, on one core. `fleet_s` replays 30 days of 500 services in 15 s steps, each under an HPA, with the
engine that the audit calls. `linearity` is the time for 4 n requests over 4 times that for n.

Run: python -m benchmarks.replay_speed
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

import numpy as np

from benchmarks.reference.requests import RequestHistory, replay_requests
from benchmarks.traces import data_argument
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service
from trimtab.units import S_PER_DAY

REQUESTS = 4_000_000
MEAN_REQ_S = 40.0
EVENTS_PER_REQUEST = 2
SLOTS = 8
SERVICES, DAYS, STEP_S = 500, 30, 15
POLICY = HpaPolicy(0.7, 1, 100)


def requests(count: int) -> RequestHistory:
    """Draw requests with a daily rhythm and log-normal service times, with a fixed seed."""
    rng = np.random.default_rng(0)
    even_s = np.cumsum(rng.exponential(1 / MEAN_REQ_S, count))
    arrival_s = even_s + 0.5 * S_PER_DAY / (2 * math.pi) * np.sin(2 * math.pi * even_s / S_PER_DAY)
    return RequestHistory(arrival_s=np.sort(arrival_s), service_s=rng.lognormal(0.5, 0.6, count))


def seconds(work: Callable[[], object]) -> float:
    """Return the least time of three."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def time_requests(count: int) -> float:
    """Return the seconds that so many requests take, already compiled."""
    history = requests(count)

    def work() -> object:
        return replay_requests(history, POLICY, slots_per_replica=SLOTS, cold_start_s=120.0, initial_replicas=10)

    work()
    return seconds(work)


def time_fleet() -> float:
    """Return the seconds that a fleet's month takes."""
    steps = DAYS * S_PER_DAY // STEP_S
    rng = np.random.default_rng(0)
    wave = 1 + 0.6 * np.sin(np.arange(steps) * 2 * math.pi * STEP_S / S_PER_DAY)
    histories = [ServiceHistory(arrivals=rng.poisson(600 * wave).astype(float), step_s=STEP_S) for _ in range(8)]
    model = ServiceModel(
        capacity_req_s=4.0,
        load_grid=np.linspace(0, 1, 11),
        ok_frac=np.tile(np.linspace(1, 0.98, 11), (2, 1)),
        wait_limit_s=np.array([1.0, 0.2]),
        cold_start_s=120.0,
    )
    replay_service(histories[0], model, POLICY, initial_replicas=10)
    began = time.perf_counter()
    for service in range(SERVICES):
        replay_service(histories[service % len(histories)], model, POLICY, initial_replicas=10)
    return time.perf_counter() - began


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    quarter_s, whole_s = time_requests(REQUESTS // 4), time_requests(REQUESTS)
    fleet_s = time_fleet()
    result = {
        "benchmark": "replay_speed",
        "data": str(arguments.data),
        "events_per_s": EVENTS_PER_REQUEST * REQUESTS / whole_s,
        "linearity": whole_s / (4 * quarter_s),
        "fleet_s": fleet_s,
        "fleet_days_per_s": SERVICES * DAYS / fleet_s,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

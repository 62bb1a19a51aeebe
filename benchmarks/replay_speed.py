"""How fast history is replayed: requests one by one, with a scaling rule, cold starts and a queue; and a fleet for a month.

`events_per_s` counts an arrival and a departure for each of 4 million requests with a day-and-night rate, scaled by an HPA
with a 120 s cold start, on one core. `over_hand_written` is that over a loop by hand in the same run: first come, first served
at as many slots as the rule holds at most, which start cold after five idle minutes, without an autoscaler or what it reads.
`audit_over_hand_written` is the same for the audit's engine, which replays these requests by decisions of 15 s. `fleet_s`
replays 30 days of 500 services in 15 s steps, each under an HPA, with that engine. `linearity` is the time for 4 n requests
over 4 times that for n.

Run: python -m benchmarks.replay_speed
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

import numpy as np

from benchmarks.reference.requests import RequestHistory, RequestReplay, replay_requests, sift_down
from benchmarks.traces import data_argument
from trimtab.ledger.arrays import FloatArray
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.compiled import compiled
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service
from trimtab.units import S_PER_DAY

REQUESTS = 4_000_000
MEAN_REQ_S = 40.0
EVENTS_PER_REQUEST = 2
SLOTS = 8
SERVICES, DAYS, STEP_S = 500, 30, 15
POLICY = HpaPolicy(0.7, 1, 100)
COLD_START_S, IDLE_S = 120.0, 300.0


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


def replayed(history: RequestHistory) -> RequestReplay:
    """Replay requests one by one under the rule."""
    return replay_requests(history, POLICY, slots_per_replica=SLOTS, cold_start_s=COLD_START_S, initial_replicas=10)


def time_requests(count: int) -> float:
    """Return the seconds that so many requests take, already compiled."""
    history = requests(count)
    replayed(history)
    return seconds(lambda: replayed(history))


@compiled
def hand_written(arrival_s: FloatArray, service_s: FloatArray, slots: int, cold_start_s: float, idle_s: float) -> float:
    """Return the mean wait in an M/G/c queue whose slots have gone once they were idle for so long, and start cold."""
    free_s = np.zeros(slots)  # a heap of the moments at which slots become free
    waited_s = 0.0
    for request in range(len(arrival_s)):
        now_s, first_s = arrival_s[request], free_s[0]
        start_s = max(now_s, first_s)
        if now_s - first_s > idle_s:
            start_s += cold_start_s
        waited_s += start_s - now_s
        sift_down(free_s, slots, start_s + service_s[request])
    return waited_s / len(arrival_s)


def time_hand_written(history: RequestHistory) -> float:
    """Return the seconds that the loop by hand takes for requests, already compiled."""
    slots = int(replayed(history).replicas.max()) * SLOTS

    def work() -> object:
        return hand_written(history.arrival_s, history.service_s, slots, COLD_START_S, IDLE_S)

    work()
    return seconds(work)


def time_audit(history: RequestHistory) -> float:
    """Return the seconds that the audit's engine takes for the same requests, counted by decision."""
    decisions = math.ceil(history.arrival_s[-1] / STEP_S)
    counts = np.bincount((history.arrival_s // STEP_S).astype(int), minlength=decisions).astype(float)
    known = ServiceHistory(arrivals=counts, step_s=STEP_S)
    model = replica_model(capacity_req_s=SLOTS / float(history.service_s.mean()))
    replay_service(known, model, POLICY, initial_replicas=10)
    return seconds(lambda: replay_service(known, model, POLICY, initial_replicas=10))


def replica_model(capacity_req_s: float) -> ServiceModel:
    """Return a replica that starts cold, whose answers are the later the busier it is."""
    return ServiceModel(
        capacity_req_s=capacity_req_s,
        load_grid=np.linspace(0, 1, 11),
        ok_frac=np.tile(np.linspace(1, 0.98, 11), (2, 1)),
        wait_limit_s=np.array([1.0, 0.2]),
        cold_start_s=COLD_START_S,
    )


def time_fleet() -> float:
    """Return the seconds that a fleet's month takes."""
    steps = DAYS * S_PER_DAY // STEP_S
    rng = np.random.default_rng(0)
    wave = 1 + 0.6 * np.sin(np.arange(steps) * 2 * math.pi * STEP_S / S_PER_DAY)
    histories = [ServiceHistory(arrivals=rng.poisson(600 * wave).astype(float), step_s=STEP_S) for _ in range(8)]
    model = replica_model(capacity_req_s=4.0)
    replay_service(histories[0], model, POLICY, initial_replicas=10)
    began = time.perf_counter()
    for service in range(SERVICES):
        replay_service(histories[service % len(histories)], model, POLICY, initial_replicas=10)
    return time.perf_counter() - began


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    quarter_s, whole_s = time_requests(REQUESTS // 4), time_requests(REQUESTS)
    by_hand_s, audit_s = time_hand_written(requests(REQUESTS)), time_audit(requests(REQUESTS))
    fleet_s = time_fleet()
    result = {
        "benchmark": "replay_speed",
        "data": str(arguments.data),
        "events_per_s": EVENTS_PER_REQUEST * REQUESTS / whole_s,
        "hand_written_events_per_s": EVENTS_PER_REQUEST * REQUESTS / by_hand_s,
        "over_hand_written": by_hand_s / whole_s,
        "audit_over_hand_written": by_hand_s / audit_s,
        "linearity": whole_s / (4 * quarter_s),
        "fleet_s": fleet_s,
        "fleet_days_per_s": SERVICES * DAYS / fleet_s,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

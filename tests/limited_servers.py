"""Services whose replicas are full before their GPUs are: a small discrete-event simulation, and fleets of what it measured.

Nothing here knows of the replay: requests come one by one, a slot server takes so many at once in the order in which they came,
a server of few cores lets all in and shares its cores among them.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from tests.fleets import FleetRows, at

LE_S = (15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, float("inf"))
STEP_S = 60
SERVICE = "prod/limited"


@dataclass(frozen=True, kw_only=True)
class Limited:
    """A replica serves `at_once` requests of `service_s` each at its best; its GPU is then `full_sm` active."""

    at_once: int = 4
    service_s: float = 30.0
    full_sm: float = 0.43
    cores: bool = False
    """Whether requests beyond `at_once` are let in and share what there is, in place of waiting their turn."""

    @property
    def capacity_req_s(self):
        return self.at_once / self.service_s


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a metrics server would have had, by minute, and each request's latency."""

    arrivals: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    latency_count: np.ndarray
    latency_s: np.ndarray

    def in_time(self, limit_s):
        return float((self.latency_s <= limit_s).mean())


def daily_arrivals(days, peak_req_s, seed, least_frac=0.1):
    """Draw arrival times, Poisson around a day's curve that peaks at noon."""
    rng = np.random.default_rng(seed)
    hour = np.arange(days * 24 * 60) / 60 % 24
    shape = least_frac + (1 - least_frac) * np.sin(np.pi * hour / 24) ** 4
    counts = rng.poisson(peak_req_s * STEP_S * shape)
    return np.sort(np.repeat(np.arange(len(counts)), counts) * STEP_S + rng.random(counts.sum()) * STEP_S)


def simulate(server, arrival_s, replicas, days, seed):
    """Serve arrivals by so many replicas, a number for each 15 s; replicas that go finish what they have."""
    work_s = server.service_s * np.random.default_rng(seed).lognormal(-0.02, 0.2, len(arrival_s))
    serve = _share_cores if server.cores else _take_turns
    start_s, end_s = serve(server, arrival_s, work_s, np.asarray(replicas))
    minutes = days * 24 * 60
    latency_s = end_s - arrival_s
    minute = np.minimum((arrival_s // STEP_S).astype(int), minutes - 1)
    histogram = np.zeros((minutes, len(LE_S)))
    np.add.at(histogram, (minute, np.searchsorted(LE_S, latency_s)), 1)
    return Seen(
        arrivals=np.bincount(minute, minlength=minutes).astype(float),
        running=_mean_in_progress(start_s, end_s, minutes),
        waiting=_mean_in_progress(arrival_s, start_s, minutes),
        latency_count=histogram,
        latency_s=latency_s,
    )


def _take_turns(server, arrival_s, work_s, replicas):
    start_s, ends, now = np.empty(len(arrival_s)), [], 0.0
    for number, (arrived, work) in enumerate(zip(arrival_s.tolist(), work_s.tolist(), strict=True)):
        now = max(now, arrived)
        while True:
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            if len(ends) < _at(replicas, now) * server.at_once:
                break
            tick = (now // 15 + 1) * 15
            now = min(ends[0], tick) if ends else tick
        start_s[number] = now
        heapq.heappush(ends, now + work)
    return start_s, start_s + work_s


def _share_cores(server, arrival_s, work_s, replicas):
    """All requests in work are served at one pace, so that they end in the order of the work at which they would end."""
    end_s, active, done, now = np.empty(len(arrival_s)), [], 0.0, 0.0

    def advance(until):
        nonlocal now, done
        while active and now < until:
            pace = min(1.0, max(_at(replicas, now), 1e-6) * server.at_once / len(active))
            stop = min(until, (now // 15 + 1) * 15, now + (active[0][0] - done) / pace)
            done, now = done + (stop - now) * pace, stop
            while active and active[0][0] <= done + 1e-9:
                end_s[heapq.heappop(active)[1]] = now
        now = max(now, until) if until < np.inf else now

    for number, (arrived, work) in enumerate(zip(arrival_s.tolist(), work_s.tolist(), strict=True)):
        advance(arrived)
        heapq.heappush(active, (done + work, number))
    advance(np.inf)
    return arrival_s, end_s


def _at(replicas, second):
    return int(replicas[min(int(second // 15), len(replicas) - 1)])


def _mean_in_progress(start_s, end_s, minutes):
    """Return the mean number in progress by minute: the integral of a count that rises at starts and falls at ends."""
    edges = np.arange(minutes + 1) * float(STEP_S)

    def spent(moments):
        moments = np.sort(moments)
        passed = np.searchsorted(moments, edges)
        return passed * edges - np.concatenate([[0.0], np.cumsum(moments)])[passed]

    return np.maximum(np.diff(spent(start_s) - spent(end_s)), 0.0) / STEP_S


def fleet_of(server, seen, replicas, days, limit_s):
    """Return the rows of a fleet of that one service, one GPU and one node a replica, with its latency target declared."""
    rows = FleetRows(days)
    busy = seen.running.reshape(-1, 60).mean(axis=1) / replicas / server.at_once
    sm = np.minimum(busy, 1.0) * server.full_sm
    for number in range(replicas):
        rows.node(f"n{number}", "g5.xlarge")
        rows.hold(SERVICE, f"n{number}", [0], owner_kind="Deployment")
        rows.use(SERVICE, f"n{number}", 0, range(days * 24), sm=lambda hour: float(sm[hour]))
    for minute in range(days * 24 * 60):
        rows.rows["demand"].append(
            {
                "workload": SERVICE,
                "start": at(minute / 60),
                "interval_s": float(STEP_S),
                "arrivals": seen.arrivals[minute],
                "replicas_ready": float(replicas),
                "running_mean": seen.running[minute],
                "waiting_mean": seen.waiting[minute],
                "latency_le_s": list(LE_S),
                "latency_count": seen.latency_count[minute].tolist(),
            }
        )
    rows.workloads[SERVICE] = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}
    return rows

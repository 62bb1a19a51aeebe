"""`quad-a100`: four A100s that answer one request at a time, 15 % used, in bursts. 10,726.28 USD a month on demand.

Requests go to replicas in turn (round robin), so each replica is a first-come queue of its own and Lindley's recursion has a
closed form: `finish = cumsum(service) + cummax(arrival - cumsum(service before it))`.

One a2-highgpu-4g in GCP us-central1 (14.69354 USD/h). Each replica of `prod/image-caption` holds a GPU and works on a single
request (0.85 s on average), so the fleet is sized by its bursts. The model would answer 16 requests at once in 1.9 s: the
team's own profile stands under batching in workloads.yaml, as `BATCH_TIME_S` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from trimtab.sources.demo.demand import (
    LATENCY_LE_S,
    SIX_WEEKS,
    DayCurve,
    DemoService,
    Floats,
    LatencyLaw,
    Noise,
    ServedMinutes,
    demand_rate,
)
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import A2_HIGHGPU_4G
from trimtab.sources.demo.usage import UsageBlock, from_sm, jitter
from trimtab.units import S_PER_DAY, S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Requests in order of arrival: seconds from the start of the window, and the replica that took each."""

    arrival_s: Floats
    start_s: Floats
    finish_s: Floats
    replicas: int


def play(expected: Floats, mean_s: float, sigma: float, replicas: int, rng: np.random.Generator) -> Played:
    """Draw requests around an expectation per minute and serve them singly; service times are lognormal."""
    counts = rng.poisson(expected)
    minute = np.repeat(np.arange(len(expected)), counts)
    arrival_s = np.sort(minute * S_PER_MIN + rng.random(len(minute)) * S_PER_MIN)
    service_s = rng.lognormal(np.log(mean_s) - sigma**2 / 2, sigma, len(arrival_s))
    finish_s = np.empty_like(arrival_s)
    for replica in range(replicas):
        mine = slice(replica, None, replicas)
        finish_s[mine] = finish_times(arrival_s[mine], service_s[mine])
    return Played(arrival_s=arrival_s, start_s=finish_s - service_s, finish_s=finish_s, replicas=replicas)


def finish_times(arrival_s: Floats, service_s: Floats) -> Floats:
    """Return when a single server finishes each request, first come first served."""
    total = np.cumsum(service_s)
    return np.asarray(total + np.maximum.accumulate(arrival_s - (total - service_s)))


def busy_frac(played: Played, n_minutes: int) -> Floats:
    """Return the share of each minute in which each replica works, shape `(replicas, n_minutes)`."""
    parts = [slice(replica, None, played.replicas) for replica in range(played.replicas)]
    return np.stack([mean_open(played.start_s[part], played.finish_s[part], n_minutes) for part in parts])


def observe(played: Played, n_minutes: int, input_tokens: float, output_tokens: float) -> ServedMinutes:
    """Return what a metrics server would have counted, minute by minute; an answer counts where it was given."""
    done = played.finish_s < n_minutes * S_PER_MIN
    finish_minute = (played.finish_s[done] // S_PER_MIN).astype(np.int64)
    latency_s = played.finish_s[done] - played.arrival_s[done]
    bucket = np.searchsorted(LATENCY_LE_S, latency_s)
    width = len(LATENCY_LE_S)
    counts = np.bincount(finish_minute * width + bucket, minlength=n_minutes * width)
    running = mean_open(played.start_s, played.finish_s, n_minutes)
    arrivals = np.bincount((played.arrival_s // S_PER_MIN).astype(np.int64), minlength=n_minutes)
    columns = {
        "arrivals": arrivals.astype(np.float64),
        "completed": np.bincount(finish_minute, minlength=n_minutes).astype(np.float64),
        "failed": np.zeros(n_minutes),
        "running_mean": np.round(running, 4),
        "waiting_mean": np.round(mean_open(played.arrival_s, played.start_s, n_minutes), 4),
        "replicas_ready": np.full(n_minutes, float(played.replicas)),
        "input_tokens_mean": np.where(arrivals > 0, input_tokens, np.nan),
        "output_tokens_mean": np.where(arrivals > 0, output_tokens, np.nan),
    }
    return ServedMinutes(
        columns=columns,
        latency_count=counts.reshape(n_minutes, width).astype(np.float64),
        ttft_count=None,
        rho=running / played.replicas,
    )


def mean_open(from_s: Floats, to_s: Floats, n_minutes: int) -> Floats:
    """Return how many of the intervals `[from, to)` are open in each minute, on average."""
    total = np.zeros(n_minutes)
    at, to = from_s, np.minimum(to_s, n_minutes * S_PER_MIN)
    while len(at):
        minute = (at // S_PER_MIN).astype(np.int64)
        until = np.minimum(to, (minute + 1) * S_PER_MIN)
        inside = until > at
        total += np.bincount(minute[inside], weights=(until - at)[inside], minlength=n_minutes)
        left = until < to
        at, to = until[left], to[left]
    return np.asarray(total / S_PER_MIN)


NAME = "quad-a100"
SPAN = SIX_WEEKS
BATCH_TIME_S: tuple[tuple[int, float], ...] = ((1, 0.85), (2, 0.92), (4, 1.06), (8, 1.34), (16, 1.90), (32, 3.02))
"""Batch size and the time that one batch takes, as the team measured it on this GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadA100:
    """Everything that is set about the fleet."""

    workload: str = "prod/image-caption"
    team: str = "catalog"
    replicas: int = 4
    used_frac: float = 0.15
    request_s: float = BATCH_TIME_S[0][1]
    request_sigma: float = 0.25
    bursts_per_day: float = 20.0
    burst_gain: tuple[float, float] = (3.0, 6.0)
    burst_min: tuple[float, float] = (1.0, 4.0)
    growth_frac: float = 0.06
    surge_start: datetime = datetime(2026, 10, 28, 16, tzinfo=UTC)
    surge_min: int = 90
    surge_gain: float = 1.8
    sm_while_busy_frac: float = 0.42
    memory_gib: float = 17.5
    batch_item_gib: float = 0.15
    input_tokens: float = 640.0
    output_tokens: float = 58.0
    cold_start_s: float = 150.0
    latency_p95_s: float = 4.0

    @property
    def requests_per_day(self) -> float:
        """Requests on an average day of the fit window."""
        return self.used_frac * self.replicas / self.request_s * S_PER_DAY


FLEET = QuadA100()
_SHAPE = DemoService(
    workload=FLEET.workload,
    team=FLEET.team,
    replicas=FLEET.replicas,
    requests_per_day=FLEET.requests_per_day,
    mean_util_frac=FLEET.used_frac,
    latency=LatencyLaw(base_s=FLEET.request_s),
    curve=DayCurve(peak_hr=16.0, floor_frac=0.25, sharpness=1.2, weekend_frac=0.7),
    noise=Noise(
        sd_frac=0.15,
        memory_min=15,
        bursts_per_day=FLEET.bursts_per_day,
        burst_gain=FLEET.burst_gain,
        burst_min=FLEET.burst_min,
    ),
)


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    expected = demand_rate(_SHAPE, SPAN, FLEET.growth_frac, draft.stream("demand"))
    first = SPAN.minute_of(FLEET.surge_start)
    expected[first : first + FLEET.surge_min] *= FLEET.surge_gain
    played = play(expected, FLEET.request_s, FLEET.request_sigma, FLEET.replicas, draft.stream("requests"))
    draft.demand(FLEET.workload, observe(played, SPAN.minutes, FLEET.input_tokens, FLEET.output_tokens))
    node, devices = draft.node(A2_HIGHGPU_4G, "caption")
    for device in devices:
        draft.pod(FLEET.workload, FLEET.team, "Deployment", node, (device,), start=SPAN.start)
    draft.usage(_readings(draft, devices, busy_frac(played, SPAN.minutes)))
    return draft.tables(), workloads(), meta(NAME, SPAN)


def _readings(draft: FleetDraft, devices: tuple[str, ...], busy: Floats) -> UsageBlock:
    """Return what the sensors read: a kernel runs while a request is in work, on under half of the SMs."""
    rng = draft.stream("activity")
    gpu_util = np.asarray(busy, dtype=np.float32)
    sm_active = np.clip(gpu_util * FLEET.sm_while_busy_frac * jitter(busy.shape, 0.06, rng), 0.0, 1.0)
    memory = np.full(busy.shape, FLEET.memory_gib, dtype=np.float32)
    return UsageBlock(
        machine=A2_HIGHGPU_4G,
        devices=devices,
        start=SPAN.start,
        workloads=(FLEET.workload,),
        owner=np.zeros(busy.shape, dtype=np.int64),
        activity=from_sm(sm_active, gpu_util, memory, tensor_of_sm=0.35, dram_of_sm=0.8, rng=rng),
    )


def workloads() -> dict[str, object]:
    """Return what the team declared, as the content of workloads.yaml."""
    # one replica may be away for a restart: callers ask again, as they did when the one node of all four was away
    profile = ", ".join(f"{size}: {time_s:.2f}" for size, time_s in BATCH_TIME_S)
    return {
        "version": 1,
        "workloads": {
            FLEET.workload: {
                "model": "Qwen/Qwen2-VL-7B-Instruct",
                "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": FLEET.latency_p95_s}],
                "cold_start_s": FLEET.cold_start_s,
                "min_replicas": 1,
                "batching": {"seconds": dict(BATCH_TIME_S), "item_gib": FLEET.batch_item_gib},
                "notes": f"takes one request at a time; measured seconds by batch size: {profile}",
            }
        },
    }

"""The fleet: its workloads and their kinds, what was observed of each, and their targets.

Times are whole seconds from the start of the window; arrays over hours are (n_hours,). NaN means not measured, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.owner_kinds import RUN_FOR_EVER
from trimtab.ledger import Holdings, Usage
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.physics.transfer import SAME_SPEED
from trimtab.provenance import Estimate
from trimtab.tables.workloads import TargetMetric, WorkloadKind, WorkloadSpec
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_DAY, S_PER_HR, S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Whole hours `[start, start + hours)`, UTC."""

    start: datetime
    hours: int

    def __post_init__(self) -> None:
        if self.hours < 0:
            raise ValueError(
                f"a window of {self.hours} hours from {self.start:%Y-%m-%d %H:%M} on ends before it starts"
            )

    @property
    def end(self) -> datetime:
        """Return the first moment after the window."""
        return self.start + timedelta(hours=self.hours)

    @property
    def days(self) -> float:
        """Return the length in days."""
        return self.hours / HR_PER_DAY

    @property
    def seconds(self) -> int:
        """Return the length in seconds."""
        return self.hours * S_PER_HR

    @property
    def first_week_hour(self) -> int:
        """Return the hour of the week of the first hour (Monday 00:00 UTC is 0)."""
        return self.start.weekday() * HR_PER_DAY + self.start.hour

    def week_hours(self) -> IntArray:
        """Return the hour of the week of each hour (n_hours,)."""
        return np.asarray((self.first_week_hour + np.arange(self.hours)) % HR_PER_WEEK, dtype=np.int64)

    def part(self, first_hour: int, hours: int) -> Window:
        """Return `hours` hours from `first_hour` on."""
        return Window(start=self.start + timedelta(hours=first_hour), hours=hours)

    def __str__(self) -> str:
        """Return whole days as their first and last one (`21 Sep to 18 Oct 2026`), else both ends with their hour in UTC."""
        if self.hours and self.start.hour == self.end.hour == 0:
            last = self.end - timedelta(days=1)
            year = "" if self.start.year == last.year else f" {self.start.year}"
            first = f"{self.start:%-d %b}{year} to " if last != self.start else ""
            return f"{first}{last:%-d %b %Y}"
        return f"{self.start:%-d %b %Y %H:%M} to {self.end:%-d %b %Y %H:%M} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that was billed in the window."""

    name: str
    pool: Pool
    gpu: str | None
    gpu_count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activity:
    """What a workload's GPUs did. Means are over its device-hours with samples; None if the metric was absent."""

    signal: str
    """The best activity signal present: sm_active, else gpu_util, else none."""
    mean_frac: float | None
    p95_frac: float | None
    """95th percentile of the hourly means."""
    sm_frac: float | None
    tensor_frac: float | None
    dram_frac: float | None
    gpu_util_frac: float | None
    memory_peak_gib: float | None
    memory_total_gib: float | None
    """Visible memory of the device that showed the peak."""
    busy_gpus: FloatArray
    """(n_hours,) GPUs' worth of activity; NaN if nothing was measured."""
    median_gpus: FloatArray
    """(n_hours,) the same at the median of each hour, taken as if all its GPUs were busy at once; NaN if not measured."""
    p95_gpus: FloatArray
    """(n_hours,) the same at the 95th percentile of each hour."""
    active_devices_frac: float | None
    """Share of the devices it held that showed any activity in the hours in which it was active at all."""
    measured_frac: float
    """Share of its held device-hours that have samples."""
    pcie_rx_gb_s: float | None = None
    """Received over PCIe by each device, whoever of its board's holders it was for."""
    pcie_tx_gb_s: float | None = None
    """Sent likewise."""
    cpu_frac: float | None = None
    """CPU that its pods used, of what they may use."""
    uneven: float | None = None
    """How hard its second busiest device worked for three minutes of an hour, over the mean of all devices in that hour: the
    median of its busiest hours. None where SM_ACTIVE or its hourly 95th percentile is not there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenReadings:
    """Tokens of a service's steps, and the time of the steps of its engine; all (n_steps,), NaN if not measured."""

    input: FloatArray
    """Prompt tokens, those found in the prefix cache included."""
    output: FloatArray
    cached: FloatArray
    """Prompt tokens found in the prefix cache."""
    prefill_s: FloatArray
    """Time of the engine's steps that computed prompts."""
    decode_s: FloatArray
    """Time of its steps that computed answers alone."""
    counted: bool = False
    """Whether counters of prompts' and answers' tokens were read, and not only the mean lengths of requests."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceObservation:
    """Requests as they came: steps of `step_s` from the window's start (n_steps,); NaN = gap."""

    step_s: float
    arrivals: FloatArray
    replicas: FloatArray
    running: FloatArray
    """(n_steps,) requests in work, mean."""
    latency_le_s: FloatArray
    """(n_buckets,) upper bounds, the last inf; empty if no latency was measured."""
    latency_count: FloatArray
    """(n_steps, n_buckets) requests per bucket."""
    ttft_le_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(n_ttft_buckets,) upper bounds of the time to the first token; empty if it was not measured."""
    ttft_count: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """(n_steps, n_ttft_buckets) requests per bucket."""
    waiting: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(n_steps,) requests queued, mean; empty if not measured."""
    input_tokens: float | None = None
    """Mean tokens of a prompt over all requests; None if they were not measured."""
    output_tokens: float | None = None
    tokens: TokenReadings | None = None
    """Tokens by step; None if none were ever read."""
    tpot_le_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(n_tpot_buckets,) upper bounds of requests' mean times per token after the first; empty if not measured."""
    tpot_count: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """(n_steps, n_tpot_buckets) requests per bucket."""
    most_replicas: int = field(init=False)
    """The most replicas that history ran; kept, because every option of the service asks for it."""

    def __post_init__(self) -> None:
        seen = self.replicas[~np.isnan(self.replicas)]
        object.__setattr__(self, "most_replicas", max(1, int(np.ceil(seen.max(initial=1.0) - 1e-6))))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobsObservation:
    """Runs as they came (n_jobs,): submitted, started, ended, GPUs held. Still running or cut by the window: `cut`."""

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    gpus: FloatArray
    """GPUs of all its pods."""
    pods: IntArray
    """Pods that hold them, evenly."""
    cut: Flags
    gpu: tuple[str, ...] = ()
    """The type of GPU that each ran on, "" where that is not known or there were several; empty if no run's is known."""
    checkpoint_interval_s: float | None = None
    checkpoint_save_s: float | None = None
    checkpoint_restore_s: float | None = None
    unqueued: JobsObservation | None = None
    """The same runs had none waited, with those that had not started by the window's end; None if they are these."""

    @property
    def count(self) -> int:
        """Return the number of runs."""
        return len(self.submit_s)

    @property
    def wait_s(self) -> FloatArray:
        """Return how long each run queued."""
        return self.start_s - self.submit_s

    def most_pods(self, *, times: float = 1.0, startup_s: float = 0.0) -> int:
        """Return the most pods at once had no run waited, where each takes so many times as long, after a start."""
        runs = self.unqueued or self
        ends_s = runs.submit_s + (runs.end_s - runs.start_s) * times + startup_s
        moments_s = np.concatenate([ends_s, runs.submit_s])
        pods = np.concatenate([-runs.pods, runs.pods])
        # at one moment those that end go first: the sort is stable and ends stand before starts
        return int(np.cumsum(pods[np.argsort(moments_s, kind="stable")]).max(initial=0))

    def part(self, chosen: IntArray) -> JobsObservation:
        """Return some of the runs, in the order requested, as they came."""
        return replace(
            self,
            unqueued=None,
            submit_s=self.submit_s[chosen],
            start_s=self.start_s[chosen],
            end_s=self.end_s[chosen],
            gpus=self.gpus[chosen],
            pods=self.pods[chosen],
            cut=self.cut[chosen],
            gpu=tuple(self.gpu[run] for run in chosen.tolist()) if self.gpu else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """Pods of a workload that held as many GPUs each, and how many of those did anything in the pod that used most of them."""

    gpus: float
    pods: int
    used_gpus: float | None
    """None if no GPU did anything, or if its GPUs are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target of a workload: `required_frac` of its requests or runs within `limit_s`, or that share of throughput."""

    metric: TargetMetric
    required_frac: float
    limit_s: float | None
    declared: bool
    because: str

    def describe(self) -> str:
        """Describe the target in words."""
        if self.limit_s is None:
            return f"{self.metric.value} >= {self.required_frac:.0%} of observed"
        limit = f"{self.limit_s:,.0f}" if self.limit_s >= 1000 else f"{self.limit_s:.3g}"  # no powers of ten
        return f"{self.metric.value} p{self.required_frac * 100:g} <= {limit} s"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """One workload and everything observed or declared about it."""

    name: str
    namespace: str
    team: str
    kind: WorkloadKind
    kind_because: str
    pool: Pool
    """The pool that carried most of its GPU time."""
    gpu: str | None
    gpus_per_node: int
    gpus_per_pod: float
    """GPUs of the median pod."""
    pod_sizes: tuple[PodSize, ...]
    """The smallest first."""
    gpu_seconds: FloatArray
    """(n_hours,) GPU-seconds held."""
    held_node_seconds: FloatArray
    """(n_hours,) node-seconds of the nodes it ran on, by its share of the GPU time held on each over the window."""
    activity: Activity
    service: ServiceObservation | None
    jobs: JobsObservation | None
    spec: WorkloadSpec
    targets: tuple[Target, ...]
    start_s: float | None = None
    """How long its pods were measured to take from their node to ready; where too few were, by the size of a service's images
    if that takes longer than is assumed; else None."""
    pull_s: float | None = None
    """Of that, the pulls of their images."""
    held_gpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """The GPU-seconds held of each type of GPU that is known."""
    home_speed: Estimate = SAME_SPEED
    """How fast a service is on `gpu` alone, beside all types together that its readings are of (`fitting.home_speed`)."""
    load_s: float | None = None
    """Of that, from their containers' start to ready: weights, compilation, warm-up."""
    short_loads_s: tuple[float, ...] = ()
    """The loads for which something seems to have been there before (`fleet.starts`)."""

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours held in the window."""
        return float(self.gpu_seconds.sum()) / S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Coverage: how much was observed, and what was dropped."""

    window: Window
    asked_days: float
    device_hours_seen_frac: float
    sm_active_frac: float
    """Share of seen device-hours that carry SM_ACTIVE and not only GPU_UTIL."""
    gpus: int
    nodes: int
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Fleet:
    """A fleet over one window."""

    window: Window
    nodes: tuple[Node, ...]
    usage: Usage
    """Node-seconds per pool and hour, as history had them."""
    node_seconds: IntArray
    """(n_nodes, n_hours)."""
    holdings: Holdings
    """Who held which share of each node; owner indices follow `workloads`."""
    workloads: tuple[Workload, ...]
    coverage: Coverage
    unknown_holders: frozenset[str] = frozenset()
    """Names of nodes with a busy GPU but no known holder, or without any readings: no plan
    gives them back."""
    carried_micro_usd_hr: Mapping[Pool, int] = field(default_factory=dict)
    """Pools of which no rate is listed, and what an hour of their nodes is carried at: what the bill says, else nothing. No
    plan touches them."""
    unknown_gpus: frozenset[str] = frozenset()
    """Models of GPUs, as nodes name them, that no catalog has. Their nodes are billed, and no plan touches them."""

    def is_left_alone(self, node: Node) -> bool:
        """Return whether a node stays whatever is planned, for no one knows who works on it, its price or its GPUs."""
        return (
            node.name in self.unknown_holders or node.pool in self.carried_micro_usd_hr or node.gpu in self.unknown_gpus
        )

    def workload(self, name: str) -> Workload:
        """Return a workload by name. Raises KeyError."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise KeyError(name)


RUN_KINDS = frozenset({WorkloadKind.EXPERIMENT, WorkloadKind.TRAINING, WorkloadKind.BATCH, WorkloadKind.EVALUATION})
"""Kinds that consist of runs with a beginning and an end."""

_NOTEBOOK = re.compile(r"notebook|jupyter|jhub|workbench|vscode", re.IGNORECASE)
_EVALUATION = re.compile(r"(^|[-/_])eval", re.IGNORECASE)
_BATCH = re.compile(r"batch|nightly|cron|etl|backfill|embed-all|offline", re.IGNORECASE)
_REGULAR_S = 20 * S_PER_MIN
_RUN_FOR_EVER = frozenset(kind.casefold() for kind in RUN_FOR_EVER)
_LONG_RUN_FRAC = 0.5


def workload_kind(
    name: str,
    owner_kind: str,
    spec: WorkloadSpec,
    service: ServiceObservation | None,
    jobs: JobsObservation | None,
    window: Window,
) -> tuple[WorkloadKind, str]:
    """Return a workload's kind and the reason; a declaration wins."""
    if spec.kind is not None:
        return spec.kind, "declared in workloads.yaml"
    if service is not None:
        return WorkloadKind.SERVING, "it exposes request metrics"
    if _NOTEBOOK.search(name) or owner_kind.casefold() == "notebook":
        return WorkloadKind.NOTEBOOK, f"its name or owner says so ({owner_kind or name})"
    if _EVALUATION.search(name):
        return WorkloadKind.EVALUATION, "its name says evaluation"
    if jobs is not None and owner_kind.casefold() not in _RUN_FOR_EVER:
        return _kind_of_runs(name, jobs, window)
    if owner_kind.casefold() in _RUN_FOR_EVER:
        return WorkloadKind.SERVING, f"a {owner_kind} runs forever; no request metrics were found"
    return WorkloadKind.EXPERIMENT, "nothing says otherwise"


def _kind_of_runs(name: str, jobs: JobsObservation, window: Window) -> tuple[WorkloadKind, str]:
    length = jobs.end_s - jobs.start_s
    if length.max(initial=0.0) >= _LONG_RUN_FRAC * window.seconds:
        return WorkloadKind.TRAINING, f"one run lasts {length.max() / S_PER_HR:.0f} of {window.hours} h"
    if _BATCH.search(name):
        return WorkloadKind.BATCH, "its name says batch"
    if is_regular(jobs):
        return WorkloadKind.BATCH, f"{jobs.count} runs start at the same time of day"
    return WorkloadKind.EXPERIMENT, f"{jobs.count} runs of irregular times and lengths"


def is_regular(jobs: JobsObservation) -> bool:
    """Return whether runs are submitted at the same time of day (so that capacity can be there before them)."""
    whole = ~jobs.cut
    if whole.sum() < 3:
        return False
    phase = np.mod(jobs.submit_s[whole], S_PER_DAY)
    off = np.abs(phase - np.median(phase))
    return bool(np.quantile(np.minimum(off, S_PER_DAY - off), 0.9) <= _REGULAR_S)

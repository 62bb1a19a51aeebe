"""Who held which GPU from when to when, and the runs of batch workloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.sources.hour_grid import (
    HourGrid,
    Life,
    UsageKey,
    Watch,
    by_day,
    lifetimes,
    moment,
    moment_or_none,
    presence,
)
from trimtab.sources.kubernetes.owners import RUN_KINDS, Owner, Owners, selectors, subject
from trimtab.sources.prometheus.client import Prometheus, any_of
from trimtab.sources.prometheus.dcgm import GpuLabels
from trimtab.sources.prometheus.gpu_usage import PodHoldings
from trimtab.units import S_PER_HR

_POD_LABELS = ("namespace", "exported_namespace", "pod", "exported_pod")
_NOT_PLACED = frozenset({"DaemonSet", "Node"})
"""Owners whose pods follow the nodes: no one chose to put them on a GPU node."""
SLICES = {"A30": 4}
_MOST_SLICES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A pod that held a device (or a number of GPUs on a node) for one interval."""

    namespace: str
    pod: str
    node: str
    device: str | None
    gpus: float
    life: Life


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """What a pod holds of one device, in boards' worth of GPU; the device is None where it is not known which."""

    device: str | None
    gpus: float


def mig_share(profile: str, product: str) -> float:
    """Return the share of a board that a profile such as `2g.10gb` or `2g_10gb` holds: its compute slices over the board's."""
    slices = profile.partition("g")[0]
    whole = next((count for name, count in SLICES.items() if name in product), _MOST_SLICES)
    return int(slices) / whole if slices.isdigit() else 1.0


def device_holds(holdings: PodHoldings, devices: Mapping[str, GpuLabels]) -> list[Hold]:
    """Return what DCGM's pod labels tell. Pods that share a board at once hold equal parts of it."""
    by_device: dict[str, list[UsageKey]] = {}
    for key in holdings.pieces:
        by_device.setdefault(key.device, []).append(key)
    watch = usage_watch(holdings)
    found = []
    for device, keys in by_device.items():
        labels = devices[device]
        share = mig_share(labels.mig_profile, labels.product) if labels.mig_profile else 1.0
        counts = {key: holdings.counts(key) for key in keys if key.pod}
        held = np.sum([np.minimum(counted * watch.step_s / S_PER_HR, 1.0) for counted in counts.values()], axis=0)
        for key, counted in counts.items():
            gpus = share / max(1.0, float(np.round(np.median(held[counted > 0]))))
            who = {"namespace": key.namespace, "pod": key.pod, "node": labels.node}
            found += [Hold(**who, device=device, gpus=gpus, life=life) for life in lifetimes(counted, watch)]
    return found


def usage_watch(holdings: PodHoldings) -> Watch:
    """Return by hour the most samples that any device had under any one pod."""
    watched = np.zeros(holdings.grid.hours)
    for pieces in holdings.pieces.values():
        for first, piece in pieces:
            np.maximum(watched[first : first + len(piece)], piece, out=watched[first : first + len(piece)])
    return Watch(grid=holdings.grid, samples=watched)


def other_holds(
    server: Prometheus, watch: Watch, nodes: Iterable[str], owners: Owners, gpu_pods: Collection[tuple[str, str]]
) -> list[Hold]:
    """Return the pods without a GPU on GPU nodes, but for those that follow the nodes (DaemonSets, static pods)."""
    listed = set(nodes)
    if not listed:
        return []
    matchers = [any_of(label, listed) for label in ("node", "exported_node")]
    placed: dict[tuple[str, str], tuple[str, float]] = {}
    for labels in server.series(selectors(server, "kube_pod_info", matchers), watch.grid.start_s, watch.grid.end_s):
        pod = subject(labels, "pod")
        if pod not in gpu_pods and owners.pods.get(pod, ("", ""))[0] not in _NOT_PLACED:
            placed[pod] = (labels.get("exported_node") or labels.get("node", ""), 0.0)
    return _holds(running(server, watch, placed), placed)


def nodes_of_pods(server: Prometheus, grid: HourGrid, pods: Iterable[str]) -> dict[str, str]:
    """Return the node of each pod that kube-state-metrics knows, by the pod's name alone."""
    return {pod: node for (_, pod), node in _placed(server, grid, set(pods)).items()}


def nodes_by_pod(server: Prometheus, grid: HourGrid, pods: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the node of each pod that kube-state-metrics knows, by namespace and name."""
    return _placed(server, grid, {pod for _, pod in pods})


def _placed(server: Prometheus, grid: HourGrid, names: Collection[str]) -> dict[tuple[str, str], str]:
    if not names:
        return {}
    matchers = [any_of(label, names) for label in ("pod", "exported_pod")]
    return {
        subject(labels, "pod"): labels.get("exported_node") or labels.get("node", "")
        for labels in server.series(selectors(server, "kube_pod_info", matchers), grid.start_s, grid.end_s)
    }


def _holds(
    ran: Mapping[tuple[str, str], Sequence[Life]], placed: Mapping[tuple[str, str], tuple[str, float]]
) -> list[Hold]:
    return [
        Hold(namespace=pod[0], pod=pod[1], node=placed[pod][0], device=None, gpus=placed[pod][1], life=life)
        for pod, spans in ran.items()
        for life in spans
    ]


def running(server: Prometheus, watch: Watch, pods: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Life]]:
    """Return the intervals in which pods were in the phase Running."""
    wanted = set(pods)
    if not wanted:
        return {}
    names = {pod for _, pod in wanted}
    found: dict[tuple[str, str], list[Life]] = {}
    for label in ("pod", "exported_pod"):
        selector = "kube_pod_status_phase" + server.matching('phase="Running"', any_of(label, names))
        seen = presence(server, selector, _POD_LABELS, watch.grid, statistic="sum_over_time")
        for key, counts in seen.items():
            pod = subject(dict(zip(_POD_LABELS, key, strict=True)), "pod")
            if pod in wanted and pod not in found:
                found[pod] = lifetimes(counts, watch)
    return found


_METRICS = (
    "kube_job_created",
    "kube_job_status_start_time",
    "kube_job_status_completion_time",
    "kube_job_status_failed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What kube-state-metrics says about a Job, in seconds since 1970."""

    created_s: float | None = None
    started_s: float | None = None
    completed_s: float | None = None
    failed_pods: float = 0.0


def collect_job_facts(server: Prometheus, grid: HourGrid) -> dict[tuple[str, str], JobFacts]:
    """Ask for the Jobs that existed in the window, by (namespace, job)."""
    seen: dict[str, dict[tuple[str, str], float]] = {name: {} for name in _METRICS}
    group = "namespace, exported_namespace, job_name, exported_job_name"
    for name in _METRICS:
        query = f"max by ({group}) (max_over_time({name}{server.matching()}[1d]))"
        for series in by_day(server, query, grid):
            seen[name][subject(series.labels, "job_name")] = float(series.values[-1])
    created, started, completed, failed = (seen[name] for name in _METRICS)
    return {
        job: JobFacts(
            created_s=created.get(job),
            started_s=started.get(job),
            completed_s=completed.get(job),
            failed_pods=failed.get(job, 0.0),
        )
        for job in {*created, *started, *completed}
    }


def job_rows(
    holds: Iterable[Hold],
    owners: Mapping[tuple[str, str], Owner],
    facts: Mapping[tuple[str, str], JobFacts],
    window_start_s: float,
) -> list[dict[str, object]]:
    """Return a `jobs` row for each run that held GPUs.

    A Job's own start is when its controller took it up; the run starts when its pods first hold GPUs, unless that was before
    the window.
    """
    runs: dict[tuple[str, str], list[Hold]] = {}
    workloads: dict[tuple[str, str], str] = {}
    for hold in holds:
        owner = owners[hold.namespace, hold.pod]
        if hold.gpus > 0 and owner.kind in RUN_KINDS:
            run = (hold.namespace, owner.job or owner.workload.partition("/")[2])
            runs.setdefault(run, []).append(hold)
            workloads[run] = owner.workload
    return [
        _row(run, workloads[run], held, facts.get(run, JobFacts()), window_start_s)
        for run, held in sorted(runs.items())
    ]


def _row(
    run: tuple[str, str], workload: str, held: Sequence[Hold], facts: JobFacts, window_start_s: float
) -> dict[str, object]:
    start_s = min(hold.life.start_s for hold in held)
    ends = [hold.life.end_s for hold in held]
    seen_end_s = None if None in ends else max(end for end in ends if end is not None)
    end_s = facts.completed_s if facts.completed_s is not None else seen_end_s
    began_before = start_s <= window_start_s and facts.started_s is not None
    begin_s = facts.started_s if began_before and facts.started_s is not None else start_s
    return {
        "job": "/".join(run),
        "workload": workload,
        "submit": moment(min(facts.created_s if facts.created_s is not None else begin_s, begin_s)),
        "start": moment(begin_s),
        "end": moment_or_none(end_s),
        "gpus": _most_at_once(held),
        "state": _state(end_s, facts),
        "node": ",".join(sorted({hold.node for hold in held})),
    }


def _state(end_s: float | None, facts: JobFacts) -> str:
    if facts.completed_s is not None:
        return "completed"
    if end_s is None:
        return "running"
    return "failed" if facts.failed_pods > 0 else "completed"


def _most_at_once(held: Sequence[Hold]) -> float:
    """Return the most GPUs that a run held at one moment: pods that replaced one another do not add up."""
    changes = [(hold.life.start_s, 1, hold.gpus) for hold in held]
    changes += [(hold.life.end_s, 0, -hold.gpus) for hold in held if hold.life.end_s is not None]
    most = now = 0.0
    for _, _, gpus in sorted(changes):
        now += gpus
        most = max(most, now)
    return most

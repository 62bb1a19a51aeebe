"""Runs of batch workloads: from `kube_job_*` where told, else from when their pods held GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.sources.hour_grid import HourGrid, by_day, moment, moment_or_none
from trimtab.sources.kube_owners import RUN_KINDS, Owner, subject
from trimtab.sources.kube_pods import Hold
from trimtab.sources.prometheus.client import Prometheus

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

"""Workload kinds told apart: by declaration, by what they expose, by how their runs look, by their names."""

from __future__ import annotations

import re

import numpy as np

from trimtab.fleet.model import JobsObservation, ServiceObservation, Window
from trimtab.tables.workloads import WorkloadKind, WorkloadSpec
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

RUN_KINDS = frozenset({WorkloadKind.EXPERIMENT, WorkloadKind.TRAINING, WorkloadKind.BATCH, WorkloadKind.EVALUATION})
"""Kinds that consist of runs with a beginning and an end."""

_NOTEBOOK = re.compile(r"notebook|jupyter|jhub|workbench|vscode", re.IGNORECASE)
_EVALUATION = re.compile(r"(^|[-/_])eval", re.IGNORECASE)
_BATCH = re.compile(r"batch|nightly|cron|etl|backfill|embed-all|offline", re.IGNORECASE)
_REGULAR_S = 20 * S_PER_MIN
_LONG_RUN_FRAC = 0.5


def workload_kind(
    name: str,
    owner_kind: str,
    spec: WorkloadSpec,
    service: ServiceObservation | None,
    jobs: JobsObservation | None,
    window: Window,
) -> tuple[WorkloadKind, str]:
    """Return what a workload is for and why we think so; what a person declared wins."""
    if spec.kind is not None:
        return spec.kind, "declared in workloads.yaml"
    if service is not None:
        return WorkloadKind.SERVING, "it exposes request metrics"
    if _NOTEBOOK.search(name) or owner_kind.casefold() == "notebook":
        return WorkloadKind.NOTEBOOK, f"its name or owner says so ({owner_kind or name})"
    if _EVALUATION.search(name):
        return WorkloadKind.EVALUATION, "its name says evaluation"
    if jobs is not None and owner_kind.casefold() not in {"deployment", "statefulset", "daemonset"}:
        return _kind_of_runs(name, jobs, window)
    if owner_kind.casefold() in {"deployment", "statefulset", "daemonset"}:
        return WorkloadKind.SERVING, f"a {owner_kind} runs for ever; no request metrics were found"
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
    """Tell whether runs are submitted at the same time of day (so that capacity can be there before them)."""
    whole = ~jobs.cut
    if whole.sum() < 3:
        return False
    phase = np.mod(jobs.submit_s[whole], S_PER_DAY)
    off = np.abs(phase - np.median(phase))
    return bool(np.quantile(np.minimum(off, S_PER_DAY - off), 0.9) <= _REGULAR_S)

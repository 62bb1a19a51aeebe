"""Runs as they came: the `jobs` table, or where it is silent the pods that held GPUs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trimtab.fleet.columns import numbers, seconds_from, text
from trimtab.fleet.model import FloatArray, JobsObservation, Window


def job_observations(jobs: pa.Table, window: Window) -> dict[str, JobsObservation]:
    """Return the runs of each workload that started within the window or were running in it.

    A run that never started, or lies outside the window, is left out; one that crosses an edge is cut there.
    """
    names = np.array(text(jobs["workload"]), dtype=object)
    submit = seconds_from(jobs["submit"], window)
    start = seconds_from(jobs["start"], window)
    end = seconds_from(jobs["end"], window)
    ran = ~np.isnan(start) & (start < window.seconds) & (np.isnan(end) | (end > 0))
    gpus = numbers(jobs["gpus"])
    checkpoint = {name: numbers(jobs[f"checkpoint_{name}_s"]) for name in ("interval", "save", "restore")}
    found = {}
    for name in dict.fromkeys(names[ran].tolist()):
        mine = ran & (names == name)
        found[name] = _observed(
            submit[mine],
            start[mine],
            end[mine],
            gpus[mine],
            window,
            {key: _median(values[mine]) for key, values in checkpoint.items()},
        )
    return found


def pods_as_jobs(allocations: pa.Table, name: str, window: Window) -> JobsObservation | None:
    """Take each pod of a workload that held GPUs as one run; when it was submitted is unknown, so its wait counts as 0."""
    rows = allocations.filter(pa.array(np.array(text(allocations["workload"]), dtype=object) == name))
    gpus = numbers(rows["gpus"])
    start = seconds_from(rows["start"], window)
    end = seconds_from(rows["end"], window)
    useful = (gpus > 0) & (start < window.seconds) & (np.isnan(end) | (end > 0))
    if not useful.any():
        return None
    pods = np.array(text(rows["pod"]), dtype=object)[useful]
    unique, inverse = np.unique(pods.astype(str), return_inverse=True)
    first = np.full(len(unique), np.inf)
    last = np.full(len(unique), -np.inf)
    np.minimum.at(first, inverse, start[useful])
    np.maximum.at(last, inverse, np.where(np.isnan(end), np.inf, end)[useful])
    held = np.bincount(inverse, weights=gpus[useful], minlength=len(unique)).astype(np.float64)
    return _observed(first, first, np.where(np.isinf(last), np.nan, last), held, window, {})


def _observed(
    submit: FloatArray,
    start: FloatArray,
    end: FloatArray,
    gpus: FloatArray,
    window: Window,
    checkpoint: dict[str, float | None],
) -> JobsObservation:
    unfinished = np.isnan(end) | (end > window.seconds)
    begun_before = start < 0
    begin = np.maximum(start, 0.0)
    order = np.argsort(begin, kind="stable")
    return JobsObservation(
        submit_s=np.where(begun_before, begin, submit)[order],
        start_s=begin[order],
        end_s=np.where(unfinished, float(window.seconds), end)[order],
        gpus=gpus[order],
        cut=(unfinished | begun_before)[order],
        checkpoint_interval_s=checkpoint.get("interval"),
        checkpoint_save_s=checkpoint.get("save"),
        checkpoint_restore_s=checkpoint.get("restore"),
    )


def _median(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(np.median(seen)) if len(seen) else None

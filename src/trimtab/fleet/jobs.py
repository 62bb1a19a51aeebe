"""Runs as they came: the `jobs` table, or where it is silent the pods that held GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from trimtab.fleet.columns import numbers, seconds_from, text
from trimtab.fleet.model import FloatArray, IntArray, JobsObservation, Window
from trimtab.fleet.pods import Pods, one_type, pods_of_runs
from trimtab.fleet.unqueued import RunLengths, WaitingRuns, as_if_none_waited, run_lengths


def job_observations(
    jobs: pa.Table, type_of_node: Mapping[str, str], workloads: Mapping[str, int], pods: Pods, window: Window
) -> dict[str, JobsObservation]:
    """Return the runs of each workload that started within the window or were running in it.

    A run that never started, or lies outside the window, is left out; one that crosses an edge is cut there. `unqueued` has
    those that were waiting when the window ended: neither started nor withdrawn.
    """
    names = np.array(text(jobs["workload"]), dtype=object)
    submit = seconds_from(jobs["submit"], window)
    start = seconds_from(jobs["start"], window)
    end = seconds_from(jobs["end"], window)
    ran = ~np.isnan(start) & (start < window.seconds) & (np.isnan(end) | (end > 0))
    waits = (submit < window.seconds) & ((start >= window.seconds) | (np.isnan(start) & np.isnan(end)))
    gpus = numbers(jobs["gpus"])
    types = [_type_on(nodes, type_of_node) for nodes in text(jobs["node"])]
    checkpoint = {name: numbers(jobs[f"checkpoint_{name}_s"]) for name in ("interval", "save", "restore")}
    found = {}
    for name in dict.fromkeys(names[ran].tolist()):
        mine, queued, index = ran & (names == name), waits & (names == name), workloads[name]
        sizes, usual_gpus = pods.sizes(index), pods.usual_gpus(index)
        begun = (names == name) & (start < window.seconds)
        observed = _observed(
            submit[mine],
            start[mine],
            end[mine],
            gpus[mine],
            pods_of_runs(gpus[mine], sizes, usual_gpus),
            _types([types[row] for row in np.flatnonzero(mine)], pods.types_of_runs(index, start[mine], end[mine])),
            window,
            {key: _median(values[mine]) for key, values in checkpoint.items()},
        )
        waiting = WaitingRuns(
            submit_s=submit[queued], gpus=gpus[queued], pods=pods_of_runs(gpus[queued], sizes, usual_gpus)
        )
        lengths = _lengths(start[begun], end[begun], window)
        found[name] = replace(observed, unqueued=as_if_none_waited(observed, waiting, lengths, window))
    return found


def _lengths(start: FloatArray, end: FloatArray, window: Window) -> RunLengths:
    """Return how long runs last, of those that began by the window's end: what came after it is not known yet."""
    ended = end <= window.seconds
    return run_lengths(np.where(ended, end, float(window.seconds)) - start, ended)


def _types(named: Sequence[str], likely: Sequence[str]) -> tuple[str, ...]:
    """Return each run's type of GPU: that of the nodes it names, else that of the pods which it most likely was."""
    return tuple(named_type or other for named_type, other in zip(named, likely, strict=True))


def _type_on(nodes: str, type_of_node: Mapping[str, str]) -> str:
    """Return the type of GPU of the nodes that a run names, separated by commas."""
    return one_type(type_of_node.get(name.strip(), "") for name in nodes.split(",")) if nodes else ""


def pods_as_jobs(pods: Pods, workload: int, window: Window) -> JobsObservation | None:
    """Take each pod of a workload that held GPUs as one run; when it was submitted is unknown, so its wait counts as 0."""
    mine = (pods.workload == workload) & (pods.start_s < window.seconds) & (pods.end_s > 0)
    if not mine.any():
        return None
    start, end = pods.start_s[mine], pods.end_s[mine]
    gpu = tuple(pods.gpu[pod] for pod in np.flatnonzero(mine).tolist())
    ended = np.where(np.isinf(end), np.nan, end)
    return _observed(start, start, ended, pods.gpus[mine], np.ones(len(start), dtype=np.int64), gpu, window, {})


def _observed(
    submit: FloatArray,
    start: FloatArray,
    end: FloatArray,
    gpus: FloatArray,
    pods: IntArray,
    gpu: tuple[str, ...],
    window: Window,
    checkpoint: dict[str, float | None],
) -> JobsObservation:
    unfinished = np.isnan(end) | (end > window.seconds)
    begun_before = start < 0
    begin = np.maximum(start, 0.0)
    observed = JobsObservation(
        submit_s=np.where(begun_before, begin, submit),
        start_s=begin,
        end_s=np.where(unfinished, float(window.seconds), end),
        gpus=gpus,
        pods=pods,
        cut=unfinished | begun_before,
        gpu=gpu,
        checkpoint_interval_s=checkpoint.get("interval"),
        checkpoint_save_s=checkpoint.get("save"),
        checkpoint_restore_s=checkpoint.get("restore"),
    )
    # those that cross the first edge all begin there: in the order of the table, which may be that of their ends, the replay
    # would let runs share a node that end together, as nobody can who does not know when they will
    return observed.part(np.lexsort((submit, start)))


def _median(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(np.median(seen)) if len(seen) else None

"""Demand as it came: requests of the `demand` table on a regular grid, and runs, as they came and as if none had queued.

History shows of a run that queued only what it did by the window's end, and of one that never started nothing at all. How long
they would have gone on is expected from the lengths of the workload's runs by the product-limit estimate, in which runs that
the window's end cut count for as long as they were seen (Kaplan and Meier, "Nonparametric Estimation from Incomplete
Observations", Journal of the American Statistical Association 53, 1958).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.columns import coded, numbers, seconds_from, text
from trimtab.fleet.model import JobsObservation, ServiceObservation, TokenReadings, Window
from trimtab.fleet.occupancy import Pods, one_type, pods_of_runs
from trimtab.ledger.arrays import Flags, FloatArray, IntArray

DEMAND_COLUMNS = (
    "workload",
    "start",
    "interval_s",
    "arrivals",
    "completed",
    "running_mean",
    "waiting_mean",
    "input_tokens_mean",
    "output_tokens_mean",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "prefill_s",
    "decode_s",
    "replicas_ready",
    "latency_le_s",
    "latency_count",
    "ttft_le_s",
    "ttft_count",
    "tpot_le_s",
    "tpot_count",
)


def service_observations(demand: Iterable[tuple[str, pa.Table]], window: Window) -> dict[str, ServiceObservation]:
    """Return what each service saw, by workload name, of the rows of each; steps that have no row are NaN."""
    found = {name: _observation(rows, window) for name, rows in demand}
    return {name: seen for name, seen in found.items() if seen is not None}


def _observation(rows: pa.Table, window: Window) -> ServiceObservation | None:
    step_s = float(np.median(numbers(rows["interval_s"])))
    start = seconds_from(rows["start"], window)
    inside = (start >= 0) & (start < window.seconds)
    if not inside.any() or step_s <= 0:
        return None
    rows, start = rows.filter(pa.array(inside)), start[inside]
    steps = int(window.seconds // step_s)
    slot = np.minimum((start // step_s).astype(np.int64), steps - 1)
    arrivals = numbers(rows["arrivals"])
    arrivals = np.where(np.isnan(arrivals), numbers(rows["completed"]), arrivals)
    latency_le_s, latency_count = _histogram(rows, "latency", slot, steps)
    ttft_le_s, ttft_count = _histogram(rows, "ttft", slot, steps)
    tpot_le_s, tpot_count = _histogram(rows, "tpot", slot, steps)
    return ServiceObservation(
        step_s=step_s,
        arrivals=_on_grid(arrivals, slot, steps, add=True),
        replicas=_on_grid(numbers(rows["replicas_ready"]), slot, steps, add=False),
        running=_on_grid(numbers(rows["running_mean"]), slot, steps, add=True),
        latency_le_s=latency_le_s,
        latency_count=latency_count,
        ttft_le_s=ttft_le_s,
        ttft_count=ttft_count,
        waiting=_on_grid(numbers(rows["waiting_mean"]), slot, steps, add=True),
        input_tokens=_per_request(rows, "input_tokens", arrivals),
        output_tokens=_per_request(rows, "output_tokens", arrivals),
        tokens=_tokens(rows, slot, steps),
        tpot_le_s=tpot_le_s,
        tpot_count=tpot_count,
    )


def _tokens(rows: pa.Table, slot: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int) -> TokenReadings | None:
    """Return the tokens of each step; None if the history has none at all."""
    found = {
        "input": tokens_of(rows, "input_tokens"),
        "output": tokens_of(rows, "output_tokens"),
        "cached": numbers(rows["cached_tokens"]),
        "prefill_s": numbers(rows["prefill_s"]),
        "decode_s": numbers(rows["decode_s"]),
    }
    if np.isnan(found["input"]).all() and np.isnan(found["output"]).all():
        return None
    counted = not any(np.isnan(numbers(rows[name])).all() for name in ("input_tokens", "output_tokens"))
    on_grid = {name: _on_grid(values, slot, steps, add=True) for name, values in found.items()}
    return TokenReadings(**on_grid, counted=counted)


def tokens_of(rows: pa.Table, column: str) -> FloatArray:
    """Return `input_tokens` or `output_tokens` of each row of a `demand` table (n_rows,), NaN if not measured.

    Where a server counts no tokens, but says how long its requests were, they are the requests that it answered times that.
    """
    counted = numbers(rows[column])
    answered = numbers(rows["completed"])
    derived = np.where(answered == 0, 0.0, answered * numbers(rows[f"{column}_mean"]))
    # a service that never reported lengths has no 0 tokens in a quiet step either: it was not read
    told = not np.isnan(numbers(rows[f"{column}_mean"])).all()
    return np.where(np.isnan(counted) & told, derived, counted)


def _per_request(rows: pa.Table, column: str, arrivals: FloatArray) -> float | None:
    """Return the mean tokens of a request by a column's `_mean`, else by its total; None if neither was measured."""
    values = numbers(rows[f"{column}_mean"])
    both = ~np.isnan(values) & (arrivals > 0)
    if both.any():
        return float(np.average(values[both], weights=arrivals[both]))
    total, answered = numbers(rows[column]), numbers(rows["completed"])
    counted = ~np.isnan(total) & ~np.isnan(answered)
    requests = float(answered[counted].sum())
    return float(total[counted].sum()) / requests if requests > 0 else None


def _on_grid(
    values: FloatArray, slot: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int, *, add: bool
) -> FloatArray:
    """Put values into their steps: rows that share one add up (requests) or average (gauges); NaN if there is none."""
    seen = ~np.isnan(values)
    number = np.bincount(slot[seen], minlength=steps)
    total = np.bincount(slot[seen], weights=values[seen], minlength=steps)
    divisor = np.where(number > 0, 1 if add else number, 1)
    return np.where(number > 0, total / divisor, np.nan)


def _histogram(
    rows: pa.Table, name: str, slot: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int
) -> tuple[FloatArray, FloatArray]:
    """Return a histogram's bounds (n_buckets,) and its counts in each step (n_steps, n_buckets)."""
    bounds, counts = _buckets(rows, name)
    grid = np.zeros((steps, len(bounds)))
    np.add.at(grid, slot, counts)
    return bounds, grid


def _buckets(rows: pa.Table, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the bounds that most rows have and counts (n_rows, n_buckets); rows with other bounds are unmeasured."""
    bounds_column = rows[f"{name}_le_s"].combine_chunks()
    counts_column = rows[f"{name}_count"].combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(bounds_column), 0).to_numpy(zero_copy_only=False)
    if not lengths.any():
        return np.zeros(0), np.zeros((rows.num_rows, 0))
    common = Counter(lengths[lengths > 0].tolist()).most_common(1)[0][0]
    usual = np.flatnonzero(lengths == common)
    bounds = _matrix(bounds_column, usual, common)
    # a view would keep the bounds of every row
    reference = bounds[0].copy()
    counts = np.zeros((rows.num_rows, common))
    same = np.all((bounds == reference) | (np.isinf(bounds) & np.isinf(reference)), axis=1)
    counts[usual[same]] = np.nan_to_num(_matrix(counts_column, usual, common)[same])
    return reference, counts


def _matrix(column: pa.Array, rows: np.ndarray[tuple[int], np.dtype[np.int64]], width: int) -> FloatArray:
    taken = column.take(pa.array(rows))
    flat = np.asarray(pc.list_flatten(taken).to_numpy(zero_copy_only=False), dtype=np.float64)
    return flat.reshape(len(rows), width)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunLengths:
    """How long runs last: at each of `at_s` (n,), ascending from 0, which share `longer_frac` (n,) of runs goes on."""

    at_s: FloatArray
    longer_frac: FloatArray

    def expected_s(self, age_s: FloatArray, within_s: FloatArray) -> FloatArray:
        """Return how much longer runs of these ages are expected to last (n_runs,), counted up to `within_s` from now.

        Beyond the longest run that was observed to end as many go on as did then.
        """
        going_frac = self.longer_frac[np.maximum(np.searchsorted(self.at_s, age_s, side="left") - 1, 0)]
        return np.asarray((self._mean_s(age_s + within_s) - self._mean_s(age_s)) / going_frac)

    def _mean_s(self, until_s: FloatArray) -> FloatArray:
        """Return the mean length of runs, where each counts up to so long (n_runs,)."""
        whole_s = np.append(0.0, np.cumsum(np.diff(self.at_s) * self.longer_frac[:-1]))
        at = np.searchsorted(self.at_s, until_s, side="right") - 1
        return np.asarray(whole_s[at] + (until_s - self.at_s[at]) * self.longer_frac[at])


def run_lengths(ran_s: FloatArray, ended: Flags) -> RunLengths:
    """Return how long runs last, of runs (n_runs,) that were seen for `ran_s`; those that did not end go on from there."""
    ends_s, count = np.unique(ran_s[ended], return_counts=True)
    # seen for at least as long as each that ended
    at_risk = len(ran_s) - np.searchsorted(np.sort(ran_s), ends_s, side="left")
    return RunLengths(at_s=np.append(0.0, ends_s), longer_frac=np.append(1.0, np.cumprod(1.0 - count / at_risk)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingRuns:
    """Runs (n_runs,) that were submitted by the window's end and had not started by then."""

    submit_s: FloatArray
    gpus: FloatArray
    pods: IntArray


def as_if_none_waited(
    observed: JobsObservation, waiting: WaitingRuns, lengths: RunLengths, window: Window
) -> JobsObservation | None:
    """Return the runs, each from its submission or the window's start on; None if none waited."""
    asked_s, waited_s = np.maximum(observed.submit_s, 0.0), np.maximum(waiting.submit_s, 0.0)
    queued_s = observed.start_s - asked_s
    if not queued_s.any() and not len(waited_s):
        return None
    ran_s = observed.end_s - observed.start_s
    # those that ended did what they had to do, and those that began before the window did not queue in it
    goes_on_s = np.where(observed.end_s >= window.seconds, lengths.expected_s(ran_s, queued_s), 0.0)
    lasts_s = lengths.expected_s(np.zeros(len(waited_s)), window.seconds - waited_s)
    begin_s = np.concatenate([asked_s, waited_s])
    end_s = np.concatenate([asked_s + ran_s + goes_on_s, waited_s + lasts_s])
    every = replace(
        observed,
        submit_s=begin_s,
        start_s=begin_s,
        end_s=end_s,
        gpus=np.concatenate([observed.gpus, waiting.gpus]),
        pods=np.concatenate([observed.pods, waiting.pods]),
        cut=np.concatenate([observed.cut, np.ones(len(waited_s), dtype=np.bool_)]),
        gpu=observed.gpu + ("",) * (len(waited_s) if observed.gpu else 0),
    )
    # of equals, those that ran come before those that did not
    return every.part(np.argsort(begin_s, kind="stable"))


def job_observations(
    jobs: pa.Table, type_of_node: Mapping[str, str], workloads: Mapping[str, int], pods: Pods, window: Window
) -> dict[str, JobsObservation]:
    """Return the runs of each workload that started within the window or were running in it.

    A run that never started, or lies outside the window, is left out; one that crosses an edge is cut there. `unqueued` has
    those that were waiting when the window ended: neither started nor withdrawn.
    """
    owner, names = coded(jobs["workload"])
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(names) + 1))
    submit = seconds_from(jobs["submit"], window)
    start = seconds_from(jobs["start"], window)
    end = seconds_from(jobs["end"], window)
    ran = ~np.isnan(start) & (start < window.seconds) & (np.isnan(end) | (end > 0))
    waits = (submit < window.seconds) & ((start >= window.seconds) | (np.isnan(start) & np.isnan(end)))
    gpus = numbers(jobs["gpus"])
    types = [_type_on(nodes, type_of_node) for nodes in text(jobs["node"])]
    checkpoint = {name: numbers(jobs[f"checkpoint_{name}_s"]) for name in ("interval", "save", "restore")}
    found = {}
    for name, (first, last) in zip(names, pairwise(ends.tolist()), strict=True):
        rows = order[first:last]
        mine, queued, begun = rows[ran[rows]], rows[waits[rows]], rows[start[rows] < window.seconds]
        if not len(mine):
            continue
        index = workloads[name]
        sizes, usual_gpus = pods.sizes(index), pods.usual_gpus(index)
        observed = _observed(
            submit[mine],
            start[mine],
            end[mine],
            gpus[mine],
            pods_of_runs(gpus[mine], sizes, usual_gpus),
            _types([types[row] for row in mine.tolist()], pods.types_of_runs(index, start[mine], end[mine])),
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
    # would place runs that end together on one node, which a real scheduler cannot know in advance
    return observed.part(np.lexsort((submit, start)))


def _median(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(np.median(seen)) if len(seen) else None

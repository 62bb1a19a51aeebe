"""Requests as they came: the `demand` table as arrays on a regular grid."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.columns import numbers, seconds_from
from trimtab.fleet.model import FloatArray, ServiceObservation, TokenReadings, Window

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


def service_observations(demand: pa.Table, window: Window) -> dict[str, ServiceObservation]:
    """Return what each service saw, by workload name; steps that have no row are NaN."""
    names = [name for name in pc.unique(demand["workload"]).to_pylist() if name is not None]
    found = {name: _observation(demand.filter(pc.equal(demand["workload"], name)), window) for name in names}
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
    """Return the tokens of each step; None where the history has none at all."""
    found = {
        "input": tokens_of(rows, "input_tokens"),
        "output": tokens_of(rows, "output_tokens"),
        "cached": numbers(rows["cached_tokens"]),
        "prefill_s": numbers(rows["prefill_s"]),
        "decode_s": numbers(rows["decode_s"]),
    }
    if np.isnan(found["input"]).all() and np.isnan(found["output"]).all():
        return None
    return TokenReadings(**{name: _on_grid(values, slot, steps, add=True) for name, values in found.items()})


def tokens_of(rows: pa.Table, column: str) -> FloatArray:
    """Return `input_tokens` or `output_tokens` of each row of a `demand` table (n_rows,), NaN where nobody read them.

    Where a server counts no tokens, but says how long its requests were, they are the requests that it answered times that.
    """
    counted = numbers(rows[column])
    answered = numbers(rows["completed"])
    derived = np.where(answered == 0, 0.0, answered * numbers(rows[f"{column}_mean"]))
    # a service that never told lengths has no 0 tokens in a quiet step either: it was not read
    told = not np.isnan(numbers(rows[f"{column}_mean"])).all()
    return np.where(np.isnan(counted) & told, derived, counted)


def _per_request(rows: pa.Table, column: str, arrivals: FloatArray) -> float | None:
    """Return the mean tokens of a request by a column's `_mean`, else by its total; None where neither was measured."""
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
    """Put values into their steps: rows that share one add up (requests) or average (gauges); NaN where there is none."""
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
    reference = bounds[0]
    counts = np.zeros((rows.num_rows, common))
    same = np.all((bounds == reference) | (np.isinf(bounds) & np.isinf(reference)), axis=1)
    counts[usual[same]] = np.nan_to_num(_matrix(counts_column, usual, common)[same])
    return reference, counts


def _matrix(column: pa.Array, rows: np.ndarray[tuple[int], np.dtype[np.int64]], width: int) -> FloatArray:
    taken = column.take(pa.array(rows))
    flat = np.asarray(pc.list_flatten(taken).to_numpy(zero_copy_only=False), dtype=np.float64)
    return flat.reshape(len(rows), width)

"""What a request trace says of the demand to serve: its rate at the peak and on average, its tokens, its bursts.

A trace is a Parquet or CSV file with `t_s` and either one row per request (`input_tokens` and `output_tokens` where they are
known) or one row per interval with `requests_per_s` (by `client`, with `iat_cv`, where they are known); or it is the `demand`
of a fleet bundle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import InputError, UnknownName
from trimtab.inputs.arrow_tables import distinct_texts, floats, read_arrow_table
from trimtab.tables.bundle import META_FILE, read_bundle
from trimtab.units import HR_PER_YEAR, S_PER_HR, S_PER_MIN

Floats = npt.NDArray[np.float64]

PEAK_QUANTILE = 0.99
"""The busiest of a hundred intervals is what replicas are sized for."""
LARGE_RATE = 100.0
"""From here on, requests a second are told whole."""
BLOCK_IDS = "prefix_block_ids"
"""Ids of a prompt's blocks in order, each standing for all tokens up to its end (Mooncake's traces: blocks of 512)."""
BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_YEARS = 10
MOST_TOKENS = 10**9
"""No request is longer: the largest context of a model sold is 10^7."""
MOST_REQ_S = 1e9
PEAK_SIGMAS = 2.33
"""The same quantile of a normal count within an interval, where only its mean and burstiness are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """A demand as its trace shows it."""

    peak_req_s: float
    """The 99th percentile of the rate of a minute."""
    mean_req_s: float
    burst_cv: float
    """Coefficient of variation of the times between requests: 1 when they come at random, more in bursts."""
    input_tokens: float | None
    output_tokens: float | None
    longest_tokens: int | None
    """Input and output of the longest request."""
    hours: float
    cached_frac: float | None = None
    """Share of prompt tokens found in a prefix cache: as counted, or with an unlimited cache; None where nothing tells."""

    @property
    def summary(self) -> str:
        """Return what the trace shows, in a sentence."""
        rate = f"{_rate(self.mean_req_s)} requests/s on average, {_rate(self.peak_req_s)} in the busiest minutes"
        tokens = (
            f", {self.input_tokens:,.0f} tokens in and {self.output_tokens:,.0f} out"
            if self.input_tokens is not None and self.output_tokens is not None
            else ", no tokens recorded"
        )
        cached = "" if self.cached_frac is None else f", {self.cached_frac:.0%} of the prompt tokens cached"
        return f"trace of {self.hours:,.1f} h: {rate} (burst CV {self.burst_cv:.2f}){tokens}{cached}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= LARGE_RATE else f"{value:.3g}"


def read_request_mix(path: Path, *, workload: str | None = None) -> RequestMix:
    """Read a trace file or the demand of a fleet bundle; `workload` names one of several models or services.

    Raises InputError if it is not a trace, UnknownName for a workload that it lacks.
    """
    if path.is_dir():
        return _bundle_mix(path, workload)
    table = read_arrow_table(path)
    if "t_s" not in table.column_names:
        found = ", ".join(table.column_names)
        raise InputError(f"{path}: a trace has a column t_s (seconds from its start); found {found}")
    table = _one_of(table, "model", workload, path)
    if table.num_rows < 2:
        raise InputError(f"{path}: {table.num_rows} rows are no trace")
    return _rate_mix(table, path) if "requests_per_s" in table.column_names else _request_mix(table, path)


def _one_of(table: pa.Table, column: str, wanted: str | None, path: Path) -> pa.Table:
    """Return the rows of one model or service; the only one there is when none is named."""
    if column not in table.column_names:
        return table
    names = distinct_texts(table[column], f"{path}: {column}")
    if not names:
        raise InputError(f"{path}: holds no row; give a trace of requests")
    if wanted is None and len(names) > 1:
        raise InputError(f"{path}: holds several: {', '.join(names)}; choose one with --workload")
    chosen = wanted or names[0]
    if chosen not in names:
        raise UnknownName("workload of the trace", chosen, names)
    return table.filter(pc.equal(table[column].cast(pa.string()), chosen))


def _floats(table: pa.Table, name: str, path: Path) -> Floats | None:
    """Return a column as numbers, NaN if one is missing; None without the column. Raises InputError."""
    return floats(table, name, str(path)) if name in table.column_names else None


def _times(table: pa.Table, path: Path) -> Floats:
    found = _floats(table, "t_s", path)
    if found is None or not np.isfinite(found).all():
        raise InputError(f"{path}: t_s must be finite numbers")
    if len(found) and float(np.ptp(found)) > MOST_YEARS * HR_PER_YEAR * S_PER_HR:
        raise InputError(
            f"{path}: t_s spans {np.ptp(found):g} s; a trace spans up to {MOST_YEARS} years: is t_s in seconds?"
        )
    return found


def _request_mix(table: pa.Table, path: Path) -> RequestMix:
    arrived_s = _times(table, path)
    t_s = np.sort(arrived_s)
    span_s = float(t_s[-1] - t_s[0])
    if span_s <= 0:
        raise InputError(f"{path}: all requests come at the same moment; a rate needs a span of time")
    gaps = np.diff(t_s)
    window_s = min(float(S_PER_MIN), span_s)
    counts = np.bincount(((t_s - t_s[0]) // window_s).astype(np.int64))
    whole = counts[:-1] if len(counts) > 1 else counts
    tokens_in, tokens_out = _floats(table, "input_tokens", path), _floats(table, "output_tokens", path)
    longest = None if tokens_in is None or tokens_out is None else _longest(tokens_in + tokens_out, path)
    return RequestMix(
        peak_req_s=float(np.quantile(whole, PEAK_QUANTILE)) / window_s,
        mean_req_s=len(t_s) / span_s,
        burst_cv=float(gaps.std() / gaps.mean()),
        input_tokens=_mean(tokens_in),
        output_tokens=_mean(tokens_out),
        longest_tokens=longest,
        hours=span_s / (S_PER_MIN * S_PER_MIN),
        cached_frac=_cached_frac(table, arrived_s, tokens_in, path),
    )


def _cached_frac(table: pa.Table, arrived_s: Floats, tokens_in: Floats | None, path: Path) -> float | None:
    """Return the share of prompt tokens that a cache held (`cached_tokens`), or would hold (`prefix_block_ids`)."""
    if tokens_in is None:
        return None
    counted = _floats(table, "cached_tokens", path)
    if counted is None and BLOCK_IDS in table.column_names:
        counted = _repeated_tokens(table[BLOCK_IDS], np.argsort(arrived_s, kind="stable"), tokens_in, path)
    if counted is None:
        return None
    known = np.isfinite(counted) & np.isfinite(tokens_in)
    total = float(tokens_in[known].sum())
    if not total > 0:
        return None
    if (counted[known] < 0).any() or (counted[known] > tokens_in[known]).any():
        row = int(np.flatnonzero(known & ~((counted >= 0) & (counted <= tokens_in)))[0])
        raise InputError(f"{path} row {row + 2}: {counted[row]:g} cached tokens of {tokens_in[row]:g}")
    return float(counted[known].sum()) / total


def _repeated_tokens(blocks: pa.ChunkedArray, order: npt.NDArray[np.intp], tokens_in: Floats, path: Path) -> Floats:
    """Return the tokens of each prompt whose blocks came before, up to the first that did not.

    The cache keeps all blocks for ever, so this is the most that any cache finds. A block's id stands for all tokens up to
    its end, and blocks of one trace are of one size: the largest prompt per block tells it.
    """
    rows = blocks.to_pylist()
    counts = np.array([len(row or ()) for row in rows], dtype=np.float64)
    if not counts.any():
        return np.zeros(len(rows))
    block_tokens = _block_tokens(tokens_in, counts, path)
    seen: set[object] = set()
    repeated = np.zeros(len(rows))
    for at in order.tolist():
        mine = rows[at] or ()
        found = next((number for number, block in enumerate(mine) if block not in seen), len(mine))
        seen.update(mine)
        repeated[at] = min(found * block_tokens, tokens_in[at])
    return repeated


def _block_tokens(tokens_in: Floats, counts: Floats, path: Path) -> float:
    """Return the tokens of a block: the power of two that fits all prompts, of which each fills its blocks but the last."""
    known = (counts > 0) & np.isfinite(tokens_in)
    for size in BLOCK_SIZES:
        if (np.ceil(tokens_in[known] / size) <= counts[known]).all():
            return float(size)
    raise InputError(f"{path}: {BLOCK_IDS} are fewer than the prompts' tokens in blocks of {BLOCK_SIZES[-1]}")


def _longest(tokens: Floats, path: Path) -> int | None:
    """Return the most tokens that a request and its answer have together; None if no row tells both."""
    known = tokens[np.isfinite(tokens)]
    if not len(known):
        return None
    row = int(np.nanargmax(np.abs(tokens)))
    if np.isinf(tokens).any() or not 0 <= known.min() <= known.max() <= MOST_TOKENS:
        raise InputError(f"{path} row {row + 2}: {tokens[row]:g} tokens; a request has from 0 to {MOST_TOKENS:,}")
    return math.ceil(float(known.max()))


def _mean(values: Floats | None, weights: Floats | None = None) -> float | None:
    if values is None:
        return None
    known = np.isfinite(values) if weights is None else np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    if not known.any():
        return None
    return max(1.0, float(np.average(values[known], weights=None if weights is None else weights[known])))


def _rate_mix(table: pa.Table, path: Path) -> RequestMix:
    """Read rates per interval; rows of several clients at one time are added up."""
    t_s, rate = _times(table, path), _floats(table, "requests_per_s", path)
    assert rate is not None
    cv = _floats(table, "iat_cv", path)
    known = np.isfinite(rate) & (rate >= 0)
    at, place = np.unique(t_s[known], return_inverse=True)
    if len(at) < 2:
        raise InputError(f"{path}: rates at {len(at)} moments are no trace")
    step_s = float(np.median(np.diff(at)))
    total = np.bincount(place, weights=rate[known]).astype(np.float64)
    burst = np.ones(len(at)) if cv is None else _pooled_cv(rate[known], np.nan_to_num(cv[known], nan=1.0), place, total)
    return _from_rates(total, burst, step_s, _floats(table, "peak_minute_requests_per_s", path))


def _pooled_cv(rate: Floats, cv: Floats, place: npt.NDArray[np.intp], total: Floats) -> Floats:
    """Return the burstiness of streams laid together: variances of independent counts add (rate x cv^2 of each)."""
    spread = np.bincount(place, weights=rate * cv**2)
    return np.asarray(np.sqrt(np.divide(spread, total, out=np.ones_like(total), where=total > 0)))


def _from_rates(
    rate: Floats,
    burst: Floats,
    step_s: float,
    peaks: Floats | None = None,
    tokens: tuple[float | None, float | None] = (None, None),
) -> RequestMix:
    """Size by the busiest minutes: as recorded, or the mean and the spread that its burstiness gives a minute's count."""
    busiest = peaks if peaks is not None else rate + PEAK_SIGMAS * burst * np.sqrt(rate / S_PER_MIN)
    peak, mean = float(np.nanquantile(busiest, PEAK_QUANTILE)), float(np.nanmean(rate))
    if not 0 < mean < MOST_REQ_S or not np.isfinite(peak):
        raise InputError(
            f"the trace holds no requests, or more than {MOST_REQ_S:g} a second (mean {mean:g}, peak {peak:g})"
        )
    into, out = tokens
    return RequestMix(
        peak_req_s=max(peak, mean),
        mean_req_s=mean,
        burst_cv=float(np.average(burst, weights=rate)),
        input_tokens=into,
        output_tokens=out,
        longest_tokens=None,
        hours=len(rate) * step_s / (S_PER_MIN * S_PER_MIN),
    )


def _bundle_mix(folder: Path, workload: str | None) -> RequestMix:
    if not (folder / META_FILE).is_file():
        raise InputError(f"{folder}: no fleet bundle and no trace file")
    columns = ["workload", "interval_s", "arrivals", "input_tokens_mean", "output_tokens_mean"]
    columns += ["input_tokens", "cached_tokens"]
    table = _one_of(read_bundle(folder).table("demand", columns), "workload", workload, folder)
    arrivals, interval_s = _floats(table, "arrivals", folder), _floats(table, "interval_s", folder)
    assert arrivals is not None
    assert interval_s is not None
    known = np.isfinite(arrivals) & (interval_s > 0)
    if not known.any():
        raise InputError(f"{folder}: the demand of {workload or 'its services'} holds no arrivals")
    rate = arrivals[known] / interval_s[known]
    tokens = (
        _mean(_floats(table, "input_tokens_mean", folder), arrivals),
        _mean(_floats(table, "output_tokens_mean", folder), arrivals),
    )
    mix = _from_rates(rate, np.ones(len(rate)), float(np.median(interval_s[known])), tokens=tokens)
    return replace(mix, cached_frac=_counted_frac(table, arrivals, folder))


def _counted_frac(table: pa.Table, arrivals: Floats, folder: Path) -> float | None:
    """Return the share of prompt tokens that the servers counted as cached, over the intervals that tell both."""
    cached, counted = _floats(table, "cached_tokens", folder), _floats(table, "input_tokens", folder)
    mean = _floats(table, "input_tokens_mean", folder)
    if cached is None or counted is None or mean is None:
        return None
    # a server that counts no prompt tokens may still tell their mean
    prompts = np.where(np.isfinite(counted), counted, arrivals * mean)
    known = np.isfinite(cached) & np.isfinite(prompts) & (prompts > 0)
    # two counters of a server are not read at the same moment: never more than all of a prompt
    return min(1.0, float(cached[known].sum() / prompts[known].sum())) if known.any() else None

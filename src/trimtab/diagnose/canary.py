"""Compare a canary with what it would replace: throughput, p99 and cost per request, and what to do.

A run is cut into slices of time; slices are resampled with replacement (Efron's bootstrap over blocks, because requests next to
each other share queues: Kuensch 1989), both runs apart. The intervals are those of the ratio canary / present.

The rule. Roll back where the canary is surely worse: the low end of its p99 above the present one's by more than the slack, the
high end of its throughput below by more than the slack, the low end of its cost above, or more failures than the slack
allows. Promote where it is surely no worse: high end of p99 and low end of throughput within the slack, high end of cost
not above. Hold otherwise: the runs cannot tell yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.units import S_PER_HR

RESAMPLES = 1_000
MIN_SLICES = 5
"""Fewer slices than this cannot be resampled to an interval that means anything."""
_BINS = 4_000
"""Logarithmic bins of latency, which p99 is read from: 0.3 % apart over five decades."""
_QUANTILE = 0.99
_LOW, _HIGH = 2.5, 97.5


class CanaryVerdict(Enum):
    """What to do with the canary."""

    PROMOTE = "promote"
    HOLD = "hold"
    ROLL_BACK = "roll back"


class FigureStanding(Enum):
    """What the interval of one figure says, against what is tolerated."""

    FINE = "fine"
    UNCLEAR = "unclear"
    WORSE = "worse"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryRun:
    """One side: per slice of equal time, latencies of answered requests and how many failed; its hourly cost if known."""

    name: str
    slice_s: float
    latency_s: tuple[FloatArray, ...]
    weight: tuple[FloatArray, ...]
    """Requests that each latency stands for: 1, or a histogram's counts."""
    failed: FloatArray
    usd_hr: float | None

    @property
    def answered(self) -> float:
        """Return the requests answered."""
        return float(sum(weight.sum() for weight in self.weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One figure on both sides, and the interval of canary over present (of failures: their difference)."""

    what: str
    present: float
    canary: float
    low: float
    high: float
    standing: FigureStanding = FigureStanding.NOT_JUDGED


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryComparison:
    """The figures, the verdict, and what decided it."""

    verdict: CanaryVerdict
    because: tuple[str, ...]
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRule:
    """How much worse is tolerable, as a share; what is judged besides p99 and failures."""

    slack_frac: float = 0.10
    throughput: bool = True
    """False where the two sides are sent different shares of the traffic."""
    failures_frac: float = 0.005
    """By how much the share of failures may rise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """Figures of one side: as observed, and of each resample (RESAMPLES,)."""

    p99_s: tuple[float, FloatArray]
    req_s: tuple[float, FloatArray]
    failed: tuple[float, FloatArray]
    usd_req: tuple[float, FloatArray] | None


def compare(present: CanaryRun, canary: CanaryRun, rule: CanaryRule, *, seed: int) -> CanaryComparison:
    """Return the comparison; the same seed gives the same intervals."""
    rng = np.random.default_rng(seed)
    known = np.concatenate([*present.latency_s, *canary.latency_s])
    edges = np.geomspace(max(known.min(), 1e-6), max(known.max(), 1e-6) * 1.001, _BINS)
    one, other = _drawn(present, edges, rng), _drawn(canary, edges, rng)
    contrasts = [
        _ratio("p99 latency, s", one.p99_s, other.p99_s),
        _ratio("requests/s", one.req_s, other.req_s),
        _difference("failed, share", one.failed, other.failed),
    ]
    if one.usd_req is not None and other.usd_req is not None:
        contrasts.append(_ratio("$/request", one.usd_req, other.usd_req))
    return _verdict(tuple(contrasts), rule)


def _drawn(run: CanaryRun, edges: FloatArray, rng: np.random.Generator) -> _Drawn:
    count = len(run.latency_s)
    bins = np.stack(
        [
            np.bincount(np.searchsorted(edges, latency), weights=weight, minlength=len(edges) + 1)
            for latency, weight in zip(run.latency_s, run.weight, strict=True)
        ]
    )
    times = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    seen = np.vstack([np.ones(count), times])
    merged = seen @ bins
    answered, failed = merged.sum(axis=1), seen @ run.failed
    reached = np.cumsum(merged, axis=1) >= _QUANTILE * answered[:, None]
    p99 = edges[np.minimum(reached.argmax(axis=1), len(edges) - 1)]
    rate = answered / (count * run.slice_s)
    share = failed / np.maximum(failed + answered, 1e-9)
    cost = None if run.usd_hr is None else _split(run.usd_hr / S_PER_HR / np.maximum(rate, 1e-12))
    return _Drawn(p99_s=_split(p99), req_s=_split(rate), failed=_split(share), usd_req=cost)


def _split(values: FloatArray) -> tuple[float, FloatArray]:
    return float(values[0]), np.asarray(values[1:])


def _ratio(what: str, one: tuple[float, FloatArray], other: tuple[float, FloatArray]) -> Contrast:
    low, high = np.percentile(other[1] / np.maximum(one[1], 1e-12), [_LOW, _HIGH])
    return Contrast(what=what, present=one[0], canary=other[0], low=float(low), high=float(high))


def _difference(what: str, one: tuple[float, FloatArray], other: tuple[float, FloatArray]) -> Contrast:
    low, high = np.percentile(other[1] - one[1], [_LOW, _HIGH])
    return Contrast(what=what, present=one[0], canary=other[0], low=float(low), high=float(high))


def _verdict(measured: tuple[Contrast, ...], rule: CanaryRule) -> CanaryComparison:
    """Apply the rule of this module."""
    contrasts = tuple(replace(contrast, standing=_standing(contrast, rule)) for contrast in measured)
    worse = [contrast for contrast in contrasts if contrast.standing is FigureStanding.WORSE]
    unsure = [contrast for contrast in contrasts if contrast.standing is FigureStanding.UNCLEAR]
    if worse:
        said = tuple(f"{contrast.what}: surely worse ({_span(contrast)})" for contrast in worse)
        return CanaryComparison(verdict=CanaryVerdict.ROLL_BACK, because=said, contrasts=contrasts)
    if unsure:
        said = tuple(f"{contrast.what}: not conclusive yet ({_span(contrast)})" for contrast in unsure)
        return CanaryComparison(verdict=CanaryVerdict.HOLD, because=said, contrasts=contrasts)
    said = (f"no figure is worse than the slack of {rule.slack_frac:.0%} allows",)
    return CanaryComparison(verdict=CanaryVerdict.PROMOTE, because=said, contrasts=contrasts)


def _standing(contrast: Contrast, rule: CanaryRule) -> FigureStanding:
    """Return whether a figure is surely worse, surely fine, or neither."""
    match contrast.what:
        case "p99 latency, s":
            worse, fine = contrast.low > 1 + rule.slack_frac, contrast.high <= 1 + rule.slack_frac
        case "requests/s" if not rule.throughput:
            return FigureStanding.NOT_JUDGED
        case "requests/s":
            worse, fine = contrast.high < 1 - rule.slack_frac, contrast.low >= 1 - rule.slack_frac
        case "$/request":
            worse, fine = contrast.low > 1, contrast.high <= 1
        case _:
            worse, fine = contrast.low > rule.failures_frac, contrast.high <= rule.failures_frac
    if worse:
        return FigureStanding.WORSE
    return FigureStanding.FINE if fine else FigureStanding.UNCLEAR


def _span(contrast: Contrast) -> str:
    if contrast.what.startswith("failed"):
        return f"{contrast.low:+.2%} to {contrast.high:+.2%}"
    return f"{contrast.low - 1:+.1%} to {contrast.high - 1:+.1%}"


def sliced(
    latency_s: FloatArray, start_s: FloatArray, failed: FloatArray, *, slices: int
) -> tuple[tuple[FloatArray, ...], FloatArray, float]:
    """Return latencies and failures by slice of equal time, and a slice's length; `start_s` are moments of all requests."""
    first, last = float(start_s.min()), float(start_s.max())
    length = max(last - first, 1e-9) / slices
    place = np.minimum(((start_s - first) / length).astype(np.int64), slices - 1)
    good = ~failed.astype(bool)
    parts = tuple(latency_s[good & (place == at)] for at in range(slices))
    lost = np.bincount(place[~good], minlength=slices).astype(np.float64)
    return parts, lost, length


def run_of(
    name: str, latency_s: FloatArray, start_s: FloatArray, failed: FloatArray, usd_hr: float | None, *, slices: int = 30
) -> CanaryRun:
    """Return a run from single requests."""
    parts, lost, length = sliced(latency_s, start_s, failed, slices=slices)
    return CanaryRun(
        name=name,
        slice_s=length,
        latency_s=parts,
        weight=tuple(np.ones(len(part)) for part in parts),
        failed=lost,
        usd_hr=usd_hr,
    )

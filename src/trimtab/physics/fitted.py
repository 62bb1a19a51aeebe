"""Fitted laws as data: constants, sums of terms in the logarithm, and 80 % intervals from groups that were held back.

A term is an amount per level of some keys (`{"by": ["stack"], "of": "one", "sd": 0.4, "values": {"vllm-2025": -0.1}}`), times
a number of the row (`"of": "ln_tokens"`) or times one. A level that was never seen adds nothing, so that an unknown chip or
engine starts from its family and its year: that is what the shrinkage buys.

A question's class is what it asks (`static`, `ttft`, ...), how well its neighbours were measured (support) and which boards.
Where a class has too few held-out rows its parent's quantiles are used (`data/*.json`, key `intervals`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from trimtab.catalog import Gpu
from trimtab.errors import InputError
from trimtab.provenance import Basis, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """What memory papers leave out, fitted on measured peaks (see `data/memory.json` for n, error and source)."""

    keep_none: float
    """Kept activations without recomputation, over the paper's."""
    keep_selective: float
    """The same under selective recomputation."""
    working_layers: float
    """Working set under full recomputation, in layers without recomputation."""
    sharded_upcast: float
    """Growth of activations under FSDP with full recomputation."""
    quantized_upcast: float
    """Growth of activations over a quantized base without fused kernels."""
    dequantized_bytes: float
    """Bytes per base parameter that quantized training holds besides the weights."""
    logits_eager: float
    """Bytes per logit alive at once with an unfused loss."""
    logits_fused: float
    """The same with a fused linear cross-entropy."""
    slack_frac: float
    """Reserved over allocated memory, less one."""
    low: float
    """10 % end of ln(predicted / measured) for software that was never measured: between sources, and within them."""
    high: float
    """90 % end of the same."""


def read_fit(name: str) -> dict[str, object]:
    """Return a fitted file of the package by name."""
    text = files("trimtab.physics").joinpath(f"data/{name}").read_text(encoding="utf-8")
    content: dict[str, object] = json.loads(text)
    return content


@lru_cache(maxsize=1)
def memory_fit() -> MemoryFit:
    """Return the packaged constants of the memory model."""
    # the file states rows, error and source beside the constants; only these are needed to predict
    constants = read_fit("memory.json")["constants"]
    if not isinstance(constants, dict):
        raise TypeError("memory.json holds no table of constants")
    return MemoryFit(**{name: float(value) for name, value in constants.items()})


Floats = npt.NDArray[np.float64]
Keys = Mapping[str, str]
ONE = "one"
JOIN = "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term: the keys whose levels it distinguishes, the number it multiplies, its prior width and fitted values."""

    by: tuple[str, ...]
    of: str
    sd: float
    values: Mapping[str, float]

    def level(self, keys: Keys) -> str:
        """Return the level of a row; empty where one of its keys is empty, which means that the term is not for it."""
        parts = [keys[name] for name in self.by]
        return JOIN.join(parts) if all(parts) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A sum of terms around a base value."""

    base: float
    terms: tuple[Term, ...] = ()

    def at(self, rows: Sequence[Keys], numbers: Mapping[str, Floats] | None = None) -> Floats:
        """Return the sum for each row, `(n,)`; `numbers` holds the columns that terms multiply."""
        total = np.full(len(rows), self.base)
        for term in self.terms:
            # a term without keys has one amount for all rows; of the others an unseen level adds nothing
            amounts = np.array(
                [term.values.get(term.level(keys), 0.0) if term.by else term.values[""] for keys in rows]
            )
            total += amounts if term.of == ONE else amounts * (numbers or {})[term.of]
        return total


def terms_from(content: object) -> Terms:
    """Read terms from the parsed JSON of a coefficient file; raises InputError when it is not shaped so."""
    if not isinstance(content, dict):
        raise InputError("a coefficient table must be a mapping with base and terms")
    return Terms(base=float(content["base"]), terms=tuple(_term(item) for item in content["terms"]))


def _term(item: Mapping[str, object]) -> Term:
    by, values, sd = item["by"], item["values"], item["sd"]
    if not isinstance(by, list) or not isinstance(values, dict) or not isinstance(sd, int | float):
        raise InputError(f"a term needs by, of, sd and values, got {sorted(item)}")
    return Term(
        by=tuple(str(name) for name in by),
        of=str(item["of"]),
        sd=float(sd),
        values={str(level): float(amount) for level, amount in values.items()},
    )


def number_columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Floats]:
    """Return rows of numbers, all under the same names, as columns `(n,)`: what terms are evaluated on."""
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def terms_to_json(terms: Terms, *, digits: int = 5) -> dict[str, object]:
    """Return what `terms_from` reads back; amounts that round to nothing are left out."""
    return {
        "base": round(terms.base, digits),
        "terms": [
            {
                "by": list(term.by),
                "of": term.of,
                "sd": term.sd,
                "values": {
                    level: round(amount, digits)
                    for level, amount in sorted(term.values.items())
                    # a term without keys needs its one amount even where it is 0: `Terms.at` looks it up without a
                    # default
                    if not term.by or abs(amount) >= 10.0**-digits
                },
            }
            for term in terms.terms
        ],
    }


COVERED_FRAC = 0.80
LEAST_ROWS = 60
LEAST_GROUPS = 3
SLACK = 1.1
"""Widening of the held-out quantiles: they come from few groups, and held back once more they cover 74 % without it."""


class BoardClass(Enum):
    """Boards whose errors are alike."""

    RECENT = "recent"
    OLDER = "older"
    OTHER_VENDOR = "other-vendor"


def board_class(gpu: Gpu) -> BoardClass:
    """Return a board's class: NVIDIA's data-centre parts with HBM since the A100, its other boards, other vendors."""
    if gpu.vendor != "NVIDIA":
        return BoardClass.OTHER_VENDOR
    recent = gpu.memory_type.startswith("HBM") and (gpu.compute_capability or 0) >= 8
    return BoardClass.RECENT if recent and gpu.name != "A30" else BoardClass.OLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quantiles of ln(predicted / measured): 10 %, the centre, 90 %; and the rows behind them."""

    low: float
    centre: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Spreads by class, from the finest to the coarsest key."""

    spreads: Mapping[str, Spread]

    def spread(self, keys: Sequence[str]) -> Spread:
        """Return the first class that was measured; the last key must be."""
        return next(self.spreads[key] for key in keys if key in self.spreads)

    def estimate(self, predicted: float, keys: Sequence[str], *, because: str = "") -> Estimate:
        """Return the prediction, centred, with its 80 % interval."""
        spread = self.spread(keys)
        # errors are ln(predicted / measured), so a centre above 0 is over-prediction and is taken off
        value = predicted * math.exp(-spread.centre)
        return Estimate(
            value=value,
            # the ends swap: the highest error belongs to the lowest measurement. A shifted centre may lie outside of
            # the quantiles; the interval holds the value all the same.
            low=min(value, predicted * math.exp(-spread.high)),
            high=max(value, predicted * math.exp(-spread.low)),
            basis=Basis.MODELLED,
            because=because,
        )


def class_keys(asked: str, support: int, boards: BoardClass) -> tuple[str, ...]:
    """Return a question's classes from the finest to the coarsest."""
    return (f"{asked}/{support}/{boards.value}", f"{asked}/{boards.value}", f"{asked}/{support}", asked, "all")


def least_relative_error(errors: Floats) -> float:
    """Return the shift of ln(predicted) that minimises the mean of |predicted / measured - 1| on held-out rows."""
    # steps of 0.01, far below the errors themselves
    shifts = np.linspace(-0.2, 0.8, 101)
    costs = [float(np.mean(np.abs(np.exp(errors - shift) - 1))) for shift in shifts]
    return float(shifts[int(np.argmin(costs))])


def fit_intervals(
    rows: Iterable[tuple[tuple[str, ...], str, float]], *, centred: frozenset[str] = frozenset()
) -> Intervals:
    """Take the quantiles of held-out errors by class.

    `rows` are (class keys, group, ln(predicted / measured)). Classes named in `centred` are shifted to the least mean relative
    error, which lies below the median where errors are wide and skewed.
    """
    by_class: dict[str, list[tuple[str, float]]] = {}
    for keys, group, error in rows:
        # a row counts in its own class and in every coarser one, so that a parent is never emptier than its children
        for key in keys:
            by_class.setdefault(key, []).append((group, error))
    spreads = {key: _spread(key, found, centred) for key, found in by_class.items() if _suffices(key, found)}
    return Intervals(spreads=spreads)


def _suffices(key: str, found: Sequence[tuple[str, float]]) -> bool:
    enough = len(found) >= LEAST_ROWS and len({group for group, _ in found}) >= LEAST_GROUPS
    # a class without a slash is what a question falls back on: it stays, however few its rows
    return enough or "/" not in key


def _spread(key: str, found: Sequence[tuple[str, float]], centred: frozenset[str]) -> Spread:
    errors = np.array([error for _, error in found])
    tail = (1 - COVERED_FRAC) / 2
    low, middle, high = np.quantile(errors, [tail, 0.5, 1 - tail])
    asked = key.split("/")[0]
    centre = least_relative_error(errors) if asked in centred else 0.5 * float(middle)
    return Spread(low=SLACK * float(low), centre=centre, high=SLACK * float(high), rows=len(errors))


def intervals_from(content: object) -> Intervals:
    """Read spreads from the parsed JSON of a coefficient file."""
    if not isinstance(content, dict):
        raise TypeError("intervals must be a mapping of classes")
    return Intervals(
        spreads={
            str(key): Spread(low=item["low"], centre=item["centre"], high=item["high"], rows=item["rows"])
            for key, item in content.items()
        }
    )


def intervals_to_json(intervals: Intervals, *, digits: int = 4) -> dict[str, object]:
    """Return what `intervals_from` reads back."""
    return {
        key: {
            "low": round(spread.low, digits),
            "centre": round(spread.centre, digits),
            "high": round(spread.high, digits),
            "rows": spread.rows,
        }
        for key, spread in sorted(intervals.spreads.items())
    }

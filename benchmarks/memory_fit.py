"""Fit what memory papers leave out: robust least squares on ln errors with priors; engines' habits by shrunk medians."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import least_squares

from benchmarks.memory_rows import MemoryRow, training_of
from trimtab.physics.fitted import Floats, MemoryFit, read_fit
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.training import training_footprint
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB

PRIOR = MemoryFit(
    keep_none=1.15, keep_selective=0.55, working_layers=1.5, sharded_upcast=1.2, quantized_upcast=1.6, dequantized_bytes=0.25,
    logits_eager=8.0, logits_fused=0.5, slack_frac=0.05, low=-0.2, high=0.2,
)  # fmt: skip
"""Where the literature or one look at a row puts each constant."""
FITTED = tuple(name for name in asdict(PRIOR) if name not in ("low", "high"))
PRIOR_WIDTH = 0.35
NOISE = 0.08
GROUP_EXPONENT = -0.5
RESERVING_FRAC = 0.85
"""An engine that fills this share of an empty GPU with a 7B model reserves memory up front."""
ENGINE_SHRINK_ROWS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """How an inference engine takes memory: a share of the GPU up front, or its weights times a factor."""

    reserved_frac: float | None
    over_weights: float


DEFAULT_ENGINE = EngineMemory(reserved_frac=None, over_weights=1.15)


@cache
def engine_memory() -> Mapping[str, EngineMemory]:
    """Return the packaged habits of inference engines by name."""
    engines = read_fit("memory.json")["engines"]
    if not isinstance(engines, dict):
        raise TypeError("memory.json holds no table of engines")
    return {
        str(name): EngineMemory(reserved_frac=one.get("reserved_frac"), over_weights=float(one["over_weights"]))
        for name, one in engines.items()
    }


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Fitted constants of training memory and the habits of inference engines."""

    constants: MemoryFit
    engines: dict[str, EngineMemory]


def is_fitted(row: MemoryRow) -> bool:
    """Say whether a row's peak is a need: measured, and not the allocator's reservation at capacity."""
    return row.peak_gb is not None and not row.at_capacity


def predicted_gb(row: MemoryRow, model: MemoryModel) -> float:
    """Return the predicted peak of a row in decimal gigabytes."""
    if row.kind != "inference":
        footprint = training_footprint(training_of(row), fit=model.constants, seen_by_device=row.seen_by_device)
        return footprint.total_bytes / BYTES_PER_GB
    engine = model.engines.get(row.framework, DEFAULT_ENGINE)
    weights = weight_bytes(row.model, row.stored) * engine.over_weights / BYTES_PER_GB
    board = row.board.memory_gib * BYTES_PER_GIB / BYTES_PER_GB
    return max(weights, board * engine.reserved_frac) if engine.reserved_frac else weights


def fit_memory(rows: Sequence[MemoryRow]) -> MemoryModel:
    """Fit on the rows whose peak is a need."""
    needs = [row for row in rows if is_fitted(row)]
    return MemoryModel(_fit_training([row for row in needs if row.kind != "inference"]), _fit_engines(needs))


def _fit_training(rows: Sequence[MemoryRow]) -> MemoryFit:
    count = Counter(row.group for row in rows)
    weights = np.array([count[row.group] ** (GROUP_EXPONENT / 2) for row in rows])
    measured = np.log([row.peak_gb or 1.0 for row in rows])
    start = np.log([asdict(PRIOR)[name] for name in FITTED])

    def constants(logs: Floats) -> MemoryFit:
        return replace(PRIOR, **dict(zip(FITTED, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: Floats) -> Floats:
        model = MemoryModel(constants(logs), {})
        errors = np.log([predicted_gb(row, model) for row in rows]) - measured
        return np.concatenate([weights * errors / NOISE, (logs - start) / PRIOR_WIDTH])

    solved = least_squares(residuals, start, loss="soft_l1", max_nfev=40)
    return constants(np.asarray(solved.x))


def _fit_engines(rows: Sequence[MemoryRow]) -> dict[str, EngineMemory]:
    by_engine: dict[str, list[MemoryRow]] = {}
    for row in rows:
        if row.kind == "inference":
            by_engine.setdefault(row.framework, []).append(row)
    return {name: _engine(found) for name, found in sorted(by_engine.items())}


def _engine(rows: Sequence[MemoryRow]) -> EngineMemory:
    peaks = np.array([row.peak_gb or 0.0 for row in rows]) * BYTES_PER_GB
    of_board = float(np.median(peaks / np.array([row.board.memory_gib * BYTES_PER_GIB for row in rows])))
    ratios = np.log(peaks / np.array([weight_bytes(row.model, row.stored) for row in rows]))
    share = len(rows) / (len(rows) + ENGINE_SHRINK_ROWS)
    over = float(np.exp(share * np.median(ratios) + (1 - share) * np.log(DEFAULT_ENGINE.over_weights)))
    if of_board > RESERVING_FRAC:
        return EngineMemory(reserved_frac=round(of_board, 4), over_weights=DEFAULT_ENGINE.over_weights)
    return EngineMemory(reserved_frac=None, over_weights=round(over, 4))

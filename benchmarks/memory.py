"""Memory predictions against measured peaks: `python -m benchmarks.memory --data memory.csv [--out FILE] [--refit]`.

Rows of groups that the packaged constants were fitted on are predicted by constants that never saw their group; rows of other
groups by the packaged constants. `--refit` fits on all rows and writes `src/trimtab/physics/data/memory.json`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.stats import t as student_t

import trimtab.physics
from benchmarks.memory_fit import MemoryModel, engine_memory, fit_memory, is_fitted, predicted_gb
from benchmarks.memory_rows import MemoryRow, read_memory
from trimtab.physics.fitted import memory_fit, read_fit
from trimtab.physics.training import KEPT_FREE_FRAC
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB

SOURCE = "fitted on published peaks (fms-acceleration, litgpt, torchtitan, premAI, PEFT, torchtune), 2026-11-20"
TAIL_FRAC = 0.1
NORMAL_MAD = 1.4826
"""The standard deviation over the median absolute deviation of a normal distribution."""


def held_out_gb(rows: Sequence[MemoryRow]) -> dict[str, float]:
    """Predict every row by constants that never saw its group."""
    found: dict[str, float] = {}
    for group in sorted({row.group for row in rows}):
        model = fit_memory([row for row in rows if row.group != group])
        found |= {row.id: predicted_gb(row, model) for row in rows if row.group == group}
    return found


def source_of(row: MemoryRow) -> str:
    """Return the software that a row measured: its own habits are what another source cannot tell."""
    return f"inference/{row.framework}" if row.kind == "inference" else row.framework


def errors_by_source(rows: Sequence[MemoryRow]) -> dict[str, list[float]]:
    """Return ln(predicted / measured) of every source by constants that never saw that source.

    Engines that reserve a share of the GPU up front are left out: nothing but a row of their own tells that they do.
    """
    found: dict[str, list[float]] = {}
    reserving = {f"inference/{name}" for name, engine in fit_memory(rows).engines.items() if engine.reserved_frac}
    for source in sorted({source_of(row) for row in rows} - reserving):
        model = fit_memory([row for row in rows if source_of(row) != source])
        mine = [row for row in rows if source_of(row) == source and is_fitted(row)]
        if mine:
            found[source] = [math.log(predicted_gb(row, model) / (row.peak_gb or math.nan)) for row in mine]
    return found


def predictive_interval(errors: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the 10 and 90 % ends of the error of a source that was never seen.

    A source's rows share an error (its median), around which they scatter; both spreads are robust (1.4826 times the median
    deviation). Few sources make the interval wider, by Student's t and by the error of their centre.
    """
    medians = np.array([np.median(part) for part in errors.values()])
    scatter = [NORMAL_MAD * float(np.median(np.abs(np.array(part) - np.median(part)))) for part in errors.values()]
    between = NORMAL_MAD * float(np.median(np.abs(medians - np.median(medians))))
    sources = len(medians)
    spread = math.sqrt(between**2 * (1 + 1 / sources) + float(np.mean(np.square(scatter))))
    half = float(student_t.ppf(1 - TAIL_FRAC, sources - 1)) * spread
    centre = float(np.median(medians))
    return centre - half, centre + half


def interval_coverage(errors: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the share of rows, and the mean share of a source, inside the interval made without that source."""
    shares: list[float] = []
    inside: list[bool] = []
    for source, mine in errors.items():
        low, high = predictive_interval({name: part for name, part in errors.items() if name != source})
        held = [low <= error <= high for error in mine]
        inside += held
        shares.append(float(np.mean(held)))
    return float(np.mean(inside)), float(np.mean(shares))


def predict_all(rows: Sequence[MemoryRow]) -> dict[str, float]:
    """Predict rows of known groups held out, all others with the packaged constants."""
    groups = read_fit("memory.json")["groups"]
    known = set(groups) if isinstance(groups, list) else set()
    packaged = MemoryModel(memory_fit(), dict(engine_memory()))
    seen = [row for row in rows if row.group in known]
    fresh = {row.id: predicted_gb(row, packaged) for row in rows if row.group not in known}
    return fresh | (held_out_gb(seen) if seen else {})


def board_gb(row: MemoryRow) -> float:
    """Return the memory that a plan may fill on the row's GPU, in decimal gigabytes."""
    return row.board.memory_gib * (1 - KEPT_FREE_FRAC) * BYTES_PER_GIB / BYTES_PER_GB


def scores(rows: Sequence[MemoryRow], found: Mapping[str, float]) -> dict[str, object]:
    """Return every figure of the benchmark."""
    needs = [row for row in rows if is_fitted(row)]
    errors = np.array([abs(found[row.id] / (row.peak_gb or math.nan) - 1) for row in needs])
    failed = [row for row in rows if row.oom]
    ran = [row for row in rows if not row.oom and row.peak_gb is not None]
    false_fits = float(np.mean([found[row.id] <= board_gb(row) for row in failed])) if failed else math.nan
    right_fits = float(np.mean([found[row.id] <= board_gb(row) for row in ran])) if ran else math.nan
    row_share, source_share = interval_coverage(errors_by_source(rows))
    parts: dict[str, list[float]] = defaultdict(list)
    for row, error in zip(needs, errors.tolist(), strict=True):
        parts[f"{row.framework}/{row.kind if row.kind == 'inference' else row.method}"].append(error)
    return {
        "rows": len(rows),
        "rows_with_need": len(needs),
        "mape_frac": round(float(np.mean(errors)), 4),
        "mdape_frac": round(float(np.median(errors)), 4),
        "fits_balanced_accuracy_frac": round((right_fits + 1 - false_fits) / 2, 4),
        "false_fits_frac": round(false_fits, 4),
        "ran_but_called_too_large_frac": round(1 - right_fits, 4),
        "interval_coverage_of_unseen_sources_frac": round(source_share, 4),
        "interval_coverage_of_their_rows_frac": round(row_share, 4),
        "by_source": {
            name: {"rows": len(part), "mape_frac": round(float(np.mean(part)), 4)} for name, part in parts.items()
        },
    }


def refit(rows: Sequence[MemoryRow]) -> dict[str, object]:
    """Return the content of memory.json, its interval from held-out groups."""
    held = held_out_gb(rows)
    logs = np.log([held[row.id] / (row.peak_gb or math.nan) for row in rows if is_fitted(row)])
    low, high = predictive_interval(errors_by_source(rows))
    model = fit_memory(rows)
    constants = replace(model.constants, low=float(low), high=float(high))
    return {
        "version": 1,
        "source": SOURCE,
        "rows": len(logs),
        "held_out_mape_frac": round(float(np.mean(np.abs(np.exp(logs) - 1))), 4),
        "groups": sorted({row.group for row in rows}),
        "constants": {name: round(value, 4) for name, value in asdict(constants).items()},
        "engines": {name: asdict(engine) for name, engine in model.engines.items()},
    }


def write_answers(path: Path, rows: Sequence[MemoryRow], found: Mapping[str, float]) -> None:
    """Write id, predicted, low, high in decimal gigabytes."""
    fit = memory_fit()
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "predicted", "low", "high"])
        for row in rows:
            value = found[row.id]
            writer.writerow(
                [row.id, *(f"{one:.4g}" for one in (value, value * math.exp(-fit.high), value * math.exp(-fit.low)))]
            )


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured peaks, columns of the perf data set")
    parser.add_argument("--out", type=Path, help="write id,predicted,low,high here")
    parser.add_argument("--refit", action="store_true", help="fit on all rows and write the package's memory.json")
    options = parser.parse_args()
    rows = read_memory(options.data)
    if options.refit:
        target = Path(trimtab.physics.__file__).parent / "data" / "memory.json"
        target.write_text(json.dumps(refit(rows), indent=1) + "\n", encoding="utf-8")
        return
    found = predict_all(rows)
    if options.out:
        write_answers(options.out, rows, found)
    print(json.dumps({"benchmark": "memory", "data": str(options.data), **scores(rows, found)}))


if __name__ == "__main__":
    main()

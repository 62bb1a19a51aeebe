"""Speed predictions against measured rows: `python -m benchmarks.predict --data measured.csv [--out FILE] [--sources]`.

Rows of groups that the packaged constants were fitted on are predicted by models that never saw their group (grouped
cross-validation, the same code and priors); rows of other groups by the packaged constants themselves. With --sources only rows
of language inference are answered, by models that never saw their whole source.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.fitted import (
    KINDS,
    fit_tables,
    held_out,
    kind_of,
    packaged_estimates,
    point_predictions,
    with_held_intervals,
)
from benchmarks.perf_rows import Row, is_ttft, language_model, read_rows
from benchmarks.scores import (
    Answers,
    coverage,
    hard_price_accuracy,
    mean,
    median,
    one_point_errors,
    pair_errors,
    relative_errors,
    same_but_tensor,
    width_ratio,
)
from trimtab.physics.fitted import board_class, fit_intervals
from trimtab.physics.predict import SKEWED, packaged
from trimtab.provenance import Estimate

LEAST_ROWS_PER_CHIP = 10


def predict_rows(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Answer every row by constants that never saw its group."""
    fitted = frozenset().union(*(packaged(kind).groups for kind in KINDS))
    answers = packaged_estimates([row for row in rows if row.group not in fitted])
    for kind in KINDS:
        mine = [row for row in rows if row.group in fitted and kind_of(row) == kind]
        print(f"{kind}: {len(mine)} rows held back group by group")
        if mine:
            answers |= with_held_intervals(held_out(kind, mine))
    return answers


def sources_held_back(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Answer rows of language inference by constants that never saw their source: software that nobody measured.

    Intervals are made as the packaged ones are, of errors of held-out groups; here of those of the other sources.
    """
    mine = [row for row in rows if kind_of(row) == "serving"]
    held = held_out("serving", mine)
    answers: dict[str, Estimate] = {}
    for source in sorted({row.source for row in mine}):
        asked = [row for row in mine if row.source == source]
        tables = fit_tables("serving", [row for row in mine if row.source != source])
        values, classes = point_predictions("serving", tables, asked)
        others = [(one.classes, one.row.group, one.log_error) for one in held if one.row.source != source]
        intervals = fit_intervals(others, centred=SKEWED)
        for row, value, keys in zip(asked, values.tolist(), classes, strict=True):
            answers[row.id] = intervals.estimate(value, keys)
    return answers


def source_scores(rows: Sequence[Row], answers: Answers) -> dict[str, object]:
    """Return how often intervals hold, and how wide they are: of all rows, by source, by class of boards."""
    answered = [row for row in rows if row.id in answers]
    by_source = by_key(answered, answers, lambda row: row.source)
    return {
        "rows": len(answered),
        "interval_coverage_frac": _rounded(coverage(answered, answers)),
        "mean_source_coverage_frac": _rounded(
            mean(np.array([one["interval_coverage_frac"] for one in by_source.values()]))
        ),
        "interval_ratio_median": _rounded(width_ratio(answered, answers)),
        "by_source": by_source,
        "by_board_class": by_key(answered, answers, lambda row: board_class(row.board).value),
    }


def write_answers(path: Path, rows: Sequence[Row], answers: Answers) -> None:
    """Write id, predicted, low, high; rows on which physics abstains are left out."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "predicted", "low", "high"])
        for row in rows:
            if (one := answers.get(row.id)) is not None:
                writer.writerow([row.id, f"{one.value:.6g}", f"{one.low:.6g}", f"{one.high:.6g}"])


def by_key(rows: Sequence[Row], answers: Answers, key: Callable[[Row], str]) -> dict[str, dict[str, float]]:
    """Return rows, MdAPE and coverage by a key of the row."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    return {
        name: {
            "rows": len(part),
            "mdape_frac": _rounded(median(relative_errors(part, answers))),
            "interval_coverage_frac": _rounded(coverage(part, answers)),
        }
        for name, part in sorted(parts.items())
    }


def _rounded(value: float) -> float:
    return round(value, 4) if math.isfinite(value) else value


def scores(rows: Sequence[Row], answers: Answers) -> dict[str, object]:
    """Return every figure of the benchmark."""
    nvidia = [row for row in rows if row.is_nvidia]
    inference = [row for row in nvidia if row.kind == "inference"]
    language = [row for row in inference if language_model(row) is not None and not is_ttft(row)]
    trained = [row for row in nvidia if row.kind != "inference"]
    other = [row for row in trained if row.source in ("lam", "dle")]
    llm = [row for row in trained if row.source not in ("lam", "dle")]
    timed = [row for row in nvidia if not is_ttft(row)]
    points = one_point_errors(language, answers)
    pairs = pair_errors(timed, answers)
    # a replica whose layers are split over all its GPUs, and over nothing else
    split = [
        row for row in language if row.tensor == row.gpus and row.pipeline in (None, 1) and row.expert in (None, 1)
    ]
    numbers = pair_errors(split, answers, question=same_but_tensor, choice=lambda row: row.tensor)
    chips = by_key(timed, answers, lambda row: row.chip)
    enough = [one["mdape_frac"] for one in chips.values() if one["rows"] >= LEAST_ROWS_PER_CHIP]
    figures = {
        "abstained_frac": 1 - len([row for row in nvidia if row.id in answers]) / max(len(nvidia), 1),
        "mdape_frac": median(relative_errors(language, answers)),
        "mdape_one_point_frac": median(points),
        "p90_one_point_frac": float(np.quantile(points, 0.9)) if len(points) else math.nan,
        "pair_ratio_error_frac": math.exp(median(pairs)) - 1,
        "hard_price_accuracy_frac": hard_price_accuracy(pairs),
        "tensor_ratio_error_frac": math.exp(median(numbers)) - 1,
        "p90_tensor_ratio_error_frac": math.exp(float(np.quantile(numbers, 0.9))) - 1 if len(numbers) else math.nan,
        "median_chip_mdape_frac": median(np.array(enough)),
        "worst_chip_mdape_frac": max(enough, default=math.nan),
        "ttft_mape_frac": mean(relative_errors([row for row in inference if is_ttft(row)], answers)),
        "training_mape_frac": mean(relative_errors(llm, answers)),
        "training_other_mape_frac": mean(relative_errors(other, answers)),
        "interval_coverage_frac": coverage(rows, answers),
        "interval_ratio_median": width_ratio(rows, answers),
        "other_vendors_mdape_frac": median(relative_errors([row for row in rows if not row.is_nvidia], answers)),
    }
    return {
        "rows": len(rows),
        "pairs": len(pairs),
        "tensor_pairs": len(numbers),
        **{name: _rounded(value) for name, value in figures.items()},
        "by_chip": chips,
        "by_source": by_key(nvidia, answers, lambda row: row.source + ("-ttft" if is_ttft(row) else "")),
        "by_framework": by_key(language, answers, lambda row: row.framework),
        "by_board_class": by_key(rows, answers, lambda row: board_class(row.board).value),
    }


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured rows, columns of the perf data set")
    parser.add_argument("--out", type=Path, help="write id,predicted,low,high here")
    parser.add_argument("--sources", action="store_true", help="hold whole sources back (8 minutes of processor time)")
    options = parser.parse_args()
    rows = read_rows(options.data)
    if options.sources:
        found = source_scores(rows, sources_held_back(rows))
        print(json.dumps({"benchmark": "predict", "data": str(options.data), "held_back": "sources", **found}))
        return
    answers = predict_rows(rows)
    if options.out:
        write_answers(options.out, rows, answers)
    print(json.dumps({"benchmark": "predict", "data": str(options.data), **scores(rows, answers)}))


if __name__ == "__main__":
    main()

"""`trimtab fit` for models that generate no text, on groups held back: `python -m benchmarks.other_models --data measured.csv`.

Every row is predicted by a fit that never saw its group (model family x chip); intervals come from the other groups. Reported
on the rows that `fit` answers with (MLPerf's scenarios), by model, beside the ratio of tensor rates and that of bandwidths
from the model's best-measured other chip, which is what a data sheet gives. Models that are told on their own chips only are
also predicted with single rows held back, since other rows of the chip are known where `fit` answers. With --sources also by
fits and intervals that never saw the row's whole source (a round of MLPerf), for models that other sources measured. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.fitted import (
    Held,
    fit_tables,
    held_out,
    kind_of,
    packaged_estimates,
    point_predictions,
    with_held_intervals,
)
from benchmarks.perf_rows import Row, read_rows
from benchmarks.training_rows import workload_query
from trimtab.physics.fitted import Intervals, fit_intervals
from trimtab.physics.measured_models import MLPERF, WorkloadQuery, measured_models, rate_tflops
from trimtab.physics.predict import SKEWED, packaged
from trimtab.provenance import Estimate

ROW_FOLDS = 5


def answered(held: Sequence[Held]) -> dict[str, list[Held]]:
    """Return the held-back rows that `fit` answers with, by task."""
    tasks = {model.task for model in measured_models().values()}
    found = defaultdict(list)
    for one in held:
        query = workload_query(one.row)
        if query is not None and query.domain == MLPERF and query.task in tasks:
            found[query.task].append(one)
    return found


def figures(held: Sequence[Held], answers: dict[str, Estimate]) -> dict[str, float]:
    """Return rows, median error and coverage of rows, after their intervals' centres."""
    errors = [abs(answers[one.row.id].value / one.row.value - 1) for one in held]
    inside = [answers[one.row.id].low <= one.row.value <= answers[one.row.id].high for one in held]
    return {
        "rows": len(held),
        "mdape_frac": round(float(np.median(errors)), 4),
        "p90_frac": round(float(np.quantile(errors, 0.9)), 4),
        "covered_frac": round(float(np.mean(inside)), 4),
        "high_over_low": round(
            float(np.median([answers[one.row.id].high / answers[one.row.id].low for one in held])), 2
        ),
    }


def sheet_errors(rows: Sequence[Row]) -> dict[str, float]:
    """Return the median error of carrying a chip's mean speed a GPU to every other chip by a ratio of the data sheet."""
    by_question: dict[tuple[str, ...], list[tuple[Row, WorkloadQuery]]] = defaultdict(list)
    for row in rows:
        query = workload_query(row)
        if query is not None:
            by_question[query.task, query.mode, query.precision].append((row, query))
    errors: dict[str, list[float]] = {"tensor_rate": [], "bandwidth": []}
    for asked in by_question.values():
        for row, query in asked:
            others = [(one, its) for one, its in asked if one.chip != row.chip]
            if not others:
                continue
            for name, of in (
                ("tensor_rate", lambda its: rate_tflops(its.gpu, its.precision)),
                ("bandwidth", lambda its: its.gpu.mem_bw_gb_s),
            ):
                logs = [math.log(one.value / its.gpus / its.device_frac / of(its)) for one, its in others]
                predicted = math.exp(float(np.median(logs))) * of(query) * query.gpus * query.device_frac
                errors[name].append(abs(predicted / row.value - 1))
    return {name: round(float(np.median(found)), 4) for name, found in errors.items()}


def without_source(rows: Sequence[Row], source: str) -> tuple[list[Held], dict[str, Estimate]]:
    """Predict a source's rows, of models that others measured, from the other sources alone; by row id."""
    rest = [row for row in rows if row.source != source]
    known = {query.task for row in rest if (query := workload_query(row)) is not None}
    asked = [row for row in rows if row.source == source and (its := workload_query(row)) and its.task in known]
    intervals = fit_intervals(
        [(one.classes, one.row.group, one.log_error) for one in held_out("workloads", rest)], centred=SKEWED
    )
    values, classes = point_predictions("workloads", fit_tables("workloads", rest), asked)
    answers = {row.id: intervals.estimate(value, keys) for row, value, keys in zip(asked, values, classes, strict=True)}
    errors = np.log(values) - np.log([row.value for row in asked])
    return [Held(*one) for one in zip(asked, errors.tolist(), classes, strict=True)], answers


def on_their_own_chips(rows: Sequence[Row], intervals: Intervals) -> dict[str, dict[str, float]]:
    """Return the figures of models that are told on their own chips only, by fits that know other rows of the chip.

    A fifth of the rows of these models is held back at a time.
    """
    tasks = {model.task for model in measured_models().values() if not model.transfers}
    queries = {row.id: workload_query(row) for row in rows}
    asked = [row for row in rows if (its := queries[row.id]) and its.domain == MLPERF and its.task in tasks]
    answers: dict[str, Estimate] = {}
    held: dict[str, list[Held]] = defaultdict(list)
    for fold in range(ROW_FOLDS):
        out = asked[fold::ROW_FOLDS]
        without = {row.id for row in out}
        values, classes = point_predictions(
            "workloads", fit_tables("workloads", [row for row in rows if row.id not in without]), out
        )
        for row, value, keys in zip(out, values, classes, strict=True):
            answers[row.id] = intervals.estimate(value, keys)
            query = queries[row.id]
            assert query is not None
            held[query.task].append(Held(row, math.log(value / row.value), keys))
    pooled = {"all": [one for found in held.values() for one in found], **held}
    return {name: figures(found, answers) for name, found in sorted(pooled.items())}


def by_source(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the figures of each source of the rows that `fit` answers with, of all, and by class of boards."""
    sources = sorted({row.source for row in rows if (query := workload_query(row)) and query.domain == MLPERF})
    pooled: dict[str, list[Held]] = defaultdict(list)
    answers: dict[str, Estimate] = {}
    for source in sources:
        held, found = without_source(rows, source)
        answers |= found
        for one in (one for ones in answered(held).values() for one in ones):
            for name in (source, "all", one.classes[1].split("/")[1]):
                pooled[name].append(one)
    return {name: figures(held, answers) for name, held in sorted(pooled.items())}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured rows, columns of the perf data set")
    parser.add_argument(
        "--sources", action="store_true", help="hold back whole sources too: a fit for each fold of each"
    )
    options = parser.parse_args()
    rows = [row for row in read_rows(options.data) if kind_of(row) == "workloads"]
    held = held_out("workloads", rows)
    answers = with_held_intervals(held)
    by_task = answered(held)
    of_all = [one for found in by_task.values() for one in found]
    told = {model.task for model in measured_models().values() if model.transfers}
    transferred = [one for task, found in by_task.items() if task in told for one in found]
    seen = packaged_estimates([one.row for one in of_all])
    print(
        json.dumps(
            {
                "benchmark": "other_models",
                "all": figures(of_all, answers),
                "told_on_other_chips": figures(transferred, answers),
                "on_chips_in_the_fit": {task: figures(found, seen) for task, found in sorted(by_task.items())},
                "row_held_back_on_own_chips": on_their_own_chips(rows, packaged("workloads").intervals),
                "by_task": {task: figures(found, answers) for task, found in sorted(by_task.items())},
                "data_sheet_mdape_frac": sheet_errors([one.row for one in transferred]),
                "by_source": by_source(rows) if options.sources else {},
            }
        )
    )


if __name__ == "__main__":
    main()

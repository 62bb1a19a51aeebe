"""How predictions are scored: relative errors, one-point calibration, pairs of GPUs, hard price decisions, coverage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from benchmarks.perf_rows import Row
from trimtab.physics.fitted import Floats
from trimtab.provenance import Estimate

HARD_PRICE_FACTOR = 2
"""Prices are drawn log-uniform within this factor of the measured break-even."""
TIME_METRICS = ("ttft", "tpot", "latency", "prefill_latency")
Answers = Mapping[str, Estimate]


def relative_errors(rows: Iterable[Row], answers: Answers) -> Floats:
    """Return |predicted / measured - 1| of the rows that were answered."""
    return np.array([abs(answers[row.id].value / row.value - 1) for row in rows if row.id in answers])


def median(values: Floats) -> float:
    """Return the median, NaN of nothing."""
    return float(np.median(values)) if len(values) else math.nan


def mean(values: Floats) -> float:
    """Return the mean, NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def one_point_errors(rows: Sequence[Row], answers: Answers) -> Floats:
    """Return the errors after calibrating on one row of the same model, GPU, framework, count: all ordered pairs."""
    series: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.id in answers:
            key = (
                row.source,
                row.model,
                row.gpu,
                row.framework,
                row.version,
                row.precision,
                row.gpus,
                row.tensor,
                row.metric,
            )
            series[key].append(math.log(answers[row.id].value / row.value))
    errors: list[Floats] = []
    for logs in series.values():
        if len(logs) > 1:
            column = np.array(logs)
            gaps = np.abs(np.exp(column[None, :] - column[:, None]) - 1)
            errors.append(gaps[~np.eye(len(column), dtype=bool)])
    return np.concatenate(errors) if errors else np.array([])


def same_question(row: Row) -> tuple[object, ...]:
    """Return what was asked of a GPU: rows of other GPUs with an equal key compare."""
    mlperf = row.source.startswith("mlp")
    software = (row.source, row.mode) if mlperf else (row.source, row.framework, row.mode)
    precision = "" if mlperf else row.precision
    return (*software, row.model, precision, row.gpus, row.tensor, row.batch, row.input_len, row.output_len, row.metric)


def same_but_tensor(row: Row) -> tuple[object, ...]:
    """Return what was asked of a board, but on how many of them: rows that split their layers over another number compare."""
    software = (row.source, row.framework, row.version, row.mode)
    return (*software, row.model, row.precision, row.gpu, row.batch, row.input_len, row.output_len, row.metric)


def pair_errors(
    rows: Sequence[Row],
    answers: Answers,
    *,
    question: Callable[[Row], tuple[object, ...]] = same_question,
    choice: Callable[[Row], object] = lambda row: row.gpu,
) -> Floats:
    """Return |ln(predicted / measured speed-up)| for all pairs of choices (GPUs) that were asked the same question."""
    cells: dict[tuple[object, ...], dict[object, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.id in answers:
            sign = -1 if row.metric.startswith(TIME_METRICS) else 1
            found = (sign * math.log(answers[row.id].value), sign * math.log(row.value))
            cells[question(row)][choice(row)].append(found)
    errors: list[float] = []
    for boards in cells.values():
        middle = [np.median(np.array(found), axis=0) for found in boards.values()]
        for left, right in combinations(middle, 2):
            predicted, measured = left - right
            errors.append(abs(float(predicted - measured)))
    return np.array(errors)


def hard_price_accuracy(errors: Floats) -> float:
    """Return the share of right which-is-cheaper decisions when prices lie within a factor 2 of break-even."""
    edge = math.log(HARD_PRICE_FACTOR)
    return mean(1 - np.minimum(errors, edge) / (2 * edge))


def coverage(rows: Sequence[Row], answers: Answers) -> float:
    """Return the share of rows inside their interval; an abstention counts as outside."""
    inside = [row.id in answers and answers[row.id].low <= row.value <= answers[row.id].high for row in rows]
    return mean(np.array(inside, dtype=np.float64))


def width_ratio(rows: Sequence[Row], answers: Answers) -> float:
    """Return the median of high over low."""
    return median(np.array([answers[row.id].high / answers[row.id].low for row in rows if row.id in answers]))

"""All three speed models behind one face: fit on rows, predict rows, hold groups back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.log_fit import TRAINING_SPEC, WORKLOAD_SPEC, fit_terms
from benchmarks.perf_rows import Row, is_ttft, serving_query
from benchmarks.serving_fit import fit_serving, predicted_values, serving_rows
from benchmarks.training_rows import tokens_per_count, training_query, workload_query
from trimtab.errors import Unpredictable
from trimtab.physics.fitted import Floats, Terms, fit_intervals
from trimtab.physics.measured_models import predict_workload, workload_classes, workload_columns, workload_keys
from trimtab.physics.predict import (
    SKEWED,
    Model,
    Quantity,
    coefficients_of,
    packaged,
    predict_training,
    serving_classes,
    training_classes,
)
from trimtab.physics.serving_query import Load, ServingQuery
from trimtab.physics.training import ideal_tok_s, training_columns, training_keys, training_tok_s, wide_adapter_s
from trimtab.provenance import Estimate

FOLDS = 16
KINDS = ("serving", "training", "workloads")


@dataclass(frozen=True, slots=True)
class Held:
    """A held-out prediction before its interval: the row, ln(predicted / measured), the classes of its interval."""

    row: Row
    log_error: float
    classes: tuple[str, ...]


def kind_of(row: Row) -> str:
    """Return which model answers a row; empty where none does."""
    if serving_query(row) is not None:
        return "serving"
    if workload_query(row) is not None:
        return "workloads"
    return "training" if training_query(row) is not None else ""


def asked_of(row: Row, query: ServingQuery) -> Quantity:
    """Return what a serving row asks."""
    if query.load.saturates:
        return Quantity.SATURATED
    match query.load:
        case Load.PREFILL:
            return Quantity.PREFILL
        case Load.DECODE:
            return Quantity.DECODE
        case Load.ONLINE if is_ttft(row):
            return Quantity.TTFT
        case Load.ONLINE if row.metric.startswith("tpot"):
            return Quantity.TPOT
        case Load.ONLINE:
            return Quantity.ONLINE_RATE
        case _:
            return Quantity.STATIC


def fit_tables(kind: str, rows: Sequence[Row]) -> dict[str, Terms]:
    """Fit one model's tables on the rows that it answers."""
    groups = [row.group for row in rows]
    if kind == "serving":
        return fit_serving(serving_rows([row for row in rows if row.gpus >= 1]))
    if kind == "training":
        queries = [query for row in rows if (query := training_query(row)) is not None]
        measured_s = 1 / np.array([row.value * tokens_per_count(row) for row in rows])
        plain_s = measured_s - np.array([wide_adapter_s(one) for one in queries])
        target = -np.log(plain_s) - np.log([ideal_tok_s(one) for one in queries])
        keys = [training_keys(query) for query in queries]
        return {"utilisation": fit_terms(TRAINING_SPEC, keys, training_columns(queries), target, groups)}
    asked = [found for row in rows if (found := workload_query(row)) is not None]
    target = np.array([_sign(row) * np.log(row.value) for row in rows]) - np.log([one.units_of_work for one in asked])
    table = fit_terms(WORKLOAD_SPEC, [workload_keys(one) for one in asked], workload_columns(asked), target, groups)
    return {"throughput": table}


def _sign(row: Row) -> int:
    """Latencies fall where throughput rises."""
    return -1 if row.metric == "latency" else 1


def point_predictions(
    kind: str, tables: Mapping[str, Terms], rows: Sequence[Row]
) -> tuple[Floats, list[tuple[str, ...]]]:
    """Return the predicted values of rows and the classes of their intervals."""
    if kind == "serving":
        data = serving_rows(rows)
        values = predicted_values(data, coefficients_of(data.queries, data.columns, tables))
        pairs = zip(data.rows, data.queries, strict=True)
        return values, [serving_classes(query, asked_of(row, query), tables) for row, query in pairs]
    if kind == "training":
        training = [query for row in rows if (query := training_query(row)) is not None]
        counts = np.array([tokens_per_count(row) for row in rows])
        speeds = training_tok_s(training, tables["utilisation"]) / counts
        return speeds, [training_classes(query, tables) for query in training]
    asked = [found for row in rows if (found := workload_query(row)) is not None]
    logs = tables["throughput"].at([workload_keys(one) for one in asked], workload_columns(asked))
    speeds = np.exp(logs) * np.array([one.units_of_work for one in asked])
    signs = np.array([_sign(row) for row in rows])
    return speeds**signs, [workload_classes(one, tables) for one in asked]


def folds_of(rows: Sequence[Row], folds: int = FOLDS) -> list[frozenset[str]]:
    """Deal whole groups into folds, the largest first into the emptiest: large groups are held back nearly alone."""
    count = Counter(row.group for row in rows)
    dealt: list[set[str]] = [set() for _ in range(min(folds, len(count)))]
    sizes = [0] * len(dealt)
    for group, size in sorted(count.items(), key=lambda item: (-item[1], item[0])):
        at = sizes.index(min(sizes))
        dealt[at].add(group)
        sizes[at] += size
    return [frozenset(one) for one in dealt]


def held_out(kind: str, rows: Sequence[Row]) -> list[Held]:
    """Predict every row by a model that never saw its group."""
    found: list[Held] = []
    for fold in folds_of(rows):
        tables = fit_tables(kind, [row for row in rows if row.group not in fold])
        tested = [row for row in rows if row.group in fold]
        values, classes = point_predictions(kind, tables, tested)
        errors = np.log(values) - np.log([row.value for row in tested])
        found += [Held(*one) for one in zip(tested, errors.tolist(), classes, strict=True)]
    return found


def with_held_intervals(held: Sequence[Held]) -> dict[str, Estimate]:
    """Give held-out predictions intervals whose quantiles come from the other folds' groups; by row id."""
    answers: dict[str, Estimate] = {}
    for fold in folds_of([one.row for one in held]):
        rest = [(one.classes, one.row.group, one.log_error) for one in held if one.row.group not in fold]
        intervals = fit_intervals(rest, centred=SKEWED)
        for one in held:
            if one.row.group in fold:
                predicted = one.row.value * float(np.exp(one.log_error))
                answers[one.row.id] = intervals.estimate(predicted, one.classes)
    return answers


def packaged_estimates(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Predict rows with the packaged constants; rows on which physics abstains are absent."""
    answers: dict[str, Estimate] = {}
    for kind in KINDS:
        model = packaged(kind)
        mine = [row for row in rows if kind_of(row) == kind and _answers(row, kind, model)]
        if mine:
            values, classes = point_predictions(kind, model.tables, mine)
            for row, value, keys in zip(mine, values.tolist(), classes, strict=True):
                answers[row.id] = model.intervals.estimate(value, keys)
    return answers


def _answers(row: Row, kind: str, model: Model) -> bool:
    """Say whether the public face would answer: it abstains on networks that nobody measured anywhere."""
    try:
        if kind == "workloads" and (query := workload_query(row)) is not None:
            predict_workload(query, model)
        if kind == "training" and (asked := training_query(row)) is not None:
            predict_training(asked, model)
    except Unpredictable:
        return False
    return True

"""Answers with intervals: speed of serving and training from the packaged, fitted constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import numpy as np

from trimtab.catalog import Gpu, load_catalog
from trimtab.physics.fitted import (
    Floats,
    Intervals,
    Keys,
    Terms,
    board_class,
    class_keys,
    intervals_from,
    read_fit,
    terms_from,
)
from trimtab.physics.serving import ServingTimes, serving_times
from trimtab.physics.serving_query import ServingQuery, serving_columns, serving_keys
from trimtab.physics.training import TrainingQuery, training_keys, training_tok_s
from trimtab.physics.transfer import Z_80
from trimtab.provenance import Basis, Estimate, product


class Quantity(Enum):
    """What a question asks; also the class of its interval."""

    STATIC = "static"
    PREFILL = "prefill"
    DECODE = "decode"
    TTFT = "ttft"
    TPOT = "tpot"
    ONLINE_RATE = "online-rate"
    SATURATED = "saturated"
    TRAINING = "training"


PAIR_SPREAD = 0.199
"""Width of ln(predicted / measured speed-up) that holds 80 % of 3,614 held-out pairs: their 80 % quantile over 1.2816."""
SKEWED = frozenset({Quantity.TTFT.value})
"""Answers that are centred on the least mean relative error instead of the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Fitted tables, their intervals, and where they come from."""

    tables: Mapping[str, Terms]
    intervals: Intervals
    groups: frozenset[str]
    rows: int
    source: str


@lru_cache(maxsize=4)
def packaged(name: str) -> Model:
    """Return a fitted model of the package: serving or training."""
    return model_from(read_fit(f"{name}.json"), name)


def model_from(content: Mapping[str, object], name: str) -> Model:
    """Return the fitted model that a coefficient file holds; `name` says which in errors."""
    tables, groups, rows = content["tables"], content["groups"], content["rows"]
    if not isinstance(tables, dict) or not isinstance(groups, list) or not isinstance(rows, int):
        raise TypeError(f"{name}.json must hold tables, groups and rows")
    return Model(
        tables={str(key): terms_from(value) for key, value in tables.items()},
        intervals=intervals_from(content["intervals"]),
        groups=frozenset(str(group) for group in groups),
        rows=rows,
        source=str(content["source"]),
    )


def _as_fitted(
    queries: Sequence[ServingQuery], columns: Mapping[str, Floats], tables: Mapping[str, Terms]
) -> dict[str, Floats]:
    """Return the coefficients of queries as they were fitted, chip by chip."""
    keys = [serving_keys(query) for query in queries]
    # terms add up in the logarithm, so they multiply here
    return {name: np.exp(terms.at(keys, columns)) for name, terms in tables.items()}


def coefficients_of(
    queries: Sequence[ServingQuery], columns: Mapping[str, Floats], tables: Mapping[str, Terms] | None = None
) -> dict[str, Floats]:
    """Return the coefficients of queries, whose `serving_columns` are given, so that no better board reads prompts slower.

    Chips have fitted levels of their own, from rows of different engines and years, and these have no order: without this the
    H200, an H100 with more memory, read prompts 6 to 17 % slower. So a board takes no longer for a prompt than any board of its
    architecture that it matches or exceeds in every published fact. Decoding needs no such rule: there, bandwidth decides.
    """
    tables = packaged("serving").tables if tables is None else tables
    found = _as_fitted(queries, columns, tables)
    pairs = [(at, board) for at, query in enumerate(queries) for board in matched_boards(query.gpu)]
    if not pairs:
        return found
    lesser = [replace(queries[at], gpu=board) for at, board in pairs]
    theirs = serving_columns(lesser)
    bounds = _as_fitted(lesser, theirs, tables)
    place = np.array([at for at, _ in pairs])
    # what a prompt's products take goes with pre * glob / rate, and `ln_rate` is the logarithm of the rate
    faster = np.exp(columns["ln_rate"][place] - theirs["ln_rate"])
    share = bounds["glob"] / found["glob"][place]
    for name, ratio in (("pre", share * faster), ("play", share), ("pstep", share)):
        np.minimum.at(found[name], place, bounds[name] * ratio)
    return found


@lru_cache(maxsize=512)
def matched_boards(gpu: Gpu) -> tuple[Gpu, ...]:
    """Return the other boards of the catalog that a board matches or exceeds in every published fact, of its architecture."""
    return tuple(
        other
        for other in load_catalog().gpus
        if other.architecture == gpu.architecture and other.name != gpu.name and _matches(gpu, other)
    )


def _matches(gpu: Gpu, other: Gpu) -> bool:
    # what is not stated of the other is no fact to match; what is not stated of the board itself matches nothing stated
    facts = [
        (board.memory_gib, board.mem_bw_gb_s, board.tdp_w, board.nvlink_gb_s, board.pcie_gen, board.sm_count or 0)
        for board in (gpu, other)
    ]
    rates = [(gpu.rates_tflops.get(precision, 0.0), rate) for precision, rate in other.rates_tflops.items()]
    return all(mine >= theirs for mine, theirs in (*zip(*facts, strict=True), *rates))


def times_of(queries: Sequence[ServingQuery], model: Model | None = None) -> ServingTimes:
    """Return all serving times of the queries, column by column, without intervals."""
    columns = serving_columns(queries)
    return serving_times(columns, coefficients_of(queries, columns, None if model is None else model.tables))


def knows(terms: Terms, by: tuple[str, ...], level: str) -> bool:
    """Return whether a level was measured among those that differ by these keys."""
    return any(level in term.values for term in terms.terms if term.by == by)


def serving_support(tables: Mapping[str, Terms], keys: Keys) -> int:
    """Return how near measurements are: 2 the engine's year and the engine on this chip, 1 one of the two, 0 neither."""
    # `glob` scales every time of the model: what it has seen, the model has seen
    scale = tables["glob"]
    pair = f"{keys['engine']}|{keys['chip']}"
    # a fixed public workload has a level of its own, beside which engine and chip tell nothing more
    if keys["workload"]:
        return 2 if knows(scale, ("workload",), keys["workload"]) else 0
    return int(knows(scale, ("stack",), keys["stack"])) + int(knows(scale, ("engine", "chip"), pair))


def training_support(tables: Mapping[str, Terms], keys: Keys) -> int:
    """Return how near measurements are: the framework, and the framework on this architecture."""
    scale = tables["utilisation"]
    pair = f"{keys['framework']}|{keys['architecture']}"
    return int(knows(scale, ("framework",), keys["framework"])) + int(knows(scale, ("framework", "architecture"), pair))


def serving_classes(query: ServingQuery, asked: Quantity, tables: Mapping[str, Terms]) -> tuple[str, ...]:
    """Return the interval classes of a serving question."""
    return class_keys(asked.value, serving_support(tables, serving_keys(query)), board_class(query.gpu))


def training_classes(query: TrainingQuery, tables: Mapping[str, Terms]) -> tuple[str, ...]:
    """Return the interval classes of a training question."""
    return class_keys(Quantity.TRAINING.value, training_support(tables, training_keys(query)), board_class(query.gpu))


def predict_training(query: TrainingQuery, model: Model | None = None) -> Estimate:
    """Predict tokens per second per GPU of a training run."""
    model = model or packaged("training")
    speed = float(training_tok_s([query], model.tables["utilisation"])[0])
    return model.intervals.estimate(speed, training_classes(query, model.tables), because=model.source)


def with_interval(query: ServingQuery, asked: Quantity, predicted: float) -> Estimate:
    """Wrap a serving time of the model in its 80 % interval, and in that of adapters whose slowdown is not stated."""
    model = packaged("serving")
    found = model.intervals.estimate(predicted, serving_classes(query, asked, model.tables), because=model.source)
    if query.adapters is None or query.adapters.slowdown_frac is not None:
        return found
    # the slowdown itself is in the time already: only its doubt is added
    return product(found, query.adapters.steps_longer.scaled(1 / query.adapters.steps_longer.value))


def calibrated(value: float) -> Estimate:
    """Return a prediction that one measured point on another GPU has fixed: what is left is the error of GPU pairs."""
    # the width is that of ln(ratio): a factor up and down, not an amount
    spread = math.exp(Z_80 * PAIR_SPREAD)
    return Estimate(
        value=value,
        low=value / spread,
        high=value * spread,
        basis=Basis.CALIBRATED,
        because="scaled to your measured point; the interval is that of speed ratios between held-out pairs of GPUs",
    )

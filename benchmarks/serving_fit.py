"""Fit the serving model's constants: damped Gauss-Newton on log errors, robust, with priors on every term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from benchmarks.perf_rows import Row, serving_query
from trimtab.physics.fitted import ONE, Floats, Keys, Term, Terms
from trimtab.physics.serving import serving_times
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns, serving_keys
from trimtab.units import MS_PER_S

TermSpec = tuple[tuple[str, ...], str, float]
"""Keys, the number it multiplies, prior width."""
Bools = npt.NDArray[np.bool_]

NOISE = 0.16
"""Log error at which an observation counts fully."""
TUKEY = 1.5
"""Errors beyond this many noise widths count linearly."""
GROUP_EXPONENT = -0.6
"""Rows of one group resemble each other: n of them weigh as n^0.4."""
STEP = 1e-4
SHRINK = 0.8
"""Scale of all prior widths, chosen by grouped cross-validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientSpec:
    """A coefficient's prior: base value, width of its logarithm, and (keys, width) of each term."""

    base: float
    width: float = 0.5
    terms: tuple[TermSpec, ...] = field(default=())


def _spec(base: float, width: float, *terms: tuple[str | tuple[str, ...], float] | TermSpec) -> CoefficientSpec:
    """Write a prior shortly: (keys, width) is a level, (keys, number, width) a slope on that number."""
    return CoefficientSpec(base=base, width=width, terms=tuple(_term(term) for term in terms))


def _term(term: tuple[str | tuple[str, ...], float] | TermSpec) -> TermSpec:
    by = (term[0],) if isinstance(term[0], str) else term[0]
    return (by, ONE, term[1]) if len(term) == 2 else (by, term[1], term[2])


STORED = ("engine", "stored")
SPECS: Mapping[str, CoefficientSpec] = {
    "pre": _spec(1.6, 0.2, ("kind", 1.0), (("engine", "kind"), 0.4), (STORED, 0.2), ("stack", 0.4), ("release", 0.2),
                 ("format", 0.3), ("architecture", 0.3), ("chip", 0.15), (("engine", "chip"), 0.15),
                 ((), "ln_rate", 0.15), ((), "ln_bandwidth", 0.15), ((), "ln_power", 0.15),
                 (("engine",), "ln_hidden", 0.4)),
    "att": _spec(1.3, 0.3, ("stack", 0.6), ("engine", 0.8), ("architecture", 0.2)),
    "tok0": _spec(60.0, 0.5, ("stack", 0.4)),
    "w": _spec(1.2, 0.15, (STORED, 0.2), ("stack", 0.25), ("format", 0.3), ("chip", 0.1), (("engine", "architecture"), 0.15)),
    "moew": _spec(1.3, 0.3, ("stack", 0.2), ("format", 0.2), ("architecture", 0.15)),
    "kv": _spec(1.3, 0.3, (("stack", "cache"), 0.7), ("kind", 0.5), ("stack", 0.7), ("release", 0.2), ("architecture", 0.2),
                (("engine", "chip"), 0.2)),
    "dco": _spec(1.8, 0.3, ("kind", 0.7), ("stack", 0.3), ("format", 0.3), ("architecture", 0.2)),
    "lay": _spec(1.5e-5, 0.4, (STORED, 0.5), ("kind", 0.7), (("engine", "kind"), 0.3), ("stack", 1.0), ("release", 0.3),
                 ("architecture", 0.3), (("engine", "chip"), 0.3)),
    "moel": _spec(4e-5, 0.5, ("stack", 0.4), ("architecture", 0.2)),
    "play": _spec(3e-5, 0.5, ("stack", 0.6), ("architecture", 0.2)),
    "step": _spec(3e-4, 0.5, ("stack", 1.0), ("release", 0.5)),
    "pstep": _spec(1e-3, 0.5, ("stack", 0.6)),
    "req": _spec(1e-5, 0.7, ("kind", 0.7), ("stack", 1.2), ("release", 0.6), ("architecture", 0.2)),
    "arl": _spec(1e-5, 0.5, ("stack", 0.5), ("nvlink", 0.5), ("architecture", 0.3)),
    "arb": _spec(1.6, 0.3, ("stack", 0.3), ("nvlink", 0.5)),
    "pipe": _spec(0.7, 0.3, ("model", 0.5), (("model", "stored"), 0.5)),
    "ppx": _spec(0.3, 0.5, ("stack", 0.3)),
    "mix": _spec(1.0, 0.3, ("stack", 0.3)),
    "mixm": _spec(1.0, 0.5, ("stack", 0.3), ("load", 0.3)),
    "tt0": _spec(0.02, 0.5, ("stack", 0.6), ("release", 0.5)),
    "twarm": _spec(0.05, 0.5, ("stack", 1.0), ("release", 1.0)),
    "tq": _spec(0.06, 0.5, ("stack", 0.5), ("release", 0.4)),
    "tp1": _spec(1.2, 0.5, ("stack", 0.3)),
    "td": _spec(1.0, 0.5, ("stack", 0.3)),
    "tslot": _spec(0.05, 0.7, ("stack", 1.0), ("release", 1.0)),
    "tglob": _spec(1.2, 0.3, ("stack", 0.3), ("release", 0.2), ("kind", 0.4), (("engine", "kind"), 0.4), ("chip", 0.2)),
    "bexp": _spec(0.6, 0.5),
    "limit": _spec(800.0, 0.7, ("load", 1.0), (("load", "model"), 0.3)),
    "glob": _spec(1.0, 0.05, ("workload", 1.0), (STORED, 0.15), ("kind", 0.3), (("engine", "kind"), 0.4), ("stack", 0.2),
                  ("release", 0.15), ("architecture", 0.2), ("chip", 0.15), (("engine", "chip"), 0.3), ("model", 0.15),
                  (("engine", "load"), 0.15)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServingRows:
    """The serving rows of a data set as columns, with what each measured."""

    rows: list[Row]
    queries: list[ServingQuery]
    keys: list[Keys]
    columns: dict[str, Floats]

    def take(self, chosen: Bools) -> ServingRows:
        """Return the chosen rows."""
        at = np.flatnonzero(chosen)
        return ServingRows(
            [self.rows[i] for i in at],
            [self.queries[i] for i in at],
            [self.keys[i] for i in at],
            {name: column[at] for name, column in self.columns.items()},
        )


def serving_rows(rows: Sequence[Row]) -> ServingRows:
    """Keep the rows that ask a serving question."""
    asked = [(row, query) for row in rows if (query := serving_query(row)) is not None]
    queries = [query for _, query in asked]
    return ServingRows(
        [row for row, _ in asked], queries, [serving_keys(query) for query in queries], serving_columns(queries)
    )


def counts_samples(row: Row, query: ServingQuery) -> bool:
    """Say whether a saturated row counts requests; Llama-3.1-8B's are labelled queries and are tokens."""
    return (
        query.load.saturates
        and query.model.name != "llama-3-8b"
        and bool({"Samples", "Queries"} & set(_words(row.unit)))
    )


def _words(unit: str) -> list[str]:
    return unit.replace("/", " ").split()


def predicted_values(data: ServingRows, coefficients: Mapping[str, Floats]) -> Floats:
    """Return what the model says each row measured, in the row's own metric and unit."""
    v, times = data.columns, serving_times(data.columns, coefficients)
    requests, tokens = v["requests"], v["input"] + v["output"]
    by_metric = {
        "total": requests * tokens / times.static_s,
        "latency": times.static_s * MS_PER_S,
        "per_gpu": requests * v["output"] / times.static_s / (v["group"] * v["stages"]),
        "prefill_latency": times.prefill_batch_s * MS_PER_S,
        "prefill_rate": times.resident * v["input"] / times.prefill_batch_s,
        "step": times.decode_s * MS_PER_S,
        "decode_rate": times.resident / times.decode_s,
        "ttft": times.ttft_s * MS_PER_S,
        "tpot": times.tpot_s * MS_PER_S,
        "online_rate": requests * v["output"] / (times.ttft_s + (v["output"] - 1) * times.tpot_s),
        "saturated": times.saturated_tok_s,
        "saturated_requests": times.saturated_tok_s / v["output"],
    }
    names = [_asked(row, query) for row, query in zip(data.rows, data.queries, strict=True)]
    return np.array([by_metric[name][i] for i, name in enumerate(names)])


def _asked(row: Row, query: ServingQuery) -> str:
    match query.load:
        case Load.STATIC:
            return {"latency": "latency", "output_throughput_per_gpu": "per_gpu"}.get(row.metric, "total")
        case Load.PREFILL:
            return "prefill_latency" if "latency" in row.metric else "prefill_rate"
        case Load.DECODE:
            return "step" if row.metric.startswith("tpot") else "decode_rate"
        case Load.ONLINE:
            return row.metric[:4] if row.metric[:4] in ("ttft", "tpot") else "online_rate"
        case _:
            return "saturated_requests" if counts_samples(row, query) else "saturated"


Column = tuple[tuple[str, ...], str, float, str]
"""A column of a design: its term and the level."""


class Design:
    """The columns of a fit: for each coefficient its base and one column a level of each term."""

    def __init__(self, keys: Sequence[Keys], numbers: Mapping[str, Floats]) -> None:
        self.matrices: dict[str, sparse.csr_matrix] = {}
        self.slices: dict[str, slice] = {}
        self.layout: dict[str, list[Column]] = {}
        widths: list[float] = []
        start: list[float] = []
        for name, spec in SPECS.items():
            parts, levels = [sparse.csr_matrix(np.ones((len(keys), 1)))], []
            for by, of, sd in spec.terms:
                matrix, found = _columns(by, keys, np.ones(len(keys)) if of == ONE else numbers[of])
                parts.append(matrix)
                levels += [(by, of, sd, level) for level in found]
            self.layout[name], self.matrices[name] = levels, sparse.hstack(parts).tocsr()
            self.slices[name] = slice(len(widths), len(widths) + len(levels) + 1)
            widths += [spec.width, *(sd * SHRINK for _, _, sd, _ in levels)]
            start += [float(np.log(spec.base)), *(0.0 for _ in levels)]
        self.widths, self.start = np.array(widths), np.array(start)

    def coefficients(self, theta: Floats) -> dict[str, Floats]:
        """Return each coefficient's value for each row."""
        return {name: np.exp(matrix @ theta[self.slices[name]]) for name, matrix in self.matrices.items()}

    def terms(self, theta: Floats) -> dict[str, Terms]:
        """Return the fitted coefficients as tables."""
        return {name: self._table(name, theta[self.slices[name]]) for name in SPECS}

    def _table(self, name: str, fitted: Floats) -> Terms:
        values: dict[TermSpec, dict[str, float]] = {}
        for (by, of, sd, level), amount in zip(self.layout[name], fitted[1:], strict=True):
            values.setdefault((by, of, sd), {})[level] = float(amount)
        terms = tuple(Term(by=by, of=of, sd=sd, values=found) for (by, of, sd), found in values.items())
        return Terms(base=float(fitted[0]), terms=terms)


def _columns(by: tuple[str, ...], keys: Sequence[Keys], numbers: Floats) -> tuple[sparse.csr_matrix, list[str]]:
    """Return one column a level of the keys, holding the number where a row has that level, and the levels."""
    if not by:
        return sparse.csr_matrix(numbers[:, None]), [""]
    term = Term(by=by, of=ONE, sd=1.0, values={})
    found = [term.level(row) for row in keys]
    levels = sorted(set(found) - {""})
    place = {level: at for at, level in enumerate(levels)}
    at = [(i, place[level]) for i, level in enumerate(found) if level]
    rows, columns = [i for i, _ in at], [j for _, j in at]
    return sparse.csr_matrix((numbers[rows], (rows, columns)), shape=(len(keys), len(levels))), levels


def row_weights(groups: Sequence[str]) -> Floats:
    """Return a weight per row that lets a group of n rows count as n^0.4."""
    count = Counter(groups)
    return np.array([count[group] ** GROUP_EXPONENT for group in groups])


def _robust(errors: Floats) -> Floats:
    size = np.abs(errors) / NOISE
    return np.where(size < TUKEY, 1.0, TUKEY / np.maximum(size, 1e-12))


def _loss(errors: Floats, weights: Floats) -> float:
    size = np.abs(errors) / NOISE
    return float(np.sum(weights * np.where(size < TUKEY, 0.5 * size**2, TUKEY * size - 0.5 * TUKEY**2)))


def fit_serving(data: ServingRows, *, most_steps: int = 15) -> dict[str, Terms]:
    """Fit all coefficients on the rows; deterministic, a few seconds for some thousand rows."""
    design = Design(data.keys, data.columns)
    measured = np.log([row.value for row in data.rows])
    weights = row_weights([row.group for row in data.rows])
    prior = 1 / design.widths**2
    theta, damping = design.start.copy(), 1e-2

    def logs(coefficients: Mapping[str, Floats]) -> Floats:
        return np.log(np.maximum(predicted_values(data, coefficients), 1e-9))

    def cost(at: Floats) -> float:
        return _loss(logs(design.coefficients(at)) - measured, weights) + 0.5 * float(prior @ (at - design.start) ** 2)

    now = cost(theta)
    for _ in range(most_steps):
        values = design.coefficients(theta)
        here = logs(values)
        slopes = [
            sparse.diags((logs({**values, name: values[name] * np.exp(STEP)}) - here) / STEP) @ matrix
            for name, matrix in design.matrices.items()
        ]
        jacobian = sparse.hstack(slopes).tocsr()
        errors = here - measured
        scaled = weights * _robust(errors) / NOISE**2
        normal = (jacobian.T @ sparse.diags(scaled) @ jacobian).toarray() + np.diag(prior)
        gradient = jacobian.T @ (scaled * errors) + prior * (theta - design.start)
        before = now
        for _ in range(8):
            step = np.clip(-np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient), -1, 1)
            if (after := cost(theta + step)) < now:
                theta, now, damping = theta + step, after, max(damping / 3, 1e-6)
                break
            damping *= 4
        if before - now < 1e-4 * before:
            break
    return design.terms(theta)

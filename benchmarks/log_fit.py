"""Fit additive models of a logarithm: ridge regression with a prior width a term, robust, grouped weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.serving_fit import row_weights
from trimtab.physics.terms import ONE, Floats, Keys, Term, Terms

NOISE = 0.1
TUKEY = 1.5
BASE_WIDTH = 10.0
TermSpec = tuple[tuple[str, ...], str, float]
"""Keys, the number it multiplies, prior width."""

TRAINING_SPEC: tuple[TermSpec, ...] = (
    (("framework",), ONE, 0.35),
    (("precision",), ONE, 0.5),
    (("architecture", "precision"), ONE, 0.25),
    (("chip",), ONE, 0.15),
    (("board",), ONE, 0.1),
    (("kind",), ONE, 0.4),
    (("kind", "precision"), ONE, 0.25),
    (("kind", "architecture"), ONE, 0.2),
    (("kind", "architecture", "precision"), ONE, 0.15),
    (("model",), ONE, 0.2),
    (("model", "precision"), ONE, 0.08),
    (("model", "architecture"), ONE, 0.08),
    (("framework", "architecture"), ONE, 0.1),
    (("version",), ONE, 0.1),
    (("kind", "version"), ONE, 0.25),
    (("hybrid",), ONE, 0.4),
    (("method",), ONE, 0.3),
    (("method", "precision"), ONE, 0.2),
    ((), "ln_params", 0.1),
    ((), "ln_hidden", 0.1),
    (("precision",), "ln_params", 0.1),
    (("kind", "precision"), "ln_params", 0.1),
    ((), "ln_sparsity", 0.1),
    ((), "ln_sequence", 0.1),
    ((), "ln_tokens", 0.1),
    (("framework",), "ln_tokens", 0.1),
    (("kind",), "ln_tokens", 0.1),
    ((), "ln_micro_batch", 0.05),
    (("kind",), "ln_micro_batch", 0.2),
    ((), "ln_gpus_in_node", 0.1),
    ((), "ln_nodes", 0.05),
    (("framework",), "ln_nodes", 0.1),
    ((), "ln_tensor", 0.1),
    (("kind",), "ln_tensor", 0.1),
    ((), "ln_expert", 0.1),
    ((), "ln_context", 0.1),
    ((), "bubble", 0.3),
    ((), "ln_pipeline", 0.1),
    ((), "offload", 0.5),
    ((), "recompute", 0.3),
    ((), "small_step", 0.8),
)

WORKLOAD_SPEC: tuple[TermSpec, ...] = (
    (("workload",), ONE, 5.0),
    (("workload_precision",), ONE, 0.5),
    (("domain", "precision"), ONE, 0.7),
    (("task", "precision"), ONE, 0.5),
    ((), "ln_rate", 0.5),
    ((), "ln_bandwidth", 0.5),
    ((), "ln_fp32", 0.3),
    ((), "ln_power", 0.3),
    ((), "ln_memory", 0.14),
    (("suite",), "ln_rate", 0.4),
    (("suite",), "ln_bandwidth", 0.4),
    (("domain",), "ln_rate", 0.14),
    (("domain",), "ln_bandwidth", 0.14),
    (("domain",), "ln_memory", 0.07),
    (("task",), "ln_rate", 0.14),
    (("task",), "ln_bandwidth", 0.14),
    (("task",), "ln_fp32", 0.07),
    (("task",), "ln_memory", 0.07),
    (("domain", "precision"), "ln_rate", 0.105),
    (("domain", "precision"), "ln_bandwidth", 0.105),
    ((), "ln_gpus", 1.0),
    (("domain",), "ln_gpus", 0.07),
    (("domain",), "ln_gpus_over_pcie", 0.105),
    (("task",), "ln_gpus", 0.035),
    (("task",), "ln_gpus_over_pcie", 0.035),
    ((), "slice", 2.0),
    ((), "ln_rate_small", 1.0),
    ((), "ln_bandwidth_small", 1.0),
    (("board",), ONE, 0.084),
    (("chip",), ONE, 0.084),
    (("architecture",), ONE, 0.07),
    (("architecture", "precision"), ONE, 0.105),
    (("architecture", "domain"), ONE, 0.07),
    (("chip", "domain"), ONE, 0.07),
    (("chip", "precision"), ONE, 0.056),
    (("board", "precision"), ONE, 0.056),
    (("board", "domain"), ONE, 0.056),
    (("architecture", "task"), ONE, 0.07),
    (("architecture", "task", "precision"), ONE, 0.042),
)


def fit_terms(
    spec: Sequence[TermSpec],
    keys: Sequence[Keys],
    numbers: Mapping[str, Floats],
    target: Floats,
    groups: Sequence[str],
    *,
    rounds: int = 6,
) -> Terms:
    """Fit ln y = base + terms; `target` is ln y, `(n,)`. Deterministic; reweighted against outliers."""
    columns, layout, widths = [np.ones(len(keys))], [(-1, "")], [BASE_WIDTH]
    for at, (by, of, sd) in enumerate(spec):
        term = Term(by=by, of=of, sd=sd, values={})
        levels = np.array([term.level(row) if by else "" for row in keys])
        scale = np.ones(len(keys)) if of == ONE else numbers[of]
        for level in [""] if not by else sorted(set(levels.tolist()) - {""}):
            columns.append(scale * (levels == level))
            layout.append((at, level))
            widths.append(sd)
    solved = _solve(np.array(columns).T, target, np.array(widths), row_weights(groups), rounds)
    values: list[dict[str, float]] = [{} for _ in spec]
    for (at, level), amount in zip(layout[1:], solved[1:], strict=True):
        values[at][level] = float(amount)
    terms = tuple(Term(by=by, of=of, sd=sd, values=values[at]) for at, (by, of, sd) in enumerate(spec))
    return Terms(base=float(solved[0]), terms=terms)


def _solve(design: Floats, target: Floats, widths: Floats, weights: Floats, rounds: int) -> Floats:
    prior = np.diag(1 / widths**2)
    robust = np.ones(len(target))
    solved: Floats = np.zeros(design.shape[1])
    for _ in range(rounds):
        scaled = weights * robust / NOISE**2
        normal = (design * scaled[:, None]).T @ design + prior
        solved = np.asarray(np.linalg.solve(normal, design.T @ (scaled * target)), dtype=np.float64)
        size = np.abs(design @ solved - target) / NOISE
        robust = np.where(size < TUKEY, 1.0, TUKEY / np.maximum(size, 1e-12))
    return solved

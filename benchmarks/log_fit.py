"""Fit additive models of a logarithm: ridge regression with a prior width a term, robust, grouped weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.serving_fit import row_weights
from trimtab.physics.fitted import ONE, Floats, Keys, Term, Terms

NOISE = 0.1
TUKEY = 1.5
BASE_WIDTH = 10.0
TermSpec = tuple[tuple[str, ...], str, float]
"""Keys, the number it multiplies, prior width."""

TRAINING_SPEC: tuple[TermSpec, ...] = (
    (("framework",), ONE, 0.16),
    (("precision",), ONE, 0.21),
    (("architecture", "precision"), ONE, 0.07),
    (("chip",), ONE, 0.12),
    (("board",), ONE, 0.1),
    (("kind",), ONE, 1.0),
    (("kind", "precision"), ONE, 0.14),
    (("kind", "architecture"), ONE, 0.077),
    (("kind", "architecture", "precision"), ONE, 0.056),
    (("model",), ONE, 0.043),
    (("model", "precision"), ONE, 0.06),
    (("model", "architecture"), ONE, 0.05),
    (("framework", "architecture"), ONE, 0.077),
    (("version",), ONE, 0.087),
    (("kind", "version"), ONE, 0.35),
    (("hybrid",), ONE, 0.33),
    (("method",), ONE, 0.18),
    (("method", "precision"), ONE, 0.26),
    ((), "ln_params", 0.07),
    ((), "ln_hidden", 0.41),
    (("precision",), "ln_params", 0.032),
    (("kind", "precision"), "ln_params", 0.066),
    ((), "ln_sparsity", 0.081),
    ((), "ln_sequence", 0.13),
    ((), "ln_tokens", 0.067),
    (("framework",), "ln_tokens", 0.078),
    (("kind",), "ln_tokens", 0.055),
    ((), "ln_micro_batch", 0.052),
    (("kind",), "ln_micro_batch", 0.087),
    ((), "ln_gpus_in_node", 0.063),
    ((), "ln_nodes", 0.022),
    (("framework",), "ln_nodes", 0.039),
    ((), "ln_tensor", 0.19),
    (("kind",), "ln_tensor", 0.11),
    ((), "ln_expert", 0.08),
    ((), "ln_context", 0.12),
    ((), "bubble", 1.2),
    ((), "ln_pipeline", 0.048),
    ((), "offload", 0.7),
    ((), "recompute", 0.17),
    ((), "small_step", 0.88),
    (("lineage",), ONE, 0.2),
    ((), "attention", 0.58),
    (("framework",), "attention", 1.7),
    (("lineage", "precision"), ONE, 0.15),
    (("lineage", "architecture"), ONE, 0.076),
    (("framework",), "recompute", 0.062),
    (("lineage",), "small_step", 0.22),
)
"""Widths near those of the greatest marginal likelihood, times 1.4 for the rows' weights."""

WORKLOAD_SPEC: tuple[TermSpec, ...] = (
    (("workload",), ONE, 4.0),
    (("domain", "precision"), ONE, 0.9),
    (("task", "precision"), ONE, 0.2),
    ((), "ln_rate", 0.45),
    ((), "ln_rate_squared", 0.035),
    ((), "ln_bandwidth", 0.3),
    ((), "ln_bandwidth_squared", 0.045),
    ((), "ln_fp32", 0.1),
    ((), "ln_power", 0.3),
    ((), "ln_memory", 0.05),
    ((), "ln_l2", 0.14),
    ((), "ln_sms", 0.1),
    (("suite",), "ln_rate", 0.15),
    (("suite",), "ln_bandwidth", 0.1),
    (("domain",), "ln_rate", 0.18),
    (("domain",), "ln_bandwidth", 0.08),
    (("domain",), "ln_memory", 0.025),
    (("domain",), "ln_power", 0.065),
    (("domain",), "ln_fp32", 0.045),
    (("task",), "ln_rate", 0.1),
    (("task",), "ln_bandwidth", 0.035),
    (("task",), "ln_fp32", 0.025),
    (("task",), "ln_memory", 0.06),
    (("task",), "ln_power", 0.05),
    (("task",), "ln_sms", 0.035),
    (("workload",), "ln_bandwidth", 0.055),
    (("task", "precision"), "ln_rate", 0.02),
    (("task", "precision"), "ln_bandwidth", 0.055),
    (("precision",), "ln_power", 0.02),
    ((), "ln_gpus", 1.0),
    (("task",), "ln_gpus", 0.06),
    (("task",), "ln_gpus_over_pcie", 0.035),
    (("architecture",), "ln_gpus", 0.025),
    (("task", "count"), ONE, 0.03),
    (("domain", "count"), ONE, 0.025),
    ((), "slice", 0.2),
    ((), "launches", 0.5),
    ((), "fused_launches", 0.5),
    (("domain",), "launches", 0.5),
    (("domain",), "fused_launches", 0.5),
    (("domain", "precision"), "launches", 0.1),
    (("board",), ONE, 0.04),
    (("chip",), ONE, 0.03),
    (("architecture",), ONE, 0.09),
    (("architecture", "precision"), ONE, 0.1),
    (("architecture", "domain"), ONE, 0.06),
    (("board", "domain"), ONE, 0.03),
    (("architecture", "task"), ONE, 0.085),
    (("architecture", "task", "precision"), ONE, 0.03),
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

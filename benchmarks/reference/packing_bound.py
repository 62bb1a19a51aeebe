"""The most that could be allocated by any rule which turned no pod away for as long as the one that it is compared with.

A pod that asks for part of a GPU leaves a gap beside it, and what nobody asks for in that size stays free however pods are
placed. The bound is a linear program over all ways to fill a GPU, the arc-flow formulation of bin packing (Valério de Carvalho,
"Exact solution of bin-packing problems using column generation and branch-and-bound", 1999): a flow of one unit for each GPU
runs from nothing taken to full, along arcs as long as pods are large. It knows all pods in advance and asks for neither CPU,
memory, models of GPUs nor the node that several GPUs must share, so that no rule can do better.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, vstack

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.job_nodes import GPU_MILLI, STEP_MILLI, PodMix

_FULL = GPU_MILLI // STEP_MILLI
_INFEASIBLE = 2
"""Status of `linprog` (docs.scipy.org)."""


def most_allocated_milli(gpus: int, kinds: PodMix, order: IntArray, placed: int) -> float | None:
    """Return the thousandths of `gpus` GPUs that pods in their order of coming could take at most.

    The pods among the first `placed` that ask for one GPU or for a part of it all get it; the others may. None if these fit
    under no placement. Raises ValueError for sizes that are no multiple of `STEP_MILLI`.
    """
    if np.any(kinds.gpu_milli % STEP_MILLI):
        raise ValueError(
            f"sizes must be multiples of {STEP_MILLI} thousandths of a GPU, got {kinds.gpu_milli.tolist()}"
        )
    sizes = np.unique(kinds.gpu_milli[kinds.gpus > 0]) // STEP_MILLI
    arcs = [(at, at + size, number) for number, size in enumerate(sizes.tolist()) for at in range(_FULL - size + 1)]
    begins, ends, kind = (np.array(column) for column in zip(*arcs, strict=True))
    # what nothing is put into is left by an arc of its own
    leaves = np.arange(1, _FULL)
    begins, ends = np.append(begins, leaves), np.append(ends, np.full(len(leaves), _FULL))
    every = np.arange(len(begins))
    flow = coo_matrix((np.ones(len(every)), (ends, every)), shape=(_FULL + 1, len(every))).tocsr()
    flow -= coo_matrix((np.ones(len(every)), (begins, every)), shape=(_FULL + 1, len(every))).tocsr()
    used = coo_matrix((np.ones(len(kind)), (kind, every[: len(kind)])), shape=(len(sizes), len(every))).tocsr()
    starts = coo_matrix((begins == 0).astype(np.float64)[None, :]).tocsr()
    asked = _asked(kinds, order, sizes)
    required = _asked(kinds, order[:placed], sizes, only_one=True)
    # between empty and full as much leaves a place as comes there; no more begins at empty than there are GPUs
    solved = linprog(
        -np.append(sizes[kind], np.zeros(len(leaves))) * STEP_MILLI,
        A_ub=vstack([used, -used, starts]),
        b_ub=np.concatenate([asked, -required, [float(gpus)]]),
        A_eq=flow[1:_FULL],
        b_eq=np.zeros(_FULL - 1),
        method="highs",
    )
    if solved.status == _INFEASIBLE:
        return None
    if not solved.success:
        raise ArithmeticError(f"the bound was not solved: {solved.message}")
    return -float(solved.fun)


def _asked(kinds: PodMix, order: IntArray, sizes: IntArray, *, only_one: bool = False) -> FloatArray:
    """Return for each size how many GPUs, or parts of one, pods ask for; of pods of several GPUs too, if not `only_one`."""
    gpus = np.where(kinds.gpus == 1, 1, 0) if only_one else kinds.gpus
    of_size = np.searchsorted(sizes, kinds.gpu_milli[order] // STEP_MILLI)
    # pods without GPUs have weight 0, wherever they are counted
    counts = np.bincount(of_size, weights=gpus[order], minlength=len(sizes))
    return np.asarray(counts, dtype=np.float64)

"""Mixtures on disk, where several processes map them: one set of arrays for each deadline and launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.reference.spot_mixture import Mixture

FOLDER_VARIABLE = "TRIMTAB_FRONTIER_PLANS"
"""Environment variable that names the folder."""
_ARRAYS = ("turning", "age_edges", "ahead", "prior")


def keep_mixture(plan: Mixture, folder: Path) -> None:
    """Write a mixture's arrays into a folder."""
    for name in _ARRAYS:
        np.save(folder / _file(name, plan.deadline, plan.launch_steps), getattr(plan, name))


def open_mixture(folder: Path, *, work: int, deadline: int, spot_price: float, launch_steps: float) -> Mixture:
    """Map the mixture that was kept for a deadline and a launch, both in steps."""
    turning, age_edges, ahead, prior = (
        np.load(folder / _file(name, deadline, launch_steps), mmap_mode="c") for name in _ARRAYS
    )
    return Mixture(
        turning=np.array(turning),
        age_edges=np.array(age_edges),
        ahead=ahead,
        prior=np.array(prior),
        work=work,
        deadline=deadline,
        spot_price=spot_price,
        launch_steps=launch_steps,
    )


def _file(name: str, deadline: int, launch_steps: float) -> str:
    return f"{name}_{deadline}_{launch_steps:.4f}.npy"

"""Stop the worked example at random steps, resume it, and compare its loss curve with an unbroken run's, bit for bit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import torch
from examples.spot_training import Killed, train

STEPS = 48


def measure(folder: Path, stops: int, seed: int) -> dict[str, object]:
    """Return how many of the resumed runs repeat the unbroken curve exactly."""
    torch.set_num_threads(1)
    unbroken = train(folder / "unbroken", STEPS, seed)
    rng = random.Random(seed)
    equal = sum(_broken(folder / "broken", rng.randrange(STEPS - 1), seed) == unbroken for _ in range(stops))
    return {"stops": stops, "steps": STEPS, "bitwise_equal": equal}


def _broken(folder: Path, stop: int, seed: int) -> dict[int, float]:
    """Return the loss curve of a run that is killed after a step and goes on in a new set of objects."""
    shutil.rmtree(folder, ignore_errors=True)
    curve: dict[int, float] = {}
    try:
        curve |= train(folder, STEPS, seed, kill_at=stop)
    except Killed as killed:
        curve |= killed.args[0]
    curve |= train(folder, STEPS, seed)
    return curve

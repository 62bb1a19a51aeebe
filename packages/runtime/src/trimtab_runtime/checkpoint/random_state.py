"""The state of every random generator that a training step may draw from: Python, NumPy, torch on each kind of device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import cast

_DEVICE_MODULES = ("cuda", "xpu", "mps")


def capture() -> dict[str, object]:
    """Return the state of the global generators that are in use in this process."""
    states: dict[str, object] = {}
    if "random" in sys.modules:
        states["python"] = sys.modules["random"].getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        states["numpy"] = numpy.random.get_state(legacy=False)
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        for device in _DEVICE_MODULES:
            states.update(_capture_device(device))
    return states


def _capture_device(device: str) -> dict[str, object]:
    module = getattr(sys.modules["torch"], device, None)
    if module is None or not module.is_available():
        return {}
    if device == "mps":
        return {device: [module.get_rng_state()]}
    return {device: list(module.get_rng_state_all())}


def restore(states: Mapping[str, object]) -> list[str]:
    """Set the generators back and return what could not be, in words."""
    notes = []
    if "python" in states:
        import random

        random.setstate(cast("tuple[int, tuple[int, ...], float | None]", states["python"]))
    if "numpy" in states:
        import numpy

        numpy.random.set_state(cast("dict[str, object]", states["numpy"]))
    torch = sys.modules.get("torch")
    if "torch" in states and torch is not None:
        torch.set_rng_state(states["torch"])
        for device in _DEVICE_MODULES:
            notes.extend(_restore_device(device, cast("list[object]", states.get(device, []))))
    return notes


def _restore_device(device: str, states: list[object]) -> list[str]:
    module = getattr(sys.modules["torch"], device, None)
    there = 0
    if module is not None and module.is_available():
        there = 1 if device == "mps" else int(module.device_count())
        for index, state in enumerate(states[:there]):
            _set_device(module, device, state, index)
    if there == len(states):
        return []
    return [f"random state of {len(states)} {device} device(s) was saved, {there} are here; the others start afresh"]


def _set_device(module: ModuleType, device: str, state: object, index: int) -> None:
    if device == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, index)

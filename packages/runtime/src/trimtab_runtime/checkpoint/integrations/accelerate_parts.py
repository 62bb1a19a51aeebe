"""For Accelerate: the parts of a prepared job, unwrapped, for a `Checkpointer`.

    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    parts = accelerate_parts(accelerator, model=model, optimizer=optimizer, scheduler=scheduler,
    loader=resumable_loader) with Checkpointer("checkpoints", parts) as checkpointer: ...

Pass the `ResumableLoader` itself, made with this process's rank and world size; it needs no `prepare`.
"""

from __future__ import annotations

from typing import Protocol

from trimtab_runtime.errors import UsageError


class _Accelerator(Protocol):
    """What is asked of an accelerator."""

    scaler: object | None


_WRAPPERS = {"AcceleratedOptimizer": "optimizer", "AcceleratedScheduler": "scheduler"}
"""Accelerate's wrappers, and the attribute that holds what they wrap."""


def accelerate_parts(accelerator: _Accelerator, **parts: object) -> dict[str, object]:
    """Return the parts by name without Accelerate's wrappers, with its gradient scaler where it uses one."""
    if "scaler" in parts:
        raise UsageError("the accelerator's own scaler is kept under the name 'scaler'; choose another name")
    kept = {name: _unwrapped(part) for name, part in parts.items()}
    if accelerator.scaler is not None:
        kept["scaler"] = accelerator.scaler
    return kept


def _unwrapped(part: object) -> object:
    attribute = _WRAPPERS.get(type(part).__name__)
    return getattr(part, attribute) if attribute else part

"""The parts of a job whose state is kept, whatever they call the methods that give and take it.

state_dict() / load_state_dict()     modules, optimizers, schedulers, scalers, EMA, data loaders
get_state() / set_state()            torch.Generator
bit_generator.state                  numpy.random.Generator
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

from trimtab_runtime.errors import CheckpointMismatch, UsageError


@runtime_checkable
class HasStateDict(Protocol):
    """What most of PyTorch and its neighbours offer."""

    def state_dict(self) -> Mapping[str, object]: ...
    def load_state_dict(self, state: Mapping[str, object], /) -> object: ...


@runtime_checkable
class HasState(Protocol):
    """What torch.Generator offers."""

    def get_state(self) -> object: ...
    def set_state(self, state: object, /) -> object: ...


class _BitGenerator(Protocol):
    state: object


@runtime_checkable
class HasBitGenerator(Protocol):
    """What numpy.random.Generator offers."""

    @property
    def bit_generator(self) -> _BitGenerator: ...


def require_components(state: Mapping[str, object]) -> None:
    """Raise `UsageError` naming every part that offers no way to give and take its state."""
    unknown = [
        f"{name} ({type(part).__qualname__})"
        for name, part in state.items()
        if not isinstance(part, HasStateDict | HasState | HasBitGenerator)
    ]
    if unknown:
        raise UsageError(
            f"cannot keep the state of {', '.join(unknown)}: each part needs state_dict() and load_state_dict(); "
            "wrap plain values in a small class that has them"
        )


def capture(state: Mapping[str, object]) -> dict[str, object]:
    """Return the state of every part. Tensors are not copied: take the snapshot before training goes on."""
    return {name: _capture(unwrapped(part)) for name, part in state.items()}


def _capture(part: object) -> object:
    if isinstance(part, HasStateDict):
        return part.state_dict()
    if isinstance(part, HasState):
        return part.get_state()
    return cast(HasBitGenerator, part).bit_generator.state


def apply(state: Mapping[str, object], loaded: Mapping[str, object]) -> list[str]:
    """Give every part its saved state and return notes on parts that only one side knows.

    Raise `CheckpointMismatch` if a part refuses: the checkpoint is of another model.
    """
    for name, part in state.items():
        if name in loaded:
            _apply(name, unwrapped(part), loaded[name])
    notes = [f"{name}: not in the checkpoint, starts afresh" for name in state if name not in loaded]
    return notes + [f"{name}: in the checkpoint, but this job has no such part" for name in loaded if name not in state]


def _apply(name: str, part: object, saved: object) -> None:
    try:
        if isinstance(part, HasStateDict):
            part.load_state_dict(cast("Mapping[str, object]", saved))
        elif isinstance(part, HasState):
            part.set_state(saved)
        else:
            cast(HasBitGenerator, part).bit_generator.state = saved
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(
            f"{name} does not accept the checkpoint's state, which is of another model or configuration: {error}"
        ) from error


def unwrapped(part: object) -> object:
    """Return the module inside DistributedDataParallel, so that a checkpoint loads with and without it."""
    if type(part).__name__ == "DistributedDataParallel":
        inner: object = getattr(part, "module", part)
        return inner
    return part

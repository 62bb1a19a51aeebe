"""Modules and optimizers of a distributed job under names that do not depend on how it is wrapped or sharded.

An optimizer numbers its parameters, and under FSDP each rank holds parts of them. DCP's state-dict functions give
every value the full name of its parameter instead, whatever the wrapper (none, DDP, FSDP 1 or 2), which is what makes
resuming on another number of ranks possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from trimtab_runtime.errors import UsageError


class _Functions(Protocol):
    """What is asked of torch.distributed.checkpoint.state_dict."""

    def get_model_state_dict(self, model: object) -> Mapping[str, object]: ...
    def set_model_state_dict(self, model: object, model_state_dict: Mapping[str, object]) -> object: ...
    def get_optimizer_state_dict(self, model: object, optimizers: object) -> Mapping[str, object]: ...
    def set_optimizer_state_dict(
        self, model: object, optimizers: object, optim_state_dict: Mapping[str, object]
    ) -> object: ...


def _functions() -> _Functions:
    return cast(_Functions, import_module("torch.distributed.checkpoint.state_dict"))


class NamedModule:
    """A module whose state is keyed by full parameter names."""

    def __init__(self, module: object) -> None:
        self._module = module

    def state_dict(self) -> Mapping[str, object]:
        """Return this rank's view of the module's state."""
        return _functions().get_model_state_dict(self._module)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Set it; every rank calls this."""
        _functions().set_model_state_dict(self._module, state)


class NamedOptimizer:
    """An optimizer whose state is keyed by the full names of the parameters it updates."""

    def __init__(self, module: object, optimizer: object) -> None:
        self._module = module
        self._optimizer = optimizer

    def state_dict(self) -> Mapping[str, object]:
        """Return this rank's view of the optimizer's state."""
        return _functions().get_optimizer_state_dict(self._module, self._optimizer)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Set it; every rank calls this."""
        _functions().set_optimizer_state_dict(self._module, self._optimizer, state)


def with_full_names(parts: Mapping[str, object]) -> dict[str, object]:
    """Return the parts with modules and optimizers replaced by their named forms; others stay as they are."""
    torch = import_module("torch")
    modules = {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
    named: dict[str, object] = {}
    for name, part in parts.items():
        if name in modules:
            named[name] = NamedModule(part)
        elif isinstance(part, torch.optim.Optimizer):
            named[name] = NamedOptimizer(_owner(name, part, modules), part)
        else:
            named[name] = part
    return named


class _HasParameterGroups(Protocol):
    param_groups: list[dict[str, list[object]]]


class _HasParameters(Protocol):
    def parameters(self) -> list[object]: ...


def _owner(name: str, optimizer: object, modules: Mapping[str, object]) -> object:
    """Return the module that holds the optimizer's parameters."""
    updated = {
        id(parameter) for group in cast(_HasParameterGroups, optimizer).param_groups for parameter in group["params"]
    }
    for module in modules.values():
        if updated <= {id(parameter) for parameter in cast(_HasParameters, module).parameters()}:
            return module
    raise UsageError(
        f"{name}: none of the modules given to the checkpointer holds the parameters of this optimizer; name it too"
    )

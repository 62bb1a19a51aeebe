"""trimtab: read what a GPU fleet did and cost, find the cheapest way to have met the same targets, prove it, emit it.

Names load on first use, so that `import trimtab` and `import trimtab_runtime` stay cheap inside other people's jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trimtab._version import __version__
from trimtab.replay.code_folder import keep_code_in

if TYPE_CHECKING:  # so that a type checker sees the decorator and not what `__getattr__` returns
    from trimtab_runtime.batcher import batch as batch
    from trimtab_runtime.checkpoint.checkpointer import Checkpointer as Checkpointer
    from trimtab_runtime.profile import profile as profile

_LAZY: dict[str, str] = {
    "audit": "trimtab.pipeline",
    "fit": "trimtab.pipeline",
    "open_demo": "trimtab.pipeline",
    "open_fleet": "trimtab.pipeline",
    "batch": "trimtab_runtime.batcher",
    "Checkpointer": "trimtab_runtime.checkpoint.checkpointer",
    "profile": "trimtab_runtime.profile",
}

__all__ = ["__version__", *_LAZY]


def _machine_code_folder() -> str | None:
    from trimtab._machine_code import machine_code_folder

    return machine_code_folder()


# Whoever imports any part of the package keeps its compiled replays on this machine; nothing is read before one is defined.
keep_code_in("trimtab", _machine_code_folder)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'trimtab' has no attribute {name!r}")

"""What users embed, under the name that it had here: `trimtab_runtime`, a distribution of its own without dependencies.

`trimtab.runtime.x.y` is the very module `trimtab_runtime.x.y`, found when it is asked for, so that a class is one class under
both names, and old imports and pickles hold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import trimtab_runtime

if TYPE_CHECKING:  # so that a type checker sees the classes and not what `__getattr__` returns
    from trimtab_runtime import (
        Batcher as Batcher,
        BatchMethod as BatchMethod,
        BatchReport as BatchReport,
        Checkpointer as Checkpointer,
        CheckpointSettings as CheckpointSettings,
        NoticeBoard as NoticeBoard,
        NoticeWatcher as NoticeWatcher,
        PendingSave as PendingSave,
        ResumableLoader as ResumableLoader,
        Resumed as Resumed,
        TransformersCallback as TransformersCallback,
        accelerate_parts as accelerate_parts,
        batch as batch,
        lightning_callback as lightning_callback,
        metrics_text as metrics_text,
    )


def __getattr__(name: str) -> object:
    if name in trimtab_runtime.__all__:
        return getattr(trimtab_runtime, name)
    raise AttributeError(f"module 'trimtab.runtime' has no attribute {name!r}")


class _SameModule(MetaPathFinder, Loader):
    """Finds `trimtab.runtime.x` as `trimtab_runtime.x`, and hands out that module itself instead of a second copy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = _real_name(fullname)
        found = None if real is None else find_spec(real)
        if found is None:
            return None
        return ModuleSpec(fullname, self, loader_state=found, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(spec.loader_state.name)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own specification back: the import has put that of the alias in its place."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def _real_name(name: str) -> str | None:
    return f"trimtab_runtime.{name.removeprefix('trimtab.runtime.')}" if name.startswith("trimtab.runtime.") else None


sys.meta_path.insert(0, _SameModule())

"""What users embed: the dynamic batcher and spot-safe checkpointing. Standard library only.

Names load on first use, so that importing the package costs next to nothing inside other people's jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a type checker sees the classes and not what `__getattr__` returns
    from trimtab_runtime.batcher import Batcher, BatchMethod, BatchReport, batch, metrics_text
    from trimtab_runtime.checkpoint.checkpointer import Checkpointer
    from trimtab_runtime.checkpoint.finding import Resumed
    from trimtab_runtime.checkpoint.integrations.accelerate_parts import accelerate_parts
    from trimtab_runtime.checkpoint.integrations.lightning_callback import lightning_callback
    from trimtab_runtime.checkpoint.integrations.transformers_callback import TransformersCallback
    from trimtab_runtime.checkpoint.loader import ResumableLoader
    from trimtab_runtime.checkpoint.saver import PendingSave
    from trimtab_runtime.checkpoint.settings import CheckpointSettings
    from trimtab_runtime.notice.notice import NoticeBoard
    from trimtab_runtime.notice.watcher import NoticeWatcher

_LAZY: dict[str, str] = {
    "BatchMethod": "trimtab_runtime.batcher",
    "BatchReport": "trimtab_runtime.batcher",
    "Batcher": "trimtab_runtime.batcher",
    "CheckpointSettings": "trimtab_runtime.checkpoint.settings",
    "Checkpointer": "trimtab_runtime.checkpoint.checkpointer",
    "NoticeBoard": "trimtab_runtime.notice.notice",
    "PendingSave": "trimtab_runtime.checkpoint.saver",
    "NoticeWatcher": "trimtab_runtime.notice.watcher",
    "ResumableLoader": "trimtab_runtime.checkpoint.loader",
    "TransformersCallback": "trimtab_runtime.checkpoint.integrations.transformers_callback",
    "accelerate_parts": "trimtab_runtime.checkpoint.integrations.accelerate_parts",
    "lightning_callback": "trimtab_runtime.checkpoint.integrations.lightning_callback",
    "Resumed": "trimtab_runtime.checkpoint.finding",
    "batch": "trimtab_runtime.batcher",
    "metrics_text": "trimtab_runtime.batcher",
}
"""Public name -> module that defines it."""

__all__ = [
    "BatchMethod",
    "BatchReport",
    "Batcher",
    "CheckpointSettings",
    "Checkpointer",
    "NoticeBoard",
    "NoticeWatcher",
    "PendingSave",
    "ResumableLoader",
    "Resumed",
    "TransformersCallback",
    "accelerate_parts",
    "batch",
    "lightning_callback",
    "metrics_text",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'trimtab_runtime' has no attribute {name!r}")

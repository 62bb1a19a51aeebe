"""What users embed: the dynamic batcher and spot-safe checkpointing. Standard library only.

Names load on first use, so that importing the package costs next to nothing inside other people's jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a type checker sees the classes and not what `__getattr__` returns
    from trimtab.runtime.batcher import Batcher, BatchMethod, BatchReport, batch, metrics_text
    from trimtab.runtime.checkpoint.checkpointer import Checkpointer
    from trimtab.runtime.checkpoint.finding import Resumed
    from trimtab.runtime.checkpoint.integrations.accelerate_parts import accelerate_parts
    from trimtab.runtime.checkpoint.integrations.lightning_callback import lightning_callback
    from trimtab.runtime.checkpoint.integrations.transformers_callback import TransformersCallback
    from trimtab.runtime.checkpoint.loader import ResumableLoader
    from trimtab.runtime.checkpoint.saver import PendingSave
    from trimtab.runtime.checkpoint.settings import CheckpointSettings
    from trimtab.runtime.notice.notice import NoticeBoard
    from trimtab.runtime.notice.watcher import NoticeWatcher

_LAZY: dict[str, str] = {
    "BatchMethod": "trimtab.runtime.batcher",
    "BatchReport": "trimtab.runtime.batcher",
    "Batcher": "trimtab.runtime.batcher",
    "CheckpointSettings": "trimtab.runtime.checkpoint.settings",
    "Checkpointer": "trimtab.runtime.checkpoint.checkpointer",
    "NoticeBoard": "trimtab.runtime.notice.notice",
    "PendingSave": "trimtab.runtime.checkpoint.saver",
    "NoticeWatcher": "trimtab.runtime.notice.watcher",
    "ResumableLoader": "trimtab.runtime.checkpoint.loader",
    "TransformersCallback": "trimtab.runtime.checkpoint.integrations.transformers_callback",
    "accelerate_parts": "trimtab.runtime.checkpoint.integrations.accelerate_parts",
    "lightning_callback": "trimtab.runtime.checkpoint.integrations.lightning_callback",
    "Resumed": "trimtab.runtime.checkpoint.finding",
    "batch": "trimtab.runtime.batcher",
    "metrics_text": "trimtab.runtime.batcher",
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
    raise AttributeError(f"module 'trimtab.runtime' has no attribute {name!r}")

"""What every source of notices offers to the watcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trimtab_runtime.notice.notice import Notice


class NoticeSource(Protocol):
    """A place where interruptions are announced."""

    @property
    def name(self) -> str: ...
    @property
    def pause_s(self) -> float:
        """How long to wait between two looks; 0 if looking itself waits."""
        ...

    def look(self) -> Sequence[Notice]:
        """Look once and return what is announced; raise `OSError` if the place cannot be reached."""
        ...

"""A file whose appearance announces an interruption: for preStop hooks, node agents and tests.

Its first word may be the seconds that are left; otherwise the lead given to the source holds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from trimtab_runtime.notice.notice import Notice, interruption

POLL_S = 0.25


class FileNotices:
    """Looks for a file."""

    name = "file"

    def __init__(self, path: Path, lead_s: float, *, pause_s: float = POLL_S) -> None:
        self.pause_s = pause_s
        self._path = path
        self._lead_s = lead_s

    def look(self) -> Sequence[Notice]:
        """Return an interruption once the file is there."""
        try:
            words = self._path.read_text(errors="replace").split()
        except FileNotFoundError:
            return []
        lead_s = _seconds(words[0]) if words else None
        if lead_s is None:
            lead_s = self._lead_s
        return [interruption("file", lead_s, time.monotonic(), str(self._path))]


def _seconds(word: str) -> float | None:
    """Read a number of seconds; None for any other word."""
    try:
        seconds = float(word)
    except ValueError:
        return None
    return seconds if isfinite(seconds) else None

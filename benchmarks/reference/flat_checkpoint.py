"""Save and load one flat dictionary of tensors, without a training loop around it: the smallest way to use the format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.saver import PendingSave
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.notice.notice import NoticeBoard


class _Box:
    """A part whose state is whatever was put in."""

    def __init__(self) -> None:
        self.content: Mapping[str, object] = {}

    def state_dict(self) -> Mapping[str, object]:
        return self.content

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self.content = state


class PendingFlatSave:
    """A save in the background; after `wait` nothing more happens in the folder."""

    def __init__(self, pending: PendingSave, checkpointer: Checkpointer) -> None:
        self._pending = pending
        self._checkpointer = checkpointer

    def wait(self) -> None:
        """Wait until the save is durable and older ones are removed; raise what made it fail."""
        self._pending.wait()
        self._checkpointer.settle()


class FlatWriter:
    """Writes dictionaries of tensors to a folder and reads the newest back; two are kept."""

    def __init__(self, folder: Path) -> None:
        self._box = _Box()
        self._checkpointer = Checkpointer(
            folder, {"tensors": self._box}, CheckpointSettings(keep=2), board=NoticeBoard()
        )

    def save(self, step: int, state: Mapping[str, object]) -> None:
        """Save and return when durable."""
        self._box.content = state
        self._checkpointer.save(step)

    def save_async(self, step: int, state: Mapping[str, object]) -> PendingFlatSave:
        """Save in the background; `wait` on what is returned."""
        self._box.content = state
        return PendingFlatSave(self._checkpointer.save(step, wait=False), self._checkpointer)

    def load(self, like: Mapping[str, object] | None = None) -> tuple[int, Mapping[str, object]] | None:
        """Return step and state of the newest checkpoint that verifies, None if there is none."""
        resumed = self._checkpointer.resume()
        return None if resumed is None else (resumed.step, self._box.content)

    def settle(self) -> None:
        """Wait until nothing more happens in the folder."""
        self._checkpointer.settle()

    def close(self) -> None:
        """Give the folder free."""
        self._checkpointer.close()

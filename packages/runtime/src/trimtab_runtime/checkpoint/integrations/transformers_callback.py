"""For the Hugging Face Trainer: resume, save and stop through a `Checkpointer`, at step boundaries only.

    trainer.add_callback(TransformersCallback("checkpoints"))
    trainer.train()
    sys.exit(callback.exit_code)

Set `save_strategy="no"`, and hand the Trainer a `ResumableLoader` (override `get_train_dataloader`) for a resume that
is exact in the middle of an epoch: the Trainer's own way skips batches and has drawn other random numbers by then
(transformers issue 46628).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.components import HasStateDict
from trimtab_runtime.checkpoint.finding import Resumed
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.notice.notice import NoticeBoard

PARTS = ("model", "optimizer", "lr_scheduler", "train_dataloader")
"""What the Trainer hands to its callbacks and what has a state."""


class _TrainerState(Protocol):
    global_step: int


class _TrainerControl(Protocol):
    should_training_stop: bool


class TransformersCallback:
    """A Trainer callback by shape, so that transformers need not be importable where this module is."""

    def __init__(
        self, folder: str | Path, settings: CheckpointSettings | None = None, *, board: NoticeBoard | None = None
    ) -> None:
        self.resumed: Resumed | None = None
        self.exit_code = 0
        self._folder = folder
        self._settings = settings
        self._board = board
        self._checkpointer: Checkpointer | None = None

    def on_train_begin(self, args: object, state: _TrainerState, control: _TrainerControl, **parts: object) -> None:
        """Resume, once model, optimizer and scheduler exist."""
        kept = {name: parts[name] for name in PARTS if isinstance(parts.get(name), HasStateDict)}
        self._checkpointer = Checkpointer(self._folder, kept, self._settings, board=self._board)
        self.resumed = self._checkpointer.resume()
        if self.resumed is not None:
            state.global_step = self.resumed.step

    def on_step_end(self, args: object, state: _TrainerState, control: _TrainerControl, **parts: object) -> None:
        """Save or stop if it is time to; model, optimizer and scheduler have all made the step."""
        if self._checkpointer is not None and self._checkpointer.step_done(state.global_step):
            self.exit_code = self._checkpointer.exit_code
            control.should_training_stop = True

    on_prediction_step = on_step_end
    """Evaluation may take longer than a notice leaves, so the flag is looked at there too."""

    def on_train_end(self, args: object, state: _TrainerState, control: _TrainerControl, **parts: object) -> None:
        """Save the last step and wait for it."""
        if self._checkpointer is not None:
            self._checkpointer.finish()
            self._checkpointer.close()
            self._checkpointer = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Answer every other event of the Trainer with nothing."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)


def _nothing(*arguments: object, **parts: Mapping[str, object]) -> None:
    """Do nothing at an event that is of no concern here."""

"""For Lightning: resume, save and stop through a `Checkpointer`, at batch ends only.

    callback = lightning_callback("checkpoints")
    Trainer(callbacks=[callback], enable_checkpointing=False).fit(module, ResumableLoader(dataset, 32))
    sys.exit(callback.exit_code)

Lightning's loops keep the position of a loader that has a state, so `ResumableLoader` needs no more than to be passed
to `fit`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.finding import Resumed
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import UsageError
from trimtab_runtime.notice.notice import NoticeBoard


class _Loop(Protocol):
    def state_dict(self) -> dict[str, object]: ...
    def load_state_dict(self, state: dict[str, object]) -> None: ...


class _SchedulerConfig(Protocol):
    scheduler: object


class _Precision(Protocol):
    scaler: object


class _Trainer(Protocol):
    """What is asked of a Lightning trainer."""

    fit_loop: _Loop
    optimizers: list[object]
    lr_scheduler_configs: list[_SchedulerConfig]
    precision_plugin: object
    global_step: int
    should_stop: bool


class LightningCheckpoints:
    """The events of a Lightning callback; `lightning_callback` makes it one."""

    def __init__(
        self, folder: str | Path, settings: CheckpointSettings | None = None, *, board: NoticeBoard | None = None
    ) -> None:
        self.resumed: Resumed | None = None
        self.exit_code = 0
        self._folder = folder
        self._settings = settings
        self._board = board
        self._checkpointer: Checkpointer | None = None

    def on_fit_start(self, trainer: _Trainer, pl_module: object) -> None:
        """Resume, once optimizers exist and before the loops begin."""
        self._checkpointer = Checkpointer(self._folder, _parts(trainer, pl_module), self._settings, board=self._board)
        self.resumed = self._checkpointer.resume()

    def on_train_batch_end(
        self, trainer: _Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Save or stop if it is time to."""
        self._look(trainer)

    def on_validation_batch_end(self, trainer: _Trainer, pl_module: object, *arguments: object) -> None:
        """Look at the flag in validation too, which may take longer than a notice leaves."""
        self._look(trainer)

    def _look(self, trainer: _Trainer) -> None:
        if self._checkpointer is not None and self._checkpointer.step_done(trainer.global_step):
            self.exit_code = self._checkpointer.exit_code
            trainer.should_stop = True

    def on_fit_end(self, trainer: _Trainer, pl_module: object) -> None:
        """Save the last step and wait for it."""
        if self._checkpointer is not None:
            self._checkpointer.finish()
        self._close()

    def on_exception(self, trainer: _Trainer, pl_module: object, exception: BaseException) -> None:
        """Give the folder free when training fails."""
        self._close()

    def _close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = None


def _parts(trainer: _Trainer, module: object) -> dict[str, object]:
    parts: dict[str, object] = {"module": module, "loop": trainer.fit_loop}
    parts |= {f"optimizer_{index}": optimizer for index, optimizer in enumerate(trainer.optimizers)}
    parts |= {f"scheduler_{index}": config.scheduler for index, config in enumerate(trainer.lr_scheduler_configs)}
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        parts["scaler"] = cast(_Precision, trainer.precision_plugin).scaler
    return parts


def lightning_callback(
    folder: str | Path, settings: CheckpointSettings | None = None, *, board: NoticeBoard | None = None
) -> LightningCheckpoints:
    """Return a callback for `lightning.Trainer` (or `pytorch_lightning.Trainer`, whichever is installed)."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        try:
            base = import_module(package).Callback
        except ImportError:
            continue
        made = type("TrimtabCheckpoints", (LightningCheckpoints, base), {})
        callback: LightningCheckpoints = made(folder, settings, board=board)
        return callback
    raise UsageError("Lightning is not installed: pip install lightning")

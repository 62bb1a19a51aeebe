"""Logs and progress on stderr, so that stdout has the answer only."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trimtab.cli import shown
from trimtab.safe_text import for_terminal

log = logging.getLogger(__name__)
Tell = Callable[[str, float], None]
"""Called with the stage and its completed share, in 0..1."""


class _Shown(logging.Formatter):
    """Removes secrets and terminal control characters from log lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return shown(super().format(record))


def set_verbosity(verbose: int, quiet: bool) -> None:
    """Send logs to stderr: errors with -q, warnings by default, one line per stage with -v, every step with -vv."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Shown("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "numba"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Tell]:
    """Show a progress bar on stderr if it is a terminal; it disappears at the end. Otherwise log the stages.

    Times refer to the stage: elapsed, and remaining at the current pace.
    """
    if quiet or not sys.stderr.isatty():
        yield _logged()
        return
    left = (TimeRemainingColumn(compact=True), TextColumn("left"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn(), *left)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        stage_shown = "starting"

        def tell(stage: str, done_frac: float) -> None:
            nonlocal stage_shown
            if stage != stage_shown:
                bar.reset(task)
                stage_shown = stage
            bar.update(task, description=for_terminal(stage), completed=done_frac)

        with _compiling_told(lambda text: bar.update(task, description=text)):
            yield tell


class _Told(logging.Handler):
    """Tells messages in place of writing them."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the message of a record."""
        self._tell(for_terminal(record.getMessage()))


@contextmanager
def _compiling_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell which loops are compiled meanwhile; with -v they are lines as well."""
    compiling, handler = logging.getLogger("trimtab.replay.compiled"), _Told(tell)
    before = compiling.level, compiling.propagate
    compiling.propagate = compiling.isEnabledFor(logging.INFO)
    compiling.setLevel(logging.INFO)
    compiling.addHandler(handler)
    try:
        yield
    finally:
        compiling.removeHandler(handler)
        compiling.setLevel(before[0])
        compiling.propagate = before[1]


def _logged() -> Tell:
    """Return what logs each stage when it begins, for `-v` where no terminal shows a bar."""
    last = ""

    def tell(stage: str, _done_frac: float) -> None:
        nonlocal last
        if stage != last:
            log.info("%s", stage)
            last = stage

    return tell

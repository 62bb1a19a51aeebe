"""Logs and progress on stderr, so that stdout carries the answer alone."""

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
"""Told the stage and its share done, in 0..1."""


class _Shown(logging.Formatter):
    """Lines without secrets, and without what a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return shown(super().format(record))


def set_verbosity(verbose: int, quiet: bool) -> None:
    """Send logs to stderr: errors with -q, warnings by default, one line a stage with -v, every step with -vv."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Shown("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "numba"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Tell]:
    """Show a bar on stderr during the work, if there is a terminal; it is gone when the work is done. Else log the stages.

    Times are those of the stage: how long it has taken, and how long the rest of it will at this pace.
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

        yield tell


def _logged() -> Tell:
    """Return what logs each stage when it begins, for `-v` where no terminal shows a bar."""
    last = ""

    def tell(stage: str, _done_frac: float) -> None:
        nonlocal last
        if stage != last:
            log.info("%s", stage)
            last = stage

    return tell

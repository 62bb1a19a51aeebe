"""The options that say what things cost: own rates, and the day whose prices hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from trimtab.cli.moments import parse_day

Option = Callable[[Callable[..., object]], Callable[..., object]]


def prices_option(
    said: str = "Your own rates, CSV or YAML; they go over the list.", *, parameter: str = "prices"
) -> Option:
    """Return the option that names a file of own rates; `said` is its help."""
    return click.option(
        "--prices", "--rates", parameter, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        envvar="TRIMTAB_PRICES", help=said,
    )  # fmt: skip


def at_option(said: str = "Prices that held on this day.") -> Option:
    """Return the option that names the day whose prices hold, the end of the history by default; `said` is its help."""
    return click.option("--at", callback=parse_day, metavar="DATE", show_default="the end of the history", help=said)

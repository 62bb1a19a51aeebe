"""Where the machine code of replays is kept between runs: a folder that the rim names, since the core knows none."""

from __future__ import annotations

from collections.abc import Callable

FindFolder = Callable[[], str | None]
"""Returns the folder, or None where nothing can be kept."""

_finders: list[FindFolder] = []


def keep_code_in(find_folder: FindFolder) -> None:
    """Say who knows the folder; asked when a loop is first defined, and not before: that costs a look at the sources."""
    _finders[:] = [find_folder]


def code_folder() -> str | None:
    """Return the folder that was named; None where none was, or where it cannot be written."""
    return _finders[0]() if _finders else None

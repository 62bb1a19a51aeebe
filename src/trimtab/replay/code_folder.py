"""Where the machine code of replays is kept between runs: a folder that the rim names, since the core knows none."""

from __future__ import annotations

from collections.abc import Callable

FindFolder = Callable[[], str | None]
"""Returns the folder, or None where nothing can be kept."""

_finders: dict[str, FindFolder] = {}


def keep_code_in(package: str, find_folder: FindFolder) -> None:
    """Say who knows the folder for a package's loops; asked when one is first run: that costs a look at the sources."""
    _finders[package] = find_folder


def code_folder(module: str) -> str | None:
    """Return the folder for a module's loops; None where none was named for its package, or where it cannot be written."""
    find_folder = _finders.get(module.partition(".")[0])
    return None if find_folder is None else find_folder()

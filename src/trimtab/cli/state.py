"""The folder in which commands keep what later commands speak of."""

from __future__ import annotations

import os
from pathlib import Path

STATE_VARIABLE = "TRIMTAB_STATE"
_FOLDER = ".trimtab"


def state_folder() -> Path:
    """Return the folder: the one that TRIMTAB_STATE names, else `.trimtab` here."""
    return Path(os.environ.get(STATE_VARIABLE) or _FOLDER)


def prepared_folder() -> Path:
    """Make the folder, out of the way of version control, and return it; raises OSError."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return folder

"""The folder of this machine in which compiled replays are kept between runs.

Numba's disk cache notices a change in the file of the compiled function only. The folder carries a hash of all sources of
`policies/` and `replay/`, so that a changed rule is never served from yesterday's code.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

SOURCES = tuple(Path(__file__).parent / package for package in ("policies", "replay"))


@cache
def machine_code_folder(*others: Path) -> str | None:
    """Return the folder for this state of the sources, or None where none can be written.

    `others` are folders of loops outside this package (those of measuring programs), which inline its sources and their own.
    """
    digest = hashlib.sha256()
    for folder in (*SOURCES, *others):
        for source in sorted(folder.glob("*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folder = base / "trimtab" / "compiled" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("replay compiles anew in each process: cannot write %s (%s)", folder, error)
        return None
    if not os.access(folder, os.W_OK):
        logger.warning("replay compiles anew in each process: cannot write %s", folder)
        return None
    return str(folder)

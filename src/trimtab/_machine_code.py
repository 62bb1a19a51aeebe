"""The folder of this machine in which compiled replays are kept between runs.

Numba's disk cache notices a change in the file of the compiled function only. The folder carries a hash of all sources that
loops inline (`policies/` here and in the runtime, `replay/`, the units) or whose tuples they take (`physics.serving`), so that
a changed rule is never served from old code.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cache
from pathlib import Path

import trimtab_runtime

logger = logging.getLogger(__name__)

_RUNTIME = Path(trimtab_runtime.__file__).parent
SOURCES = (
    *(Path(__file__).parent / part for part in ("policies", "replay", "physics/serving.py", "units.py")),
    *(_RUNTIME / part for part in ("policies", "units.py")),
)


@cache
def machine_code_folder(*others: Path) -> str | None:
    """Return the folder for this state of the sources, or None where none can be written.

    `others` are folders of loops outside this package (those of measuring programs), which inline its sources and their own.
    """
    digest = hashlib.sha256()
    for place in (*SOURCES, *others):
        for source in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folder = base / "trimtab" / "compiled" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("replays are compiled again in each process: cannot write %s (%s)", folder, error)
        return None
    if not os.access(folder, os.W_OK):
        logger.warning("replays are compiled again in each process: cannot write %s", folder)
        return None
    return str(folder)

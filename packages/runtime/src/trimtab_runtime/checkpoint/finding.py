"""Find the newest checkpoint that verifies, on every rank, and report what was passed over on the way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.commit import Commit, read_commit
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import CheckpointName, parse_name
from trimtab_runtime.checkpoint.ranks import Ranks
from trimtab_runtime.checkpoint.reading import SavedState
from trimtab_runtime.errors import CheckpointDamaged, CheckpointError

logger = logging.getLogger(__name__)

Reader = Callable[[FileOperations, Path, Commit], SavedState]


class Skipped(NamedTuple):
    """A checkpoint that was passed over, and why."""

    folder: str
    reason: str


class Resumed(NamedTuple):
    """Where training goes on: the step that was completed, where it came from, what was passed over, what differs."""

    step: int
    folder: str
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


class FoundCheckpoint(NamedTuple):
    """A verified checkpoint that has not been applied yet."""

    name: CheckpointName
    commit: Commit
    saved: SavedState


def find_newest(
    files: FileOperations, root: Path, ranks: Ranks, read: Reader, *, step: int | None = None
) -> tuple[FoundCheckpoint | None, tuple[Skipped, ...]]:
    """Return the newest checkpoint (of that step, if one is requested) that every rank can verify, with those passed over.

    Damaged ones are set aside. Raise `CheckpointMismatch` for one that is intact but of another program, version or
    job, since passing over it silently would restart a job from an older step.
    """
    skipped: list[Skipped] = []
    names = [name.folder for name in store.committed(files, root)] if ranks.rank == 0 else []
    for folder in ranks.from_first(names):
        name = parse_name(folder)
        if name is None or (step is not None and name.step != step):
            continue
        attempt = _try(files, root, name, read)
        worst = int(ranks.highest([attempt.verdict])[0])
        if worst == _GOOD:
            return attempt.found, tuple(skipped)
        skipped.append(Skipped(folder=folder, reason=attempt.reason or "another rank could not read it; see its log"))
        if ranks.rank == 0 and worst == _DAMAGED:
            store.set_aside(files, root, name, skipped[-1].reason)
        elif ranks.rank == 0:
            logger.warning("checkpoint %s cannot be read now and is passed over: %s", folder, skipped[-1].reason)
    return None, tuple(skipped)


_GOOD, _UNREADABLE, _DAMAGED = 0, 1, 2


class _Attempt(NamedTuple):
    verdict: int
    found: FoundCheckpoint | None
    reason: str


def _try(files: FileOperations, root: Path, name: CheckpointName, read: Reader) -> _Attempt:
    folder = root / name.folder
    try:
        marker = read_commit(files, folder)
        return _Attempt(_GOOD, FoundCheckpoint(name, marker, read(files, folder, marker)), "")
    except CheckpointDamaged as error:
        return _Attempt(_DAMAGED, None, str(error))
    except OSError as error:  # the disk or the network, perhaps for the moment: nothing is known against the checkpoint
        return _Attempt(_UNREADABLE, None, str(error))


def require_step(found: FoundCheckpoint | None, skipped: tuple[Skipped, ...], step: int | None, root: Path) -> None:
    """Raise `CheckpointError` if a step was requested by number and no good checkpoint of it is there."""
    if step is not None and found is None:
        passed = "".join(f"\n  - {entry.folder}: {entry.reason}" for entry in skipped)
        raise CheckpointError(f"{root}: no good checkpoint of step {step}{passed}")

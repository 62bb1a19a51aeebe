"""Audits that are being made, written down where `trimtab serve` finds them: of what, since when, and how far."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trimtab.cli.kept_audits import prepared_folder, state_folder
from trimtab.cli.progress import Tell

_FOLDER = "running"
_AT_MOST_EVERY_S = 1.0
_STALE_S = 300.0
"""A file that has not been written to for this long is left over from an audit that was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningState:
    """One audit that is being made."""

    fleet: str
    started: datetime
    stage: str
    done_frac: float


@contextmanager
def written_down(fleet: str, tell: Tell) -> Iterator[Tell]:
    """Write the progress of an audit to the state folder, once a second at most, and remove it at the end.

    A folder that cannot be written costs the page its progress bar, and nothing else.
    """
    file: Path | None = None
    with suppress(OSError):
        folder = prepared_folder() / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / f"{os.getpid()}.json"
    started, written_s = datetime.now(UTC), -_AT_MOST_EVERY_S

    def told(stage: str, done_frac: float) -> None:
        nonlocal written_s
        tell(stage, done_frac)
        now_s = time.monotonic()
        if file is None or now_s - written_s < _AT_MOST_EVERY_S:
            return
        written_s = now_s
        state = {"fleet": fleet, "started": started.isoformat(), "stage": stage, "done_frac": done_frac}
        fresh = file.with_suffix(".fresh")
        with suppress(OSError):
            fresh.write_text(json.dumps(state), encoding="utf-8")
            fresh.replace(file)

    try:
        yield told
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)


def running_audits(state: Path | None = None) -> Sequence[RunningState]:
    """Return the audits that are being made in a state folder (default: `state_folder`), the first begun first."""
    folder = (state or state_folder()) / _FOLDER
    found = []
    for file in folder.glob("*.json") if folder.is_dir() else ():
        with suppress(OSError, ValueError, KeyError, TypeError):
            if time.time() - file.stat().st_mtime > _STALE_S:
                continue
            raw = json.loads(file.read_text(encoding="utf-8"))
            found.append(
                RunningState(
                    fleet=str(raw["fleet"]),
                    started=datetime.fromisoformat(raw["started"]).astimezone(UTC),
                    stage=str(raw["stage"]),
                    done_frac=min(max(float(raw["done_frac"]), 0.0), 1.0),
                )
            )
    return sorted(found, key=lambda audit: audit.started)

"""Every audit kept, oldest first: an append-only history of folders, each whole or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trimtab.cli.state import last_audit_file
from trimtab.emit.audit_json import render_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.kept_plan import KeptPlan, render_kept_plan
from trimtab.errors import UnknownName

_HISTORY = "history"
_AUDIT, _PLAN = "audit.json", "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAudit:
    """One audit of the history: its number and its files."""

    number: int
    audit: Path
    plan: Path


def kept_audits() -> list[KeptAudit]:
    """Return the history, oldest first; a folder that a crash left unfinished is none of it."""
    folder = _folder()
    numbers = sorted(int(one.name) for one in folder.iterdir() if one.name.isdecimal()) if folder.is_dir() else []
    return [_kept(number) for number in numbers]


def append(document: AuditDocument, plan: KeptPlan) -> KeptAudit:
    """Add an audit to the history: written aside, then renamed to the next number; raises OSError."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".", dir=folder))
    try:
        _to_disk(fresh / _AUDIT, render_json(document))
        _to_disk(fresh / _PLAN, render_kept_plan(plan))
        number = max((one.number for one in kept_audits()), default=0) + 1
        # Two audits that end at once: a rename onto a folder with files fails, so that nothing is ever replaced.
        fresh.rename(_kept(number).audit.parent)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return _kept(number)


def _to_disk(file: Path, text: str) -> None:
    """Write a file and wait until it is on the disk: a name never stands for what a power cut would lose."""
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def find(name: str) -> KeptAudit:
    """Return an audit by its number, or counted from the end (-1 is the last); raises UnknownName."""
    known = kept_audits()
    by_name = {str(one.number): one for one in known} | {str(-back): one for back, one in enumerate(reversed(known), 1)}
    if name not in by_name:
        raise UnknownName(
            "kept audit", name, by_name, where=f"{_folder()} ({len(known)} kept; each `trimtab audit` adds one)"
        )
    return by_name[name]


def _folder() -> Path:
    return last_audit_file().with_name(_HISTORY)


def _kept(number: int) -> KeptAudit:
    folder = _folder() / f"{number:06d}"
    return KeptAudit(number=number, audit=folder / _AUDIT, plan=folder / _PLAN)

"""Every audit kept, oldest first: an append-only history of folders, each an audit and its plan, whole or not there at all.

The last of them is what later commands speak of, so that `explain` and `emit` never mean different plans.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimtab.cli.state import TRUST_VARIABLE, is_sealed, prepared_folder, seal_of, state_folder, trusts_others, user_key
from trimtab.emit.audit_data import parse_document, render_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.kept_plan import KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.errors import InputError, UnknownName
from trimtab.inputs.files import read_bytes, read_text
from trimtab.units import S_PER_HR

_HISTORY = "history"
_AUDIT, _PLAN, _SEAL = "audit.json", "plan.json", "seal"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAudit:
    """One audit of the history: its number and its files."""

    number: int
    audit: Path
    plan: Path


def kept_audits() -> list[KeptAudit]:
    """Return the history, oldest first; a folder that a crash left unfinished is none of it."""
    kept = [_kept(number) for number in _numbers()]
    if trusts_others() or not kept or (user := user_key()) is None:
        return kept
    sealed = [audit for audit in kept if _is_mine(audit, user)]
    if len(sealed) < len(kept):
        log.warning(
            "%d of %d audits in %s bear no seal of yours (others or an older version kept them) and are left aside; "
            "set %s=1 to take them",
            len(kept) - len(sealed),
            len(kept),
            _folder(),
            TRUST_VARIABLE,
        )
    return sealed


def keep(document: AuditDocument, plan: KeptPlan) -> KeptAudit:
    """Add an audit to the history: written aside, then renamed to the next number; raises OSError."""
    folder = prepared_folder() / _HISTORY
    folder.mkdir(mode=0o700, exist_ok=True)
    _clear_unfinished(folder)
    fresh = Path(tempfile.mkdtemp(prefix=".", dir=folder))
    try:
        _to_disk(fresh / _AUDIT, render_json(document))
        _to_disk(fresh / _PLAN, render_kept_plan(plan))
        if (user := user_key()) is not None:
            _to_disk(fresh / _SEAL, seal_of(user, *_content(fresh)).hex())
        return _numbered(fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def recall(file: Path | None = None) -> AuditDocument:
    """Return an audit from a file, or the last one; raises InputError where there is none."""
    path = file or _last().audit
    return parse_document(read_text(path), where=str(path))


def recall_named(name: str) -> AuditDocument:
    """Return the audit of a file, else the kept one of that number, as `find` reads it; raises InputError, UnknownName."""
    return recall(Path(name) if Path(name).is_file() else find(name).audit)


def recall_plan(file: Path | None = None) -> KeptPlan:
    """Return a kept plan from a file, or that of the last audit; raises InputError where there is none."""
    path = file or _last().plan
    return parse_kept_plan(read_text(path), where=str(path))


def find(name: str) -> KeptAudit:
    """Return an audit by its number, or counted from the end (-1 is the last); raises UnknownName."""
    known = kept_audits()
    by_name = {str(audit.number): audit for audit in known} | {
        str(-back): audit for back, audit in enumerate(reversed(known), 1)
    }
    if name not in by_name:
        raise UnknownName(
            "kept audit", name, by_name, where=f"{_folder()} ({len(known)} kept; each `trimtab audit` adds one)"
        )
    return by_name[name]


def _numbered(fresh: Path) -> KeptAudit:
    """Give a finished folder the next number.

    A rename onto a folder with files fails, so that nothing is ever replaced: of two audits that end at once, one counts on.
    """
    while True:
        kept = _kept(max(_numbers(), default=0) + 1)
        try:
            fresh.rename(kept.audit.parent)
        except OSError:
            if not kept.audit.parent.is_dir():
                raise
        else:
            return kept


def _numbers() -> list[int]:
    folder = _folder()
    return sorted(int(part.name) for part in folder.iterdir() if part.name.isdecimal()) if folder.is_dir() else []


def _content(folder: Path) -> tuple[bytes, bytes]:
    return read_bytes(folder / _AUDIT), read_bytes(folder / _PLAN)


def _is_mine(kept: KeptAudit, user: bytes) -> bool:
    """Tell whether the user sealed the audit together with its plan."""
    folder = kept.audit.parent
    try:
        seal = bytes.fromhex(read_text(folder / _SEAL, most_mib=1))
        return is_sealed(seal, user, *_content(folder))
    except (InputError, ValueError):
        return False


def _clear_unfinished(folder: Path) -> None:
    """Remove what audits that were killed left behind: hidden folders that nobody has written to for an hour."""
    for left in folder.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > S_PER_HR:
                shutil.rmtree(left, ignore_errors=True)


def _to_disk(file: Path, text: str) -> None:
    """Write a file and wait until it is on the disk: a name never stands for what a power cut would lose."""
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _last() -> KeptAudit:
    known = kept_audits()
    if not known:
        raise InputError(f"no audit in {_folder()}; run `trimtab audit` here first, or `trimtab audit --demo`")
    return known[-1]


def _folder() -> Path:
    return state_folder() / _HISTORY


def _kept(number: int) -> KeptAudit:
    folder = _folder() / f"{number:06d}"
    return KeptAudit(number=number, audit=folder / _AUDIT, plan=folder / _PLAN)

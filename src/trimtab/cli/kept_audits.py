"""Every audit kept, oldest first: an append-only history of folders, each with one file, whole or not there at all.

The file has three lines: the audit as `trimtab audit -o json` has it, its plan with the facts around it, and the user's seal of
both. Earlier each was a file of its own; such folders are read too.

The last of them is what later commands speak of, so that `explain` and `emit` never mean different plans.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from trimtab.cli.state import TRUST_VARIABLE, is_sealed, prepared_folder, seal_of, state_folder, trusts_others, user_key
from trimtab.emit.audit_data import parse_document, render_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.kept_plan import KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.errors import InputError, UnknownName
from trimtab.inputs.files import read_bytes, read_text
from trimtab.units import S_PER_HR

HISTORY = "history"
"""The folder of kept audits in a state folder."""
KEPT = "kept.jsonl"
_FORMER = ("audit.json", "plan.json", "seal")
log = logging.getLogger(__name__)


def kept_audits(state: Path | None = None) -> list[Path]:
    """Return the folders of a state folder's history (default: `state_folder`), oldest first; none that a crash left undone."""
    history = _history() if state is None else state / HISTORY
    kept = _folders(history)
    if trusts_others() or not kept or (user := user_key()) is None:
        return kept
    sealed = [folder for folder in kept if _is_mine(folder, user)]
    if len(sealed) < len(kept):
        log.warning(
            "%d of %d audits in %s bear no seal of yours (others or an older version kept them) and are left aside; "
            "set %s=1 to take them",
            len(kept) - len(sealed),
            len(kept),
            history,
            TRUST_VARIABLE,
        )
    return sealed


def keep(document: AuditDocument, plan: KeptPlan) -> Path:
    """Add an audit to the history, written aside, then renamed to the next number; return its folder. Raises OSError."""
    prepared_folder()
    history = _history()
    history.mkdir(mode=0o700, exist_ok=True)
    _clear_unfinished(history)
    fresh = Path(tempfile.mkdtemp(prefix=".", dir=history))
    try:
        parts = [render_json(document, indent=None).encode(), render_kept_plan(plan).encode()]
        user = user_key()
        seal = b"" if user is None else seal_of(user, *parts).hex().encode()
        _to_disk(fresh / KEPT, b"\n".join([*parts, seal]))
        return _added(fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def recall(path: Path | None = None) -> AuditDocument:
    """Return an audit from a folder of the history or a file, or the last one; raises InputError where there is none."""
    path = path or _last()
    folder = path.parent if path.name == KEPT else path
    return parse_document(_parts(folder)[0] if folder.is_dir() else read_text(path), where=str(path))


def recall_named(name: str) -> AuditDocument:
    """Return the audit of a file, else the kept one of that number, as `find` reads it; raises InputError, UnknownName."""
    return recall(Path(name) if Path(name).is_file() else find(name))


def recall_plan(folder: Path | None = None) -> KeptPlan:
    """Return the plan in a folder of the history, or that of the last audit; raises InputError where there is none."""
    folder = folder or _last()
    return parse_kept_plan(_parts(folder)[1], where=str(folder))


def number_of(folder: Path) -> int:
    """Return the number of a kept audit."""
    return int(folder.name)


def find(name: str) -> Path:
    """Return an audit's folder by its number, or counted from the end (-1 is the last); raises UnknownName."""
    known = kept_audits()
    by_name = {str(number_of(folder)): folder for folder in known} | {
        str(-back): folder for back, folder in enumerate(reversed(known), 1)
    }
    if name not in by_name:
        raise UnknownName(
            "kept audit", name, by_name, where=f"{_history()} ({len(known)} kept; each `trimtab audit` adds one)"
        )
    return by_name[name]


def _added(fresh: Path) -> Path:
    """Give a finished folder the next number.

    A rename onto a folder with files fails, so that nothing is ever replaced: of two audits that end at once, one counts on.
    """
    while True:
        folder = fresh.parent / f"{max(map(number_of, _folders(fresh.parent)), default=0) + 1:06d}"
        try:
            return fresh.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _folders(history: Path) -> list[Path]:
    parts = [part for part in history.iterdir() if part.name.isdecimal()] if history.is_dir() else []
    return sorted(parts, key=number_of)


def _parts(folder: Path) -> tuple[bytes, bytes, bytes]:
    """Return the audit, the plan and the seal that a folder holds, each empty where it is not there; raises InputError."""
    if (folder / KEPT).exists():
        audit, plan, seal, *_ = [*read_bytes(folder / KEPT).split(b"\n"), b"", b""]
        return audit, plan, seal
    audit, plan, seal = (read_bytes(path) if (path := folder / name).exists() else b"" for name in _FORMER)
    return audit, plan, seal


def _is_mine(folder: Path, user: bytes) -> bool:
    """Tell whether the user sealed the audit together with its plan."""
    try:
        audit, plan, seal = _parts(folder)
        return is_sealed(bytes.fromhex(seal.decode()), user, audit, plan)
    except (InputError, ValueError):
        return False


def _clear_unfinished(folder: Path) -> None:
    """Remove what audits that were killed left behind: hidden folders that nobody has written to for an hour."""
    for left in folder.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > S_PER_HR:
                shutil.rmtree(left, ignore_errors=True)


def _to_disk(file: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk: a name never stands for what a power cut would lose."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _last() -> Path:
    known = kept_audits()
    if not known:
        raise InputError(f"no audit in {_history()}; run `trimtab audit` here first, or `trimtab audit --demo`")
    return known[-1]


def _history() -> Path:
    return state_folder() / HISTORY

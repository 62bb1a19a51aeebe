"""The last audit, kept in the working folder so that later commands can speak of its actions."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trimtab.emit.audit_json import parse_document, render_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.kept_plan import KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.errors import InputError

STATE_VARIABLE = "TRIMTAB_STATE"
_FOLDER = ".trimtab"
_LAST_AUDIT = "last-audit.json"
_LAST_PLAN = "last-plan.json"


def last_audit_file() -> Path:
    """Return where the last audit is kept: in the folder that TRIMTAB_STATE names, else `.trimtab` here."""
    return Path(os.environ.get(STATE_VARIABLE) or _FOLDER) / _LAST_AUDIT


def last_plan_file() -> Path:
    """Return where the plan of the last audit is kept, with what manifests need to know of its cluster."""
    return last_audit_file().with_name(_LAST_PLAN)


def keep(document: AuditDocument) -> Path:
    """Keep an audit for later commands, whole or not at all, out of the way of version control; raises OSError."""
    return _keep(last_audit_file(), render_json(document))


def keep_plan(kept: KeptPlan) -> Path:
    """Keep a plan for `trimtab emit`, as `keep` does an audit; raises OSError."""
    return _keep(last_plan_file(), render_kept_plan(kept))


def recall(file: Path | None = None) -> AuditDocument:
    """Return an audit from a file, or the last one; raises InputError where there is none."""
    path = file or last_audit_file()
    return parse_document(_recall(path), where=str(path))


def recall_plan(file: Path | None = None) -> KeptPlan:
    """Return a kept plan from a file, or that of the last audit; raises InputError where there is none."""
    path = file or last_plan_file()
    return parse_kept_plan(_recall(path), where=str(path))


def prepared(file: Path) -> Path:
    """Make the folder of a file, out of the way of version control, and return the file; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    ignore = file.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return file


def _keep(file: Path, text: str) -> Path:
    """Write aside, to the disk, and then rename: a reader finds the old text or the new one, whenever the writer dies."""
    handle, fresh = tempfile.mkstemp(prefix=f"{file.stem}-", suffix=".new", dir=prepared(file).parent)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(fresh).replace(file)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
    return file


def _recall(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"no audit at {path}; run `trimtab audit` here first, or `trimtab audit --demo`") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error

"""The state folder: audits kept for later commands, oldest first, and the user's key that authenticates them.

A working folder may come from elsewhere: a clone, an archive, a shared disk. Its files therefore carry a seal (HMAC-SHA256)
under a key outside of it, in the user's state folder, readable only by the user.

An audit's file has three lines: the audit as written by `trimtab audit -o json`, its plan with cluster facts, and the user's
seal of both. Earlier versions used one file for each; such folders can still be read.

Later commands use the last one, so `explain` and `emit` always refer to the same plan.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import InputError, UnknownName
from trimtab.inputs.files import read_bytes, read_text
from trimtab.units import S_PER_HR

if TYPE_CHECKING:
    from trimtab.emit.document import AuditDocument
    from trimtab.emit.kept_plan import KeptPlan

STATE_VARIABLE = "TRIMTAB_STATE"
_FOLDER = ".trimtab"

TRUST_VARIABLE = "TRIMTAB_TRUST_STATE"
"""If set to 1, audits of other users and machines are accepted: for a folder that a pipeline passes from job to job."""
SEAL_BYTES = hashlib.sha256().digest_size
_KEY_BYTES = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
log = logging.getLogger(__name__)


def state_folder() -> Path:
    """Return the state folder: TRIMTAB_STATE, else `.trimtab` here."""
    return Path(os.environ.get(STATE_VARIABLE) or _FOLDER)


def prepared_folder() -> Path:
    """Create the folder, ignored by version control, and return it. Raises OSError."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return folder


def user_key() -> bytes | None:
    """Return the user's key, created on first use; None, with a warning, if it cannot be kept private."""
    file = _key_folder() / "key"
    try:
        if not file.exists():
            _make(file)
        return _read(file)
    except (OSError, ValueError) as error:
        log.warning("no key of your own to seal what is kept (%s): %s", file, error)
        return None


def seal_of(key: bytes, *parts: bytes) -> bytes:
    """Return the seal of some parts. Each part's length is included, so bytes cannot move from one part to the next."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def is_sealed(seal: bytes, key: bytes, *parts: bytes) -> bool:
    """Return whether a seal is that of the parts, in constant time."""
    return hmac.compare_digest(seal, seal_of(key, *parts))


def trusts_others() -> bool:
    """Return whether the user allows audits kept by others."""
    return os.environ.get(TRUST_VARIABLE, "") == "1"


def _key_folder() -> Path:
    """Return the user's state folder for this program, following the XDG base directory specification."""
    home = os.environ.get("XDG_STATE_HOME")
    return Path(home) / "trimtab" if home else Path.home() / ".local" / "state" / "trimtab"


def _make(file: Path) -> None:
    """Write a new key atomically; of two concurrent programs, the first one wins."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(fresh, file)
    finally:
        fresh.unlink()


def _read(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(stream.fileno())
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            raise ValueError("other users can read it; remove it, and a new one is created")
        key = stream.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes, not {_KEY_BYTES}; remove it, and a new one is created")
    return key


HISTORY = "history"
"""The folder of kept audits in a state folder."""
KEPT = "kept.jsonl"
_FORMER = ("audit.json", "plan.json", "seal")


def kept_audits(state: Path | None = None) -> list[Path]:
    """Return the folders of a state folder's history (default: `state_folder`), oldest first, without unfinished ones."""
    history = _history(state)
    kept = _folders(history)
    if trusts_others() or not kept or (user := user_key()) is None:
        return kept
    sealed = [folder for folder in kept if _is_mine(folder, user)]
    if len(sealed) < len(kept):
        log.warning(
            "%d of %d audits in %s were kept by others or by an older version (no seal of yours) and are ignored; "
            "set %s=1 to use them",
            len(kept) - len(sealed),
            len(kept),
            history,
            TRUST_VARIABLE,
        )
    return sealed


def keep(document: AuditDocument, plan: KeptPlan) -> Path:
    """Add an audit to the history: write it aside, then rename it to the next number. Returns its folder. Raises OSError."""
    from trimtab.emit.document import render_json
    from trimtab.emit.kept_plan import render_kept_plan  # heavy, and `explain` and `diff` need no plan

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
    """Return an audit from a folder of the history or a file, by default the last one. Raises InputError if there is none."""
    from trimtab.emit.document import parse_document  # heavy, and who plans again from what is kept needs none

    path = path or _last()
    folder = path.parent if path.name == KEPT else path
    return parse_document(_parts(folder)[0] if folder.is_dir() else read_text(path), where=str(path))


def recall_fleet(folder: Path | None = None) -> str:
    """Return the fleet of an audit in a folder of the history, by default the last one, as it is named there.

    Nothing else of the document is checked: to build its model takes as long as many a question about the kept plan. Raises
    InputError if there is none.
    """
    folder = folder or _last()
    try:
        fleet = json.loads(_parts(folder)[0])["fleet"]
    except (ValueError, LookupError, TypeError, RecursionError):
        fleet = None
    # what else it is, the whole document's check says in words
    return fleet if isinstance(fleet, str) else recall(folder).fleet


def recall_named(name: str) -> AuditDocument:
    """Return the audit in a file, or the kept one with that number (see `find`). Raises InputError, UnknownName."""
    return recall(Path(name) if Path(name).is_file() else find(name))


def recall_plan(folder: Path | None = None) -> KeptPlan:
    """Return the plan in a folder of the history, by default that of the last audit. Raises InputError if there is none."""
    from trimtab.emit.kept_plan import parse_kept_plan

    folder = folder or _last()
    return parse_kept_plan(_parts(folder)[1], where=str(folder))


def number_of(folder: Path) -> int:
    """Return the number of a kept audit."""
    return int(folder.name)


def find(name: str, state: Path | None = None) -> Path:
    """Return an audit's folder by its number, or counted from the end (-1 is the last). Raises UnknownName.

    Searches the history of a state folder (default: `state_folder`).
    """
    known = kept_audits(state)
    by_name = {str(number_of(folder)): folder for folder in known} | {
        str(-back): folder for back, folder in enumerate(reversed(known), 1)
    }
    if name not in by_name:
        raise UnknownName(
            "kept audit", name, by_name, where=f"{_history(state)} ({len(known)} kept; each `trimtab audit` adds one)"
        )
    return by_name[name]


def _added(fresh: Path) -> Path:
    """Rename a finished folder to the next number.

    Renaming onto a non-empty folder fails, so nothing is ever replaced: if two audits end at once, one takes the number after.
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
    """Return the audit, the plan and the seal in a folder, each empty if absent. Raises InputError."""
    if (folder / KEPT).exists():
        audit, plan, seal, *_ = [*read_bytes(folder / KEPT).split(b"\n"), b"", b""]
        return audit, plan, seal
    audit, plan, seal = (read_bytes(path) if (path := folder / name).exists() else b"" for name in _FORMER)
    return audit, plan, seal


def _is_mine(folder: Path, user: bytes) -> bool:
    """Return whether the user sealed this audit together with its plan."""
    try:
        audit, plan, seal = _parts(folder)
        return is_sealed(bytes.fromhex(seal.decode()), user, audit, plan)
    except (InputError, ValueError):
        return False


def _clear_unfinished(folder: Path) -> None:
    """Remove leftovers of audits that were killed: hidden folders not written to for an hour."""
    for left in folder.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > S_PER_HR:
                shutil.rmtree(left, ignore_errors=True)


def _to_disk(file: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk, so that a name never refers to data lost in a power failure."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _last() -> Path:
    known = kept_audits()
    if not known:
        raise InputError(f"no audit in {_history()}; run `trimtab audit` here first, or `trimtab audit --demo`")
    return known[-1]


def _history(state: Path | None = None) -> Path:
    return (state or state_folder()) / HISTORY

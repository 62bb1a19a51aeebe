"""The folder in which commands keep what later commands speak of, and the user's key by which it is told from others'.

A working folder may come from elsewhere: a clone, an archive, a shared disk. What is kept in it bears a seal (HMAC-SHA256)
under a key that lies outside of it, in the user's state folder, readable by the user alone.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

STATE_VARIABLE = "TRIMTAB_STATE"
_FOLDER = ".trimtab"

TRUST_VARIABLE = "TRIMTAB_TRUST_STATE"
"""Set to 1, kept audits of other users and machines are taken: for a folder that a pipeline hands from job to job."""
SEAL_BYTES = hashlib.sha256().digest_size
_KEY_BYTES = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
log = logging.getLogger(__name__)


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


def user_key() -> bytes | None:
    """Return the user's key, made where there is none; None, and said, where it cannot be kept to the user."""
    file = _key_folder() / "key"
    try:
        if not file.exists():
            _make(file)
        return _read(file)
    except (OSError, ValueError) as error:
        log.warning("no key of your own to seal what is kept (%s): %s", file, error)
        return None


def seal_of(key: bytes, *parts: bytes) -> bytes:
    """Return the seal of some parts; each goes in with its length, so that none can borrow from the next."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def is_sealed(seal: bytes, key: bytes, *parts: bytes) -> bool:
    """Tell whether a seal is that of the parts, in a time that tells nothing of where they differ."""
    return hmac.compare_digest(seal, seal_of(key, *parts))


def trusts_others() -> bool:
    """Tell whether the user said that what others kept is to be taken."""
    return os.environ.get(TRUST_VARIABLE, "") == "1"


def _key_folder() -> Path:
    """Return the user's state folder for this program, as the XDG base directories name it."""
    home = os.environ.get("XDG_STATE_HOME")
    return Path(home) / "trimtab" if home else Path.home() / ".local" / "state" / "trimtab"


def _make(file: Path) -> None:
    """Write a fresh key under its name whole; of two programs that do so at once, the first wins."""
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
            raise ValueError("it is not yours alone; remove it, and a new one is made")
        key = stream.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes, not {_KEY_BYTES}; remove it, and a new one is made")
    return key

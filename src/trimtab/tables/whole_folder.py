"""Replaces a folder atomically: its name refers to the old or the new content at any time, even if a writer dies.

The new folder is written beside the old one, flushed to the disk, and the two exchange names in one step of the file system
(`renameat2`, Linux; `renamex_np`, macOS). A file system without that step (NFS) gets two renames, between which the old folder
waits under a name that the next reader or writer puts back.

A writer holds a shared lock of the parent folder, which ends with it however it ends. Who gets that lock for itself alone knows
that no writer lives there, and takes away what dead ones left.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_UNFINISHED = ".unfinished"
_FORMER = ".former"
_AT_FDCWD = -100
_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux' renameat2(2), and RENAME_SWAP of macOS' renamex_np(2)."""
_NO_SUCH_STEP = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; when the block ends well it takes the place of `path`, else it goes. Raises OSError.

    Its mode is that of the folder which it replaces, else what the umask leaves.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settle(path)
    with _writing(path.parent):
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}{_UNFINISHED}")
        fresh.mkdir()
        try:
            if path.is_dir():
                fresh.chmod(path.stat().st_mode & 0o777)
            yield fresh
            _flush_all(fresh)
            _take_place(fresh, path)
        finally:
            # after the exchange this is the old folder
            shutil.rmtree(fresh, ignore_errors=True)


def settle(path: Path) -> None:
    """Put back a folder that a dead writer left under its waiting name, and take away what dead writers left; never raises."""
    with suppress(OSError):
        former = _former(path)
        left = [folder for folder in path.parent.glob(f".{path.name}.*{_UNFINISHED}") if not folder.is_symlink()]
        if not left and not former.exists():
            return
        with _alone(path.parent) as alone:
            if not alone:
                return
            if former.exists():
                if path.exists():
                    shutil.rmtree(former, ignore_errors=True)
                else:
                    former.rename(path)
            for folder in left:
                shutil.rmtree(folder, ignore_errors=True)


def _former(path: Path) -> Path:
    return path.with_name(f".{path.name}{_FORMER}")


def _take_place(fresh: Path, path: Path) -> None:
    """Give the finished folder its name and flush the parent, so that a power cut does not take the name back."""
    if not path.exists():
        fresh.rename(path)
    elif not _exchanged(fresh, path):
        former = _former(path)
        path.rename(former)
        try:
            fresh.rename(path)
        except OSError:
            former.rename(path)
            raise
        former.rename(fresh)
    _flush(path.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or its file system has no such step. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, ctypes.c_uint(_EXCHANGE))
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_EXCHANGE))
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NO_SUCH_STEP:
        return False
    raise OSError(number, os.strerror(number), str(other))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Hold the folder's shared lock; nothing is cleaned there meanwhile. A file system without locks goes without."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Take the folder's exclusive lock if no writer is active; yield whether it was taken."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _flush_all(folder: Path) -> None:
    for inside in folder.rglob("*"):
        if inside.is_dir() or (inside.is_file() and not inside.is_symlink()):
            _flush(inside)
    _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

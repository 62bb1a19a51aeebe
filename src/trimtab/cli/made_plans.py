"""The last plan with all that it was chosen from, kept so that another question about the same fleet plans it no second time.

One file in the state folder: the user's seal, what the plan was made from, and the pickled plan, packed. It is read only if
it has the seal of this user's own key, whoever else is trusted, because a pickle can run code. It is used only for the same
history to the byte, settings, rates, day and program, so it is never stale. Deleting the file only costs time.
"""

from __future__ import annotations

import gc
import hashlib
import hmac
import io
import logging
import os
import pickle
import platform
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from trimtab.cli.kept_audits import SEAL_BYTES, prepared_folder, state_folder, user_key
from trimtab.cli.outcome_cache import program_digest
from trimtab.errors import InputError
from trimtab.fleet.settings import Settings
from trimtab.inputs.files import read_bytes
from trimtab.pipeline.auditing import ProvenPlan
from trimtab.replay.outcomes.outcome import OutcomeStore
from trimtab.units import BYTES_PER_MIB

DEMO_PREFIX = "demo "
"""Begins the name of a demonstration, which the program makes alike each time."""
_FILE = "made.plan"
_MOST_MIB = 512
"""A plan of more than this, packed, is not kept; one of 60 workloads has 12 (docs/benchmarks/plan.md)."""
_CODEC = "zstd"
_STORE = "store"
_UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pa.ArrowException,
    pickle.UnpicklingError,
)
"""What a pickle may raise that another version of a library wrote: the seal says who wrote it, not with which libraries."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrigin:
    """What a plan is made from."""

    fleet: str
    """A bundle's folder, or `demo NAME`."""
    settings: Settings
    prices: Path | None = None
    at: date | None = None

    def digest(self) -> bytes | None:
        """Return what all of it comes to, with the program and its libraries; None if some of it cannot be read."""
        digest = hashlib.sha256()
        libraries = (program_digest(), platform.python_version(), np.__version__, pa.__version__)
        # a folder may be moved: what it holds counts
        named = self.fleet if self.fleet.startswith(DEMO_PREFIX) else ""
        for part in (*libraries, repr(self.settings), str(self.at), named):
            _add(digest, part.encode())
        try:
            for name, file in self._files():
                _add(digest, name.encode())
                with file.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError:
            return None
        return digest.digest()

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files that are read, in a fixed order, each with its name. Raises OSError."""
        if self.prices is not None:
            yield f"rates{self.prices.suffix}", self.prices
        if not self.fleet.startswith(DEMO_PREFIX):
            folder = Path(self.fleet)
            yield from ((str(file.relative_to(folder)), file) for file in sorted(folder.rglob("*")) if file.is_file())


def keep_made(source: PlanOrigin, made: ProvenPlan) -> None:
    """Keep a plan in place of the last one; a folder that cannot be written, or a plan too large, only costs time later."""
    user, digest = user_key(), source.digest()
    if user is None or digest is None:
        return
    fresh = None
    try:
        folder = prepared_folder()
        fresh = folder / f".{_FILE}.{secrets.token_hex(6)}"
        with os.fdopen(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as stream:
            _write(stream, user, digest, made)
        fresh.replace(folder / _FILE)
    except OSError as error:
        log.info("the plan is not kept for what-if: %s", error)
        if fresh is not None:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)


def recall_made(source: PlanOrigin, store: OutcomeStore | None) -> ProvenPlan | None:
    """Return the kept plan, which looks replays up in `store`; None if it is of another source or user."""
    file, user = state_folder() / _FILE, user_key()
    if user is None or not file.is_file() or (digest := source.digest()) is None:
        return None
    return read_made(file, user, digest, store)


def read_made(file: Path, user: bytes, digest: bytes, store: OutcomeStore | None) -> ProvenPlan | None:
    """Return the plan in a file; None, with a log line, if it is not that of this digest or not sealed with the user's key."""
    try:
        # checked and read from one copy in memory, so that nothing can change in between
        content = memoryview(read_bytes(file, most_mib=_MOST_MIB))
        sealing = _sealing(user)
        sealing.update(content[SEAL_BYTES:])
        if not hmac.compare_digest(content[:SEAL_BYTES], sealing.digest()):
            log.warning("a kept plan of another user, or a damaged one, is ignored, and the fleet is planned again")
            return None
        start = SEAL_BYTES + len(digest)
        if content[SEAL_BYTES:start] != digest:
            return None
        with pa.CompressedInputStream(pa.BufferReader(content[start:]), _CODEC) as packed:
            found = _loaded(_Unpickler(io.BufferedReader(packed, BYTES_PER_MIB), store))
    except (InputError, *_UNREADABLE) as error:
        log.info("the kept plan cannot be read, and the fleet is planned again: %s", error)
        return None
    return found if isinstance(found, ProvenPlan) else None


def _loaded(unpickler: pickle.Unpickler) -> object:
    """Return what is pickled; garbage is not looked for among a million new objects, which took as long as they did."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return unpickler.load()
    finally:
        if was_on:
            gc.enable()


def _write(stream: BinaryIO, user: bytes, digest: bytes, made: ProvenPlan) -> None:
    """Write the file piece by piece. Raises OSError, also if it becomes larger than what is read again."""
    sealed = _Sealed(stream, user)
    stream.write(bytes(SEAL_BYTES))
    sealed.write(digest)
    bare = replace(made, opened=replace(made.opened, workers=None))
    with pa.CompressedOutputStream(pa.PythonFile(sealed, mode="w"), _CODEC) as packed:
        _Pickler(packed, made.opened.store).dump(bare)
    stream.seek(0)
    stream.write(sealed.seal())


def _sealing(user: bytes) -> hmac.HMAC:
    # begins unlike the seals of other files, so that none of them passes for a plan
    return hmac.new(user, b"made plan", hashlib.sha256)


def _add(digest: Any, part: bytes) -> None:
    """Add a part with its length, so that bytes cannot move from one part to the next."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


class _Sealed(io.RawIOBase):
    """A file that is sealed while it is written."""

    def __init__(self, stream: BinaryIO, user: bytes) -> None:
        self._stream = stream
        self._sealing = _sealing(user)
        self._left_bytes = _MOST_MIB * BYTES_PER_MIB - SEAL_BYTES

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        part = memoryview(content)
        self._left_bytes -= part.nbytes
        if self._left_bytes < 0:
            raise OSError(f"it is larger than {_MOST_MIB} MiB")
        self._sealing.update(part)
        return self._stream.write(part)

    def seal(self) -> bytes:
        return self._sealing.digest()


class _Pickler(pickle.Pickler):
    """Leaves out the open store of replays."""

    def __init__(self, file: Any, store: OutcomeStore | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._store = store

    def persistent_id(self, obj: object) -> str | None:
        return _STORE if obj is not None and obj is self._store else None


class _Unpickler(pickle.Unpickler):
    """Puts the store that is open now in its place."""

    def __init__(self, file: Any, store: OutcomeStore | None) -> None:
        super().__init__(file)
        self._store = store

    def persistent_load(self, pid: object) -> OutcomeStore | None:
        if pid != _STORE:
            raise pickle.UnpicklingError(f"{pid!r} is not a store")
        return self._store

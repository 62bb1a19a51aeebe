"""Replay outcomes kept on disk between commands, so that a changed price or quota needs no replay.

One SQLite file beside the last audit. A key is a digest of everything an outcome depends on (`replay.outcomes.evaluate`) and of
every module and data file of the program, so a hit is never stale. Each entry has the user's seal; entries without one, or that
cannot be read, are replayed again. Deleting the file only costs time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

import trimtab
import trimtab_runtime
from trimtab.cli.kept_audits import SEAL_BYTES, is_sealed, prepared_folder, seal_of, state_folder, user_key
from trimtab.fleet.model import Target
from trimtab.replay.outcomes.outcome import Attained, Outcome
from trimtab.tables.workloads import TargetMetric
from trimtab.units import BYTES_PER_GIB

_FILE = "outcomes.sqlite"
_MOST_BYTES = BYTES_PER_GIB
"""A file larger than this is emptied before it is used again."""
_WRITTEN_AT_ONCE = 64
"""Number of outcomes (some kilobytes each) written per transaction."""
_TABLE = "CREATE TABLE outcome (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID"
_LENGTH = struct.Struct("<I")
log = logging.getLogger(__name__)


class OutcomeCache:
    """Outcomes in an open SQLite file. Two threads may use it at once, and several programs may share the file.

    Outcomes are written in small batches, so that no program locks the file for long. An error of the file never fails the
    audit: from then on nothing is looked up or stored.
    """

    def __init__(self, connection: sqlite3.Connection, program: str, user: bytes, *, keep: bool = True) -> None:
        """Open what this user and this state of the program stored; without `keep` nothing is written."""
        self._connection = connection
        self._keep = keep
        self._program = program
        self._user = user
        self._foreign = False
        self._one_at_a_time = Lock()
        self._unwritten: dict[str, bytes] = {}
        self._failed = False
        self.found = 0
        self.added = 0

    def get(self, key: str) -> Outcome | None:
        """Return a stored outcome; None if there is none that can be read."""
        key = self._of_program(key)
        with self._one_at_a_time:
            body = self._unwritten.get(key) or self._read(key)
            unsealed = None if body is None else self._unsealed(key, body)
        outcome = None if unsealed is None else readable(unsealed)
        self.found += outcome is not None
        return outcome

    def put(self, key: str, outcome: Outcome) -> None:
        """Store an outcome; it is on disk when the cache is closed."""
        body, key = encoded(outcome), self._of_program(key)
        with self._one_at_a_time:
            self._unwritten[key] = seal_of(self._user, key.encode(), body) + body
            if len(self._unwritten) >= _WRITTEN_AT_ONCE:
                self._write()

    def _of_program(self, key: str) -> str:
        return f"{self._program}:{key}"

    def _unsealed(self, key: str, sealed: bytes) -> bytes | None:
        """Return what is stored under the key; None, with one warning, if it is not the user's own."""
        body = sealed[SEAL_BYTES:]
        if is_sealed(sealed[:SEAL_BYTES], self._user, key.encode(), body):
            return body
        if not self._foreign:
            log.warning("stored outcomes of other users are ignored and replayed")
        self._foreign = True
        return None

    def flush(self) -> None:
        """Write pending outcomes."""
        with self._one_at_a_time:
            self._write()

    def _read(self, key: str) -> bytes | None:
        if self._failed:
            return None
        try:
            row = self._connection.execute("SELECT body FROM outcome WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    def _write(self) -> None:
        if not self._keep:
            return
        if not self._failed:
            try:
                with self._connection:
                    self._connection.executemany(
                        "INSERT OR REPLACE INTO outcome VALUES (?, ?)", self._unwritten.items()
                    )
                self.added += len(self._unwritten)
            except sqlite3.Error as error:
                self._give_up(error)
        self._unwritten.clear()

    def _give_up(self, error: sqlite3.Error) -> None:
        self._failed = True
        log.warning("outcomes are no longer stored: %s", error)


@cache
def program_digest() -> str:
    """Return a digest of the program's state: the content of each of its files.

    The runtime's files are included, because batching and checkpointing are replayed by its code. A version would not do (an
    editable install keeps it while files change), nor would modification times (a checkout changes them).
    """
    digest = hashlib.sha256()
    roots = (Path(trimtab.__file__).parent, Path(trimtab_runtime.__file__).parent)
    for inside, file in ((file.relative_to(root), file) for root in roots for file in sorted(root.rglob("*"))):
        if not file.is_file() or file.suffix == ".pyc" or any(part.startswith(".") for part in inside.parts):
            continue
        digest.update(f"{inside}:{file.stat().st_size}:".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


@contextmanager
def outcome_cache(*, keep: bool = True) -> Iterator[OutcomeCache | None]:
    """Open the cache; None if the folder cannot be written, in which case everything is replayed. A damaged file is removed.

    Without `keep` the file is only read, and new outcomes stay in memory.
    """
    user = user_key()
    if user is None:
        log.warning("outcomes are not stored")
        yield None
        return
    try:
        connection = _connected_to_keep() if keep else _connected_to_read()
    except (OSError, sqlite3.Error) as error:
        log.warning("outcomes are not stored: %s", error)
        connection = None
    if connection is None:
        yield None
        return
    try:
        cache = OutcomeCache(connection, program_digest(), user, keep=keep)
        yield cache
        cache.flush()
        log.info("replays: %d looked up, %d added", cache.found, cache.added)
    finally:
        connection.close()


def _connected_to_keep() -> sqlite3.Connection | None:
    file = prepared_folder() / _FILE
    return _connected(file) or _connected(file)


def _connected_to_read() -> sqlite3.Connection | None:
    """Open the file read-only; None if it does not exist. Raises sqlite3.Error if it is not a cache."""
    file = state_folder() / _FILE
    if not file.is_file():
        return None
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        _check_tables(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _connected(file: Path) -> sqlite3.Connection | None:
    """Open the file, or remove it if it is damaged. Raises OSError, sqlite3.Error."""
    connection = sqlite3.connect(file, check_same_thread=False)
    try:
        _prepare(connection)
    except sqlite3.OperationalError:
        connection.close()
        raise
    except sqlite3.DatabaseError:
        connection.close()
        file.unlink(missing_ok=True)
        return None
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the table, empty a file that has grown too large. Raises sqlite3.Error, DatabaseError if it is damaged."""
    connection.execute("PRAGMA trusted_schema = OFF")
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        connection.execute(_TABLE)
    _check_tables(connection)
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    if pages * size > _MOST_BYTES:
        connection.execute("DELETE FROM outcome")
        connection.commit()
        connection.execute("VACUUM")


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if a file holds anything but the one table."""
    # a view or a trigger under our table's name would run code from whoever wrote it
    if [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")] != [_TABLE]:
        raise sqlite3.DatabaseError("it contains more than stored outcomes")


def readable(body: bytes) -> Outcome | None:
    """Return the outcome that `encoded` wrote; None, with a log line, if the bytes are damaged."""
    try:
        return decoded(body)
    except (zlib.error, struct.error, ArithmeticError, KeyError, RuntimeError, TypeError, ValueError) as error:
        log.info("a stored outcome cannot be read and is replayed: %s", error)
        return None


def encoded(outcome: Outcome) -> bytes:
    """Return an outcome as bytes: the length of a JSON text, that text, and the arrays that it names, compressed.

    A zip of NumPy's files says the same, and took most of the time of a plan whose replays are kept.
    """
    arrays: list[np.ndarray] = []
    head: dict[str, object] = {}
    for field in fields(outcome):
        value = getattr(outcome, field.name)
        if isinstance(value, np.ndarray):
            head[field.name] = {"dtype": value.dtype.str, "shape": value.shape}
            arrays.append(np.ascontiguousarray(value))
        elif field.name == "attained":
            head[field.name] = [
                {**asdict(attained), "target": {**asdict(attained.target), "metric": attained.target.metric.value}}
                for attained in value
            ]
        elif value is None or isinstance(value, bool | int | float | str):
            head[field.name] = value
        else:
            raise TypeError(f"an outcome holds a {type(value).__name__}, which cannot be stored")
    text = json.dumps(head).encode()
    return zlib.compress(b"".join((_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays))), level=1)


def decoded(body: bytes) -> Outcome:
    """Return the outcome that `encoded` wrote."""
    plain = zlib.decompress(body)
    (length,) = _LENGTH.unpack_from(plain)
    at = _LENGTH.size + length
    head = json.loads(plain[_LENGTH.size : at])
    for name, value in head.items():
        if isinstance(value, dict):
            dtype, shape = np.dtype(value["dtype"]), value["shape"]
            head[name] = np.frombuffer(plain, dtype, math.prod(shape), at).reshape(shape)
            at += head[name].nbytes
    if at != len(plain):
        raise ValueError(f"{len(plain)} bytes where {at} were written")
    attained = tuple(
        Attained(**{**row, "target": Target(**{**row["target"], "metric": TargetMetric(row["target"]["metric"])})})
        for row in head.pop("attained")
    )
    return Outcome(**head, attained=attained)

"""Outcomes of replays kept on disk between commands: a changed price or quota then replays nothing.

One SQLite file beside the last audit. A key is a digest of all that an outcome depends on (`plan.outcome_store`), so that what
is found is right; what cannot be read is replayed again. Losing the file costs time only.
"""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from threading import Lock

import numpy as np

from trimtab.cli.state import last_audit_file, prepared
from trimtab.fleet.model import Target
from trimtab.plan.outcome import Attained, Outcome
from trimtab.tables.workloads import TargetMetric
from trimtab.units import BYTES_PER_GIB

_FILE = "outcomes.sqlite"
_MOST_BYTES = BYTES_PER_GIB
"""A file larger than this is emptied before it is used again."""
_HEAD = "head"
_SUFFIX = ".npy"
log = logging.getLogger(__name__)


class OutcomeCache:
    """Outcomes in an open SQLite file; two threads may ask at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._one_at_a_time = Lock()
        self.found = 0
        self.added = 0

    def get(self, key: str) -> Outcome | None:
        """Return a kept outcome."""
        with self._one_at_a_time:
            row = self._connection.execute("SELECT body FROM outcome WHERE key = ?", (key,)).fetchone()
            self.found += row is not None
        return None if row is None else decoded(row[0])

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; it is on disk when the cache is closed."""
        body = encoded(outcome)
        with self._one_at_a_time:
            self.added += 1
            self._connection.execute("INSERT OR REPLACE INTO outcome VALUES (?, ?)", (key, body))


@contextmanager
def outcome_cache() -> Iterator[OutcomeCache | None]:
    """Open the cache; None where the folder cannot be written or the file is no longer one: then everything is replayed."""
    try:
        connection = sqlite3.connect(prepared(last_audit_file()).with_name(_FILE), check_same_thread=False)
        _prepare(connection)
    except (OSError, sqlite3.Error) as error:
        log.warning("outcomes are not kept: %s", error)
        yield None
        return
    try:
        cache = OutcomeCache(connection)
        yield cache
        connection.commit()
        log.info("replays: %d looked up, %d added", cache.found, cache.added)
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS outcome (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    if pages * size > _MOST_BYTES:
        connection.execute("DELETE FROM outcome")
        connection.commit()
        connection.execute("VACUUM")


def encoded(outcome: Outcome) -> bytes:
    """Return an outcome as bytes: its arrays, and the rest as JSON."""
    arrays: dict[str, np.ndarray] = {}
    head: dict[str, object] = {}
    for field in fields(outcome):
        value = getattr(outcome, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif field.name == "attained":
            head[field.name] = [
                {**asdict(one), "target": {**asdict(one.target), "metric": one.target.metric.value}} for one in value
            ]
        elif value is None or isinstance(value, bool | int | float | str):
            head[field.name] = value
        else:
            raise TypeError(f"an outcome holds a {type(value).__name__}, which cannot be kept")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_HEAD, json.dumps(head))
        for name, values in arrays.items():
            with archive.open(f"{name}{_SUFFIX}", "w") as entry:
                np.lib.format.write_array(entry, values, allow_pickle=False)
    return stream.getvalue()


def decoded(body: bytes) -> Outcome:
    """Return the outcome that `encoded` wrote."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        head = json.loads(archive.read(_HEAD))
        kept = {
            name.removesuffix(_SUFFIX): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name != _HEAD
        }
    attained = tuple(
        Attained(**{**one, "target": Target(**{**one["target"], "metric": TargetMetric(one["target"]["metric"])})})
        for one in head.pop("attained")
    )
    return Outcome(**{**head, **kept, "attained": attained})

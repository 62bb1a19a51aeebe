"""Kept outcomes save time; a file that is shared, full or damaged costs time and never the audit."""

import sqlite3
import zlib
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.cli.kept_audits import user_key
from trimtab.cli.outcome_cache import encoded, outcome_cache, readable
from trimtab.replay.outcomes.outcome import Outcome

OUTCOME = Outcome(on_demand=np.arange(5), spot=np.zeros(5, dtype=np.int64), attained=(), interruptions=3, gpus=None)


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))
    return tmp_path / "outcomes.sqlite"


def test_two_programs_put_at_once_and_neither_waits_for_the_end_of_the_other():
    with outcome_cache() as one, outcome_cache() as other:
        for number in range(100):
            one.put(f"one {number}", OUTCOME)
            other.put(f"other {number}", OUTCOME)

    with outcome_cache() as store:
        assert all(store.get(f"{name} {number}") is not None for name in ("one", "other") for number in range(100))


def test_what_was_put_is_found_before_it_is_written():
    with outcome_cache() as store:
        store.put("key", OUTCOME)

        assert store.get("key").interruptions == 3


def test_a_locked_file_is_given_up_and_not_waited_for_twice(file, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *some, **named: connect(*some, timeout=0.01, **named))
    with outcome_cache() as store:
        held = connect(file, isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        store.put("key", OUTCOME)
        store.flush()

        assert store.get("key") is None
        held.close()


def test_a_damaged_outcome_is_replayed(file):
    with outcome_cache() as store:
        store.put("key", OUTCOME)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE outcome SET body = x'00'")

    with outcome_cache() as store:
        assert store.get("key") is None


@given(at=st.integers(0), bit=st.integers(0, 7), cut=st.booleans())
def test_an_outcome_with_a_damaged_byte_or_without_its_end_is_none_or_as_it_was(at, bit, cut):
    body = bytearray(encoded(OUTCOME))
    at %= len(body)
    if cut:
        del body[at:]
    else:
        body[at] ^= 1 << bit

    found = readable(bytes(body))

    assert found is None or encoded(found) == encoded(OUTCOME)


def test_bytes_beyond_those_of_the_arrays_are_no_outcome():
    assert readable(zlib.compress(zlib.decompress(encoded(OUTCOME)) + b"0")) is None
    assert readable(zlib.compress(zlib.decompress(encoded(OUTCOME))[:-1])) is None


def test_a_damaged_file_is_begun_anew(file):
    file.write_bytes(b"no database" * 1000)

    with outcome_cache() as store:
        store.put("key", OUTCOME)
    with outcome_cache() as store:
        assert store.get("key") is not None


def test_a_full_disk_costs_no_audit():
    with outcome_cache() as store:
        store._connection.execute("PRAGMA max_page_count = 3")
        for number in range(200):
            store.put(f"key {number}", OUTCOME)

        assert store.get("key 0") is None


def test_what_another_user_kept_is_left_aside_and_said_once(file, tmp_path, monkeypatch, caplog):
    with outcome_cache() as store:
        store.put("one", OUTCOME)
        store.put("two", OUTCOME)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))

    with outcome_cache() as store:
        assert store.get("one") is None
        assert store.get("two") is None

    assert [record.getMessage() for record in caplog.records].count(
        "stored outcomes of other users are ignored and replayed"
    ) == 1


def test_an_outcome_under_another_key_than_its_own_is_left_aside(file):
    with outcome_cache() as store:
        store.put("dear", OUTCOME)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE outcome SET key = replace(key, 'dear', 'cheap')")

    with outcome_cache() as store:
        assert store.get("cheap") is None


def test_a_file_with_a_view_in_place_of_the_table_is_begun_anew(file):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE VIEW outcome AS WITH RECURSIVE n(key, body) AS (SELECT 1, x'00' UNION ALL SELECT key + 1, body FROM n) "
            "SELECT key, body FROM n"
        )

    with outcome_cache() as store:
        store.put("key", OUTCOME)
        store.flush()
        assert store.get("key") is not None


def test_the_key_is_readable_by_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key = user_key()

    file = tmp_path / "state" / "trimtab" / "key"
    assert user_key() == key == file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700

    file.chmod(0o644)
    assert user_key() is None


def test_a_cache_that_is_only_read_finds_what_was_kept_and_leaves_the_file_as_it_is(file):
    with outcome_cache() as store:
        store.put("kept", OUTCOME)
    before, beside = file.read_bytes(), sorted(file.parent.iterdir())

    with outcome_cache(keep=False) as store:
        store.put("fresh", OUTCOME)

        assert store.get("kept").interruptions == store.get("fresh").interruptions == 3

    assert file.read_bytes() == before
    assert sorted(file.parent.iterdir()) == beside


def test_where_nothing_was_kept_reading_makes_no_file(file):
    with outcome_cache(keep=False) as store:
        assert store is None

    assert not file.exists()


def test_a_file_that_is_no_cache_is_not_removed_by_who_only_reads(file):
    file.write_bytes(b"not a database, but long enough to be taken for one" * 20)

    with outcome_cache(keep=False) as store:
        assert store is None

    assert file.exists()

"""Audits that are being made are found by the page, and leave nothing behind."""

import json
import os
import time

import pytest

from trimtab.cli.running import running_audits, written_down


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_an_audit_is_seen_while_it_runs_and_not_after(state):
    told = []
    with written_down("fleet/", lambda *what: told.append(what)) as tell:
        tell("replaying", 0.4)
        (found,) = running_audits(state)
        assert (found.fleet, found.stage, found.done_frac) == ("fleet/", "replaying", 0.4)

    assert told == [("replaying", 0.4)]
    assert running_audits(state) == []


def test_an_audit_that_fails_leaves_nothing(state):
    def failing():
        with written_down("fleet/", lambda *_: None) as tell:
            tell("replaying", 0.4)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        failing()

    assert running_audits(state) == []


def test_what_a_killed_audit_left_is_not_shown(state):
    folder = state / "running"
    folder.mkdir(parents=True)
    file = folder / "1.json"
    file.write_text(json.dumps({"fleet": "f", "started": "2026-01-01T00:00:00+00:00", "stage": "s", "done_frac": 0.1}))
    os.utime(file, (time.time() - 3600,) * 2)

    assert running_audits(state) == []


@pytest.mark.parametrize(
    "text", ["", "{", '{"fleet": 1}', '{"fleet": "f", "started": "x", "stage": "s", "done_frac": 1}']
)
def test_a_file_that_cannot_be_read_is_passed_over(state, text):
    folder = state / "running"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text(text)

    assert running_audits(state) == []


def test_a_folder_that_cannot_be_written_does_not_stop_an_audit(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "file"))

    with written_down("fleet/", lambda *_: None) as tell:
        tell("replaying", 0.4)

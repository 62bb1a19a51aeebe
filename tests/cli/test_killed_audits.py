"""An audit and its plan are kept together, whole or not at all, however the processes that keep them end."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest
from tests.emit.example import example_audit
from tests.plan.test_verify import kept

from trimtab.cli.kept_audits import keep, kept_audits, recall, recall_plan, seal_of, state_folder, user_key
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import render_json
from trimtab.emit.kept_plan import render_kept_plan

FORKED = multiprocessing.get_context("fork") if hasattr(os, "fork") else None
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
needs_fork = pytest.mark.skipif(FORKED is None, reason="needs fork and SIGKILL")


def write(times, name, ready):
    """Keep so many audits, one after another; the process of its own has all that it needs in memory from the start."""
    document, plan = audit_document(example_audit()), kept()
    ready.set()
    for number in range(times):
        fleet = f"{name}-{number}"
        keep(document.model_copy(update={"fleet": fleet}), replace(plan, fleet=fleet))


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))


def writer(times, name):
    ready = FORKED.Event()
    process = FORKED.Process(target=write, args=(times, name, ready))
    process.start()
    assert ready.wait(60)
    return process


@needs_fork
@pytest.mark.parametrize("after_s", [0.003, 0.02, 0.05])
def test_audit_and_plan_belong_together_whenever_the_writer_is_killed(after_s):
    keep(audit_document(example_audit()).model_copy(update={"fleet": kept().fleet}), kept())
    process = writer(1_000_000, "one")
    time.sleep(after_s)
    process.kill()
    process.join()

    assert process.exitcode == -signal.SIGKILL
    assert recall().fleet == recall_plan().fleet


@needs_fork
def test_of_audits_that_end_at_once_each_is_kept():
    writers = [writer(20, "one"), writer(20, "other")]
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0]

    audits = [recall(one).fleet for one in kept_audits()]
    assert sorted(audits) == sorted(f"{name}-{number}" for name in ("one", "other") for number in range(20))
    assert audits == [recall_plan(one).fleet for one in kept_audits()]


def test_an_audit_is_one_file_which_explain_and_diff_take():
    folder = keep(audit_document(example_audit()), kept())

    (file,) = folder.iterdir()
    assert recall(file) == recall() == audit_document(example_audit())


def test_an_audit_kept_in_files_of_their_own_is_read(tmp_path):
    folder = tmp_path / "history" / "000001"
    folder.mkdir(parents=True)
    document, plan = render_json(audit_document(example_audit())), render_kept_plan(kept())
    (folder / "audit.json").write_text(document)
    (folder / "plan.json").write_text(plan)
    assert kept_audits() == []  # nobody sealed it

    (folder / "seal").write_text(seal_of(user_key(), document.encode(), plan.encode()).hex())

    assert kept_audits() == [folder]
    assert recall().fleet == audit_document(example_audit()).fleet
    assert recall_plan().plan.actions == kept().plan.actions


def test_what_a_crash_left_is_no_kept_audit_and_goes_in_time():
    left = state_folder() / "history" / ".half"
    left.mkdir(parents=True)
    assert kept_audits() == []
    long_ago = time.time() - 86_400
    os.utime(left, (long_ago, long_ago))

    keep(audit_document(example_audit()), kept())

    assert not left.exists()

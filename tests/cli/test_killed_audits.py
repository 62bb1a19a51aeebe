"""An audit and its plan are kept together, whole or not at all, however the processes that keep them end."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.emit.example import example_audit
from tests.plan.test_verify import kept

from trimtab.cli.kept_audits import keep, kept_audits, recall, recall_plan
from trimtab.cli.state import seal_of, state_folder, user_key
from trimtab.emit.audit_data import render_json
from trimtab.emit.audit_document import audit_document
from trimtab.emit.kept_plan import render_kept_plan

WRITER = """
import sys
from tests.emit.example import example_audit
from tests.plan.test_verify import kept
from trimtab.cli.kept_audits import keep
from trimtab.emit.audit_document import audit_document
from dataclasses import replace
document, plan = audit_document(example_audit()), kept()
print("ready", flush=True)
for number in range(int(sys.argv[1])):
    name = f"{sys.argv[2]}-{number}"
    keep(document.model_copy(update={"fleet": name}), replace(plan, fleet=name))
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))


def writer(times, name):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(times), name], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("after_s", [0.003, 0.02, 0.05])
def test_audit_and_plan_belong_together_whenever_the_writer_is_killed(after_s):
    keep(audit_document(example_audit()).model_copy(update={"fleet": kept().fleet}), kept())
    with writer(1_000_000, "one") as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)

    assert recall().fleet == recall_plan().fleet


def test_of_audits_that_end_at_once_each_is_kept():
    with writer(20, "one") as one, writer(20, "other") as other:
        assert one.wait() == other.wait() == 0

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

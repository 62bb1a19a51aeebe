"""A process that is killed while it keeps an audit leaves the one before, or the new one, never half of one."""

import os
import signal
import subprocess
import sys
import time

import pytest

from trimtab.cli.kept_audits import kept_audits
from trimtab.cli.state import _keep, last_audit_file

WRITER = """
import sys
from trimtab.cli.state import _keep, last_audit_file
number = 0
print("ready", flush=True)
while True:
    number += 1
    _keep(last_audit_file(), f"{number % 10}" * 2_000_000)
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("after_s", [0.01, 0.03, 0.07])
def test_what_is_kept_is_whole_whenever_the_writer_is_killed(after_s):
    _keep(last_audit_file(), "0" * 2_000_000)
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        writer.wait()

    text = last_audit_file().read_text(encoding="utf-8")
    assert len(text) == 2_000_000
    assert len(set(text)) == 1


def test_a_folder_that_a_crash_left_unfinished_is_no_kept_audit(tmp_path):
    (tmp_path / "history" / ".half").mkdir(parents=True)

    assert kept_audits() == []

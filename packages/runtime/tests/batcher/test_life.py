"""A batcher among forks, reloads, interpreter exits and watchful eyes."""

import importlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from packages.runtime.tests.batcher import models

from trimtab_runtime import batch

ROOT = Path(__file__).resolve().parents[4]


def run_script(text):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'packages/runtime/src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def test_a_forked_child_starts_afresh_and_the_parent_is_not_disturbed():
    done = run_script(
        """
import os, threading
from trimtab_runtime import batch
go = threading.Event()
@batch
def model(items):
    if 0 in items:
        go.wait(10)
    return [2 * item for item in items]
held = model.submit(0)
waiting = model.submit(21)
child = os.fork()
if child == 0:
    os._exit(model.call(4))
_, status = os.waitpid(child, 0)
go.set()
print(os.waitstatus_to_exitcode(status), waiting.result(10))
"""
    )

    assert done.stdout == "8 42\n", done.stderr


def test_the_interpreter_ends_with_requests_still_waiting():
    done = run_script(
        """
import time
from trimtab_runtime import batch
@batch
def model(items):
    time.sleep(30)
    return items
model.submit(1)
time.sleep(0.05)
model.submit(2)
"""
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_reloaded_module_gets_a_fresh_batcher_that_works():
    before = models.double
    assert before.call(1) == 2

    reloaded = importlib.reload(models)

    assert reloaded.double is not before
    assert (reloaded.double.call(2), before.call(3)) == (4, 6)


def test_a_window_longer_than_the_run_is_warned_of_once(caplog):
    @batch(window_s=0.03, max_batch=2, name="windowed")
    def model(items: list[int]) -> list[int]:
        time.sleep(0.0005)
        return items

    with caplog.at_level(logging.WARNING):
        for number in range(12):
            model.call(number)
        model.drain_wait(5)

    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("windowed: the window of 30.0 ms is longer than")


def test_a_greedy_batcher_is_never_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        for number in range(12):
            models.double.call(number)

    assert not caplog.records

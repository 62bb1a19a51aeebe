"""A power cut after any operation, with any part of what was not flushed lost, costs no promised step."""

import logging
import random
import shutil

import pytest
from packages.runtime.tests.checkpoint.power_loss import ForgetfulFiles
from packages.runtime.tests.checkpoint.small_job import SETTINGS, Part

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.notice.notice import NoticeBoard

STATES_PER_MOMENT = 4


def resumed_step(root):
    part = Part(-1)
    with Checkpointer(root, {"part": part}, SETTINGS, board=NoticeBoard()) as checkpointer:
        resumed = checkpointer.resume()
    assert resumed is None or part.state["step"] == resumed.step
    return -1 if resumed is None else resumed.step


class PowerCuts:
    """After each operation, checks some of the states that a power cut there could leave."""

    def __init__(self, folder, seed):
        self.files = ForgetfulFiles(folder / "run", self.check)
        self.promised = -1
        self.checked = 0
        self._folder = folder
        self._rng = random.Random(seed)

    def check(self):
        for _ in range(STATES_PER_MOMENT):
            target = self._folder / "after"
            self.files.write_what_is_left(target, self._rng)
            found = resumed_step(target)
            shutil.rmtree(target)
            assert found >= self.promised, f"after {self.checked} states: step {self.promised} was promised"
            self.checked += 1


def save_through_power_cuts(folder, cuts, steps):
    part = Part()
    with Checkpointer(folder, {"part": part}, SETTINGS, files=cuts.files, board=NoticeBoard()) as checkpointer:
        for step in steps:
            part.state = Part(step).state
            checkpointer.save(step)
            cuts.promised = step


def test_no_power_cut_costs_a_promised_step(memory_path, caplog):
    caplog.set_level(logging.CRITICAL)
    cuts = PowerCuts(memory_path, seed=1)

    save_through_power_cuts(memory_path / "run", cuts, range(5))

    assert cuts.checked > 200


@pytest.mark.parametrize("forgotten", ["flush of files", "flush of folders"])
def test_the_simulation_would_notice_a_missing_flush(memory_path, caplog, monkeypatch, forgotten):
    caplog.set_level(logging.CRITICAL)
    cuts = PowerCuts(memory_path, seed=2)
    real = ForgetfulFiles.flush

    def careless(self, descriptor):
        is_folder = not hasattr(self._open[descriptor], "after_power_cut") or hasattr(self._open[descriptor], "live")
        if is_folder == (forgotten == "flush of folders"):
            FileOperations.flush(self, descriptor)
        else:
            real(self, descriptor)

    monkeypatch.setattr(ForgetfulFiles, "flush", careless)

    with pytest.raises(AssertionError, match="was promised"):
        save_through_power_cuts(memory_path / "run", cuts, range(5))

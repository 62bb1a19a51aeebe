"""Every file operation of a save is made to fail, fall short or be the last before a kill: the promise holds each time."""

import errno
import logging

import pytest
from packages.runtime.tests.checkpoint.faulty_files import FaultyFiles
from packages.runtime.tests.checkpoint.small_job import SETTINGS, Part, resumed_step, save_steps

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.errors import CheckpointNotSaved


def calls_of_three_saves(folder):
    files = FaultyFiles()
    assert save_steps(folder, (4, 5, 6), files) == [4, 5, 6]
    return len(files.calls)


@pytest.mark.parametrize("fault", ["kill", "short", errno.EIO, errno.ENOSPC, errno.EROFS])
def test_no_promised_step_is_lost_whichever_operation_fails(memory_path, fault, caplog):
    caplog.set_level(logging.CRITICAL)
    calls = calls_of_three_saves(memory_path / "count")

    for call in range(calls):
        folder = memory_path / f"call{call}"
        assert save_steps(folder, (1, 2, 3)) == [1, 2, 3]

        promised = save_steps(folder, (4, 5, 6), FaultyFiles(call, fault))

        found = resumed_step(folder)
        assert found >= max([3, *promised]), f"operation {call}"
        assert save_steps(folder, (7,)) == [7], f"operation {call}"
        assert resumed_step(folder) == 7


def test_a_short_write_is_finished_not_reported(memory_path):
    calls = calls_of_three_saves(memory_path / "count")

    for call in range(calls):
        assert save_steps(memory_path / f"call{call}", (1, 2, 3), FaultyFiles(call, "short")) == [1, 2, 3]


def test_a_disk_that_stays_full_leaves_the_last_good_checkpoint(memory_path, caplog):
    caplog.set_level(logging.CRITICAL)
    assert save_steps(memory_path / "run", (1, 2)) == [1, 2]

    class FullDisk(FaultyFiles):
        def write_at(self, descriptor, data, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

    part = Part(3)
    with Checkpointer(memory_path / "run", {"part": part}, SETTINGS, files=FullDisk()) as checkpointer:
        with pytest.raises(CheckpointNotSaved, match="free space or keep fewer"):
            checkpointer.save(3)
        assert not checkpointer.step_done(4)
    assert resumed_step(memory_path / "run") == 2


def test_a_full_disk_makes_room_by_giving_up_older_checkpoints(memory_path, caplog):
    caplog.set_level(logging.CRITICAL)
    assert save_steps(memory_path / "run", (1, 2)) == [1, 2]
    files = FaultyFiles()

    class FullUntilPruned(FaultyFiles):
        def write_at(self, descriptor, data, offset):
            if "remove_folder" not in self.calls:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write_at(descriptor, data, offset)

    files = FullUntilPruned()
    assert save_steps(memory_path / "run", (3,), files) == [3]
    assert resumed_step(memory_path / "run") == 3


def test_a_read_only_folder_is_refused_before_the_first_step(memory_path):
    files = FaultyFiles(0, errno.EROFS)

    with pytest.raises(CheckpointNotSaved, match="writable folder"):
        Checkpointer(memory_path / "run", {"part": Part()}, SETTINGS, files=files)

"""Damage of every kind is noticed when a checkpoint is read, reported, and answered by falling back."""

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from packages.runtime.tests.checkpoint.small_job import SETTINGS, Part, resumed_step, save_steps

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.commit import read_commit
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.reading import read_whole
from trimtab_runtime.checkpoint.sealed import seal, unseal
from trimtab_runtime.errors import CheckpointDamaged, CheckpointLocked, CheckpointMismatch


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def newest(folder):
    return folder / store.committed(FileOperations(), folder)[0].folder


def read(folder):
    files = FileOperations()
    return read_whole(files, folder, read_commit(files, folder))


def test_every_one_of_a_thousand_flipped_bits_is_noticed(memory_path):
    save_steps(memory_path / "run", (1,))
    folder = newest(memory_path / "run")
    rng = random.Random(11)
    paths = sorted(folder.iterdir())

    for _ in range(1000):
        path = rng.choice(paths)
        intact = path.read_bytes()
        damaged = bytearray(intact)
        damaged[rng.randrange(len(intact))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointDamaged):
            read(folder)
        path.write_bytes(intact)

    assert read(folder).parts["part"]["step"] == 1


@pytest.mark.parametrize("name", ["rank-00000.bin", "rank-00000.json", "commit.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "empty", "remove", "grow"])
def test_a_damaged_newest_checkpoint_falls_back_with_a_report(memory_path, name, harm):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    path = newest(root) / name
    content = path.read_bytes()
    match harm:
        case "flip":
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "truncate":
            path.write_bytes(content[:-1])
        case "empty":
            path.write_bytes(b"")
        case "remove":
            path.unlink()
        case "grow":
            path.write_bytes(content + b"\0")

    part = Part(-1)
    with Checkpointer(root, {"part": part}, SETTINGS) as checkpointer:
        resumed = checkpointer.resume()

    assert resumed.step == 1
    assert part.state["step"] == 1
    assert [entry.folder.startswith("step-000000000002") for entry in resumed.skipped] == [True]
    assert name in resumed.skipped[0].reason


def test_training_goes_on_after_a_fallback_and_the_damaged_one_is_cleared_away(memory_path):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    (newest(root) / "rank-00000.bin").unlink()
    assert_falls_back(root, to=1)

    save_steps(root, (2,))

    assert resumed_step(root) == 2
    assert not [path for path in root.iterdir() if path.name.startswith(".damaged")]


def assert_falls_back(root, to):
    with Checkpointer(root, {"part": Part()}, SETTINGS) as checkpointer:
        assert checkpointer.resume().step == to


def test_with_every_checkpoint_damaged_the_job_starts_afresh_and_says_so(memory_path):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    for folder in root.glob("step-*"):
        (folder / "commit.json").write_bytes(b"")

    with Checkpointer(root, {"part": Part()}, SETTINGS) as checkpointer:
        assert checkpointer.resume() is None


def test_nothing_of_the_job_changes_when_no_checkpoint_verifies(memory_path):
    root = memory_path / "run"
    save_steps(root, (1,))
    data = newest(root) / "rank-00000.bin"
    data.write_bytes(bytes(data.stat().st_size))
    part = Part(-1)

    with Checkpointer(root, {"part": part}, SETTINGS) as checkpointer:
        assert checkpointer.resume() is None

    assert np.all(part.state["weights"] == -1)


def test_an_older_step_can_be_asked_for_and_later_saves_are_newer(memory_path):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    part = Part()

    with Checkpointer(root, {"part": part}, SETTINGS) as checkpointer:
        assert checkpointer.resume(step=1).step == 1
        checkpointer.save(1)

    assert resumed_step(root) == 1


def test_a_checkpoint_of_a_newer_format_is_refused_not_passed_over(memory_path):
    root = memory_path / "run"
    save_steps(root, (1,))
    path = newest(root) / "commit.json"
    path.write_bytes(seal(unseal(path.read_bytes(), "") | {"version": 99}))

    with (
        Checkpointer(root, {"part": Part()}, SETTINGS) as checkpointer,
        pytest.raises(CheckpointMismatch, match="version 99"),
    ):
        checkpointer.resume()
    assert newest(root).exists()


def test_a_foreign_marker_is_refused(memory_path):
    root = memory_path / "run"
    save_steps(root, (1,))
    (newest(root) / "commit.json").write_bytes(seal({"format": "something-else"}))

    with Checkpointer(root, {"part": Part()}, SETTINGS) as checkpointer, pytest.raises(CheckpointMismatch):
        checkpointer.resume()


def test_foreign_files_in_the_folder_are_left_alone(memory_path):
    root = memory_path / "run"
    root.mkdir()
    (root / "pytorch_model.bin").write_bytes(b"mine")
    (root / "checkpoint-500").mkdir()
    (root / "checkpoint-500" / "state.json").write_text(json.dumps({}))

    save_steps(root, (1, 2, 3, 4))

    assert (root / "pytorch_model.bin").read_bytes() == b"mine"
    assert (root / "checkpoint-500" / "state.json").exists()
    assert resumed_step(root) == 4


def test_a_swapped_data_file_of_the_same_size_is_noticed(memory_path):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    first, second = sorted(root.glob("step-*"))
    shutil.copy(first / "rank-00000.bin", second / "rank-00000.bin")

    with pytest.raises(CheckpointDamaged):
        read(second)


def test_a_second_job_in_the_same_folder_is_refused_by_name(memory_path):
    with (
        Checkpointer(memory_path / "run", {"part": Part()}, SETTINGS),
        pytest.raises(CheckpointLocked, match="another checkpointer of this process"),
    ):
        Checkpointer(memory_path / "run", {"part": Part()}, SETTINGS)


HOLD = """
import sys
from trimtab_runtime import Checkpointer, CheckpointSettings
class Part:
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
try:
    Checkpointer(sys.argv[1], {"part": Part()}, CheckpointSettings(lock_wait_s=0.2))
    print("got in")
except Exception as error:
    print(type(error).__name__)
"""
FORKED = """
import os, sys, time
from trimtab_runtime import Checkpointer, CheckpointSettings
class Part:
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
checkpointer = Checkpointer(sys.argv[1], {"part": Part()})
if os.fork() == 0:
    time.sleep(30)
print("ready", flush=True)
time.sleep(30)
"""


def another_job(root):
    return subprocess.run([sys.executable, "-c", HOLD, root], capture_output=True, text=True, timeout=60).stdout.strip()


def test_the_lock_outlives_any_other_close_of_its_file(memory_path):
    root = memory_path / "run"
    with Checkpointer(root, {"part": Part()}, SETTINGS):
        shutil.copytree(root, memory_path / "copy")
        (root / ".lock").read_text()

        assert another_job(root) == "CheckpointLocked"

    assert another_job(root) == "got in"


def test_a_worker_that_outlives_a_killed_job_does_not_keep_its_successor_out(memory_path):
    root = memory_path / "run"
    job = subprocess.Popen(
        [sys.executable, "-c", FORKED, root], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert job.stdout.readline() == "ready\n"
        assert another_job(root) == "CheckpointLocked"
        job.kill()
        job.wait()

        assert another_job(root) == "got in"
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.stdout.close()

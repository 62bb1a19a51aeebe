"""What a training loop sees of the checkpointer: when it saves, when it stops, and what it says when something is wrong."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from packages.runtime.tests.checkpoint.small_job import Part

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import CheckpointLocked, CheckpointMismatch, CheckpointNotSaved, UsageError
from trimtab_runtime.notice.notice import Notice, NoticeBoard, NoticeKind

ROOT = Path(__file__).resolve().parents[4]
SRC = ROOT / "packages" / "runtime" / "src"


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class Run:
    """A checkpointer with a part, a board and a clock of its own."""

    def __init__(self, folder, *, files=None, ranks=None, **settings):
        defaults = {"asynchronous": False, "min_interval_s": 0.0}
        self.part, self.board, self.clock = Part(), NoticeBoard(), Clock()
        self.checkpointer = Checkpointer(
            folder,
            {"part": self.part},
            CheckpointSettings(**(defaults | settings)),
            board=self.board,
            ranks=ranks,
            files=files,
            clock=self.clock,
        )
        self.folder = folder

    def step(self, number, seconds=1.0):
        self.clock.now_s += seconds
        self.part.state = Part(number).state
        return self.checkpointer.step_done(number)

    def saved(self):
        self.checkpointer.settle()
        return sorted(name.step for name in store.committed(FileOperations(), self.folder))

    def notice(self, left_s):
        now_s = self.clock.now_s
        self.board.post(Notice(source="test", kind=NoticeKind.INTERRUPTION, seen_s=now_s, deadline_s=now_s + left_s))


@pytest.fixture
def run(memory_path):
    made = []

    def make(folder="run", **options):
        made.append(Run(memory_path / folder, **options))
        return made[-1]

    yield make
    for one in made:
        one.checkpointer.close()


def test_a_fixed_interval_is_kept(run):
    job = run(every_s=10.0, keep=100)

    for step in range(35):
        assert not job.step(step)

    assert job.saved() == [9, 19, 29]


def test_the_first_checkpoint_comes_before_any_save_was_measured(run):
    job = run(mean_life_s=3600.0, max_interval_s=60.0, keep=100)

    for step in range(61):
        job.step(step)

    assert job.saved()


def test_a_run_that_finishes_saves_its_last_step(memory_path):
    for first, last in ((0, 7), (7, 7), (7, 9)):
        job = Run(memory_path / "run", every_s=1e6, keep=100)
        with job.checkpointer as checkpointer:
            checkpointer.resume()
            assert checkpointer.next_step == first
            for step in range(first, last):
                assert not job.step(step)

    assert job.saved() == [6, 8]


def test_the_last_step_is_not_saved_twice_nor_after_an_exception_or_an_interruption(memory_path):
    job = Run(memory_path / "saved", every_s=1.0, keep=100)
    with job.checkpointer:
        job.step(0)
    assert job.saved() == [0]

    job = Run(memory_path / "failed", every_s=1e6)
    with pytest.raises(ZeroDivisionError), job.checkpointer:
        1 / (0 * job.step(0))
    assert job.saved() == []

    job = Run(memory_path / "taken", every_s=1e6)
    with job.checkpointer:
        job.checkpointer._timing.add_save(20.0)
        job.notice(left_s=5.0)
        assert job.step(0)
    assert job.saved() == []


def test_a_last_step_whose_save_failed_is_saved_at_the_end(memory_path):
    files = FullOnce()
    job = Run(memory_path / "run", every_s=1.0, files=files)
    with job.checkpointer:
        files.full = True
        job.step(0)
        assert job.checkpointer.failed_saves == 1
        files.full = False

    assert job.saved() == [0]


class FullOnce(FileOperations):
    """A disk that can be full for a while."""

    full = False

    def write_at(self, descriptor, data, offset):
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        return super().write_at(descriptor, data, offset)


def test_a_notice_is_used_to_train_on_and_the_last_save_fits(run):
    job = run(every_s=1e6, keep=100, margin_s=2.0)
    job.step(0)
    job.notice(left_s=30.0)

    step = 0
    while not job.step(step := step + 1):
        assert step < 100

    assert 20 <= step <= 29
    assert job.saved()[-1] == step
    assert job.checkpointer.exit_code == 75


def test_a_notice_too_short_for_a_save_stops_and_leaves_the_last_checkpoint(run, caplog):
    caplog.set_level(logging.WARNING)
    job = run(every_s=1e6)
    job.checkpointer.save(3)
    job.checkpointer._timing.add_save(20.0)
    job.notice(left_s=5.0)

    assert job.step(4)

    assert job.saved() == [3]
    assert job.checkpointer.exit_code == 75
    assert "no time to save step 4" in caplog.text


def test_a_job_that_is_done_exits_with_zero(run):
    job = run(every_s=1.0)
    for step in range(3):
        job.step(step)

    assert job.checkpointer.exit_code == 0


def test_a_raised_risk_makes_one_extra_save(run):
    job = run(every_s=1e6)
    job.board.post(Notice(source="aws", kind=NoticeKind.REBALANCE, seen_s=0.0, deadline_s=float("inf")))

    assert not any(job.step(step) for step in range(5))

    assert job.saved() == [0]


def test_a_failed_save_does_not_stop_the_training_and_the_next_one_is_made(run, caplog):
    caplog.set_level(logging.CRITICAL)

    class Unwilling(FileOperations):
        broken = False

        def write_at(self, descriptor, data, offset):
            if self.broken:
                raise OSError(5, "Input/output error")
            return super().write_at(descriptor, data, offset)

    files = Unwilling()
    job = run(every_s=1.0, files=files)
    job.step(0)
    files.broken = True
    job.step(1)
    assert job.checkpointer.failed_saves == 1
    files.broken = False
    job.step(2)

    assert job.checkpointer.failed_saves == 0
    assert job.saved() == [0, 2]


def test_state_that_can_never_be_stored_stops_the_job_at_the_first_save(run):
    job = run(every_s=0.0)
    job.part.state = {"callback": print}
    job.clock.now_s += 1.0

    with pytest.raises(UsageError, match="parts/part/callback: builtins"):
        job.checkpointer.step_done(0)


def test_a_clock_that_jumps_neither_hangs_nor_skips_saves_for_ever(run):
    job = run(every_s=10.0, keep=100)
    job.step(0, seconds=-500.0)
    for step in range(1, 3):
        job.step(step, seconds=1000.0)

    assert job.saved() == [1, 2]


def test_the_newest_are_kept_and_at_least_one(run):
    job = run(keep=2)
    for step in range(6):
        job.checkpointer.save(step)

    assert job.saved() == [4, 5]


def test_leftovers_of_kills_are_swept_at_the_start(run, memory_path):
    root = memory_path / "run"
    for name in (".saving-000000000007.00000003-abcd1234", ".trash-step-000000000001.00000001"):
        (root / name).mkdir(parents=True)
        (root / name / "rank-00000.bin").write_bytes(b"half")

    job = run()
    job.checkpointer.save(8)

    assert sorted(path.name for path in root.iterdir()) == [".lock", "step-000000000008.00000004"]


def test_a_save_in_the_background_is_durable_when_the_checkpointer_is_closed(run):
    job = run(asynchronous=True)
    job.checkpointer.save(1, wait=False)
    job.checkpointer.close()

    assert job.saved() == [1]


def test_two_saves_in_a_row_do_not_mix(run):
    job = run(asynchronous=True, keep=100)
    for step in range(20):
        job.part.state = Part(step).state
        job.checkpointer.save(step, wait=False)
    job.checkpointer.close()

    reader = run(keep=100)
    for step in range(20):
        assert reader.checkpointer.resume(step).step == step
        assert reader.part.state["step"] == step
        assert set(reader.part.state["weights"]) == {float(step)}


def test_a_relative_folder_stays_where_it_was_when_the_job_changes_directory(memory_path, monkeypatch):
    (memory_path / "elsewhere").mkdir()
    monkeypatch.chdir(memory_path)
    job = Run(Path("run"))
    monkeypatch.chdir(memory_path / "elsewhere")
    job.checkpointer.save(1)
    job.checkpointer.save(2)
    job.checkpointer.close()

    monkeypatch.chdir(memory_path)
    again = Run(Path("run"))
    assert again.checkpointer.resume().step == 2
    again.checkpointer.close()


def test_a_step_that_was_never_saved_cannot_be_resumed(run):
    job = run()
    job.checkpointer.save(1)

    with pytest.raises(Exception, match="no good checkpoint of step 5"):
        job.checkpointer.resume(5)


def test_another_process_in_the_folder_is_named(memory_path):
    script = "import sys; from packages.runtime.tests.checkpoint.test_checkpointer import hold; hold(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{ROOT}"}
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(memory_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointLocked, match=f"process {holder.pid}"):
            Run(memory_path / "run", lock_wait_s=0.1)
    finally:
        holder.kill()
        holder.communicate()

    Run(memory_path / "run", lock_wait_s=5.0).checkpointer.close()


def hold(folder):
    """Hold a folder until killed."""
    Run(Path(folder))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.read()


class TwoRanks:
    """Two ranks in two threads that agree through a barrier."""

    def __init__(self):
        self._barrier = threading.Barrier(2, timeout=20.0)
        self._values = {}

    def rank(self, number):
        return _Rank(self, number)

    def exchange(self, number, value):
        self._values[number] = value
        self._barrier.wait()
        both = dict(self._values)
        self._barrier.wait()
        return both


class _Rank:
    world_size = 2

    def __init__(self, ranks, number):
        self._ranks, self.rank = ranks, number

    def highest(self, values):
        both = self._ranks.exchange(self.rank, list(values))
        return [max(pair) for pair in zip(*both.values(), strict=True)]

    def from_first(self, value):
        return self._ranks.exchange(self.rank, value)[0]


def on_two_ranks(job):
    ranks, results = TwoRanks(), [None, None]

    def body(number):
        try:
            results[number] = job(ranks.rank(number), number)
        except CheckpointMismatch as error:
            results[number] = error

    threads = [threading.Thread(target=body, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return results


def test_ranks_at_different_steps_refuse_to_save_together(memory_path):
    def job(rank, number):
        one = Run(memory_path / "run", ranks=rank, every_s=0.0)
        try:
            return one.step(7 + number)
        finally:
            one.checkpointer.close()

    assert all("different steps (7 to 8)" in str(error) for error in on_two_ranks(job))


def test_a_notice_on_one_rank_stops_all_at_the_same_step(memory_path):
    def job(rank, number):
        one = Run(memory_path / "run", ranks=rank, every_s=1e6)
        try:
            for step in range(10):
                if number == 1 and step == 3:
                    one.notice(left_s=0.5)
                if one.step(step):
                    return step
            return None
        finally:
            one.checkpointer.close()

    assert on_two_ranks(job) == [3, 3]


def test_all_ranks_commit_one_checkpoint_and_a_rank_that_fails_fails_it_for_all(memory_path, caplog):
    caplog.set_level(logging.CRITICAL)

    class Broken(FileOperations):
        def create(self, path, *, direct):
            if path.name == "rank-00001.bin":
                raise OSError(28, "No space left on device")
            return super().create(path, direct=direct)

    def job(rank, number):
        good = Run(memory_path / "good", ranks=rank, rank_timeout_s=5.0)
        good.checkpointer.save(1)
        bad = Run(memory_path / "bad", ranks=rank, rank_timeout_s=5.0, files=Broken())
        try:
            bad.checkpointer.save(1)
        except CheckpointNotSaved as error:
            return str(error), good.saved(), bad.saved()
        finally:
            for one in (good, bad):
                one.checkpointer.close()

    (first, *rest), (second, *_) = on_two_ranks(job)

    assert "rank(s) [1] could not write" in first
    assert "No space left" in second
    assert rest == [[1], []]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 0}, "keep must be above zero"),
        ({"notice_missing_frac": 2.0}, "must lie in 0..1"),
        ({"mean_life_s": -1.0, "save_slack": 0.0}, "mean_life_s.*save_slack"),
        ({"every_s": -5.0}, "every_s"),
    ],
)
def test_impossible_settings_are_refused_all_at_once(settings, message):
    with pytest.raises(UsageError, match=message):
        CheckpointSettings(**settings)


BARE = """
import json, pathlib, sys
from trimtab_runtime import Checkpointer, CheckpointSettings

class Counter:
    value = 0
    def state_dict(self):
        return {"value": self.value}
    def load_state_dict(self, state):
        self.value = state["value"]

counter = Counter()
with Checkpointer(sys.argv[1], {"counter": counter}, CheckpointSettings(every_s=0.0)) as checkpointer:
    resumed = checkpointer.resume()
    for step in range(checkpointer.next_step, checkpointer.next_step + 3):
        counter.value += 1
        checkpointer.step_done(step)
    checkpointer.save(step)
print(json.dumps({"value": counter.value, "resumed": resumed and resumed.step, "modules": sorted(sys.modules)}))
"""


def test_it_runs_on_the_standard_library_alone(memory_path):
    def go():
        command = [sys.executable, "-S", "-c", BARE, str(memory_path / "run")]
        environment = {**os.environ, "PYTHONPATH": str(SRC)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
        return json.loads(done.stdout)

    first, second = go(), go()

    assert (first["value"], first["resumed"]) == (3, None)
    assert (second["value"], second["resumed"]) == (6, 2)
    foreign = {name.partition(".")[0] for name in second["modules"]} - set(sys.stdlib_module_names)
    assert foreign <= {"trimtab_runtime", "__main__"}

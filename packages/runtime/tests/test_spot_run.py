"""Any program can be run through interruptions: told, given its time, and exiting so that it runs again."""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab_runtime.errors import InputError
from trimtab_runtime.notice.notice import NoticeBoard
from trimtab_runtime.spot_run import SpotRunSettings, spot_run

POLITE = """
import os, pathlib, signal, sys, time
def stop(number, frame):
    time.sleep(0.05)
    pathlib.Path(sys.argv[1]).write_text(pathlib.Path(os.environ["TRIMTAB_NOTICE_FILE"]).read_text())
    sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(30)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(30)"
)
TRIMTAB = (sys.executable, "-c", "from trimtab_runtime.cli import main; main()")
SETTINGS = SpotRunSettings(reserve_s=0.0, restart_delay_s=0.01)


class NoticeOnceReady(NoticeBoard):
    """Announces an interruption once the program has written its file."""

    def __init__(self, path, lead_s):
        super().__init__()
        self._path = path
        self._lead_s = lead_s

    @property
    def interruption(self):
        notice = super().interruption
        if notice is None and self._path.exists() and self._path.read_text():
            self.interrupt(self._lead_s)
            notice = super().interruption
        return notice


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_a_program_that_ends_well_passes_its_exit_code_on():
    assert spot_run(python("raise SystemExit(0)"), NoticeBoard(), SETTINGS).exit_code == 0
    assert spot_run(python("raise SystemExit(3)"), NoticeBoard(), SETTINGS).exit_code == 3


@pytest.mark.parametrize("own_code", [0, 1, 75])
def test_after_a_notice_the_exit_code_asks_for_a_requeue(tmp_path, own_code):
    path = tmp_path / "answer"

    result = spot_run(python(POLITE, path, own_code), NoticeOnceReady(path, 20.0), SETTINGS)

    assert (result.exit_code, result.interrupted) == (75, True)
    assert 15.0 < float(path.read_text()) <= 20.0


def test_a_zero_after_a_notice_can_be_trusted(tmp_path):
    path = tmp_path / "answer"
    settings = SpotRunSettings(reserve_s=0.0, trust_zero=True)

    assert spot_run(python(POLITE, path, 0), NoticeOnceReady(path, 20.0), settings).exit_code == 0


def test_a_program_that_does_not_stop_is_killed_at_the_deadline(tmp_path):
    path = tmp_path / "ready"
    path.write_text("ready")
    began_s = time.monotonic()

    result = spot_run(python(STUBBORN), NoticeOnceReady(path, 0.5), SETTINGS)

    assert result.exit_code == 75
    assert time.monotonic() - began_s < 5.0


def test_what_the_program_started_does_not_outlive_it(tmp_path):
    path = tmp_path / "ready"
    script = f"(sleep 33.125 & echo $! > {path}; wait)"

    spot_run(["sh", "-c", script], NoticeOnceReady(path, 5.0), SETTINGS)

    pid = path.read_text().strip()
    for _ in range(100):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} outlived its parent")


SLOW_SAVE = """
import os, pathlib, signal, sys, time
def stop(number, frame):
    time.sleep(1.5)
    pathlib.Path(sys.argv[2]).write_text(f"saved on {number}")
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, stop)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(30)
"""


def in_front(shell, folder):
    """Return a command that runs the slowly saving program behind a shell."""
    job = shlex.join(python(SLOW_SAVE, folder / "ready", folder / "saved"))
    if shell == "bash run.sh":
        (folder / "run.sh").write_text(f"{job}\necho done\n")
        return ["bash", str(folder / "run.sh")]
    return ["sh", "-c", {"a; b": f"{job}; true", "a & wait": f"{job} & wait"}[shell]]


@pytest.mark.parametrize("shell", ["bash run.sh", "a; b", "a & wait"])
def test_a_shell_in_front_does_not_cost_the_checkpoint(tmp_path, shell):
    began_s = time.monotonic()

    result = spot_run(in_front(shell, tmp_path), NoticeOnceReady(tmp_path / "ready", 20.0), SETTINGS)

    assert (tmp_path / "saved").read_text() == "saved on 15"
    assert result.exit_code == 75
    assert time.monotonic() - began_s < 15.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("shell", [None, "bash run.sh"])
def test_other_signals_are_passed_on_and_waited_for(tmp_path, number, shell):
    job = in_front(shell, tmp_path) if shell else python(SLOW_SAVE, tmp_path / "ready", tmp_path / "saved")
    command = [*TRIMTAB, "spot-run", "--notice", "none", "--restarts", "3", "--", *job]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    await_text(tmp_path / "ready")

    running.send_signal(number)
    running.communicate(timeout=30)

    assert (tmp_path / "saved").read_text() == f"saved on {int(number)}"
    assert running.returncode in (0, 128 + number)  # bash goes on after a program that took Ctrl-C for itself


def test_a_program_that_ignores_ctrl_c_is_killed_by_the_third(tmp_path):
    ignoring = "import signal, time, pathlib, sys; signal.signal(2, signal.SIG_IGN)\n"
    ignoring += "pathlib.Path(sys.argv[1]).write_text('ready'); time.sleep(60)"
    command = [*TRIMTAB, "spot-run", "--notice", "none", "--", *python(ignoring, tmp_path / "ready")]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    await_text(tmp_path / "ready")

    for _ in range(3):
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)

    assert running.returncode == 137


def await_text(path):
    for _ in range(1500):
        if path.exists() and path.read_text():
            return
        time.sleep(0.02)
    pytest.fail(f"{path} did not appear")


def test_crashes_are_restarted_as_often_as_allowed(tmp_path):
    path = tmp_path / "runs"
    crash = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.open('a').write('x'); sys.exit(9)"

    result = spot_run(python(crash, path), NoticeBoard(), SpotRunSettings(restarts=2, restart_delay_s=0.01))

    assert (result.exit_code, result.restarts, path.read_text()) == (9, 2, "xxx")


def test_a_program_that_saw_its_own_notice_is_not_restarted_here(tmp_path):
    result = spot_run(python("raise SystemExit(75)"), NoticeBoard(), SpotRunSettings(restarts=5))

    assert (result.exit_code, result.restarts, result.interrupted) == (75, 0, True)


def test_a_program_killed_by_a_signal_gives_the_code_that_a_shell_would():
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    assert spot_run(python(killed), NoticeBoard(), SETTINGS).exit_code == 137


def test_a_program_that_cannot_be_started_is_named():
    with pytest.raises(InputError, match="no-such-program: cannot be started"):
        spot_run(["no-such-program"], NoticeBoard(), SETTINGS)


def test_the_command_line_runs_a_program_and_turns_sigterm_into_a_requeue(tmp_path):
    path = tmp_path / "answer"
    command = [*TRIMTAB, "spot-run", "--notice", "none", "--", *python(POLITE, path, 1)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _ in range(1000):
        if path.exists() and path.read_text():
            break
        time.sleep(0.02)

    running.terminate()
    _, log = running.communicate(timeout=30)

    assert running.returncode == 75
    assert "interruption" in log


JOB = """
import pathlib, sys, time
from trimtab_runtime import Checkpointer, CheckpointSettings

class Counter:
    value = 0
    def state_dict(self):
        return {"value": self.value}
    def load_state_dict(self, state):
        self.value = state["value"]

counter = Counter()
with Checkpointer(sys.argv[1], {"counter": counter}, CheckpointSettings(every_s=3600.0)) as checkpointer:
    checkpointer.resume()
    for step in range(checkpointer.next_step, int(sys.argv[3])):
        counter.value += 1
        pathlib.Path(sys.argv[2]).write_text(f"{step} {counter.value}")
        time.sleep(0.02)
        if checkpointer.step_done(step):
            break
sys.exit(checkpointer.exit_code)
"""


def test_a_job_goes_on_exactly_where_a_notice_stopped_it(tmp_path):
    notice, progress = tmp_path / "notice", tmp_path / "progress"
    command = [*TRIMTAB, "spot-run", "--notice", str(notice), "--grace", "3s", "--"]
    job = python(JOB, tmp_path / "checkpoints", progress)
    running = subprocess.Popen([*command, *job, "100000"], stderr=subprocess.PIPE, text=True)
    for _ in range(1000):
        if progress.exists() and progress.read_text().startswith("1"):
            break
        time.sleep(0.02)

    notice.write_text("60\n")
    running.communicate(timeout=60)
    stopped_at = int(progress.read_text().split()[0])
    notice.unlink()
    again = subprocess.run([*command, *job, str(stopped_at + 4)], capture_output=True, timeout=60)

    assert running.returncode == 75
    assert again.returncode == 0
    assert progress.read_text() == f"{stopped_at + 3} {stopped_at + 4}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--signal", "TERMM"], "unknown signal 'TERMM'; did you mean TERM"),
        (["--notice", "awz"], "did you mean aws"),
        (["--grace", "soon"], "is not a length of time"),
    ],
)
def test_wrong_options_are_explained(options, message):
    command = [*TRIMTAB, "spot-run", *options, "--", "true"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode in (1, 2)
    assert message in done.stderr

"""`spot-run`: run any program through interruptions."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from trimtab_runtime.cli.options import command_parser, program_of, span_s, whole_number
from trimtab_runtime.errors import UnknownName
from trimtab_runtime.notice.aws import AwsSpotNotices
from trimtab_runtime.notice.azure import AzureScheduledEvents
from trimtab_runtime.notice.detect import automatic_watcher, signal_grace_s
from trimtab_runtime.notice.file_source import FileNotices
from trimtab_runtime.notice.gcp import GcpPreemptionNotices
from trimtab_runtime.notice.notice import NoticeBoard, NoticeSource
from trimtab_runtime.notice.signals import SignalNotices
from trimtab_runtime.notice.watcher import NoticeWatcher
from trimtab_runtime.spot_run import SpotRunSettings, spot_run

logger = logging.getLogger(__name__)


DESCRIPTION = """\
Run a program on spot capacity: on a notice tell it, wait, and exit so that it is run again.

The program is sent a signal, and a file named in TRIMTAB_NOTICE_FILE appears with the seconds that are left. A job
that embeds trimtab_runtime.Checkpointer needs nothing else. All that the program started is waited for until then.
SIGINT (Ctrl-C), SIGHUP and SIGQUIT are passed on and waited for; the third Ctrl-C kills.

Exit codes: 75 (--exit-code) after a notice, or where the program itself ends with it: run it again elsewhere. Else the
program's own, and 128 + N where signal N ended it. 1: the program cannot be started, an unknown name; 2: wrong options.
"""
EXAMPLES = """\
Examples:
  {prog} -- python train.py --epochs 3
  {prog} --restarts 3 -- torchrun --nproc-per-node 8 train.py
  {prog} --notice aws --signal USR1 --grace 90s -- ./train.sh
  {prog} --notice /var/run/drain --exit-code 99 -- python train.py
  {prog} --slurm-requeue -- srun python train.py      # in an sbatch script
"""


def run(arguments: Sequence[str], prog: str) -> int:
    """Run the program that the arguments name; return its exit code, or after an interruption the one to requeue on."""
    given = parser(prog).parse_args(arguments)
    program = program_of(given.program)
    _log_to_stderr(prog, verbose=given.verbose)
    settings = SpotRunSettings(
        signal_number=signal_number(given.signal),
        grace_s=None if given.grace is None else span_s(given.grace, "--grace"),
        exit_code=given.exit_code,
        trust_zero=given.trust_zero,
        restarts=given.restarts,
        restart_delay_s=span_s(given.restart_delay, "--restart-delay"),
    )
    board = NoticeBoard()
    with watcher(given.notice, board):
        result = spot_run(program, board, settings)
    if result.interrupted and given.slurm_requeue:
        requeue_slurm_job()
    return result.exit_code


def parser(prog: str) -> ArgumentParser:
    """Return the options of the command."""
    made = command_parser(prog, DESCRIPTION, EXAMPLES)
    add = made.add_argument
    add("--notice", default="auto", metavar="auto|aws|gcp|azure|none|FILE",
        help="where interruptions are announced; a FILE announces one by appearing (default: auto)")  # fmt: skip
    add("--signal", default="TERM", metavar="NAME",
        help="what the program is sent on a notice; 'none': only TRIMTAB_NOTICE_FILE appears (default: TERM)")  # fmt: skip
    add("--grace", metavar="SPAN", help="give the program at most this long (20s, 2m) of what the notice leaves")
    add("--exit-code", default=75, type=whole_number(1, 255), metavar="CODE",
        help="exit code after an interruption, for the scheduler's requeue rule (default: 75)")  # fmt: skip
    add("--trust-zero", action="store_true",
        help="if the program ends with 0 after a notice, it was done: exit with 0")  # fmt: skip
    add("--restarts", default=0, type=whole_number(0), metavar="N",
        help="start the program again here after so many crashes, with doubling pauses (default: 0)")  # fmt: skip
    add("--restart-delay", default="5s", metavar="SPAN", help="the first of these pauses (default: 5s)")
    add("--slurm-requeue", action="store_true",
        help="after an interruption run `scontrol requeue` for this Slurm job")  # fmt: skip
    add("-v", "--verbose", action="store_true", help="log what is watched and what happens, on stderr")
    return made


def _log_to_stderr(prog: str, *, verbose: bool) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=f"{prog}: %(message)s")


def signal_number(name: str) -> int | None:
    """Return the number of a signal given as TERM or SIGTERM; None for 'none'."""
    if name.casefold() == "none":
        return None
    known = {member.name.removeprefix("SIG"): member.value for member in signal.Signals}
    plain = name.upper().removeprefix("SIG")
    if plain not in known:
        raise UnknownName("signal", name, known)
    return known[plain]


def watcher(source: str, board: NoticeBoard) -> NoticeWatcher:
    """Return a watcher of the chosen source, and of SIGTERM, which Kubernetes and Slurm send."""
    if source == "auto":
        return automatic_watcher(board)
    return NoticeWatcher(board, _sources(source), SignalNotices(board, {signal.SIGTERM: signal_grace_s()}))


def _sources(source: str) -> list[NoticeSource]:
    match source:
        case "aws":
            return [AwsSpotNotices()]
        case "gcp":
            return [GcpPreemptionNotices()]
        case "azure":
            return [AzureScheduledEvents()]
        case "none":
            return []
        case path if "/" in path:
            return [FileNotices(Path(path), signal_grace_s())]
        case _:
            raise UnknownName("source of notices", source, ("auto", "aws", "gcp", "azure", "none", "./FILE"))


def requeue_slurm_job() -> None:
    """Ask Slurm to run this job again; say so if it cannot be asked."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        logger.warning("--slurm-requeue: SLURM_JOB_ID is not set, so this is no Slurm job")
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        logger.error("scontrol requeue %s failed: %s", job, error)

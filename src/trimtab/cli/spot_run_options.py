"""What the options of `trimtab spot-run` mean: signals by name, sources of notices, the Slurm requeue."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from pathlib import Path

from trimtab.errors import UnknownName, UsageError
from trimtab.runtime.notice.aws import AwsSpotNotices
from trimtab.runtime.notice.azure import AzureScheduledEvents
from trimtab.runtime.notice.detect import automatic_watcher, signal_grace_s
from trimtab.runtime.notice.file_source import FileNotices
from trimtab.runtime.notice.gcp import GcpPreemptionNotices
from trimtab.runtime.notice.notice import NoticeBoard
from trimtab.runtime.notice.signals import SignalNotices
from trimtab.runtime.notice.source import NoticeSource
from trimtab.runtime.notice.watcher import NoticeWatcher
from trimtab.units import parse_span

logger = logging.getLogger(__name__)


def log_to_stderr(verbose: bool) -> None:
    """Show warnings, or with `verbose` every stage, on stderr."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="trimtab spot-run: %(message)s")


def signal_number(name: str) -> int | None:
    """Return the number of a signal given as TERM or SIGTERM; None for 'none'."""
    if name.casefold() == "none":
        return None
    known = {member.name.removeprefix("SIG"): member.value for member in signal.Signals}
    plain = name.upper().removeprefix("SIG")
    if plain not in known:
        raise UnknownName("signal", name, known)
    return known[plain]


def seconds(text: str, option: str) -> float:
    """Return a length of time in seconds."""
    try:
        return parse_span(text).total_seconds()
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


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

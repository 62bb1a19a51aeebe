"""Which sources of notices this machine has, told from its firmware tables and environment without asking the network."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from trimtab_runtime.errors import UsageError
from trimtab_runtime.notice.file_source import FileNotices
from trimtab_runtime.notice.notice import NoticeBoard, NoticeSource
from trimtab_runtime.notice.signals import KUBERNETES_GRACE_S, SignalNotices
from trimtab_runtime.notice.watcher import NoticeWatcher

FIRMWARE_FOLDER = Path("/sys/class/dmi/id")
_FIRMWARE_FILES = ("sys_vendor", "bios_vendor", "product_name", "chassis_asset_tag")
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""The chassis asset tag of every Azure machine; plain Hyper-V has the same vendor and another tag (cloud-init, ds-identify)."""
GRACE_VARIABLE = "TRIMTAB_GRACE_S"
FILE_VARIABLE = "TRIMTAB_NOTICE_FILE"


def cloud_sources(firmware_folder: Path = FIRMWARE_FOLDER) -> list[NoticeSource]:
    """Return the source of the cloud that this machine runs in; none outside the three. Only that one is imported."""
    firmware = " ".join(_read(firmware_folder / name) for name in _FIRMWARE_FILES)
    if "Amazon EC2" in firmware:
        from trimtab_runtime.notice.aws import AwsSpotNotices

        return [AwsSpotNotices()]
    if "Google" in firmware:
        from trimtab_runtime.notice.gcp import GcpPreemptionNotices

        return [GcpPreemptionNotices()]
    if AZURE_ASSET_TAG in firmware:
        from trimtab_runtime.notice.azure import AzureScheduledEvents

        return [AzureScheduledEvents()]
    return []


def automatic_watcher(board: NoticeBoard, environment: Mapping[str, str] = os.environ) -> NoticeWatcher:
    """Return a watcher of everything that may announce an interruption here, not started yet.

    That is the cloud's metadata, SIGTERM (and USR1 in a Slurm job) with the grace in `TRIMTAB_GRACE_S` (default 30 s,
    Kubernetes'), and the file named in `TRIMTAB_NOTICE_FILE`.
    """
    grace_s = signal_grace_s(environment)
    sources = cloud_sources()
    if environment.get(FILE_VARIABLE):
        sources.append(FileNotices(Path(environment[FILE_VARIABLE]), grace_s))
    leads_s: dict[int, float] = {signal.SIGTERM: grace_s}
    if "SLURM_JOB_ID" in environment:
        leads_s[signal.SIGUSR1] = grace_s
    return NoticeWatcher(board, sources, SignalNotices(board, leads_s))


def signal_grace_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return how long after a signal the process may live; raise `UsageError` for a setting that is not a number."""
    text = environment.get(GRACE_VARIABLE, str(KUBERNETES_GRACE_S))
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"{GRACE_VARIABLE} must be a number of seconds (saw {text!r})") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""

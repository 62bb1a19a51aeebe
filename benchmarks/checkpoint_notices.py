"""How long after an announcement each source has seen it, on emulated metadata servers, at random phases of polling."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks.metadata_emulator import MetadataEmulator
from trimtab_runtime.notice.aws import AwsSpotNotices
from trimtab_runtime.notice.azure import AzureScheduledEvents
from trimtab_runtime.notice.gcp import GcpPreemptionNotices
from trimtab_runtime.notice.notice import NoticeBoard, NoticeSource
from trimtab_runtime.notice.watcher import NoticeWatcher

SETTLE_S = 0.5
LEAD_S = 120.0
PATIENCE_S = 30.0
SOURCES: dict[str, tuple[Callable[[str], NoticeSource], float]] = {
    "aws": (AwsSpotNotices, 5.0),
    "gcp": (GcpPreemptionNotices, 1.0),
    "azure": (AzureScheduledEvents, 1.0),
}
"""The source, and over what time the announcement's moment is drawn."""


def latency_s(source: Callable[[str], NoticeSource], delay_s: float) -> float:
    """Return the seconds from an announcement, made after a delay, to the board."""
    board = NoticeBoard()
    with MetadataEmulator() as emulator, NoticeWatcher(board, [source(emulator.url)]):
        time.sleep(SETTLE_S + delay_s)
        announced_s = time.monotonic()
        emulator.announce(LEAD_S)
        if not board.wait(PATIENCE_S):
            return float("inf")
        return time.monotonic() - announced_s


def measure(trials: int, seed: int) -> dict[str, object]:
    """Return the worst latency of each source."""
    rng = random.Random(seed)
    worst = {
        name: max(latency_s(source, rng.random() * phase_s) for _ in range(trials))
        for name, (source, phase_s) in SOURCES.items()
    }
    return {"trials": trials, "worst_notice_s": {name: round(seconds, 3) for name, seconds in worst.items()}}

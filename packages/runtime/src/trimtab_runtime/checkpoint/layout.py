"""How checkpoints are named on disk and in a bucket.

    step-000000001200.00000007/     a committed checkpoint: step 1200, the seventh save in this folder
        rank-00000.bin              the bytes of every tensor that rank 0 wrote, back to back
        rank-00000.json             which tensor lies where, the other values, a checksum per 16 MiB
        commit.json                 the list of files with sizes and checksums; written last
    .saving-000000001200.00000007-9f3c2a1b/   a save under way, or what a kill left of one
    .damaged-step-...               set aside because it did not verify; removed once a newer one is safe
    .trash-step-...                 being removed
    .lock                           held by the job that writes here

The save number grows with every attempt, so that the newest checkpoint is the one saved last, also after a restart from
an older step.
"""

from __future__ import annotations

import re
from typing import NamedTuple

COMMIT_NAME = "commit.json"
LOCK_NAME = ".lock"
SAVING_PREFIX = ".saving-"
DAMAGED_PREFIX = ".damaged-"
TRASH_PREFIX = ".trash-"
LEFTOVER_PREFIXES = (SAVING_PREFIX, TRASH_PREFIX)

_SHARD = re.compile(r"rank-[0-9]{5,20}\.(bin|json)")
_COMMITTED = re.compile(r"step-([0-9]{12,20})\.([0-9]{8,20})")


class CheckpointName(NamedTuple):
    """A checkpoint's place in time: ordered by the number of the save, not by the step."""

    save_number: int
    step: int

    @property
    def folder(self) -> str:
        """The committed folder's name."""
        return f"step-{self.step:012d}.{self.save_number:08d}"

    def saving_folder(self, launch: str) -> str:
        """The name of the folder while the save is under way, by the job that was launched as `launch`."""
        return f"{SAVING_PREFIX}{self.folder.removeprefix('step-')}-{launch}"


def parse_name(folder: str) -> CheckpointName | None:
    """Return what a committed folder's name says, or None for any other name."""
    match = _COMMITTED.fullmatch(folder)
    return CheckpointName(save_number=int(match[2]), step=int(match[1])) if match else None


def any_save_number(folder: str) -> int:
    """Return the number of the save that a folder of any state belongs to, 0 if it is none of ours."""
    match = re.search(r"[0-9]{12,20}\.([0-9]{8,20})", folder)
    return int(match[1]) if match else 0


def shard_names(rank: int) -> tuple[str, str]:
    """Return the names of a rank's data file and of its manifest."""
    return f"rank-{rank:05d}.bin", f"rank-{rank:05d}.json"


def is_file_name(name: str) -> bool:
    """Say whether a checkpoint may hold a file of this name: a shard, a manifest or the marker, and no way out of it."""
    return name == COMMIT_NAME or _SHARD.fullmatch(name) is not None

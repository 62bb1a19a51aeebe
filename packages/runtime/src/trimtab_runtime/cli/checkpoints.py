"""`trimtab-runtime checkpoints`: which checkpoints a folder holds, and whether every byte of them is as it was written."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.commit import Commit, read_commit, read_manifest
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import shard_names
from trimtab_runtime.checkpoint.shard_reader import verify_shard
from trimtab_runtime.errors import CheckpointError, InputError
from trimtab_runtime.units import BYTES_PER_MIB

DESCRIPTION = """\
List the checkpoints in a folder, the newest first, and with --verify read every byte of them.

Changes nothing, and needs neither the job nor its framework. Exit code 1 where one is damaged or cannot be read.
"""
EXAMPLES = """\
Examples:
  {prog} /checkpoints/run1
  {prog} /checkpoints/run1 --verify
"""


def run(arguments: Sequence[str], prog: str) -> int:
    """Print a line per checkpoint; return 1 where one is not what was written, else 0."""
    given = parser(prog).parse_args(arguments)
    if not given.folder.is_dir():
        raise InputError(f"{given.folder}: there is no such folder")
    files = FileOperations()
    bad = 0
    names = store.committed(files, given.folder)
    for name in names:
        line, good = _judged(files, given.folder / name.folder, verify=given.verify)
        bad += not good
        print(f"step {name.step}  {name.folder}  {line}")
    if not names:
        print(f"{given.folder}: no committed checkpoint")
    return 1 if bad else 0


def parser(prog: str) -> ArgumentParser:
    """Return the options of the command."""
    made = ArgumentParser(
        prog=prog,
        description=DESCRIPTION,
        epilog=EXAMPLES.format(prog=prog),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("folder", type=Path, metavar="FOLDER", help="where a job saves its checkpoints")
    made.add_argument("--verify", action="store_true", help="compare every byte with its checksum")
    return made


def _judged(files: FileOperations, folder: Path, *, verify: bool) -> tuple[str, bool]:
    """Return what a checkpoint is, and whether nothing speaks against it."""
    try:
        marker = read_commit(files, folder)
        if verify:
            _verify(files, folder, marker)
    except (CheckpointError, OSError) as error:
        return f"BAD: {error}", False
    size = f"{marker.size_bytes / BYTES_PER_MIB:.1f} MiB, {marker.world_size} rank(s)"
    return size + (", verified" if verify else ""), True


def _verify(files: FileOperations, folder: Path, marker: Commit) -> None:
    for rank in range(marker.world_size):
        verify_shard(files, folder / shard_names(rank)[0], read_manifest(files, folder, rank, marker))

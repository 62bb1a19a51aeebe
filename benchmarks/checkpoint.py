"""What a checkpoint costs beside the disk's limit and its peers, and what is left of it after SIGKILL.

python -m benchmarks.checkpoint [--folder DIR] [--mib 1024]           speed, stall and load, peers in the same run
python -m benchmarks.checkpoint kill --kills 10000 [--mib 2]          random kills during back-to-back saves
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import checkpoint_kills
from trimtab.units import BYTES_PER_MIB

PROGRESS_EVERY = 500


def kill(folder: Path, kills: int, mib: int, seed: int) -> dict[str, object]:
    """Run the kill loop and return its counts."""

    def progress(done: int) -> None:
        if done % PROGRESS_EVERY == 0:
            print(f"{done} of {kills} kills", file=sys.stderr, flush=True)

    return checkpoint_kills.kill_loop(folder / "kills", kills, mib * BYTES_PER_MIB, seed, progress)


def main() -> None:
    """Run one command and print its result as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("speed", "kill"), default="speed")
    parser.add_argument("--folder", type=Path, help="scratch folder on the disk to test (default: a temporary one)")
    parser.add_argument("--mib", type=int, help="size of the state (default: 1024 for speed, 2 for kill)")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trimtab-checkpoint-", dir=arguments.folder) as scratch:
        result = kill(Path(scratch), arguments.kills, arguments.mib or 2, arguments.seed)
    print(json.dumps({"benchmark": "checkpoint", "data": None, "command": arguments.command, **result}))


if __name__ == "__main__":
    main()

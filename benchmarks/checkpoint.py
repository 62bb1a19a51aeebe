"""What a checkpoint costs beside the disk's limit and its peers, and what is left of it after SIGKILL.

Commands:
    python -m benchmarks.checkpoint [--folder DIR] [--mib 1024]     speed, stall and load, peers in the same run
    python -m benchmarks.checkpoint kill --kills 10000 [--mib 2]    random kills during back-to-back saves
    python -m benchmarks.checkpoint notice [--trials 5]             announcement to notice, on emulated servers
    python -m benchmarks.checkpoint resume [--stops 100]            resumed loss curves against an unbroken one

`speed` and `resume` need torch, and `speed` shows safetensors where it is installed. Give `--folder` on the disk to
be measured; a state of 1 GiB needs 5 GiB of memory and of disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import checkpoint_kills, checkpoint_notices
from trimtab.units import BYTES_PER_MIB

PROGRESS_EVERY = 500
SPEED_MIB, KILL_MIB = 1024, 2


def kill(folder: Path, kills: int, mib: int, seed: int) -> dict[str, object]:
    """Run the kill loop and return its counts."""

    def progress(done: int) -> None:
        if done % PROGRESS_EVERY == 0:
            print(f"{done} of {kills} kills", file=sys.stderr, flush=True)

    return checkpoint_kills.kill_loop(folder / "kills", kills, mib * BYTES_PER_MIB, seed, progress)


def speed(folder: Path, mib: int, rounds: int) -> dict[str, object]:
    """Run the rounds and return shares of the limit and stalls."""
    from benchmarks import checkpoint_speed

    def progress(name: str, seconds: float) -> None:
        print(f"{name:<44}{seconds:8.3f} s", file=sys.stderr, flush=True)

    return checkpoint_speed.measure(folder, mib, rounds, progress)


def resume(folder: Path, stops: int, seed: int) -> dict[str, object]:
    """Run the worked example with stops at random steps."""
    from benchmarks import checkpoint_resume

    return checkpoint_resume.measure(folder, stops, seed)


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run one command and return its figures."""
    match arguments.command:
        case "kill":
            return kill(folder, arguments.kills, arguments.mib or KILL_MIB, arguments.seed)
        case "notice":
            return checkpoint_notices.measure(arguments.trials, arguments.seed)
        case "resume":
            return resume(folder, arguments.stops, arguments.seed)
        case _:
            return speed(folder, arguments.mib or SPEED_MIB, arguments.rounds)


def main() -> None:
    """Run one command and print its result as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("speed", "kill", "notice", "resume"), default="speed")
    parser.add_argument("--folder", type=Path, help="scratch folder on the disk to test (default: a temporary one)")
    parser.add_argument("--mib", type=int, help="size of the state (default: 1024 for speed, 2 for kill)")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trimtab-checkpoint-", dir=arguments.folder) as scratch:
        result = run(arguments, Path(scratch))
    print(json.dumps({"benchmark": "checkpoint", "data": None, "command": arguments.command, **result}))


if __name__ == "__main__":
    main()

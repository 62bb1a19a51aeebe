"""SIGKILL a process that rewrites one bundle without pause, at random instants, and look at what a fresh process then finds.

    python -m benchmarks.bundle_kills [--kills 1000] [--content files|bundle] [--window-s 0.05] [--folder FOLDER]
                                     [--no-exchange]

Outcomes: `ok` the newest promised bundle or a later one is read whole, `stale` an older one, `lost` none, `mixed` tables of two
writes in one bundle, `fail` an error. A bundle is promised once its write has returned. `left_over` counts what lies beside the
bundle after it was read: that must be nothing. `--content files` writes three small files by the same code in place of Parquet:
more rewrites in the same time. `--no-exchange` takes the way of a file system that cannot exchange two names. SIGKILL tests
order, not what a power cut leaves, so that a folder in memory (`--folder /dev/shm`) will do. A writer is killed within
`--window-s` of its first promise: a longer window has more rewrites for each kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab.tables import whole_folder
from trimtab.tables.whole_folder import replaced_whole, settle

SEED = 17
OUTCOMES = ("ok", "stale", "lost", "mixed", "fail")
KILL_WINDOW_S = 0.05
FIRST_WRITE_S = 60.0
_FILES = ("a", "b", "c")
_START = datetime(2026, 9, 1, tzinfo=UTC)


def main() -> None:
    """Kill writers and print what was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--content", choices=("files", "bundle"), default="files")
    parser.add_argument("--window-s", type=float, default=KILL_WINDOW_S)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=Path, help="where the bundle lies; a fresh temporary folder by default")
    parser.add_argument("--no-exchange", action="store_true")
    options = parser.parse_args()
    if options.no_exchange:
        whole_folder._exchanged = lambda one, other: False
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = kill_loop(
            Path(folder),
            options.kills,
            bundles=options.content == "bundle",
            window_s=options.window_s,
            seed=options.seed,
        )
    way = "two renames" if options.no_exchange else "exchange"
    print(
        json.dumps(
            {
                "benchmark": "bundle_kills",
                "way": way,
                "content": options.content,
                **found,
                "wall_s": round(time.perf_counter() - began),
            }
        )
    )


def kill_loop(
    folder: Path, kills: int, *, bundles: bool = False, window_s: float = KILL_WINDOW_S, seed: int = SEED
) -> dict[str, object]:
    """Return the counts of outcomes over many kills, and what was left over."""
    if bundles:
        import_module("trimtab.tables.bundle")  # once here, rather than in each child
        if find_spec("pandas") is not None:
            import_module(
                "pyarrow.pandas_compat"
            )  # Arrow imports it with the first moment of time: 0.3 s of each child
    rng = random.Random(seed)
    counts = dict.fromkeys(OUTCOMES, 0)
    left_over, reasons = 0, []
    for _ in range(kills):
        outcome, _, rest = _kill_once(folder, rng, bundles, window_s).partition(" ")
        counts[outcome] += 1
        if outcome == "fail":
            reasons.append(rest)
        else:
            left_over += int(rest or 0)
    return {
        "kills": kills, "rewrites": _promised(folder), **counts, "left_over": left_over, "reasons": reasons[:5],
    }  # fmt: skip


def _kill_once(folder: Path, rng: random.Random, bundles: bool, window_s: float) -> str:
    """Let a process write at least once, kill it at a random instant, and return what a fresh process finds."""
    before = _promised(folder)
    child = _in_child(lambda: _write_forever(folder, bundles))
    deadline_s = time.monotonic() + FIRST_WRITE_S
    while _promised(folder) == before:
        if time.monotonic() > deadline_s or os.waitpid(child, os.WNOHANG)[0]:
            return "fail no write returned"
        time.sleep(0.001)
    time.sleep(rng.random() * window_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    reader, writer = os.pipe()
    looker = _in_child(lambda: os.write(writer, _verdict(folder, bundles).encode()))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(looker, 0)
    return answer or "fail the reader died"


def _in_child(action: Callable[[], object]) -> int:
    """Fork, run the action and return the child's id."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return child


def _write_forever(folder: Path, bundles: bool) -> None:
    promises = os.open(folder / "promised", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = _promised(folder)
    while True:
        number += 1
        (_write_bundle if bundles else _write_files)(folder / "bundles" / "fleet", number)
        os.write(promises, b"%d\n" % number)


def _write_files(path: Path, number: int) -> None:
    with replaced_whole(path) as fresh:
        for name in _FILES:
            (fresh / name).write_text(str(number))


def _write_bundle(path: Path, number: int) -> None:
    from trimtab.tables.arrow import table_from_rows  # heavy: not for those who write files
    from trimtab.tables.bundle import BundleMeta, write_bundle

    device = {"device": f"g{number}", "node": str(number), "gpu": "A100-40GB", "memory_gib": 39.6}
    node = {
        "node": str(number), "provider": "aws", "instance_type": "p4d.24xlarge", "region": "us-east-1",
        "capacity_type": "on-demand", "start": _START, "gpu_count": 8,
    }  # fmt: skip
    tables = {"devices": table_from_rows("devices", [device]), "nodes": table_from_rows("nodes", [node])}
    write_bundle(path, tables, BundleMeta(start=_START, end=_START + timedelta(days=2), created_by=str(number)))


def _read_files(path: Path) -> set[str]:
    settle(path)
    return {(path / name).read_text() for name in _FILES}


def _read_bundle(path: Path) -> set[str]:
    from trimtab.tables.bundle import read_bundle  # heavy: not for those who write files

    bundle = read_bundle(path)
    return {bundle.meta.created_by, *(str(bundle.table(name)["node"][0].as_py()) for name in ("nodes", "devices"))}


def _promised(folder: Path) -> int:
    """Return the last number whose write returned, 0 if none; a line cut short by the kill promises nothing."""
    path = folder / "promised"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return int(lines[-1]) if lines else 0


def _verdict(folder: Path, bundles: bool) -> str:
    """Return the outcome, and how many things lie beside the bundle."""
    path = folder / "bundles" / "fleet"
    try:
        numbers = (_read_bundle if bundles else _read_files)(path)
    except (TrimtabError, OSError) as error:
        return f"fail {error}" if path.exists() else "lost 0"
    left = sum(one != path for one in path.parent.iterdir())
    if len(numbers) > 1:
        return f"mixed {left}"
    return f"{'ok' if int(numbers.pop()) >= _promised(folder) else 'stale'} {left}"


if __name__ == "__main__":
    main()

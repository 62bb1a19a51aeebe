"""Mutations of valid inputs of every kind through the readers and whole commands: none may crash, hang or swell.

    python -m benchmarks.mutations [--inputs 20000] [--least 100] [--kind NAME ...] [--jobs 2] [--seed 17] [--out FILE]
    python -m benchmarks.mutations --merge FILE FILE ...

Each input is a valid one, damaged by a generator of its own seed (`SEED:KIND:NUMBER`), so that any of them can be made again.
A reader may return or raise an error of ours. Anything else is a crash; more than 5 s of processor (20 s of wall time) is a
hang; growth of the process above 1 GiB is a swelling. Readers run in child processes, so that one that dies or never returns is
counted and the next input goes on. Inputs are shared out between kinds by what one costs, every kind gets `--least`.

Runs of different seeds have no input in common: `--out` keeps what came of one, kind by kind as it goes, and `--merge` adds
several up, on whatever days and machines they ran.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import click

from benchmarks.mutation_answers import answer_kinds
from benchmarks.mutation_inputs import damaged_input, file_kinds
from benchmarks.mutation_kinds import Kind
from trimtab.errors import TrimtabError
from trimtab.units import BYTES_PER_KIB, BYTES_PER_MIB, MIB_PER_GIB

SEED = 17
LIMIT_S = 5.0
"""Of processor time: a machine that is busy with other work slows no input."""
LIMIT_WALL_S = 20.0
"""Of wall time in which it could have run: time in the queue of a busy machine's processors does not count."""
DEAF_S = 300.0
"""A child that does not answer the alarm after so long is stuck below Python, and is killed."""
MOST_MIB = MIB_PER_GIB
LEAST = 100
_NS_PER_S = 10**9
_MOST_EXAMPLES = 10


class _TooSlow(BaseException):
    """An input that took longer than the limit; no reader may catch it."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of the inputs of one kind."""

    inputs: int = 0
    read: int = 0
    refused: int = 0
    crashes: int = 0
    hangs: int = 0
    swellings: int = 0
    slowest_s: float = 0.0
    most_mib: float = 0.0
    examples: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep an example of each place of failure."""
        place = text.partition(": ")[2]
        if len(self.examples) < _MOST_EXAMPLES and not any(place == one.partition(": ")[2] for one in self.examples):
            self.examples.append(text)


def main() -> None:
    """Feed the readers and print what happened, by kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--least", type=int, default=LEAST, help="inputs that every kind gets")
    parser.add_argument("--kind", nargs="*", help="only kinds whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, help="keep the counts of every kind in a file, as JSON")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="run nothing: add up files of --out")
    options = parser.parse_args()
    if options.merge:
        found, seeds, wall_s = merged(options.merge)
        for name, tally in found.items():
            _print(name, tally)
    else:
        found, seeds, wall_s = _run_and_keep(options)
    print(json.dumps(_answer(found, seeds, wall_s)))
    sys.exit(1 if any(one.crashes or one.hangs or one.swellings for one in found.values()) else 0)


def _run_and_keep(options: argparse.Namespace) -> tuple[dict[str, Tally], list[int], float]:
    began = time.perf_counter()
    so_far: dict[str, object] = {}

    def tell(name: str, tally: Tally) -> None:
        _print(name, tally)
        so_far[name] = asdict(tally)
        if options.out is not None:
            kept = {"seed": options.seed, "wall_s": round(time.perf_counter() - began), "kinds": so_far}
            options.out.write_text(json.dumps(kept), encoding="utf-8")

    found = run(
        options.inputs, seed=options.seed, jobs=options.jobs, least=options.least, names=options.kind or (), tell=tell
    )
    return found, [options.seed], time.perf_counter() - began


def merged(files: Sequence[Path]) -> tuple[dict[str, Tally], list[int], float]:
    """Return the sum by kind of what several runs kept, their seeds and their seconds; raises SystemExit for one seed twice."""
    found: dict[str, Tally] = {}
    seeds: list[int] = []
    wall_s = 0.0
    for file in files:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["seed"] in seeds:
            raise SystemExit(f"{file}: seed {kept['seed']} stands twice; inputs of one seed are the same")
        seeds.append(kept["seed"])
        wall_s += kept["wall_s"]
        for name, said in kept["kinds"].items():
            tally = found.setdefault(name, Tally())
            tally.inputs += said["inputs"]
            _take(said, tally)
            for example in said["examples"]:
                tally.note(f"seed {kept['seed']}, {example}")
    return found, seeds, wall_s


def _answer(found: dict[str, Tally], seeds: Sequence[int], wall_s: float) -> dict[str, object]:
    total = {
        name: sum(getattr(one, name) for one in found.values()) for name in ("inputs", "crashes", "hangs", "swellings")
    }
    return {
        "benchmark": "mutations", "seeds": list(seeds), "kinds": len(found), **total,
        "slowest_s": round(max(one.slowest_s for one in found.values()), 2),
        "most_mib": round(max(one.most_mib for one in found.values())),
        "wall_s": round(wall_s), "inputs_per_s": round(total["inputs"] / wall_s, 1),
    }  # fmt: skip


def _print(name: str, tally: Tally) -> None:
    counted = f"{tally.inputs:>8,} inputs {tally.refused:>8,} refused {tally.crashes:>3} crashes {tally.hangs:>3} hangs"
    print(
        f"{name:<28}{counted} {tally.swellings:>3} swellings {tally.slowest_s:6.2f} s {tally.most_mib:6.0f} MiB",
        flush=True,
    )
    for example in tally.examples:
        print(f"    {example}", flush=True)


def run(
    inputs: int,
    *,
    seed: int = SEED,
    jobs: int = 1,
    least: int = LEAST,
    names: Sequence[str] = (),
    tell: Callable[[str, Tally], None] = lambda name, tally: None,
) -> dict[str, Tally]:
    """Return the tallies by kind; each is told as it is there."""
    with tempfile.TemporaryDirectory() as place:
        costs = _costs(Path(place), names)
        weight = sum(1 / cost for cost in costs.values())
        shares = [max(least, round(inputs / cost / weight)) for cost in costs.values()]
        workers = [_worker(range(first, len(costs), jobs), Path(place), shares, seed, names) for first in range(jobs)]
        found = {}
        for line in _lines_of([reader for reader, _ in workers]):
            index, said = json.loads(line)
            name = list(costs)[index]
            found[name] = Tally(**said)
            tell(name, found[name])
        for _, child in workers:
            os.waitpid(child, 0)
        return found


def _worker(
    indices: Sequence[int], place: Path, shares: Sequence[int], seed: int, names: Sequence[str]
) -> tuple[int, int]:
    """Fork a process that feeds some kinds one after another; return the pipe of its tallies, and its id.

    No process has threads when it forks: a lock that another thread holds then would be held for ever in the child.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            for index in indices:
                tally = _kind(index, place, shares[index], seed, names)
                os.write(writer, json.dumps([index, asdict(tally)]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    return reader, child


def _lines_of(readers: Sequence[int]) -> Iterator[str]:
    """Yield the lines of several pipes as they come, until all are closed."""
    rest = dict.fromkeys(readers, b"")
    while rest:
        for reader in select.select(list(rest), [], [])[0]:
            part = os.read(reader, 65_536)
            if not part:
                os.close(reader)
                del rest[reader]
                continue
            *lines, rest[reader] = (rest[reader] + part).split(b"\n")
            yield from (line.decode() for line in lines)


def _costs(place: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the kinds chosen and their costs, as a child says them: the parent of forks must not have threads of Arrow."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            chosen = _chosen(_made(place / "all"), names)
            os.write(writer, json.dumps({one.name: one.cost for one in chosen}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer: dict[str, int] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return answer


def kinds(folder: Path) -> tuple[Kind, ...]:
    """Return every kind of file, answer and request; `folder`, which is empty, is where readers find the damaged files."""
    return (*file_kinds(folder), *answer_kinds(folder))


def _chosen(folder: Path, names: Sequence[str]) -> list[Kind]:
    return [one for one in kinds(folder) if not names or any(part in one.name for part in names)]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _kind(index: int, place: Path, count: int, seed: int, names: Sequence[str]) -> Tally:
    """Feed one kind, in as many child processes as its crashes need."""
    tally, first = Tally(inputs=count), 0
    while first < count:
        first = _child(index, place, first, count, seed, names, tally)
    return tally


def _child(index: int, place: Path, first: int, count: int, seed: int, names: Sequence[str], tally: Tally) -> int:
    """Run inputs in a child from `first` on; return the first that is left to do."""
    progress = mmap.mmap(-1, 8)
    progress[:] = struct.pack("q", first)
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _feed(index, place, first, count, seed, names, progress, writer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    text, seen, changed = b"", first, time.monotonic()
    while True:
        if select.select([reader], [], [], 0.5)[0]:
            part = os.read(reader, 65_536)
            if not part:
                break
            text += part
        at = struct.unpack("q", progress[:])[0]
        if at != seen:
            seen, changed = at, time.monotonic()
        elif time.monotonic() - changed > DEAF_S:
            os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    done = struct.unpack("q", progress[:])[0]
    for line in text.decode().splitlines():
        _take(json.loads(line), tally)
    if status:
        which = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        tally.hangs += which == "SIGKILL"
        tally.crashes += which != "SIGKILL"
        tally.note(f"{done}: the process ended by {which}")
        return int(done) + 1
    return int(done)


def _take(said: dict[str, object], tally: Tally) -> None:
    """Add what a child says of its inputs, or of one of them."""
    for name in ("read", "refused", "crashes", "hangs", "swellings"):
        setattr(tally, name, getattr(tally, name) + int(str(said.get(name, 0))))
    tally.slowest_s = max(tally.slowest_s, float(str(said.get("slowest_s", 0.0))))
    tally.most_mib = max(tally.most_mib, float(str(said.get("most_mib", 0.0))))
    if "example" in said:
        tally.note(str(said["example"]))


def _feed(
    index: int, place: Path, first: int, count: int, seed: int, names: Sequence[str], progress: mmap.mmap, writer: int
) -> None:
    """Feed the inputs one after another, in the child; it ends early after an input that left the process too large."""
    folder = _made(place / f"{index}-{first}")
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    chosen = _chosen(folder, names)
    signal.signal(signal.SIGPROF, _alarm)
    tally, before_mib = Tally(), _peak_mib()
    for number in range(first, count):
        progress[:] = struct.pack("q", number)
        example = _one(chosen[index], number, seed, tally)
        tally.most_mib = _peak_mib() - before_mib
        if tally.most_mib > MOST_MIB:
            tally.swellings += 1
            example = f"{number}: grew to {tally.most_mib:.0f} MiB"
        if example is not None:
            os.write(writer, json.dumps({"example": example}).encode() + b"\n")
        if tally.most_mib > MOST_MIB:
            break
    progress[:] = struct.pack("q", number + 1)
    said = {name: getattr(tally, name) for name in Tally.__slots__ if name not in ("examples", "inputs")}
    os.write(writer, json.dumps(said).encode() + b"\n")


def _one(kind: Kind, number: int, seed: int, tally: Tally) -> str | None:
    """Feed one input; return where it failed. Finding that is the point, so every exception is caught."""
    content = damaged_input(kind, random.Random(f"{seed}:{kind.name}:{number}"))
    began = time.process_time()
    example = None
    signal.signal(signal.SIGALRM, _wall_alarm(time.monotonic(), _queued_s()))
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_WALL_S)
    try:
        kind.read(content)
        tally.read += 1
    except (TrimtabError, click.ClickException):
        tally.refused += 1
    except _TooSlow as error:
        tally.hangs += 1
        example = f"{number}: slow {_place(error)}"
    except BaseException as error:  # a reader may raise anything, SystemExit too
        if isinstance(error, KeyboardInterrupt):
            raise
        tally.crashes += 1
        example = f"{number}: {type(error).__name__} {str(error)[:100]!r} {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    tally.slowest_s = max(tally.slowest_s, time.process_time() - began)
    return example


def _place(error: BaseException) -> str:
    """Return the last line of the project's own in a traceback."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/trimtab/" in one.filename]
    return f"{frames[-1].filename.rpartition('/trimtab/')[2]}:{frames[-1].lineno}" if frames else ""


def _alarm(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlow


def _wall_alarm(began_s: float, queued_s: float) -> Callable[[int, FrameType | None], None]:
    """Return the alarm of wall time: it rings again later where the input waited for a processor meanwhile."""

    def alarm(_number: int, _frame: FrameType | None) -> None:
        left_s = LIMIT_WALL_S - (time.monotonic() - began_s) + (_queued_s() - queued_s)
        if left_s <= 0:
            raise _TooSlow
        signal.setitimer(signal.ITIMER_REAL, left_s + 0.1)

    return alarm


def _queued_s() -> float:
    """Return how long this thread has waited for a processor so far; 0 where the system does not say (Linux, schedstat)."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / _NS_PER_S
    except (OSError, IndexError, ValueError):
        return 0.0


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_KIB / BYTES_PER_MIB


if __name__ == "__main__":
    main()

"""Fleets judged side by side, a process each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.proving.families import FAMILIES
from benchmarks.proving.families_adversarial import ADVERSARIAL
from benchmarks.proving.families_after import ADDED_AFTER
from benchmarks.proving.families_recorded import recorded
from benchmarks.proving.parts import Family
from benchmarks.proving.score import Verdict, judge


def families() -> tuple[Family, ...]:
    """Return every family that can be made here: those of recorded traces need the traces."""
    return (*FAMILIES, *ADDED_AFTER, *ADVERSARIAL, *recorded())


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One fleet to judge."""

    family: str
    seed: int
    days: int
    folder: Path
    again: bool


def verdict_of(asked: Asked) -> Verdict:
    """Judge one fleet, in whatever process."""
    family = next(family for family in families() if family.name == asked.family)
    return judge(family, asked.seed, asked.days, asked.folder, again=asked.again)


def judged(asked: Sequence[Asked], jobs: int, out: str | None) -> Iterator[Verdict]:
    """Yield verdicts as they come, said in a line each and added to a file where one is named."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(verdict_of, one) for one in asked]):
            verdict = done.result()
            print(f"{verdict.family} {verdict.seed}: {verdict.line()} ({verdict.wall_s:.0f} s)", flush=True)
            if out:
                with Path(out).open("a", encoding="utf-8") as file:
                    file.write(verdict.to_json() + "\n")
            yield verdict

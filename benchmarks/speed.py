"""The work of an audit: replays of services by stage, ways that no replay was needed for, and processor time.

    python -m benchmarks.speed [--fleets two-hundred-k,three-small-models]
    python -m benchmarks.speed --what-if [--fleets two-hundred-k]

Counts do not depend on the machine, so they are what a test asserts; processor time is shown beside them (compile first: run it
twice). Nothing is kept between audits.

`--what-if` runs the commands as a person does: an audit, then questions about another world, each beside the plan that it
kept and with that file moved away, in processor seconds. The two answers must be the same text.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trimtab.pipeline import PlanningInput, open_demo
from trimtab.pipeline.auditing import audited
from trimtab.plan.audit import Audit
from trimtab.replay.outcomes import service_replays
from trimtab.units import usd

FLEETS = ("two-hundred-k", "three-small-models", "ninety-k-peak", "finetune-7b")
PLANNING = ("-", "reading the fleet", "replaying options", "choosing jointly", "attributing savings")
"""Stages that make the plan; the others prove it and ask what more could be declared."""
QUESTIONS = (("--price", "spot+30%"), ("--no-spot",), ("--budget", "100k"))


@dataclass(slots=True)
class Work:
    """Replays of services by stage, those that ended early among them."""

    stage: str = "-"
    replays: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)

    def tell(self, stage: str, share: float) -> None:
        """Take the stage that an audit says it is in, as far as it names no workload."""
        self.stage = stage.partition(" of ")[0]

    def count(self, *, stopped: bool) -> None:
        """Count one replay."""
        self.replays[self.stage] += 1
        self.stopped[self.stage] += stopped

    @property
    def planning(self) -> int:
        """Return the replays that the plan took."""
        return sum(count for stage, count in self.replays.items() if stage in PLANNING)


class _Replayed(Protocol):
    """What a replay says of itself."""

    @property
    def stopped(self) -> bool: ...


@contextmanager
def counting() -> Iterator[Work]:
    """Count every replay of a service that is made inside."""
    work, module = Work(), vars(service_replays)
    replays: dict[str, Callable[..., _Replayed]] = {name: module[name] for name in ("replay_service", "replay_hedged")}

    def counted(made: Callable[..., _Replayed]) -> Callable[..., _Replayed]:
        def counts(*args: object, **kwargs: object) -> _Replayed:
            found = made(*args, **kwargs)
            work.count(stopped=found.stopped)
            return found

        return counts

    module.update({name: counted(made) for name, made in replays.items()})
    try:
        yield work
    finally:
        module.update(replays)


def work_of(name: str) -> tuple[Audit, Work, float]:
    """Return the audit of a demonstration, the replays that it took, and its processor seconds."""
    bundle = open_demo(name)
    began = time.process_time()
    with counting() as work:
        found, _ = audited(PlanningInput(bundle=bundle, name=name, progress=work.tell))
    return found, work, time.process_time() - began


def not_replayed(found: Audit) -> int:
    """Return how many ways a plan's certificate covers that nobody replayed."""
    return sum(count for reason, count in found.plan.pruned.items() if reason.startswith("not replayed"))


def command_cpu_s(folder: Path, *arguments: str) -> tuple[float, str]:
    """Return the processor seconds of a command of trimtab that keeps its state in a folder, and what it says."""
    before = os.times()
    environ = os.environ | {"TRIMTAB_STATE": str(folder)}
    command = [sys.executable, "-m", "trimtab", *arguments, "-q"]
    said = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, said


def what_if_rows(name: str) -> Iterator[dict[str, object]]:
    """Yield the processor seconds of each question beside the plan that the audit of a demonstration kept, and without it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        audit_s, _ = command_cpu_s(folder, "audit", "--demo", name, "--no-report")
        kept, aside = folder / "made.plan", folder / "aside"
        for question in QUESTIONS:
            command_cpu_s(folder, "what-if", *question)  # keeps the replays that both need
            beside_s, answer = command_cpu_s(folder, "what-if", *question)
            kept.rename(aside)
            again_s, same = command_cpu_s(folder, "what-if", *question)
            aside.rename(kept)
            if answer != same:
                raise RuntimeError(f"{name}, what-if {' '.join(question)}: another answer beside the kept plan")
            yield {
                "fleet": name,
                "question": " ".join(question),
                "audit_cpu_s": round(audit_s, 1),
                "planned_again_cpu_s": round(again_s, 1),
                "beside_kept_cpu_s": round(beside_s, 1),
                "ratio": round(beside_s / again_s, 2),
            }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="taken and not used: the fleets are generated")
    parser.add_argument("--fleets", default=",".join(FLEETS))
    parser.add_argument("--what-if", action="store_true", help="time what-if beside the kept plan")
    asked = parser.parse_args()
    rows: list[dict[str, object]] = []
    if asked.what_if:
        for name in asked.fleets.split(","):
            for row in what_if_rows(name):
                print("{fleet}, {question}: {planned_again_cpu_s} -> {beside_kept_cpu_s} CPU s ({ratio})".format(**row))
                rows.append(row)
        print(json.dumps({"benchmark": "speed", "data": "generated", "what_if": rows}))
        return
    for name in asked.fleets.split(","):
        found, work, cpu_s = work_of(name)
        rows.append(
            {
                "fleet": name,
                "replays_planning": work.planning,
                "replays": sum(work.replays.values()),
                "stopped": sum(work.stopped.values()),
                "by_stage": dict(work.replays),
                "ways": found.plan.options,
                "ways_not_replayed": not_replayed(found),
                "bill_usd": round(usd(found.plan.after_micro_usd), 6),
                "gap_frac": round(found.plan.gap_frac, 6),
                "work_gap_frac": found.plan.work_gap_frac,
                "cpu_s": round(cpu_s, 1),
            }
        )
        print(f"{name}: {work.planning} replays for the plan, {sum(work.replays.values())} in all, {cpu_s:.1f} CPU s")
    print(json.dumps({"benchmark": "speed", "data": "generated", "fleets": rows}))


if __name__ == "__main__":
    main()

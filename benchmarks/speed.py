"""The work of an audit: replays of services by stage, ways that no replay was needed for, and processor time.

    python -m benchmarks.speed [--fleets two-hundred-k,three-small-models]

Counts do not depend on the machine, so they are what a test asserts; processor time is shown beside them (compile first: run it
twice). Nothing is kept between audits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.pipeline import audit, open_demo
from trimtab.plan.audit import Audit
from trimtab.replay.outcomes import service_replays
from trimtab.units import usd

FLEETS = ("two-hundred-k", "three-small-models", "ninety-k-peak", "finetune-7b")
PLANNING = ("-", "reading the fleet", "replaying options", "choosing jointly", "attributing savings")
"""Stages that make the plan; the others prove it and ask what more could be declared."""


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
        found = audit(bundle, name=name, progress=work.tell)
    return found, work, time.process_time() - began


def not_replayed(found: Audit) -> int:
    """Return how many ways a plan's certificate covers that nobody replayed."""
    return sum(count for reason, count in found.plan.pruned.items() if reason.startswith("not replayed"))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="taken and not used: the fleets are generated")
    parser.add_argument("--fleets", default=",".join(FLEETS))
    rows = []
    for name in parser.parse_args().fleets.split(","):
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

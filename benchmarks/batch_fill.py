"""What runs save on GPUs that services leave over: drawn fleets planned with that option and without it, proved and read back.

Each fleet has two to four services of 1, 2 or 4 GPUs beside one another on nodes with eight A100s, and one to three families of
runs, of 1, 2 or 4 GPUs and half an hour to six hours, on nodes that stay up. Half of the families may wait.

    python -m benchmarks.batch_fill [--fleets 8] [--seed 1]
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.fleets import FleetRows

from benchmarks.enact import proved_fleet
from benchmarks.lever_worth import Row, files_off_frac, run
from benchmarks.proving.score import ANY_PAYBACK
from trimtab.cli.settings import resolve
from trimtab.fleet.model import RUN_KINDS
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.planner import Planned, plan_of
from trimtab.units import usd

DAYS = 14
NODE = "p4d.24xlarge"
GPUS = 8
_WIDTHS = (1, 2, 4)
_LE_S = (1.0, 2.0, 4.0, float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledRow(Row):
    """One fleet: bills of the fit window, in which the choice is made, and what its files say."""

    gap_frac: float
    families: int
    beside: int
    """Families of runs that take GPUs beside services."""


def drawn(seed: int) -> FleetRows:
    """Draw a fleet."""
    rng = random.Random(seed)
    rows = FleetRows(DAYS)
    node, free = 0, 0
    for number in range(rng.randint(2, 4)):
        width = rng.choice(_WIDTHS)
        if width > free:
            node, free = node + 1, GPUS
            rows.node(f"n{node}", NODE)
        devices = range(GPUS - free, GPUS - free + width)
        free -= width
        name = f"serve/model-{number}"
        rows.hold(name, f"n{node}", devices, owner_kind="Deployment")
        for device in devices:
            rows.use(name, f"n{node}", device, range(DAYS * 24), sm=0.6, dram=0.5, tensor=0.4, memory_gib=30.0)
        counts = (1_000, 1_800, 200, 0)
        rows.demand(name, lambda _: 3_000.0, 1, _LE_S, lambda _, counts=counts: counts, running=lambda _: 3.0)
    for number in range(rng.randint(1, 3)):
        _runs(rows, rng, f"ml/{rng.choice(('batch', 'eval'))}-{number}")
    return rows


def _runs(rows: FleetRows, rng: random.Random, name: str) -> None:
    """Add a family of runs that come every few hours, on a node that is up all the time."""
    width, length_hr = rng.choice(_WIDTHS), rng.choice((0.5, 1.0, 3.0, 6.0))
    every_hr, phase_hr = rng.choice((8, 24)), rng.randint(0, 7)
    rows.node(name.replace("/", "-"), NODE)
    for begin in range(phase_hr, DAYS * 24 - 8, every_hr):
        end = begin + length_hr
        rows.hold(name, name.replace("/", "-"), range(width), begin, end, pod=f"{name}-{begin}", owner_kind="CronJob")
        for device in range(width):
            hours = range(begin, begin + max(1, int(length_hr)))
            rows.use(name, name.replace("/", "-"), device, hours, sm=0.9, dram=0.5, tensor=0.5, memory_gib=30.0)
        rows.job(name, begin, begin, end, width)
    target = {"metric": "queue_wait", "quantile": 0.9, "limit_s": 1_800}
    rows.workloads[name] = {"deferrable": {"within_hr": 8}} if rng.random() < 0.5 else {"targets": [target]}


def row_of_seed(seed: int) -> FilledRow:
    """Plan, prove, write and read one fleet."""
    flags = [text for flag, text in pairwise(ANY_PAYBACK) if flag == "--set"]
    fleet = proved_fleet(str(seed), drawn(seed).bundle(), resolve(file=None, environ={}, flags=flags).settings)
    planned, proof = fleet.planned, fleet.proven.proof
    kinds = {workload.name: workload.kind for workload in planned.fleet.workloads}
    runs = {name for name, kind in kinds.items() if kind in RUN_KINDS}
    beside = sum(name in runs and one.sharing is not None for name, one in planned.deployments.items())
    gap_frac = planned.plan.gap_frac
    return FilledRow(
        seed=seed,
        said=f"beside {beside} of {len(runs)}, gap {gap_frac:.2%}, today ${usd(planned.plan.before_micro_usd):,.0f}",
        without_usd=usd(_apart(planned, runs).plan.after_micro_usd),
        with_usd=usd(planned.plan.after_micro_usd),
        chosen=beside > 0,
        gap_frac=gap_frac,
        families=len(runs),
        beside=beside,
        targets=len(proof.targets),
        targets_kept=sum(target.kept is not False for target in proof.targets),
        files_off_frac=files_off_frac(fleet),
    )


def _apart(planned: Planned, runs: set[str]) -> Planned:
    """Plan again among the same replayed ways, without those in which runs stand beside services."""

    def apart(judged: WorkloadOptions | None) -> WorkloadOptions | None:
        if judged is None or judged.evaluator.case.workload.name not in runs:
            return judged
        kept = tuple(way for way in judged.candidates if way.deployment.sharing is None)
        return replace(judged, candidates=kept, without_headroom=kept)

    prospects = planned.prospects
    assert prospects is not None
    return plan_of(replace(prospects, options=tuple(map(apart, prospects.options))), lambda _stage, _share: None)


def _more(rows: Sequence[FilledRow]) -> dict[str, object]:
    return {
        "families_beside": sum(row.beside for row in rows),
        "families": sum(row.families for row in rows),
        "widest_gap_frac": round(max(row.gap_frac for row in rows), 4),
    }


if __name__ == "__main__":
    run("batch_fill", __doc__, row_of_seed, _more)

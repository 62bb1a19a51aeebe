"""What one lever saves: fleets planned with it and without it, proved on history that no plan saw, written and read back.

A benchmark draws its fleets; what is compared and how it is told is here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.enact import ProvedFleet, proved_without, row_of
from trimtab.emit.manifests.facts import NodeMaker
from trimtab.units import usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fleet: its bills with the lever and without it, and what its files say."""

    seed: int
    said: str
    """What was drawn, in words."""
    without_usd: float
    with_usd: float
    chosen: bool
    targets: int
    targets_kept: int
    files_off_frac: float


AnyRow = TypeVar("AnyRow", bound=Row)


def compared(fleet: ProvedFleet, lever: str, *, seed: int, said: str) -> Row:
    """Compare the bills of the proof window; `lever` is one that `proved_without` can leave out."""
    proof = fleet.proven.proof
    return Row(
        seed=seed,
        said=said,
        without_usd=usd(proved_without(fleet, lever).proven.proof.after_micro_usd),
        with_usd=usd(proof.after_micro_usd),
        chosen=any(lever in deployment.levers for deployment in fleet.planned.deployments.values()),
        targets=len(proof.targets),
        targets_kept=sum(target.kept is not False for target in proof.targets),
        files_off_frac=files_off_frac(fleet),
    )


def files_off_frac(fleet: ProvedFleet) -> float:
    """Return the bill of a plan's files over the proof's, less 1."""
    with tempfile.TemporaryDirectory() as folder:
        return row_of(fleet, NodeMaker.KARPENTER, Path(folder)).off_frac


def run(
    name: str,
    described: str | None,
    row_of_seed: Callable[[int], AnyRow],
    more: Callable[[Sequence[AnyRow]], Mapping[str, object]] = lambda _: {},
) -> None:
    """Print a line for each fleet that is asked for, then the totals as JSON, with `more` of them."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.seed, arguments.seed + arguments.fleets):
        row = row_of_seed(seed)
        rows.append(row)
        print(
            f"{seed:3d}  without ${row.without_usd:9,.2f}  with ${row.with_usd:9,.2f}  "
            f"{'chosen' if row.chosen else 'not chosen'}  targets {row.targets_kept}/{row.targets}  files "
            f"{row.files_off_frac:+.2%}  {row.said}",
            flush=True,
        )
    without_usd, with_usd = sum(row.without_usd for row in rows), sum(row.with_usd for row in rows)
    totals = {
        "benchmark": name,
        "fleets": len(rows),
        "chosen_in": sum(row.chosen for row in rows),
        "bill_less_frac": round(1 - with_usd / without_usd, 4),
        "more_expensive": sum(row.with_usd > row.without_usd + 0.01 for row in rows),
        "targets": sum(row.targets for row in rows),
        "targets_kept": sum(row.targets_kept for row in rows),
        "worst_files_off_frac": round(max(abs(row.files_off_frac) for row in rows), 4),
    }
    print(json.dumps({**totals, **more(rows)}))

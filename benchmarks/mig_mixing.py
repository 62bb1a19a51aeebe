"""What mixed MIG layouts save over equal slices: random small services on A100s, both planned with a certified bound.

Each service needs one instance of a profile, drawn by weight (small ones more often), and may take any larger one. With equal
slices a GPU is cut into instances of one profile; mixed, into any that the placement table allows.

    python -m benchmarks.mig_mixing [--fleets 40]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.catalog.mig import Slices, slices_of
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.settings import Planning
from trimtab.plan.problem import KEEP, NodeGroup, Option, Problem
from trimtab.plan.program.solve import solve_problem
from trimtab.plan.program.table import total_usage
from trimtab.units import S_PER_HR

POOL = Pool("gcp", "a2-highgpu-1g", "us-central1")
GPU = "A100-SXM4-40GB"
RATE_MICRO_USD_HR = 3_673_385
SERVICES = (2, 3, 5, 10, 20, 40)
_WEIGHTS = {"1g.5gb": 4.0, "1g.10gb": 3.0, "2g.10gb": 2.0, "3g.20gb": 2.0, "4g.20gb": 1.0}
_STAYING = 10
"""GPUs that a service holds where it stays: so many that none does."""
_SEED = 7


def main() -> None:
    """Plan fleets of several sizes both ways, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=40)
    fleets = parser.parse_args().fleets
    catalog = load_catalog()
    kinds = slices_of(catalog.gpu(GPU), catalog.mig_table)
    weights = np.array([_WEIGHTS[one.profile.name] for one in kinds])
    rng = np.random.default_rng(_SEED)
    rows = []
    for services in SERVICES:
        drawn = [rng.choice(len(kinds), size=services, p=weights / weights.sum()).tolist() for _ in range(fleets)]
        equal, mixed = (np.array([_gpus(kinds, one, side_by_side=mixes) for one in drawn]) for mixes in (False, True))
        rows.append(
            {
                "services": services,
                "gpus_equal": round(float(equal.mean()), 2),
                "gpus_mixed": round(float(mixed.mean()), 2),
                "saved_frac": round(float(1 - mixed.sum() / equal.sum()), 3),
                "fleets_that_save_frac": round(float((mixed < equal).mean()), 3),
                "worse": int((mixed > equal).sum()),
            }
        )
    print(json.dumps({"benchmark": "mig_mixing", "fleets": fleets, "by_services": rows}))


def _gpus(kinds: Sequence[Slices], needs: Sequence[int], *, side_by_side: bool) -> int:
    """Return the GPUs of the best plan of one hour."""
    problem = Problem(
        options=tuple(
            tuple(
                Option(usage={}, slots={_slot(kind, side_by_side=side_by_side): np.ones(1, dtype=np.int64)})
                for kind in kinds
                if _holds(kind, kinds[need])
            )
            for need in needs
        ),
        groups=tuple(
            NodeGroup(usage={POOL: np.full(1, _STAYING * S_PER_HR)}, holders=frozenset({service}))
            for service in range(len(needs))
        ),
        rates_micro_usd_hr={POOL: RATE_MICRO_USD_HR},
        offers=(),
        hours=1,
    )
    chosen = solve_problem(problem, Planning(mip_gap_frac=0.0))
    assert KEEP not in chosen.choice
    return int(total_usage(problem, chosen.choice)[POOL][0]) // S_PER_HR


def _slot(kind: Slices, *, side_by_side: bool) -> SharedPool:
    if side_by_side:
        return SharedPool(POOL, kind.per_gpu, kind.profile.name, takes=kind.takes, room=kind.room)
    return SharedPool(POOL, kind.per_gpu, kind.profile.name)


def _holds(kind: Slices, need: Slices) -> bool:
    mine, theirs = kind.profile, need.profile
    return mine.memory_slices >= theirs.memory_slices and mine.compute_slices >= theirs.compute_slices


if __name__ == "__main__":
    main()

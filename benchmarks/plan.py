"""The joint choice: certified gap and time on the referees' instance, on generated fleets, and against brute force.

python -m benchmarks.plan [--referees ../shared/referees] [--workloads 500] [--large 5000] [--tiny 1000]

`loose` and `binding` are the referees' 500 workloads x 40 options x 4 ways to buy (skipped, and null, where their folder is
absent); `own` and `large` are fleets in our own form: 40 options a workload, commitments, 30 days of whole nodes by the hour;
`own_limited` adds quotas and a limit on spot that bind; `own_spend_1` and `own_spend_2` add spend plans of one term or of two,
`tiny` compares with trying every choice, half of them with spend on offer.
Compiling the pricing of the referees' form happens once per machine and is timed apart (`compile_s`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import sys
import time
from itertools import product
from pathlib import Path
from types import ModuleType

from benchmarks.plan_fleets import generated, limited, tiny, with_spend
from benchmarks.referee_fleet import RefereeFleet
from trimtab.fleet.settings import Planning
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.decompose import mix, relax
from trimtab.plan.program.solve import ChosenPlan, choice_cost, solve_problem
from trimtab.units import MIB_PER_GIB, MICRO_PER_USD, usd

QUOTA_SCALES = {"loose": 1.0, "binding": 0.15}
OPTIONS = 40
SPEND_TERMS = (1, 2)
RELAX_GAP_FRAC = 1e-4
MIX_GAP_FRAC = 1e-3
MIX_MAX_NODES = 2_000

Row = dict[str, float | int]


def referees(folder: Path) -> ModuleType | None:
    """Import the referees' instance by its path, or say that it is absent."""
    path = folder / "fleet_instance.py"
    if not path.is_file():
        print(f"no {path}: the referees' instance is skipped", file=sys.stderr)
        return None
    spec = importlib.util.spec_from_file_location("fleet_instance", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def referee_case(module: ModuleType, workloads: int, quota_scale: float) -> Row:
    """Solve one instance and hold its plan against every rule."""
    instance = module.build(workloads, OPTIONS, quota_scale)
    started = time.perf_counter()
    fleet = RefereeFleet(instance, module.FIXED_COST)
    relaxed = relax(fleet, fleet.start(), RELAX_GAP_FRAC)
    chosen = mix(fleet.program(), relaxed.columns, gap_frac=MIX_GAP_FRAC, max_nodes=MIX_MAX_NODES)
    wall_s = time.perf_counter() - started
    cost = fleet.audit(chosen.keys)
    return {
        "gap_frac": max(0.0, cost - relaxed.bound) / cost,
        "wall_s": wall_s,
        "cost": cost,
        "bound": relaxed.bound,
        "columns": len(relaxed.columns),
    }


def own_cases(workloads: int, *, with_limits: bool) -> dict[str, Row]:
    """Solve a generated fleet in our own form, and again under limits that bind, and where spend is sold too."""
    problem = generated(workloads, OPTIONS)
    chosen, free = solved(problem)
    if not with_limits:
        return {"free": free}
    spend = {f"spend_{terms}": solved(with_spend(problem, terms=terms))[1] for terms in SPEND_TERMS}
    return {"free": free, "limited": solved(limited(problem, chosen.choice))[1], **spend}


def solved(problem: Problem) -> tuple[ChosenPlan, Row]:
    """Solve a problem and return its figures beside the plan."""
    started, cpu = time.perf_counter(), time.process_time()
    chosen = solve_problem(problem, Planning())
    return chosen, {
        "workloads": problem.workloads,
        "gap_frac": chosen.gap_frac,
        "wall_s": time.perf_counter() - started,
        "cpu_s": time.process_time() - cpu,
        "cost_usd": usd(chosen.cost_micro_usd),
        "bound_usd": usd(chosen.bound_micro_usd),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB_PER_GIB**2,
    }


def tiny_cases(cases: int) -> Row:
    """Solve tiny fleets and compare with trying every choice."""
    exact = Planning(mip_gap_frac=0.0, mip_max_nodes=100_000)
    worst = 0
    for seed in range(cases):
        problem = with_spend(tiny(seed)) if seed % 2 else tiny(seed)
        worst = max(worst, solve_problem(problem, exact).cost_micro_usd - brute_force(problem))
    return {"cases": cases, "max_error_usd": worst / MICRO_PER_USD}


def brute_force(problem: Problem) -> int:
    """Return the least exact bill over every choice."""
    choices = product(*[(KEEP, *range(len(options))) for options in problem.options])
    return min(choice_cost(problem, choice) for choice in choices)


def main() -> None:
    """Run all cases and print their figures as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--referees", type=Path, default=Path("../shared/referees"), metavar="DIR")
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--large", type=int, default=5000, help="workloads of the large fleet; 0 leaves it out")
    parser.add_argument("--tiny", type=int, default=1000, help="tiny fleets to compare with brute force")
    arguments = parser.parse_args()
    result: dict[str, object] = dict.fromkeys(QUOTA_SCALES)
    module = referees(arguments.referees)
    if module is not None:
        started = time.perf_counter()
        RefereeFleet(module.build(2, OPTIONS), module.FIXED_COST).start()
        result["compile_s"] = time.perf_counter() - started
        for name, scale in QUOTA_SCALES.items():
            result[name] = referee_case(module, arguments.workloads, scale)
            print(name, result[name], file=sys.stderr, flush=True)
    result["tiny"] = tiny_cases(arguments.tiny)
    own = own_cases(arguments.workloads, with_limits=True)
    result |= {"own": own["free"], "own_limited": own["limited"]}
    result |= {f"own_spend_{terms}": own[f"spend_{terms}"] for terms in SPEND_TERMS}
    result["large"] = own_cases(arguments.large, with_limits=False)["free"] if arguments.large else None
    print(json.dumps({"benchmark": "plan", "data": str(arguments.referees), **result}))


if __name__ == "__main__":
    main()

"""The demonstration fleet `two-hundred-k`: our plan on the proof window beside the recipe that one finds in articles.

    python -m benchmarks.two_hundred_k [--data BUNDLE]

The recipe, priced by the same ledger on the same proof window: one GPU instead of four per experiment (on held nodes),
evaluation nodes for the runs only, a one-year commitment on the serving nodes; nothing else. Beside both stands the clairvoyant
bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

from trimtab.catalog import CapacityType, load_catalog
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment, CommitmentOffer
from trimtab.levers import gpu_count, idle_release
from trimtab.pipeline import SEED, audit, open_demo, open_fleet, split_window
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, micro_usd, per_month, usd

KIB_PER_GIB = 1024 * 1024


def hand_recipe_micro_usd(fleet: Fleet, market: Market, settings: Settings) -> int:
    """Return what the recipe costs over a window, in micro-dollars."""
    evaluators, deployments = {}, {}
    for index, case in enumerate(cases_of(fleet, settings, SEED).values()):
        if not isinstance(case, Case):
            continue
        evaluators[index] = Evaluator(case=case)
        recipe = _recipe(case, market, settings)
        if recipe.changes:
            deployments[index] = recipe
    enacted = FleetBill(fleet=fleet, evaluators=evaluators, market=market)
    return enacted.bill(deployments, (), _serving_commitments(fleet, market)).total


def _recipe(case: Case, market: Market, settings: Settings) -> Deployment:
    if case.workload.kind is WorkloadKind.EXPERIMENT:
        counts = gpu_count.propose(case.workload, market)
        if counts:
            return Deployment.of((gpu_count.NAME, min(counts, key=lambda one: market.rate(one.pool))))
    if case.workload.kind is WorkloadKind.EVALUATION:
        return Deployment.of((idle_release.NAME, idle_release.propose(case.workload, settings.assumptions)[0]))
    return AS_IT_IS


def _serving_commitments(fleet: Fleet, market: Market) -> tuple[Commitment, ...]:
    nodes: dict[object, float] = {}
    for workload in fleet.workloads:
        if workload.kind is WorkloadKind.SERVING:
            held = float(workload.held_node_seconds.mean()) / S_PER_HR
            nodes[workload.pool] = nodes.get(workload.pool, 0.0) + held
    bought = []
    for pool in {workload.pool for workload in fleet.workloads if workload.pool in nodes}:
        price = market.commitment(pool) if pool.capacity_type is CapacityType.ON_DEMAND else None
        if price is not None:
            offer = CommitmentOffer(option=price.option, rates_micro_usd_hr={pool: micro_usd(price.usd_hr)})
            bought.append(Commitment(offer=offer, quantity=round(nodes[pool])))
    return tuple(bought)


def measure(bundle: Bundle) -> dict[str, object]:
    """Audit the fleet and price the recipe beside it."""
    settings, catalog = Settings(), load_catalog()
    started = time.perf_counter()
    found = audit(bundle, settings, catalog)
    wall_s = time.perf_counter() - started
    whole = bundle_window(bundle)
    market = Market(
        catalog=catalog,
        at=whole.end.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    proof_fleet = build_fleet(bundle, settings, split_window(whole, settings).proof)
    proof = found.proof
    with_the_future_known = proof.clairvoyant_micro_usd
    hand = 1 - hand_recipe_micro_usd(proof_fleet, market, settings) / proof.before_micro_usd
    unjudged = sum(one.micro_usd for one in found.unjudged) / found.bill_micro_usd
    return {
        "bill_usd_mo": round(per_month(usd(found.bill_micro_usd), found.plan.window.hours), 2),
        "saving_frac": round(proof.saving_frac, 4),
        "hand_recipe_saving_frac": round(hand, 4),
        "points_ahead": round(100 * (proof.saving_frac - hand), 1),
        "clairvoyant_saving_frac": None
        if with_the_future_known is None
        else round(1 - with_the_future_known / proof.before_micro_usd, 4),
        "targets": len(proof.targets),
        "targets_kept": sum(one.kept for one in proof.targets),
        "unjudged_frac": round(unjudged, 4),
        "gap_frac": round(found.plan.gap_frac, 6),
        "sum_of_shares_minus_joint_micro_usd": sum(action.saving_micro_usd for action in found.plan.actions)
        - found.plan.joint_saving_micro_usd,
        "audit_wall_s": round(wall_s, 2),
        "peak_rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_GIB, 3),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a fleet bundle (default: the generated demo fleet)")
    arguments = parser.parse_args()
    bundle = open_fleet(arguments.data) if arguments.data else open_demo("two-hundred-k")
    for key, value in (result := measure(bundle)).items():
        print(f"{key:40} {value}")
    print(json.dumps({"benchmark": "two_hundred_k", "data": str(arguments.data or "demo:two-hundred-k"), **result}))


if __name__ == "__main__":
    main()

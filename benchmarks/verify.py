"""A planted saving in a later span: is it recovered within 2 % of the bill, and is the change made by half named?

The fleets come from `benchmarks.verify_fleet`, which imports nothing of trimtab: growth by workload, a mix shift, a workload
that came and one that went, four changes of which one is made by half; here a price cut between the spans is added. The plan
is made of the four changes as predicted on the first span's demand.

Run: python -m benchmarks.verify [--seeds N] [--first N]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.verify_fleet import BATCH, DAYS, SMALL, START, Planted, Truth, plant
from trimtab.catalog import BuyingOption, CapacityType, Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import Effect, ReleaseNodes, SetCapacityType, SetReplicaPolicy, UseOffering
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling, idle_release, right_size, spot
from trimtab.levers.lever import Risk
from trimtab.pipeline import open_fleet, verify_plan
from trimtab.plan.model import Action, Change, Plan
from trimtab.plan.verify.baseline import baseline_of
from trimtab.plan.verify.verification import ActionStatus, Verification
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.units import HR_PER_MO, micro_usd, usd

PRICE_CUT = 0.8
"""On the small node's rate, in the middle of the second span."""
_OFFER = 0.1
_LEVERS = {
    "autoscaling": autoscaling.NAME,
    "right-size": right_size.NAME,
    "release": idle_release.NAME,
    "spot": spot.NAME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One fleet: errors as shares of the bill, and whether exactly the change made by half was named."""

    seed: int
    half: str
    error_frac: float
    worst_action_error_frac: float
    planted_frac: float
    half_named: bool
    others_named: int


def score(seed: int) -> Score:
    """Plant, verify and compare one fleet."""
    catalog = load_catalog()
    then = _market(catalog)
    with tempfile.TemporaryDirectory() as folder:
        planted = plant(seed, Path(folder) / "fleet")
        kept = _kept(planted, then)
        found = verify_plan(kept, open_fleet(planted.second), catalog=_with_cut(catalog))
    return _scored(seed, planted, found, then)


def _market(catalog: Catalog) -> Market:
    settings = Settings()
    return Market(
        catalog=catalog,
        at=START.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )


def _with_cut(catalog: Catalog) -> Catalog:
    rate = catalog.prices.price("aws", SMALL, "us-east-1", BuyingOption.ON_DEMAND, at=START.date())
    day = (START + timedelta(days=1.5 * DAYS)).date()
    cut = replace(rate, usd_hr=rate.usd_hr * PRICE_CUT, as_of=day)
    return replace(catalog, prices=replace(catalog.prices, prices=(*catalog.prices.prices, cut)))


def _usd_mo(node_hours: Mapping[tuple[str, str], float], market: Market) -> float:
    pools = {key: Pool("aws", key[0], "us-east-1").held_as(CapacityType(key[1])) for key in node_hours}
    return HR_PER_MO * sum(count * usd(market.rate(pools[key])) for key, count in node_hours.items())


def _kept(planted: Planted, market: Market) -> KeptPlan:
    fleet = build_fleet(open_fleet(planted.first), Settings())
    baseline = baseline_of(fleet, market)
    actions = tuple(_action(f"a{at}", truth, market) for at, truth in enumerate(planted.truths, 1))
    cost = micro_usd(baseline.usd_hr * fleet.window.hours)
    plan = Plan(
        window=fleet.window,
        before_micro_usd=cost,
        after_micro_usd=cost - sum(action.saving_micro_usd for action in actions),
        bound_micro_usd=0,
        actions=actions,
        not_worth_doing=(),
        options=len(actions),
    )
    return KeptPlan(fleet="generated", plan=plan, facts=EmitFacts(), baseline=baseline)


def _action(name: str, truth: Truth, market: Market) -> Action:
    predicted = _usd_mo(truth.predicted, market)
    effect = _effect(truth)
    subjects = [", ".join(truth.subjects)] if isinstance(effect, ReleaseNodes) else truth.subjects
    return Action(
        id=name,
        lever=_LEVERS[truth.kind],
        subject=", ".join(truth.subjects),
        changes=tuple(Change(subject=subject, effect=effect) for subject in subjects),
        saving_micro_usd=micro_usd(predicted * DAYS * 24 / HR_PER_MO),
        saving_usd_mo=Estimate(
            value=predicted, low=predicted * (1 - _OFFER), high=predicted * (1 + _OFFER), basis=Basis.MODELLED
        ),
        standalone_usd_mo=predicted,
        last_in_usd_mo=predicted,
        effort_weeks=1.0,
        risk=Risk.LOW,
        quarter=1,
        evidence=(),
        rollback="",
    )


def _effect(truth: Truth) -> Effect:
    one = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
    match truth.kind:
        case "autoscaling":
            policy = HpaPolicy(target_frac=0.7, min_replicas=1, max_replicas=20)
            return SetReplicaPolicy(policy=policy, metric="requests")
        case "right-size":
            return UseOffering(pool=Pool("aws", SMALL, "us-east-1"), gpu="A10G", gpus_per_node=1, speed=one)
        case "release":
            return ReleaseNodes(nodes=tuple(truth.subjects))
        case _:
            pool = Pool("aws", BATCH, "us-east-1").held_as(CapacityType.SPOT)
            return SetCapacityType(pool=pool, loss_per_hr=0.05)


def _scored(seed: int, planted: Planted, found: Verification, market: Market) -> Score:
    truths = [_usd_mo(truth.saved, market) for truth in planted.truths]
    half = [truth.half for truth in planted.truths].index(True)
    errors = [abs(one.realised_usd_mo - truth) for one, truth in zip(found.actions, truths, strict=True)]
    named = [one.status is not ActionStatus.ON_TRACK and one.enacted_frac < 1 for one in found.actions]
    wrong = [at for at, one in enumerate(found.actions) if at != half and "enacted by" in one.cause]
    return Score(
        seed=seed,
        half=planted.truths[half].kind,
        error_frac=abs(found.saved_usd_mo - sum(truths)) / found.now_usd_mo,
        worst_action_error_frac=max(errors) / found.now_usd_mo,
        planted_frac=sum(truths) / found.now_usd_mo,
        half_named=named[half] and "enacted by" in found.actions[half].cause,
        others_named=len(wrong),
    )


def main() -> None:
    """Score the fleets and print one JSON line last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="not needed: the fleets are generated")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    scores = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        scores.append(score(seed))
        one = scores[-1]
        print(
            f"{seed:4d} half: {one.half:12} planted {one.planted_frac:6.1%} of the bill, error {one.error_frac:6.2%}, "
            f"worst action {one.worst_action_error_frac:6.2%}, named {one.half_named}, others {one.others_named}"
        )
    errors = [one.error_frac for one in scores]
    result = {
        "benchmark": "verify",
        "data": None,
        "seeds": len(scores),
        "median_error_frac": round(median(errors), 5),
        "worst_error_frac": round(max(errors), 5),
        "within_2_percent_frac": sum(error <= 0.02 for error in errors) / len(errors),
        "worst_action_error_frac": round(max(one.worst_action_error_frac for one in scores), 5),
        "half_named_frac": sum(one.half_named for one in scores) / len(scores),
        "others_named": sum(one.others_named for one in scores),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

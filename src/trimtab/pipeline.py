"""collect -> diagnose -> plan -> prove: functions that a person can read in one sitting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np

from trimtab.catalog import CapacityType, Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.catalog.price_changes import changed
from trimtab.diagnose.billed import SPEND_COLUMNS, billed_spend
from trimtab.diagnose.findings import Unjudged
from trimtab.diagnose.spend import spend_by, week_activity
from trimtab.diagnose.verdicts import product_form, verdict_of
from trimtab.diagnose.waste import waste_of
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.manifests.fleet_facts import facts_of_fleet
from trimtab.errors import InputError, MissingPrice, PlanError, UnknownName
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.limits import quotas_of
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.reach import check_reach
from trimtab.fleet.scaled import scaled_fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import Allocation, Discounts, allocate, bill
from trimtab.plan.audit import Audit, HeatMap
from trimtab.plan.baseline import Baseline, baseline_of
from trimtab.plan.commit_inventory import Owned, inventory, running_commitments
from trimtab.plan.commit_spend_inventory import Spend, running_plans, spend_inventory, unpriced
from trimtab.plan.outcome import OutcomeStore
from trimtab.plan.planner import Planned, make_plan
from trimtab.plan.proof import Proven, prove
from trimtab.plan.proof_by_action import proof_by_action
from trimtab.plan.reach import by_deadline, within_budget
from trimtab.plan.robustness import robustness
from trimtab.plan.scenario import Outlook, Scenario, WhatIf, outlook
from trimtab.plan.verify import Verification, verify
from trimtab.sources.demo import demo_fleet, trace_fleet
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.tables.checks import checked_bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, hours_between, micro_usd

SEED = 7
"""Fixes what the replay draws (spot losses, sampled attribution), so that the same history gives the same audit."""

Progress = Callable[[str, float], None]
"""Told the stage and the share of it that is done."""


def open_fleet(path: str | Path) -> Bundle:
    """Open a fleet bundle on disk and check it; raises BundleError with all its faults, counts what is tolerable."""
    return checked_bundle(Path(path))


def open_demo(name: str = "two-hundred-k") -> Bundle:
    """Generate a demonstration fleet, held in memory; raises UnknownName with near matches."""
    tables, workloads, meta = demo_fleet(name)
    return memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))


def open_trace(path: str | Path) -> Bundle:
    """Make a fleet that serves a recorded request trace at a fixed peak size, held in memory."""
    tables, workloads, meta = trace_fleet(Path(path))
    return memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The fit window that a plan is made on, the proof window that it is proved on, and what is weak about them."""

    fit: Window
    proof: Window
    degraded: tuple[str, ...]


def split_window(whole: Window, settings: Settings) -> Split:
    """Split history: the last third, in whole days, is for the proof; a fit window of whole weeks where there is room."""
    planning = settings.planning
    days = int(whole.hours // HR_PER_DAY)
    if days < 2:
        raise InputError(f"{whole}: {whole.hours} h of history; a plan and its proof need at least 2 whole days")
    proof_days = min(max(1, round(days * planning.proof_frac)), days - 1)
    fit_days = days - proof_days
    if fit_days >= HR_PER_WEEK / HR_PER_DAY:
        fit_days -= fit_days % round(HR_PER_WEEK / HR_PER_DAY)
    degraded = []
    if days < planning.min_history_days:
        degraded.append(
            f"{days} days of history; {planning.min_history_days:g} are the least for a plan to trust "
            f"(weekly patterns are unknown, intervals are wide)"
        )
    return Split(
        fit=whole.part(0, fit_days * HR_PER_DAY),
        proof=whole.part(fit_days * HR_PER_DAY, (days - fit_days) * HR_PER_DAY),
        degraded=tuple(degraded),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """A history as planning takes it: the fleet over its two windows, and the market that it buys on."""

    fit: Fleet
    proof: Fleet
    market: Market
    settings: Settings
    degraded: tuple[str, ...]
    owned: Discounts
    store: OutcomeStore | None


def audit(
    bundle: Bundle,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    name: str = "",
    at: date | None = None,
    owned: Sequence[Owned | Spend] = (),
    scenario: Scenario | None = None,
    store: OutcomeStore | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Diagnose a fleet, plan it on the first part of its history and prove the plan on the rest.

    Prices are those that held at `at` (default: the end of the window). `owned` commitments, to nodes and to spend, are paid
    whatever is planned. A
    `scenario` is planned as well, and shown beside. Replays are looked up in `store` first. Raises BundleError, MissingPrice
    (naming every pool that has no rate), InputError where there is too little history, and PlanError where no plan keeps the
    limits of the settings.
    """
    tell = progress or _silent
    opened = _opened(bundle, settings, catalog, at, owned, store, tell, scenario or Scenario())
    fit, market = opened.fit, opened.market
    allocation = allocate(
        bill(fit.usage, market.rates(fit.usage.pools), opened.owned.commitments, opened.owned.spend_plans),
        fit.holdings,
    )
    planned, proven = _planned(opened, Scenario(), tell)
    found = _audit(
        name or _name(bundle), bundle, fit, allocation, planned, proven, market, opened.settings, opened.degraded
    )
    day = market.at or fit.window.end.date()
    held = inventory(_nodes(owned), fit.usage, market.rates(fit.usage.pools), day)
    held_spend = spend_inventory(_spend(owned), fit.usage, market, opened.owned.commitments, day)
    tell("proving action by action", 0.0)
    by_action = proof_by_action(planned, opened.proof, market, opened.settings, seed=SEED)
    found = replace(found, proof=replace(found.proof, actions=by_action))
    tell("proving under stress", 0.0)
    stressed = robustness(planned, proven.proof, opened.proof, market, opened.settings, seed=SEED)
    found = replace(found, owned=held, owned_spend=held_spend, robustness=stressed)
    if scenario is None:
        return found
    return replace(found, what_if=_what_if(opened, scenario, planned, proven, tell))


def what_if(
    bundle: Bundle,
    scenario: Scenario,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
    owned: Sequence[Owned | Spend] = (),
    store: OutcomeStore | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Plan a fleet as it is and under a scenario; raises as `audit` does, for the fleet as it is."""
    tell = progress or _silent
    opened = _opened(bundle, settings, catalog, at, owned, store, tell, scenario)
    planned, proven = _planned(opened, Scenario(), tell)
    return _what_if(opened, scenario, planned, proven, tell)


def _opened(
    bundle: Bundle,
    settings: Settings | None,
    catalog: Catalog | None,
    at: date | None,
    owned: Sequence[Owned | Spend],
    store: OutcomeStore | None,
    tell: Progress,
    scenario: Scenario,
) -> Opened:
    settings, catalog = settings or Settings(), catalog or load_catalog()
    _require_names(catalog, settings, scenario)
    whole = bundle_window(bundle)
    split = split_window(whole, settings)
    day = at or whole.end.date()
    market = Market.of(catalog, day, settings)
    tell("reading the fleet", 0.0)
    fit, proof = build_fleet(bundle, settings, split.fit), build_fleet(bundle, settings, split.proof)
    _require_nodes(bundle, fit)
    check_reach(fit.workloads, replace(market, limits=scenario.settings(settings).limits))
    _require_prices(market, {*fit.usage.pools, *proof.usage.pools})
    spend = [one for one in _spend(owned) if one.runs_at(day)]
    plans = running_plans(spend, _coverable(market, fit, proof), market, day)
    return Opened(
        fit=fit,
        proof=proof,
        market=market,
        settings=settings,
        degraded=(*split.degraded, *(unpriced(one) for one in spend if one not in plans)),
        owned=Discounts(commitments=running_commitments(_nodes(owned), day), spend_plans=tuple(plans.values())),
        store=store,
    )


def _require_names(catalog: Catalog, settings: Settings, scenario: Scenario) -> None:
    """Raise UnknownName, before any work, where a limit or a price that changes names what the catalog does not know."""
    changed(catalog, scenario.prices)
    known = {name for _, name in catalog.instance_table}
    for text in (settings.limits.quotas, scenario.quotas or ""):
        for quota in quotas_of(text):
            if quota.instance_type not in known:
                raise UnknownName("instance type", quota.instance_type, known, where="limits.quotas")


def _nodes(owned: Sequence[Owned | Spend]) -> list[Owned]:
    return [one for one in owned if isinstance(one, Owned)]


def _spend(owned: Sequence[Owned | Spend]) -> list[Spend]:
    return [one for one in owned if isinstance(one, Spend)]


def _coverable(market: Market, *fleets: Fleet) -> list[Pool]:
    """Return the pools that fleets use and those that they could move to, which a plan held already may cover."""
    pools = {pool for fleet in fleets for pool in fleet.usage.pools}
    places = {(pool.provider, pool.region) for pool in pools}
    return sorted(pools | {offering.pool for place in places for offering in market.offerings(*place)})


def _planned(opened: Opened, scenario: Scenario, tell: Progress) -> tuple[Planned, Proven]:
    """Plan and prove in the world of a scenario."""
    settings = scenario.settings(opened.settings)
    market = replace(opened.market, catalog=changed(opened.market.catalog, scenario.prices), limits=settings.limits)
    planned = make_plan(
        scaled_fleet(opened.fit, scenario.demand),
        market,
        settings,
        seed=SEED,
        progress=tell,
        owned=opened.owned,
        laws=opened.fit,
        store=opened.store,
    )
    tell("proving on history the plan has not seen", 0.0)
    return planned, prove(planned, scaled_fleet(opened.proof, scenario.demand), market, settings, seed=SEED)


def _what_if(opened: Opened, scenario: Scenario, planned: Planned, proven: Proven, tell: Progress) -> WhatIf:
    base = _outlook(opened, scenario, planned, proven)
    try:
        other = _outlook(opened, scenario, *_planned(opened, scenario, tell))
    except PlanError as error:
        return WhatIf(scenario=scenario, base=base, other=None, refused=str(error))
    return WhatIf(scenario=scenario, base=base, other=other)


def _outlook(opened: Opened, scenario: Scenario, planned: Planned, proven: Proven) -> Outlook:
    settings = scenario.settings(opened.settings)
    budget, day = scenario.budget_usd_mo, scenario.deadline
    return outlook(
        planned,
        proven.proof,
        None if budget is None else within_budget(planned, budget, settings),
        None if day is None else by_deadline(planned, opened.proof.window.end.date(), day, settings),
    )


def priced_history(
    bundle: Bundle, settings: Settings | None = None, catalog: Catalog | None = None, *, at: date | None = None
) -> tuple[Fleet, Allocation]:
    """Return the fleet over a bundle's whole window, and its bill split over who held what.

    Raises MissingPrice naming every pool that has no rate.
    """
    settings, catalog = settings or Settings(), catalog or load_catalog()
    fleet = build_fleet(bundle, settings)
    market = Market.of(catalog, at or fleet.window.end.date(), settings)
    _require_nodes(bundle, fleet)
    _require_prices(market, set(fleet.usage.pools))
    return fleet, allocate(bill(fleet.usage, market.rates(fleet.usage.pools)), fleet.holdings)


def kept_plan(
    found: Audit,
    bundle: Bundle,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
) -> KeptPlan:
    """Return an audit's plan with what its history tells of the cluster: what `emit` needs to write manifests later."""
    settings, catalog = settings or Settings(), catalog or load_catalog()
    market = Market.of(catalog, at or bundle_window(bundle).end.date(), settings)
    fleet = build_fleet(bundle, settings, found.plan.window)
    owners = bundle.table("allocations", ["workload", "owner_kind"]).to_pylist()
    changed = {
        pool
        for action in found.plan.actions
        for change in action.changes
        if isinstance(pool := getattr(change.effect, "pool", None), Pool)
    }
    facts = facts_of_fleet(
        fleet,
        settings,
        market,
        owner_kinds={row["workload"]: row["owner_kind"] for row in owners if row["owner_kind"]},
        pools={*fleet.usage.pools, *changed},
    )
    return KeptPlan(fleet=found.fleet, plan=found.plan, facts=facts, baseline=baseline_of(fleet, market))


def verify_plan(
    kept: KeptPlan,
    bundle: Bundle,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
) -> Verification:
    """Hold a later bundle against a kept plan; history up to the end of the plan's fit window does not count.

    Today's rates are those that held at `at` (default: the bundle's end). The plan's are those that it was kept with; for pools
    that it did not know, those at the end of its window. Raises InputError where the plan was kept without its fit window's use
    or the bundle ends before it, and MissingPrice.
    """
    if kept.baseline is None:
        raise InputError(
            "the kept plan does not say how the fleet ran before; run `trimtab audit` on that history again"
        )
    settings, catalog = settings or Settings(), catalog or load_catalog()
    fleet = build_fleet(bundle, settings, later_window(bundle_window(bundle), kept.plan.window))
    now = Market.of(catalog, at or fleet.window.end.date(), settings)
    then = replace(now, at=kept.plan.window.end.date(), known_micro_usd_hr=_rates_of(kept))
    for market in (then, now):
        _require_prices(market, set(fleet.usage.pools))
    spend_usd_hr = billed_spend(bundle.table("costs", SPEND_COLUMNS), fleet.window)
    return verify(kept.plan, kept.baseline, fleet, then, now, settings, spend_usd_hr)


def _rates_of(kept: KeptPlan) -> dict[Pool, int]:
    """Return the rates that a plan was made at, of the pools that it knew."""
    before = kept.baseline or Baseline()
    uses = [*before.unheld, *(use for one in before.workloads for use in one.uses)]
    rates = {use.pool: micro_usd(use.usd_per_node_hr) for use in uses}
    return rates | {one.pool: one.rate_micro_usd_hr for one in kept.facts.pools if one.rate_micro_usd_hr is not None}


def later_window(whole: Window, fit: Window) -> Window:
    """Return the part of a window that lies after the fit window; raises InputError where there is less than a day of it."""
    skipped = max(0, int(hours_between(whole.start, fit.end)))
    if whole.hours - skipped < HR_PER_DAY:
        raise InputError(f"{whole}: less than a day of it lies after the plan's fit window, {fit}; give later history")
    return whole.part(skipped, whole.hours - skipped)


def _audit(
    name: str,
    bundle: Bundle,
    fleet: Fleet,
    allocation: Allocation,
    planned: Planned,
    proven: Proven,
    market: Market,
    settings: Settings,
    degraded: tuple[str, ...],
) -> Audit:
    window, bands = str(fleet.window), settings.bands
    return Audit(
        fleet=name,
        coverage=fleet.coverage,
        degraded=degraded,
        bill_micro_usd=planned.plan.before_micro_usd,
        spend_by_kind=spend_by(fleet, allocation, lambda workload: workload.kind.value),
        spend_by_team=spend_by(fleet, allocation, lambda workload: workload.team),
        spend_by_workload=spend_by(fleet, allocation, lambda workload: workload.name),
        product_form=product_form(fleet, bands),
        waste=waste_of(fleet, allocation, bands, _cheaper(fleet, market), _non_gpu_nodes(bundle, fleet)),
        verdicts=tuple(verdict_of(workload, window, bands) for workload in fleet.workloads),
        unjudged=_unjudged(fleet, allocation, planned),
        plan=planned.plan,
        proof=proven.proof,
        heat_map=HeatMap(
            rows=tuple(workload.name for workload in fleet.workloads),
            activity_frac=np.array(
                [week_activity(workload, fleet.window.first_week_hour) for workload in fleet.workloads]
            ).reshape(-1, HR_PER_WEEK),
        ),
        capacity=proven.capacity,
    )


def _unjudged(fleet: Fleet, allocation: Allocation, planned: Planned) -> tuple[Unjudged, ...]:
    costs = allocation.by_owner(len(fleet.workloads))
    return tuple(
        Unjudged(workload=workload.name, micro_usd=int(cost), reason=planned.unjudged[workload.name])
        for workload, cost in zip(fleet.workloads, costs, strict=True)
        if workload.name in planned.unjudged
    )


def _require_nodes(bundle: Bundle, fleet: Fleet) -> None:
    """Refuse a history in which nothing with a GPU was billed: there is no bill to explain."""
    if fleet.usage.pools:
        return
    rows = bundle.table("nodes", ["gpu_count"]).num_rows
    seen = "; ".join(f"{number} {reason}" for reason, number in fleet.coverage.counts.items()) or "no node at all"
    raise InputError(
        f"{_name(bundle)}: none of its {rows} nodes had a GPU and was up within {fleet.window} ({seen}); collect a window in "
        "which GPU nodes ran, or mend gpu_count, start and end in nodes.parquet"
    )


def _require_prices(market: Market, pools: set[Pool]) -> None:
    """Refuse to guess: every pool of the fleet needs a rate; all that have none are named at once."""
    missing = market.unpriced(sorted(pools))
    if missing:
        lines = "\n".join(f"  - {pool}: {reason}" for pool, reason in missing.items())
        raise MissingPrice(
            f"{len(missing)} kind(s) of nodes have no price; give yours with --prices FILE (trimtab prices --help):\n{lines}"
        )


def _cheaper(fleet: Fleet, market: Market) -> dict[Pool, float]:
    """Return, per pool, the share of its rate that the best allowed commitment would save."""
    shares = {}
    for pool in fleet.usage.pools:
        committed = market.committed_rate(pool) if pool.capacity_type is CapacityType.ON_DEMAND else None
        if committed is not None:
            shares[pool] = max(0.0, 1.0 - committed / market.rate(pool))
    return shares


def _non_gpu_nodes(bundle: Bundle, fleet: Fleet) -> frozenset[int]:
    """Return the nodes on which pods without GPUs ran."""
    rows = bundle.table("allocations", ["node", "gpus"]).to_pylist()
    names = {row["node"] for row in rows if row["gpus"] == 0}
    return frozenset(index for index, node in enumerate(fleet.nodes) if node.name in names)


def _name(bundle: Bundle) -> str:
    return str(bundle.path) if bundle.path else ", ".join(bundle.meta.sources) or "a bundle in memory"


def _silent(stage: str, share: float) -> None:
    """Tell nobody."""

"""Diagnose a fleet, plan it, prove the plan on history that it never saw, and plan it again in another world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import numpy as np
import pyarrow as pa

from trimtab.catalog import CapacityType, Catalog, load_catalog
from trimtab.catalog.own_rates import shown
from trimtab.catalog.pools import Pool
from trimtab.catalog.providers import nodes_by_resource
from trimtab.catalog.registry import changed, require_answers
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.diagnose.broken import Broken, broken
from trimtab.diagnose.cluster_records import ClusterRecords, cluster_records
from trimtab.diagnose.findings import Unjudged
from trimtab.diagnose.hygiene import offences
from trimtab.diagnose.long_tail import TAIL_COLUMNS, VOLUME_COLUMNS, TailCost, long_tail
from trimtab.diagnose.token_cost import token_charges
from trimtab.diagnose.untidy import BilledWindow, Untidy, broken_costs, untidy
from trimtab.diagnose.verdicts import product_form, verdict_of
from trimtab.diagnose.waste import spend_by, spend_by_workload, waste_of, week_activity
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.manifests.asked_resources import StandingQuotas
from trimtab.emit.manifests.cluster_quotas import with_preconditions
from trimtab.emit.manifests.scaling_files import guarded_by
from trimtab.errors import PlanError, UnknownName
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window, Workload
from trimtab.fleet.reach import check_reach, kept_at_home, quotas_of, with_other_regions
from trimtab.fleet.scaled import scaled_fleet
from trimtab.fleet.settings import Settings
from trimtab.fleet.spot_record import SpotRecord
from trimtab.fleet.starts import (
    said_of_starts,
    starts_of,
    with_measured,
)
from trimtab.fleet.targets import declared_in_vain, refuse_impossible, refuse_other_limits, with_other_limits
from trimtab.ledger import Allocation, Bill, Commitment, allocate, bill
from trimtab.levers.registry import lever_named
from trimtab.pipeline.afterwards import emit_facts
from trimtab.pipeline.opening import bundle_name, carried_at, own_spot_records, require_nodes, split_window
from trimtab.plan.audit import Audit, HeatMap
from trimtab.plan.commitments.inventory import Owned, inventory, not_running, running, unpriced
from trimtab.plan.commitments.known_rates import known_rates
from trimtab.plan.model import Plan
from trimtab.plan.needed_replays import Workers
from trimtab.plan.planner import Planned
from trimtab.plan.proof.law_report import law_findings
from trimtab.plan.proof.proof_window import ProofResult, proof_by_action
from trimtab.plan.proof.repair import proven_plan
from trimtab.plan.proof.robustness import Guards, robustness
from trimtab.plan.proof.scenario import Outlook, Scenario, WhatIf, by_deadline, outlook, within_budget
from trimtab.plan.proof.undeclared import undeclared, with_questions_first
from trimtab.plan.prospects import EarlierWork, judge
from trimtab.plan.verify.baseline import baseline_of
from trimtab.replay.outcomes.outcome import Case, OutcomeStore
from trimtab.sources.kubernetes.advertised_boards import whole_boards
from trimtab.tables.bundle import Bundle
from trimtab.units import HR_PER_WEEK, S_PER_HR, usd

SEED = 7
"""Fixes what the replay draws (spot losses, sampled attribution), so that the same history gives the same audit."""
Progress = Callable[[str, float], None]
"""Told the stage and the share of it that is done."""


def _silent(stage: str, share: float) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """A history as planning takes it: the fleet over its two windows, and the market that it buys on."""

    fit: Fleet
    proof: Fleet
    market: Market
    selling: Market
    """The market with commitments, whether history is long enough to advise any or not: what those held already cost."""
    settings: Settings
    degraded: tuple[str, ...]
    owned: tuple[Commitment, ...]
    store: OutcomeStore | None
    workers: Workers | None = None
    """Who judges workloads in place of this process."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProvenPlan:
    """A plan with its proof and what both were made from: any of its actions can be switched off and the rest chosen again."""

    planned: Planned
    proven: ProofResult
    opened: Opened


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanningInput:
    """A recorded history and the world that it is planned in, given once to every function that plans it."""

    bundle: Bundle
    settings: Settings = field(default_factory=Settings)
    catalog: Catalog = field(default_factory=load_catalog)
    name: str = ""
    """The fleet's name in its audit; empty: as its bundle has it."""
    at: date | None = None
    """The day whose prices hold; None: the end of the window."""
    owned: Sequence[Owned] = ()
    """Commitments held, to nodes and to spend: they are paid whatever is planned."""
    scenario: Scenario | None = None
    """Another world, planned as well and shown beside."""
    store: OutcomeStore | None = None
    """Where replays are looked up first."""
    workers: Workers | None = None
    """Who judges workloads in place of this process."""
    progress: Progress = _silent


def audit(
    bundle: Bundle,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
    owned: Sequence[Owned] = (),
    store: OutcomeStore | None = None,
) -> Audit:
    """Return the audit of a history; `audited` takes more and gives what the plan was made from too. Raises as it does."""
    settings, catalog = settings or Settings(), catalog or load_catalog()
    return audited(PlanningInput(bundle=bundle, settings=settings, catalog=catalog, at=at, owned=owned, store=store))[0]


def audited(given: PlanningInput) -> tuple[Audit, ProvenPlan]:
    """Diagnose a fleet, plan it on the first part of its history and prove the plan on the rest.

    Nodes that no list has are carried at what the bill says, unjudged. Raises BundleError, MissingPrice (where no node has a
    rate), InputError where there is too little history, and PlanError where no plan keeps the limits of the settings.
    """
    bundle, tell = given.bundle, given.progress
    opened = _opened(given, given.scenario or Scenario())
    fit, market = opened.fit, opened.market
    history = bill(fit.usage, market.rates_of_days(fit.usage.pools, fit.window), opened.owned)
    planned, proven = _planned(opened, Scenario(), tell)
    machines = market.catalog.instance_types
    records = cluster_records(bundle, (fit, opened.proof), bundle_window(bundle), opened.settings, machines)
    breakages = broken(records, opened.settings.hygiene)
    made = ProvenPlan(planned=planned, proven=proven, opened=opened)
    found = _audit(given.name or bundle_name(bundle), bundle, made, history, breakages)
    day = market.at or fit.window.end.date()
    held = inventory(given.owned, fit.usage, opened.selling, day)
    tell("proving action by action", 0.0)
    by_action = proof_by_action(planned, proven, seed=SEED)
    found = replace(found, proof=replace(found.proof, actions=by_action))
    tell("proving under stress", 0.0)
    stressed = robustness(
        planned,
        proven,
        opened.proof,
        market,
        opened.settings,
        seed=SEED,
        starts=starts_of(bundle),
        guards=emitted_guards(planned, bundle, opened),
    )
    missing = undeclared(planned, market, opened.settings, tell)
    found = replace(
        found,
        plan=_with_preconditions(with_questions_first(found.plan, missing), bundle, opened, planned.cases),
        owned=held,
        committed_rates=known_rates(fit.usage, opened.selling),
        robustness=stressed,
        undeclared=missing,
        untidy=_untidy(breakages, records, opened, history),
    )
    if given.scenario is None:
        return found, made
    return replace(found, what_if=_what_if(opened, given.scenario, planned, proven, tell)), made


def emitted_guards(planned: Planned, bundle: Bundle, opened: Opened) -> Guards:
    """Return what the autoscalers that would be emitted, without a cluster file, watch besides demand."""
    scaled = {
        name: deployment.scaling
        for name, deployment in planned.deployments.items()
        if isinstance(deployment.scaling, SetReplicaPolicy)
    }
    if not scaled:
        return {}
    # the facts of other workloads, and their laws, are not asked for
    fleet = replace(opened.fit, workloads=tuple(opened.fit.workload(name) for name in scaled))
    facts = emit_facts(planned.plan, bundle, fleet, opened.market, opened.settings, learnt=planned.cases)
    return {name: guarded_by(effect, facts.workload(name), facts) for name, effect in scaled.items()}


def _with_preconditions(plan: Plan, bundle: Bundle, opened: Opened, cases: Mapping[str, Case]) -> Plan:
    """Return the plan whose actions say which quotas and limits of the cluster must be changed before them."""
    names = ("resource_quotas", "limit_ranges", "queues")
    quotas, limit_ranges, queues = (bundle.table(name).to_pylist() for name in names)
    changed = {change.subject for action in plan.actions for change in action.changes}
    workloads = tuple(workload for workload in opened.fit.workloads if workload.name in changed)
    if not workloads or not (quotas or limit_ranges or queues):
        return plan
    fleet = replace(opened.fit, workloads=workloads)
    runs = bundle.table("jobs", ["workload", "queue"]).to_pylist()
    nodes, pods = (bundle.table(name).to_pylist(maps_as_pydicts="lossy") for name in ("nodes", "pods"))
    standing = StandingQuotas(
        quotas=quotas,
        limit_ranges=limit_ranges,
        queues=queues,
        pods=pods,
        whole_boards=whole_boards(nodes, pods, opened.market.catalog),
        queue_of={row["workload"]: row["queue"] for row in runs if row["queue"]},
    )
    facts = emit_facts(plan, bundle, fleet, opened.market, opened.settings, learnt=cases)
    return with_preconditions(plan, facts, standing)


def kept_plan(found: Audit, bundle: Bundle, made: ProvenPlan) -> KeptPlan:
    """Return an audit's plan with what its history says about the cluster: what `emit` needs to write manifests later.

    The fleet and the laws are those that the plan was `made` from.
    """
    opened, learnt = made.opened, made.planned.cases
    facts = emit_facts(
        found.plan, bundle, opened.fit, opened.market, opened.settings, later=opened.proof, learnt=learnt
    )
    return KeptPlan(fleet=found.fleet, plan=found.plan, facts=facts, baseline=baseline_of(opened.fit, opened.market))


def plan_and_prove(given: PlanningInput) -> ProvenPlan:
    """Plan a fleet and prove the plan as `audited` does, and stop there; raises as that does.

    What `trimtab commit` buys comes from here, so that it is what the audit of that day buys.
    """
    opened = _opened(given, Scenario())
    planned, proven = _planned(opened, Scenario(), given.progress)
    return ProvenPlan(planned=planned, proven=proven, opened=opened)


def what_if(given: PlanningInput) -> WhatIf:
    """Plan a fleet as it is and under its scenario; raises as `audited` does, for the fleet as it is."""
    scenario = given.scenario or Scenario()
    opened = _opened(given, scenario)
    planned, proven = _planned(opened, Scenario(), given.progress, explains=False)
    return _what_if(opened, scenario, planned, proven, given.progress)


def what_if_beside(
    made: ProvenPlan, scenario: Scenario, progress: Progress | None = None, *, store: OutcomeStore | None = None
) -> WhatIf:
    """Plan a fleet under a scenario beside the plan that is made already, with replays looked up in `store`.

    Answers as `what_if` does. Raises UnknownName and InputError.
    """
    opened = replace(made.opened, store=store)
    refuse_other_limits(opened.fit, scenario.limits)
    _require_names(opened.market.catalog, opened.settings, scenario)
    check_reach(opened.fit.workloads, _market_of(opened, scenario), scenario.regions)
    return _what_if(opened, scenario, made.planned, made.proven, progress or _silent)


def _opened(given: PlanningInput, scenario: Scenario) -> Opened:
    """Read a history for planning; `scenario` is a world that it must allow besides its own."""
    bundle, settings, catalog, owned = given.bundle, given.settings, given.catalog, given.owned
    _require_names(catalog, settings, scenario)
    whole = bundle_window(bundle)
    split = split_window(whole, settings)
    day = given.at or whole.end.date()
    records = own_spot_records(bundle, split.fit)
    selling = Market.of(catalog, day, settings, records)
    settings, too_short = _without_purchases(settings, whole)
    market = Market.of(catalog, day, settings, records)
    given.progress("reading the fleet", 0.0)
    fit, proof = build_fleet(bundle, settings, split.fit), build_fleet(bundle, settings, split.proof)
    # what tables took is used by nothing else: Arrow would keep it, twice what the fleet takes, for tables to come
    pa.default_memory_pool().release_unused()
    starts, stated = starts_of(bundle), settings.assumptions
    settings = replace(settings, assumptions=with_measured(stated, starts))
    said = (*_said_of_spot(records), *said_of_starts(starts, fit, stated))
    fit = replace(fit, coverage=replace(fit.coverage, notes=(*fit.coverage.notes, *said)))
    require_nodes(bundle, fit)
    check_reach(fit.workloads, replace(market, limits=scenario.settings(settings).limits), scenario.regions)
    refuse_impossible(fit.workloads)
    refuse_other_limits(fit, scenario.limits)
    carried = carried_at(bundle, market, fit, proof)
    (fit, proof), market = carried.fleets, carried.market
    selling = selling.carrying(fit.carried_micro_usd_hr)
    coverable = _coverable(selling, fit, proof)
    return Opened(
        fit=fit,
        proof=proof,
        market=market,
        selling=selling,
        settings=settings,
        degraded=(
            *split.degraded,
            *shown(catalog.questions),
            *carried.said,
            *declared_in_vain(fit.workloads),
            *unpriced(owned, coverable, selling, day),
            *(f"commitments held: {line}" for line in not_running(owned, day)),
            *too_short,
        ),
        owned=tuple(commitment for _, commitment in running(owned, coverable, selling, day)),
        store=given.store,
        workers=given.workers,
    )


def _said_of_spot(records: Mapping[Pool, SpotRecord]) -> Iterator[str]:
    """Say what each pool's own record of spot tells, and how much it counts beside the stated odds."""
    for pool, record in records.items():
        yield f"spot {pool.instance_type} in {pool.region}: {record.describe()}"


def _without_purchases(settings: Settings, whole: Window) -> tuple[Settings, tuple[str, ...]]:
    """Return settings that buy nothing where history is too short to bind a team for a year, and a sentence that says so."""
    needed = settings.planning.commitment_history_days
    if whole.days >= needed or not settings.limits.use_commitments:
        return settings, ()
    said = f"{whole.days:.0f} days of history, and a purchase needs {needed:.0f}: no commitment is advised"
    return replace(settings, limits=replace(settings.limits, use_commitments=False)), (said,)


def _require_names(catalog: Catalog, settings: Settings, scenario: Scenario) -> None:
    """Raise UnknownName, before any work, where a limit or a price that changes names what the catalog does not know."""
    require_answers(catalog, scenario.prices)
    known = {name for _, name in catalog.instance_table}
    for text in (settings.limits.quotas, scenario.quotas or ""):
        for quota in quotas_of(text):
            if quota.instance_type not in known:
                raise UnknownName("instance type", quota.instance_type, known, where="limits.quotas")


def _coverable(market: Market, *fleets: Fleet) -> list[Pool]:
    """Return the pools that fleets use and those that they could move to, which a plan held already may cover."""
    pools = {pool for fleet in fleets for pool in fleet.usage.pools}
    places = {(pool.provider, pool.region) for pool in pools}
    return sorted(pools | {offering.pool for place in places for offering in market.offerings(*place)})


def _market_of(opened: Opened, scenario: Scenario) -> Market:
    market, limits = opened.market, scenario.settings(opened.settings).limits
    if limits == market.limits and not scenario.prices:
        return market  # with what it knows of its prices
    return replace(market, catalog=changed(market.catalog, scenario.prices), limits=limits)


def _planned(
    opened: Opened, scenario: Scenario, tell: Progress, base: Planned | None = None, *, explains: bool = True
) -> tuple[Planned, ProofResult]:
    """Plan in the world of a scenario, and prove; what misses its targets there is repaired or leaves the plan.

    What was replayed for the plan of the world as it is (`base`) is replayed again only where demand or the wait for nodes is
    another, or for a workload whose targets are. What replicas serve was learnt for it, on the same history.
    """
    as_measured = scenario.demand == 1.0
    prospects = judge(
        _fleet_in(opened.fit, scenario),
        _market_of(opened, scenario),
        scenario.settings(opened.settings),
        seed=SEED,
        progress=tell,
        owned=opened.owned,
        earlier=EarlierWork(
            laws=opened.fit,
            learnt=None if base is None or base.prospects is None else base.prospects.cases,
            replayed=base.prospects if base is not None and scenario.replays_alike(opened.settings) else None,
        ),
        store=opened.store,
        explains=explains,
        workers=opened.workers,
    )
    return proven_plan(prospects, _fleet_in(opened.proof, scenario), tell, as_measured=as_measured)


def _fleet_in(fleet: Fleet, scenario: Scenario) -> Fleet:
    """Return a fleet as it would be in a scenario."""
    asked = with_other_limits(scaled_fleet(fleet, scenario.demand), scenario.limits)
    return with_other_regions(asked, scenario.regions)


def _what_if(opened: Opened, scenario: Scenario, planned: Planned, proven: ProofResult, tell: Progress) -> WhatIf:
    base = _outlook(opened, scenario, planned, proven)
    if scenario.plans_as_it_is(opened.settings):
        return WhatIf(scenario=scenario, base=base, other=base)
    try:
        other = _outlook(opened, scenario, *_planned(opened, scenario, tell, planned, explains=False))
    except PlanError as error:
        return WhatIf(scenario=scenario, base=base, other=None, refused=str(error))
    moves = scenario.clouds or scenario.regions
    asked = _fleet_in(opened.fit, scenario).workloads
    stays = kept_at_home(asked, _market_of(opened, scenario)) if moves else ()
    return WhatIf(scenario=scenario, base=base, other=other, stays=stays)


def _outlook(opened: Opened, scenario: Scenario, planned: Planned, proven: ProofResult) -> Outlook:
    settings = scenario.settings(opened.settings)
    budget, day = scenario.budget_usd_mo, scenario.deadline
    return outlook(
        planned,
        proven.proof,
        None if budget is None else within_budget(planned, budget, settings),
        None if day is None else by_deadline(planned, opened.proof.window.end.date(), day, settings),
        settings,
    )


def _at_other_prices(billed_micro_usd: int, planned: Planned, market: Market) -> Iterator[str]:
    """Say where history was billed at other prices than the plan is made at."""
    now = planned.plan.before_micro_usd
    if billed_micro_usd != now:
        yield (
            f"prices changed inside the history: the fit window was billed ${usd(billed_micro_usd):,.2f} and would "
            f"cost ${usd(now):,.2f} at the prices of {market.at}, at which the plan and its proof are stated"
        )


def _audit(name: str, bundle: Bundle, made: ProvenPlan, history: Bill, breakages: Broken) -> Audit:
    """Return what an audit contains as soon as plan and proof are made; `history` is the fit window's bill."""
    planned, proven, opened = made.planned, made.proven, made.opened
    fleet, market = opened.fit, opened.market
    window, bands = str(fleet.window), opened.settings.bands
    allocation = allocate(history, fleet.holdings)
    lost = broken_costs(breakages, BilledWindow(fleet=fleet, allocation=allocation))
    return Audit(
        fleet=name,
        coverage=fleet.coverage,
        degraded=(*opened.degraded, *planned.unkept, *_at_other_prices(history.total, planned, market)),
        bill_micro_usd=history.total,
        spend_by_kind=spend_by(fleet, allocation, lambda workload: workload.kind.value),
        spend_by_team=spend_by(fleet, allocation, lambda workload: workload.team),
        spend_by_workload=spend_by_workload(fleet, allocation),
        token_costs=token_charges(fleet, _bills(fleet, allocation)),
        product_form=product_form(fleet, bands),
        waste=waste_of(fleet, allocation, bands, _cheaper(fleet, market), _non_gpu_nodes(bundle, fleet), lost),
        verdicts=tuple(
            verdict_of(workload, window, bands, _ended(planned, workload), market.gpu(workload.gpu))
            for workload in fleet.workloads
        ),
        unjudged=_unjudged(fleet, allocation, planned),
        long_tail=_long_tail(bundle, fleet, allocation),
        plan=planned.plan,
        proof=proven.proof,
        heat_map=HeatMap(
            rows=tuple(workload.name for workload in fleet.workloads),
            activity_frac=np.array(
                [week_activity(workload, fleet.window.first_week_hour) for workload in fleet.workloads]
            ).reshape(-1, HR_PER_WEEK),
        ),
        capacity=proven.capacity,
        laws=tuple(law_findings(planned, market)),
    )


def _bills(fleet: Fleet, allocation: Allocation) -> dict[str, int]:
    """Return each workload's bill by its name, in micro-dollars."""
    costs = allocation.by_owner(len(fleet.workloads)).tolist()
    return {workload.name: cost for workload, cost in zip(fleet.workloads, costs, strict=True)}


def _long_tail(bundle: Bundle, fleet: Fleet, allocation: Allocation) -> tuple[TailCost, ...]:
    """Return what stands beside the GPUs in the fit window, at what an hour of each workload's GPUs cost there."""
    held_hr = {workload.name: float(workload.gpu_seconds.sum()) / S_PER_HR for workload in fleet.workloads}
    usd_gpu_hr = {
        name: usd(cost) / held_hr[name] for name, cost in _bills(fleet, allocation).items() if held_hr[name] > 0
    }
    return long_tail(
        bundle.table("costs", TAIL_COLUMNS),
        bundle.table("volumes", VOLUME_COLUMNS),
        bundle.table("pods", ["namespace"]),
        nodes_by_resource(bundle.table("nodes", ["node", "labels"])),
        fleet,
        starts_of(bundle),
        usd_gpu_hr,
    )


def _untidy(breakages: Broken, records: ClusterRecords, opened: Opened, history: Bill) -> Untidy:
    """Return what was broken and untidy in the whole history, the proof window too, with what it cost."""
    settings, proof = opened.settings.hygiene, opened.proof
    later = bill(proof.usage, opened.market.rates_of_days(proof.usage.pools, proof.window), opened.owned)
    windows = [
        BilledWindow(fleet=fleet, allocation=allocate(billed, fleet.holdings))
        for fleet, billed in ((opened.fit, history), (proof, later))
    ]
    return untidy(breakages, offences(records, settings), records, windows)


def _ended(planned: Planned, workload: Workload) -> tuple[str, ...]:
    """Return the causes of low activity that the plan ends for a workload."""
    levers = planned.deployments.get(workload.name, AS_IT_IS).levers
    return tuple(sorted({lever_named(name).ends for name in levers} - {""}))


def _unjudged(fleet: Fleet, allocation: Allocation, planned: Planned) -> tuple[Unjudged, ...]:
    costs = allocation.by_owner(len(fleet.workloads))
    return tuple(
        Unjudged(workload=workload.name, micro_usd=int(cost), reason=planned.unjudged[workload.name])
        for workload, cost in zip(fleet.workloads, costs, strict=True)
        if workload.name in planned.unjudged
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

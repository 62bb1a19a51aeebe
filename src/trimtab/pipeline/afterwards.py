"""What comes after a plan: manifests know the cluster from its history, and a later history is compared with the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.diagnose.billed import SPEND_COLUMNS, billed_spend
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.manifests.cluster_facts import facts_of_fleet, with_cluster
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.errors import InputError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.settings import Settings
from trimtab.pipeline.opening import carried_at, own_spot_records
from trimtab.plan.model import Plan
from trimtab.plan.verify.baseline import Baseline
from trimtab.plan.verify.verification import Verification, verify
from trimtab.replay.outcomes.outcome import Case
from trimtab.tables.bundle import Bundle
from trimtab.units import HR_PER_DAY, hours_between, micro_usd

_SERVED = ["workload", "server", "scrape_interval_s", "scrape_job"]


def emit_facts(
    plan: Plan,
    bundle: Bundle,
    fleet: Fleet,
    market: Market,
    settings: Settings,
    *,
    later: Fleet | None = None,
    learnt: Mapping[str, Case] | None = None,
) -> EmitFacts:
    """Return what a history says about the cluster that a plan's manifests are for.

    `fleet` is that of the plan's window, `later` that of the proof's: what is emitted has room for the runs of both. Laws of
    cases that were `learnt` on that window are not learnt again.
    """
    owners = bundle.table("allocations", ["workload", "owner_kind"]).to_pylist()
    changed = {
        pool
        for action in plan.actions
        for change in action.changes
        if isinstance(pool := getattr(change.effect, "pool", None), Pool)
    }
    facts = facts_of_fleet(
        fleet,
        settings,
        market,
        owner_kinds={row["workload"]: row["owner_kind"] for row in owners if row["owner_kind"]},
        pools={*fleet.usage.pools, *changed},
        later=later,
        learnt=learnt,
    )
    return with_cluster(
        facts,
        bundle.end,
        nodes=bundle.table("nodes").to_pylist(),
        held=bundle.table("allocations", ["workload", "team", "node", "gpus", "end"]).to_pylist(),
        pods=bundle.table("pods").to_pylist(),
        devices=bundle.table("devices", ["pod_label"]).to_pylist(),
        served=bundle.table("demand", _SERVED).group_by(_SERVED).aggregate([]).to_pylist(),
        scalers=bundle.table("scalers").to_pylist(),
        queues=bundle.table("queues").to_pylist(),
    )


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
    records = own_spot_records(bundle, fleet.window)
    now = Market.of(catalog, at or fleet.window.end.date(), settings, records)
    then = replace(now, at=kept.plan.window.end.date(), known_micro_usd_hr=_rates_of(kept))
    now, then = carried_at(bundle, now, fleet).market, carried_at(bundle, then, fleet).market
    spend_usd_hr = billed_spend(bundle.table("costs", SPEND_COLUMNS), fleet.window)
    return verify(kept.plan, kept.baseline, fleet, then, now, settings, spend_usd_hr)


def _rates_of(kept: KeptPlan) -> dict[Pool, int]:
    """Return the rates that a plan was made at, of the pools that it knew."""
    before = kept.baseline or Baseline()
    uses = [*before.unheld, *(use for workload in before.workloads for use in workload.uses)]
    rates = {use.pool: micro_usd(use.usd_per_node_hr) for use in uses}
    return rates | {
        pool.pool: pool.rate_micro_usd_hr for pool in kept.facts.pools if pool.rate_micro_usd_hr is not None
    }


def later_window(whole: Window, fit: Window) -> Window:
    """Return the part of a window that lies after the fit window; raises InputError where there is less than a day of it."""
    skipped = max(0, int(hours_between(whole.start, fit.end)))
    if whole.hours - skipped < HR_PER_DAY:
        raise InputError(f"{whole}: less than a day of it lies after the plan's fit window, {fit}; give later history")
    return whole.part(skipped, whole.hours - skipped)

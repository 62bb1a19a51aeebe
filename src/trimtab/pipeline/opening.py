"""A history as the rest takes it: opened, checked, priced, and split into what is planned on and what proves the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.errors import InputError, MissingPrice
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.settings import Settings
from trimtab.fleet.spot_record import EVENT_COLUMNS, SpotRecord, spot_records
from trimtab.ledger import Allocation, allocate, bill
from trimtab.sources.demo import demo_fleet, trace_fleet
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.tables.checks import checked_bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR


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


def priced_history(
    bundle: Bundle, settings: Settings | None = None, catalog: Catalog | None = None, *, at: date | None = None
) -> tuple[Fleet, Allocation]:
    """Return the fleet over a bundle's whole window, and its bill split over who held what.

    Nodes without a rate are carried at nothing. Raises MissingPrice where no node has one.
    """
    settings, catalog = settings or Settings(), catalog or load_catalog()
    fleet = build_fleet(bundle, settings)
    records = own_spot_records(bundle, fleet.window)
    market = Market.of(catalog, at or fleet.window.end.date(), settings, records)
    require_nodes(bundle, fleet)
    carried = carried_at(market, fleet)
    (fleet,), market = carried.fleets, carried.market
    return fleet, allocate(bill(fleet.usage, market.rates(fleet.usage.pools)), fleet.holdings)


def own_spot_records(bundle: Bundle, window: Window) -> dict[Pool, SpotRecord]:
    """Return what a bundle's own history tells of spot in a window, by the pool of the same nodes on demand."""
    return spot_records(bundle.table("spot_events", EVENT_COLUMNS), bundle.table("nodes"), window)


def require_nodes(bundle: Bundle, fleet: Fleet) -> None:
    """Refuse a history in which nothing with a GPU was billed: there is no bill to explain."""
    if fleet.usage.pools:
        return
    rows = bundle.table("nodes", ["gpu_count"]).num_rows
    seen = "; ".join(f"{number} {reason}" for reason, number in fleet.coverage.counts.items()) or "no node at all"
    raise InputError(
        f"{bundle_name(bundle)}: none of its {rows} nodes had a GPU and was up within {fleet.window} ({seen}); collect a "
        "window in which GPU nodes ran, or mend gpu_count, start and end in nodes.parquet"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Carried:
    """Fleets of which some nodes have no price, the market in which these cost nothing, and what is to be said about them."""

    fleets: tuple[Fleet, ...]
    market: Market
    said: tuple[str, ...]


def carried_at(market: Market, *fleets: Fleet) -> Carried:
    """Carry nodes without a price at nothing, unjudged; raises MissingPrice, naming all, where no node has a price.

    A price is never guessed, and what one kind of nodes costs is no reason to say nothing of the others.
    """
    pools = {pool for fleet in fleets for pool in fleet.usage.pools}
    missing = market.unpriced(sorted(pools))
    if missing and len(missing) == len(pools):
        lines = "\n".join(f"  - {pool}: {reason}" for pool, reason in missing.items())
        raise MissingPrice(
            f"no node of the fleet has a price; give yours with --prices FILE (trimtab prices --help):\n{lines}"
        )
    return Carried(
        fleets=tuple(replace(fleet, unpriced=frozenset(missing)) for fleet in fleets),
        market=market.carrying(missing) if missing else market,
        said=tuple(_carried(pool, reason, fleets) for pool, reason in missing.items()),
    )


def _carried(pool: Pool, reason: str, fleets: Sequence[Fleet]) -> str:
    names = {node.name for fleet in fleets for node in fleet.nodes if node.pool == pool}
    used = [fleet.usage for fleet in fleets if pool in fleet.usage.pools]
    hours = sum(int(one.node_seconds[one.pools.index(pool)].sum()) for one in used) / S_PER_HR
    return (
        f"{len(names)} node(s) of {pool} are carried at $0 and left as they are ({hours:,.0f} node-hours): {reason}; give "
        "their price with --prices FILE, or collect their type and region from the cluster (--kube-dump or --context)"
    )


def bundle_name(bundle: Bundle) -> str:
    """Return what to call a bundle: its path, else where it came from."""
    return str(bundle.path) if bundle.path else ", ".join(bundle.meta.sources) or "a bundle in memory"

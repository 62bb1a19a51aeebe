"""A history as the rest takes it: opened, checked, priced, and split into what is planned on and what proves the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.catalog.providers import nodes_by_resource
from trimtab.diagnose.billed import RATE_COLUMNS, BilledRate, billed_rates
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
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR, usd


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
class HistorySplit:
    """The fit window that a plan is made on, the proof window that it is proved on, and what is weak about them."""

    fit: Window
    proof: Window
    degraded: tuple[str, ...]


def split_window(whole: Window, settings: Settings) -> HistorySplit:
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
    return HistorySplit(
        fit=whole.part(0, fit_days * HR_PER_DAY),
        proof=whole.part(fit_days * HR_PER_DAY, (days - fit_days) * HR_PER_DAY),
        degraded=tuple(degraded),
    )


def priced_history(
    bundle: Bundle, settings: Settings | None = None, catalog: Catalog | None = None, *, at: date | None = None
) -> tuple[Fleet, Allocation]:
    """Return the fleet over a bundle's whole window, and its bill split over who held what.

    List prices are those that held on each day, as an audit has them, unless `at` names one day for all. Nodes that no list has
    are carried at what the bill says, else at nothing. Raises MissingPrice where no node has one.
    """
    fleet, market = priced_fleet(bundle, settings, catalog, at=at)
    return fleet, list_allocation(fleet, market, at)


def list_allocation(fleet: Fleet, market: Market, at: date | None = None) -> Allocation:
    """Return a fleet's bill split over who held what, at the list prices of each day; with `at`, of that day."""
    pools = fleet.usage.pools
    rates = market.rates(pools) if at else market.rates_of_days(pools, fleet.window)
    return allocate(bill(fleet.usage, rates), fleet.holdings)


def priced_fleet(
    bundle: Bundle, settings: Settings | None = None, catalog: Catalog | None = None, *, at: date | None = None
) -> tuple[Fleet, Market]:
    """Return the fleet over a bundle's whole window, and the market that prices its nodes; raises as `priced_history` does."""
    settings, catalog = settings or Settings(), catalog or load_catalog()
    fleet = build_fleet(bundle, settings)
    records = own_spot_records(bundle, fleet.window)
    market = Market.of(catalog, at or fleet.window.end.date(), settings, records)
    require_nodes(bundle, fleet)
    carried = carried_at(bundle, market, fleet)
    return carried.fleets[0], carried.market


def own_spot_records(bundle: Bundle, window: Window) -> dict[Pool, SpotRecord]:
    """Return what a bundle's own history says about spot in a window, by the pool of the same nodes on demand."""
    return spot_records(bundle.table("spot_events", EVENT_COLUMNS), bundle.table("nodes"), window)


def require_nodes(bundle: Bundle, fleet: Fleet) -> None:
    """Refuse a history in which nothing with a GPU was billed: there is no bill to explain."""
    if fleet.usage.pools:
        return
    rows = bundle.table("nodes", ["gpu_count"]).num_rows
    seen = "; ".join(f"{number} {reason}" for reason, number in fleet.coverage.counts.items()) or "no node at all"
    raise InputError(
        f"{bundle_name(bundle)}: none of its {rows} nodes had a GPU and was up within {fleet.window} ({seen}); collect a "
        "window in which GPU nodes ran, or correct gpu_count, start and end in nodes.parquet"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CarriedNodes:
    """Fleets of which no list has some nodes, the market in which these cost what the bill says, and what is to be said."""

    fleets: tuple[Fleet, ...]
    market: Market
    said: tuple[str, ...]


def carried_at(bundle: Bundle, market: Market, *fleets: Fleet) -> CarriedNodes:
    """Carry nodes that no list has at what the bundle's bill says they cost, else at nothing, and nodes with GPUs that no
    catalog has at their price: both unjudged.

    A price is never guessed, and what one kind of nodes costs is no reason to say nothing of the others. Raises MissingPrice,
    naming all, where no node has a price and no bill names any.
    """
    pools = {pool for fleet in fleets for pool in fleet.usage.pools}
    missing = market.unpriced(sorted(pools))
    billed = _billed(bundle, fleets, missing) if missing else {}
    if missing and len(missing) == len(pools) and not billed:
        lines = "\n".join(f"  - {pool}: {reason}" for pool, reason in missing.items())
        raise MissingPrice(
            "no node of the fleet has a price; give yours with --prices FILE (trimtab prices --help), or collect the type and "
            f"region of nodes from the cluster (trimtab collect with --kube-dump or --context):\n{lines}"
        )
    rates = {pool: billed[pool].micro_usd_hr if pool in billed else 0 for pool in missing}
    unknown = market.unknown_gpus(node.gpu for fleet in fleets for node in fleet.nodes)
    fleets = tuple(replace(fleet, carried_micro_usd_hr=rates, unknown_gpus=unknown) for fleet in fleets)
    market = market.carrying(rates) if missing else market
    return CarriedNodes(
        fleets=fleets,
        market=market,
        said=(
            *(_carried(pool, reason, billed.get(pool), fleets) for pool, reason in missing.items()),
            *_of_unknown_gpus(market, fleets),
        ),
    )


def _billed(bundle: Bundle, fleets: Sequence[Fleet], pools: Collection[Pool]) -> dict[Pool, BilledRate]:
    resources = nodes_by_resource(bundle.table("nodes", ["node", "labels"]))
    return billed_rates(bundle.table("costs", RATE_COLUMNS), resources, fleets, pools)


def _carried(pool: Pool, reason: str, billed: BilledRate | None, fleets: Sequence[Fleet]) -> str:
    names = {node.name for fleet in fleets for node in fleet.nodes if node.pool == pool}
    used = [fleet.usage for fleet in fleets if pool in fleet.usage.pools]
    hours = sum(int(usage.node_seconds[usage.pools.index(pool)].sum()) for usage in used) / S_PER_HR
    if billed is not None:
        return (
            f"{len(names)} node(s) of {pool} are carried at what the bill says, ${usd(billed.micro_usd_hr):,.2f} an hour each, "
            f"and left as they are ({hours:,.0f} node-hours; charges for {billed.hours:,.0f} hours name "
            f"{billed.nodes_named} of {billed.nodes}): {reason}; give their price with --prices FILE to have what runs on "
            "them judged"
        )
    return (
        f"{len(names)} node(s) of {pool} are carried at $0 and left as they are ({hours:,.0f} node-hours): {reason}; give "
        "their price with --prices FILE, or collect their type and region from the cluster (--kube-dump or --context)"
    )


def _of_unknown_gpus(market: Market, fleets: Sequence[Fleet]) -> Iterator[str]:
    """Say which priced nodes have GPUs that no catalog has, and what they cost."""
    lives = [
        (node, int(seconds.sum()))
        for fleet in fleets
        for node, seconds in zip(fleet.nodes, fleet.node_seconds, strict=True)
    ]
    kinds = {
        (node.pool, node.gpu)
        for fleet in fleets
        for node in fleet.nodes
        if node.gpu in fleet.unknown_gpus and node.pool not in fleet.carried_micro_usd_hr
    }
    for pool, gpu in sorted(kinds, key=str):
        lives_there = [(node.name, seconds) for node, seconds in lives if (node.pool, node.gpu) == (pool, gpu)]
        hours = sum(seconds for _, seconds in lives_there) / S_PER_HR
        yield (
            f"{len(dict(lives_there))} node(s) of {pool} are billed at ${usd(market.rate(pool)):,.2f} an hour each and left as "
            f"they are ({hours:,.0f} node-hours): GPU model {gpu} is not in the catalog; correct `gpu` in nodes.parquet if it "
            "is a board that `trimtab prices --gpus` lists, to have what runs on them judged"
        )


def bundle_name(bundle: Bundle) -> str:
    """Return what to call a bundle: its path, else where it came from."""
    return str(bundle.path) if bundle.path else ", ".join(bundle.meta.sources) or "a bundle in memory"

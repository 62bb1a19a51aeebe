"""What a fleet cost, day by day, by whoever one asks for: the charges of its bill, or its nodes at list prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.catalog.providers import nodes_by_resource
from trimtab.diagnose.bill_split import (
    COLUMNS,
    ChargeBasis,
    Charges,
    CostSplit,
    DailySpend,
    SplitBasis,
    charges_of,
    spent_at_list,
    spent_of_bill,
)
from trimtab.diagnose.weeks import IsoWeek, WeekSpend, week_spend
from trimtab.errors import MissingPrice, UsageError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Settings
from trimtab.pipeline.opening import bundle_name, list_allocation, priced_fleet
from trimtab.tables.bundle import Bundle

AT_LIST = "list"
"""The basis that is no charge of a bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingTerms:
    """On what grounds a fleet is charged."""

    basis: str | None = None
    """`effective`, `billed` or `list`; None: effective where the bundle has a bill, else list."""
    usd_per: Mapping[str, float]
    """Dollars per unit of other currencies."""
    at: date | None = None
    """List prices of this day; None: those that held on each day, so that a new price shows as a cause."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spending:
    """A fleet, and what was spent on it by any split; `charges` are the bill's, none at list prices."""

    fleet: Fleet
    spent: Callable[[CostSplit], DailySpend]
    basis: str
    """In words."""
    charges: Mapping[ChargeBasis, Charges]
    rates: Callable[[], Mapping[Pool, int]]
    """One list for its nodes, in micro-dollars an hour; empty where no node has a price but a bill has."""


def spending(bundle: Bundle, terms: SpendingTerms, catalog: Catalog | None = None) -> Spending:
    """Return what a bundle's fleet cost; raises UsageError where a bill is asked for and there is none."""
    catalog = catalog or load_catalog()
    return _of_bill(bundle, terms, catalog) or _at_list(bundle, terms, catalog)


def _at_list(bundle: Bundle, terms: SpendingTerms, catalog: Catalog) -> Spending:
    fleet, market = priced_fleet(bundle, catalog=catalog, at=terms.at)
    allocation = list_allocation(fleet, market, terms.at)
    return Spending(
        fleet=fleet,
        spent=lambda split: spent_at_list(fleet, allocation, split),
        basis=f"list prices of {terms.at:%-d %b %Y}" if terms.at else "list prices of each day",
        charges={},
        rates=lambda: market.rates(fleet.usage.pools),
    )


def week(bundle: Bundle, terms: SpendingTerms, asked: IsoWeek | None, catalog: Catalog | None = None) -> WeekOfFleet:
    """Return a week of a bundle's fleet against the week before it.

    Raises as `spending` does, and UnknownName for a week that history lacks.
    """
    found = spending(bundle, terms, catalog)
    spent = (found.spent(CostSplit(by=SplitBasis.TEAM)), found.spent(CostSplit(by=SplitBasis.WORKLOAD)))
    weekly = week_spend(found.fleet, *spent, found.rates(), Settings().bands, asked)
    return WeekOfFleet(fleet=found.fleet, spend=weekly, basis=found.basis)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeekOfFleet:
    """A week of a fleet, and what it was charged on."""

    fleet: Fleet
    spend: WeekSpend
    basis: str


def _of_bill(bundle: Bundle, terms: SpendingTerms, catalog: Catalog) -> Spending | None:
    """Return the charges of a bundle's bill; None where list prices are asked for, or there is no bill."""
    costs = bundle.table("costs", COLUMNS)
    if terms.basis == AT_LIST or costs.num_rows == 0:
        if terms.basis not in (None, AT_LIST):
            raise UsageError(
                f"--cost {terms.basis} needs a bill, and {bundle_name(bundle)} holds none; give one with --focus FILE, "
                "or take list prices with --cost list"
            )
        return None
    fleet = build_fleet(bundle, Settings())
    basis = ChargeBasis.EFFECTIVE if terms.basis is None else ChargeBasis(terms.basis)
    either = {kind: charges_of(costs, kind, terms.usd_per) for kind in ChargeBasis}
    resources = nodes_by_resource(bundle.table("nodes", ["node", "labels"]))
    return Spending(
        fleet=fleet,
        spent=lambda split: spent_of_bill(either[basis], fleet, resources, split),
        basis="what the invoice asks" if basis is ChargeBasis.BILLED else "amortised charges",
        charges=either,
        rates=lambda: _list_rates(bundle, catalog, terms.at),
    )


def _list_rates(bundle: Bundle, catalog: Catalog, at: date | None) -> Mapping[Pool, int]:
    try:
        fleet, market = priced_fleet(bundle, catalog=catalog, at=at)
    except MissingPrice:
        return {}
    return {pool: rate for pool, rate in market.rates(fleet.usage.pools).items() if rate}

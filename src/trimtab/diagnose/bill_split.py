"""Who pays each charge of a bill: the payers that held the node, the payer that the tags name, or none for idle time.

In this order, for every charge:
 1. the unused part of a commitment belongs to no payer;
 2. a charge for a node that the fleet knows is split by GPU time held on it during the charge period; time not held is idle;
 3. a charge whose tags name a payer is that payer's;
 4. a charge for a machine type that the fleet has in that region is split over all nodes of the type, as in 2;
 5. the rest is shared, under the name of what it is: tax, credits, support, machines that telemetry has not seen, untagged.

Amounts are whole billionths of a dollar inside, since bills state more digits than a cent has, so that parts sum to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from typing import Self, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.providers import last_part
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.errors import BillError, UsageError
from trimtab.fleet.columns import seconds_from
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.occupancy import cut_by_hour
from trimtab.ledger import IDLE, Allocation
from trimtab.ledger.arrays import FloatArray, IntArray, apportion_groups
from trimtab.units import HR_PER_DAY, NANO_PER_MICRO, NANO_PER_USD, S_PER_HR, round_parts

UNNAMED = "unnamed"
LABEL_PREFIX = "label:"


class SplitBasis(Enum):
    """What the bill is split by."""

    TEAM = "team"
    WORKLOAD = "workload"
    NAMESPACE = "namespace"
    KIND = "kind"
    MODEL = "model"
    LABEL = "label"


_TAG_KEYS = {
    SplitBasis.TEAM: ("team", "owner", "cost_center", "cost-center", "costcenter"),
    SplitBasis.WORKLOAD: ("workload",),
    SplitBasis.NAMESPACE: ("namespace", "kubernetes_namespace", "kubernetes.io/namespace"),
    SplitBasis.MODEL: ("model",),
}
"""Tags of a bill that say the same as Kubernetes does, in the order in which they are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSplit:
    """A way of splitting; `label` is the key where it is by label."""

    by: SplitBasis
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `team`, `workload`, `namespace`, `kind`, `model` or `label:KEY`; raises UsageError."""
        if text.startswith(LABEL_PREFIX) and text != LABEL_PREFIX:
            return cls(by=SplitBasis.LABEL, label=text.removeprefix(LABEL_PREFIX))
        plain = [way.value for way in SplitBasis if way is not SplitBasis.LABEL]
        if text not in plain:
            raise UsageError(f"cannot split by {text!r}; write {', '.join(plain)} or label:KEY (label:cost-center)")
        return cls(by=SplitBasis(text))

    def of(self, workload: Workload) -> str:
        """Return a workload's value."""
        match self.by:
            case SplitBasis.TEAM:
                return workload.team
            case SplitBasis.WORKLOAD:
                return workload.name
            case SplitBasis.NAMESPACE:
                return workload.namespace
            case SplitBasis.KIND:
                return workload.kind.value
            case SplitBasis.MODEL:
                return workload.spec.model or UNNAMED
            case SplitBasis.LABEL:
                return (workload.spec.labels or {}).get(self.label, UNNAMED)
            case _:
                assert_never(self.by)

    def of_tags(self, tags: Iterable[tuple[str, str]]) -> str | None:
        """Return the value that a charge's tags name, None where they name none. Keys compare without case and prefix."""
        keys = (self.label.casefold(),) if self.by is SplitBasis.LABEL else _TAG_KEYS.get(self.by, ())
        found = {_plain(key): value for key, value in tags if value}
        return next((found[key] for key in keys if key in found), None)


def _plain(key: str) -> str:
    """Return a tag's key without the prefixes that clouds put before it (`user:team`, `aws:eks:namespace`, `user_team`)."""
    return key.rpartition(":")[2].casefold().removeprefix("user_")


UNUSED_COMMITMENT = "unused commitment"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DailySpend:
    """Micro-dollars by name and day (n_days,) from `first_day` on; `unheld` names are rows of shared cost, not of people."""

    first_day: date
    held: Mapping[str, IntArray]
    unheld: Mapping[str, IntArray]

    @property
    def total_micro_usd(self) -> int:
        """Return the sum of everything."""
        return sum(int(days.sum()) for days in (*self.held.values(), *self.unheld.values()))


def spent_at_list(fleet: Fleet, allocation: Allocation, split: CostSplit) -> DailySpend:
    """Return a fleet's bill at the price book's rates: who held a node pays it, idle nodes and unused commitments stand apart.

    Unused commitments, which belong to no hour of any node, are laid on the last day.
    """
    cells = allocation.holdings
    offset = fleet.window.start.hour
    days = (offset + fleet.window.hours - 1) // HR_PER_DAY + 1
    day = (cells.hour + offset) // HR_PER_DAY
    by_owner = np.zeros((len(fleet.workloads) + 1, days), dtype=np.int64)
    np.add.at(by_owner, (cells.owner, day), allocation.cost)  # IDLE is -1: the last row
    held: dict[str, IntArray] = {}
    for workload, costs in zip(fleet.workloads, by_owner, strict=False):
        name = split.of(workload)
        held[name] = held[name] + costs if name in held else costs
    unused = np.zeros(days, dtype=np.int64)
    unused[-1] = allocation.unused_commitment
    unheld = {UNALLOCATED: by_owner[IDLE], UNUSED_COMMITMENT: unused}
    return DailySpend(
        first_day=fleet.window.start.date(),
        held=held,
        unheld={name: costs for name, costs in unheld.items() if costs.any()},
    )


COLUMNS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "BillingPeriodStart",
    "BillingCurrency",
    "BilledCost",
    "EffectiveCost",
    "ChargeCategory",
    "ChargeClass",
    "CommitmentDiscountStatus",
    "PricingCategory",
    "ResourceId",
    "RegionId",
    "instance_type",
    "Tags",
)
DOLLAR = "USD"
MOST_USD = 9e9
"""Charges together stay below this: 2^63 billionths of a dollar are 9.22e9 dollars."""
UNSEEN = "shared (machines without telemetry)"
UNTAGGED = "shared (untagged)"
_SHARED = {
    "Tax": "shared (tax)",
    "Credit": "shared (credits)",
    "Adjustment": "shared (adjustments)",
    "Purchase": "shared (purchases)",
}


class ChargeBasis(Enum):
    """What a charge counts: what the invoice asks, or what it is amortised over the use that a commitment covers."""

    BILLED = "billed"
    EFFECTIVE = "effective"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Charges:
    """A bill's charges in dollars: the `costs` rows, and whole billionths of a dollar for each (n_rows,)."""

    rows: pa.Table
    nano_usd: IntArray


def charges_of(costs: pa.Table, basis: ChargeBasis, usd_per: Mapping[str, float]) -> Charges:
    """Return a bill's charges in dollars; `costs` has COLUMNS, `usd_per` the dollars per unit of other currencies.

    A charge without an effective cost counts its billed one. Raises BillError where a currency has no rate.
    """
    currency = pc.fill_null(costs["BillingCurrency"], DOLLAR)
    rates = {DOLLAR: 1.0, **usd_per}
    missing = sorted(set(pc.unique(currency).to_pylist()) - rates.keys())
    if missing:
        raise BillError(
            f"the bill holds charges in {', '.join(missing)}; state what one is worth in dollars: --fx {missing[0]}=1.08"
        )
    cost = (
        costs["BilledCost"] if basis is ChargeBasis.BILLED else pc.coalesce(costs["EffectiveCost"], costs["BilledCost"])
    )
    names = list(rates)
    index = pc.index_in(currency, value_set=pa.array(names)).to_numpy()
    usd = cost.to_numpy() * np.array([rates[name] for name in names])[index]
    _check_amounts(usd)
    return Charges(rows=costs, nano_usd=np.rint(usd * NANO_PER_USD).astype(np.int64))


def _check_amounts(usd: FloatArray) -> None:
    """Raise BillError where amounts (n_rows,) are no numbers, or too many dollars for whole billionths in 64 bits."""
    bad = np.flatnonzero(~np.isfinite(usd))
    if len(bad):
        raise BillError(
            f"the bill's row {bad[0] + 1} has a cost that is not a number, as do {len(bad) - 1} others; "
            "correct them, or read the bill again with --focus, which counts and leaves out such rows"
        )
    if np.abs(usd).sum() >= MOST_USD:
        row = int(np.argmax(np.abs(usd)))
        raise BillError(
            f"the bill's charges exceed ${MOST_USD:,.0f} together, the most that is added up exactly; the largest, "
            f"${usd[row]:,.2f}, is row {row + 1}: correct it, or give the bill in parts"
        )


def spent_of_bill(charges: Charges, fleet: Fleet, resources: Mapping[str, str], split: CostSplit) -> DailySpend:
    """Split a bill's charges; `resources` maps the last part of a resource id to the name of the fleet's node."""
    rows = charges.rows
    payers = Payers()
    unused = pc.equal(pc.fill_null(rows["CommitmentDiscountStatus"], ""), "Unused").to_numpy(zero_copy_only=False)
    names = node_names(fleet)
    node = np.where(unused, NOBODY, _node_of(rows, resources, names))
    tagged = _tagged(rows, split, node)
    pool = np.where(unused | (node != NOBODY) | (tagged != ""), NOBODY, _pool_of(rows, fleet))
    owners = payers.of_owners(fleet, split)
    number = {name: index for index, name in enumerate(names)}
    node_of_cell = np.array([number[held.name] for held in fleet.nodes], dtype=np.int64)[fleet.holdings.node]
    parts = [
        _held_parts(charges, fleet, node, node_of_cell, owners),
        _held_parts(charges, fleet, pool, fleet.holdings.pool, owners),
    ]
    seen = np.zeros(rows.num_rows, dtype=np.bool_)
    for part in parts:
        seen[part.row] = True
    parts.append(_named_parts(charges, fleet, np.flatnonzero(~seen), unused, tagged, node, payers))
    return _spent(parts, payers, fleet)


NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Payers:
    """Gives each charged name a number: those of payers (held), and those of rows that belong to no payer."""

    numbers: dict[tuple[bool, str], int] = field(default_factory=dict)

    def number(self, name: str, *, held: bool) -> int:
        """Return a name's number, a new one where it has none."""
        return self.numbers.setdefault((held, name), len(self.numbers))

    def of_owners(self, fleet: Fleet, split: CostSplit) -> IntArray:
        """Return the number of each workload's name (n_workloads + 1,); the last, which IDLE points at, is idle time's."""
        mine = [self.number(split.of(workload), held=True) for workload in fleet.workloads]
        return np.array([*mine, self.number(UNALLOCATED, held=False)], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """Parts of charges (n_parts,): the row, the payer's number, the day of the fleet's window, how much."""

    row: IntArray
    payer: IntArray
    day: IntArray
    nano_usd: IntArray


def node_names(fleet: Fleet) -> tuple[str, ...]:
    """Return the names of a fleet's nodes, each once."""
    return tuple(dict.fromkeys(node.name for node in fleet.nodes))


def _node_of(rows: pa.Table, resources: Mapping[str, str], names: Sequence[str]) -> IntArray:
    """Return the number of the node that each charge is for; NOBODY where it is for none that the fleet knows."""
    number = {name: index for index, name in enumerate(names)}
    known = rows["ResourceId"].combine_chunks().dictionary_encode()
    of_id = [
        number.get(resources.get(last_part(resource), ""), NOBODY) if resource else NOBODY
        for resource in known.dictionary.to_pylist()
    ]
    index = pc.fill_null(known.indices, len(of_id)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*of_id, NOBODY], dtype=np.int64)[index], dtype=np.int64)


def _pool_of(rows: pa.Table, fleet: Fleet) -> IntArray:
    """Return the row of the pool whose machine type and region each charge names; spot prices go to spot pools."""
    numbers = {
        (pool.instance_type, pool.region, pool.capacity_type is CapacityType.SPOT): index
        for index, pool in reversed(list(enumerate(fleet.usage.pools)))
    }
    keys = zip(
        rows["instance_type"].to_pylist(),
        rows["RegionId"].to_pylist(),
        pc.equal(pc.fill_null(rows["PricingCategory"], ""), "Dynamic").to_pylist(),
        strict=True,
    )
    return np.array([numbers.get(key, NOBODY) for key in keys], dtype=np.int64)


def _tagged(rows: pa.Table, split: CostSplit, node: IntArray) -> npt.NDArray[np.str_]:
    """Return the payer that each charge's tags name, "" where they name none or the node says it better."""
    tags = rows["Tags"]
    found = [""] * rows.num_rows
    for row in np.flatnonzero((node == NOBODY) & tags.is_valid().to_numpy(zero_copy_only=False)).tolist():
        found[row] = split.of_tags(tags[row].as_py()) or ""
    return np.array(found, dtype=np.str_)


def _held_parts(charges: Charges, fleet: Fleet, place: IntArray, place_of_cell: IntArray, owners: IntArray) -> _Parts:
    """Split charges over who held their place (a node or a pool) in their charge period; charges of no seen place are left."""
    cells, hours = fleet.holdings, fleet.window.hours
    key_of_cell = place_of_cell * hours + cells.hour
    order = np.argsort(key_of_cell, kind="stable")
    sorted_keys = key_of_cell[order]
    mine = np.flatnonzero(place != NOBODY)
    start, end = _periods(charges.rows, fleet)
    cut = cut_by_hour(start[mine], end[mine], fleet.window)
    key = place[mine][cut.index] * hours + cut.hour
    first, last = np.searchsorted(sorted_keys, key), np.searchsorted(sorted_keys, key, side="right")
    count = last - first
    inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    cell = order[np.repeat(first, count) + inside]
    weight = cells.node_seconds[cell] * np.repeat(cut.seconds, count)
    settled, group = np.unique(mine[np.repeat(cut.index, count)], return_inverse=True)
    totals = charges.nano_usd[settled]
    parts = apportion_groups(np.abs(totals), group, weight) * np.sign(totals)[group]
    return _Parts(
        row=settled[group], payer=owners[cells.owner[cell]], day=_day(cells.hour[cell], fleet), nano_usd=parts
    )


def _named_parts(
    charges: Charges,
    fleet: Fleet,
    rest: IntArray,
    unused: npt.NDArray[np.bool_],
    tagged: npt.NDArray[np.str_],
    node: IntArray,
    payers: Payers,
) -> _Parts:
    """Give charges that no holding settles to whom their tags name, or to the shared row of their kind, on their first day."""
    category = charges.rows["ChargeCategory"].to_pylist()
    machine = charges.rows["instance_type"].is_valid().to_numpy(zero_copy_only=False) | (node != NOBODY)
    payer = []
    for row in rest.tolist():
        if unused[row]:
            payer.append(payers.number(UNUSED_COMMITMENT, held=False))
        elif tagged[row]:
            payer.append(payers.number(str(tagged[row]), held=True))
        else:
            name = _SHARED.get(category[row] or "", UNSEEN if machine[row] else UNTAGGED)
            payer.append(payers.number(name, held=False))
    start, _ = _periods(charges.rows, fleet)
    return _Parts(
        row=rest,
        payer=np.array(payer, dtype=np.int64),
        day=_day(np.floor_divide(start[rest], S_PER_HR).astype(np.int64), fleet),
        nano_usd=charges.nano_usd[rest],
    )


def _periods(rows: pa.Table, fleet: Fleet) -> tuple[FloatArray, FloatArray]:
    return seconds_from(rows["ChargePeriodStart"], fleet.window), seconds_from(rows["ChargePeriodEnd"], fleet.window)


def _day(hour: IntArray, fleet: Fleet) -> IntArray:
    """Return the day (0: the window's first) of hours of the window; hours before it are of negative days."""
    return np.floor_divide(hour + fleet.window.start.hour, HR_PER_DAY)


def _spent(parts: Sequence[_Parts], payers: Payers, fleet: Fleet) -> DailySpend:
    """Add parts up by payer and day, in micro-dollars that sum to the bill."""
    payer, day, nano = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("payer", "day", "nano_usd")
    )
    first, days = (int(day.min()), int(np.ptp(day)) + 1) if len(day) else (0, 1)
    sums = np.zeros((len(payers.numbers), days), dtype=np.int64)
    np.add.at(sums, (payer, day - first), nano)
    micro = np.array(round_parts(sums.reshape(-1).tolist(), NANO_PER_MICRO), dtype=np.int64).reshape(sums.shape)
    by_kind: dict[bool, dict[str, IntArray]] = {True: {}, False: {}}
    for (held, name), number in payers.numbers.items():
        if micro[number].any():
            by_kind[held][name] = micro[number]
    return DailySpend(
        first_day=fleet.window.start.date() + timedelta(days=first), held=by_kind[True], unheld=by_kind[False]
    )

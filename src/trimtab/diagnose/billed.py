"""What bills say that nodes cost: beside what the price book says, and by the hour for nodes that no price list has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.pools import Pool
from trimtab.catalog.providers import last_part, provider_of_bill
from trimtab.fleet.columns import numbers, seconds_from
from trimtab.fleet.model import Fleet, Node, Window
from trimtab.fleet.occupancy import cut_by_hour
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.units import S_PER_HR, micro_usd

BILL_COLUMNS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "EffectiveCost",
    "BilledCost",
    "BillingCurrency",
    "instance_type",
)
SPEND_COLUMNS = (*BILL_COLUMNS, "CommitmentDiscountId", "CommitmentDiscountType", "ProviderName")
DOLLAR = "USD"
_SPEND = "saving|spend"

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledRows:
    """Cost rows of some instance types that lie in a window, in dollars."""

    usd: float
    rows: int
    foreign_rows: int
    """Rows in another currency: left out, never converted."""


def billed(costs: pa.Table, window: Window, instance_types: Collection[str]) -> BilledRows:
    """Add up the effective cost (the billed one where there is none) of rows of these types within a window.

    `costs` has BILL_COLUMNS. A row that reaches out of the window counts by the share of its charge period that lies in it.
    """
    of_types = costs.filter(pc.is_in(costs["instance_type"], value_set=pa.array(sorted(instance_types), pa.string())))
    cost, counted, foreign = cost_within(of_types, window)
    return BilledRows(usd=float(cost[counted].sum()), rows=int(counted.sum()), foreign_rows=int(foreign.sum()))


def billed_spend(costs: pa.Table, window: Window) -> dict[str, float]:
    """Return what commitments to spend (savings plans and the like) cost an hour of a window, by provider, dollars.

    `costs` has SPEND_COLUMNS. A commitment is one to spend where its type or its id says so: FOCUS' column for it
    (CommitmentDiscountCategory) came with 1.1, and cost and usage reports have none.
    """
    said = [pc.fill_null(costs[name], "") for name in ("CommitmentDiscountType", "CommitmentDiscountId")]
    mine = costs.filter(pc.or_(*(pc.match_substring_regex(column, _SPEND, ignore_case=True) for column in said)))
    cost, counted, _ = cost_within(mine, window)
    names = pc.fill_null(mine["ProviderName"], "").to_pylist()
    found: dict[str, float] = {}
    for name, dollars in zip(np.array(names, dtype=np.str_)[counted].tolist(), cost[counted].tolist(), strict=True):
        provider = provider_of_bill(name)
        found[provider] = found.get(provider, 0.0) + dollars / window.hours
    return found


def cost_within(rows: pa.Table, window: Window) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Return what of each row's cost lies in a window, which rows count (in it, in dollars), and which are foreign."""
    start, end = (_microseconds(rows, name) for name in ("ChargePeriodStart", "ChargePeriodEnd"))
    first, last = (
        np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64) for moment in (window.start, window.end)
    )
    inside = np.clip(np.minimum(end, last) - np.maximum(start, first), 0, None)
    share = inside / np.maximum(end - start, 1)
    dollars = pc.equal(pc.fill_null(rows["BillingCurrency"], DOLLAR), DOLLAR).to_numpy(zero_copy_only=False)
    cost = pc.coalesce(rows["EffectiveCost"], rows["BilledCost"]).to_numpy(zero_copy_only=False)
    return cost * share, (inside > 0) & dollars, (inside > 0) & ~dollars


def _microseconds(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    moments = table[column].cast(pa.timestamp("us", tz="UTC"))
    values: npt.NDArray[np.int64] = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


RATE_COLUMNS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "EffectiveCost",
    "BilledCost",
    "BillingCurrency",
    "ChargeCategory",
    "CommitmentDiscountStatus",
    "ResourceId",
)
UNKNOWN_TYPE = "unknown"
"""The instance type of nodes for which no type is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledRate:
    """What an hour of a node of some pool cost, and how many of its nodes the bill names."""

    micro_usd_hr: int
    nodes_named: int
    nodes: int
    hours: float
    """Node-hours that the charges are for."""


def billed_rates(
    costs: pa.Table, resources: Mapping[str, str], fleets: Sequence[Fleet], pools: Collection[Pool]
) -> dict[Pool, BilledRate]:
    """Return what a bill says an hour of a pool's nodes costs, for those pools of which it names a node.

    `costs` has RATE_COLUMNS, `resources` maps the last part of a resource id to the node's name. The effective cost (the
    billed one where there is none) of a named node's use, over the hours it was up in the charge periods; taxes, credits,
    purchases, unused commitments and charges in other currencies are left out. Nodes of one type, region and buying option
    cost the same, so that those not named have the rate of those that are. This cannot be assumed of unknown types: what the
    bill has for the named ones is spread over all of them, so that their sum is the bill's.
    """
    rows = use_in_dollars(costs)
    rows = rows.filter(rows["ResourceId"].is_valid())
    names = [resources.get(last_part(resource), "") for resource in rows["ResourceId"].to_pylist()]
    charged = [_charged(fleet, rows, names, pools) for fleet in fleets]
    found = {}
    for pool in pools:
        rate = _rate_of(pool, charged)
        if rate is not None and rate.micro_usd_hr > 0:
            found[pool] = rate
    return found


def use_in_dollars(costs: pa.Table) -> pa.Table:
    """Return the charges for use: no taxes, credits, purchases, unused commitments or charges in other currencies."""
    usage = pc.equal(pc.fill_null(costs["ChargeCategory"], "Usage"), "Usage")
    unused = pc.equal(pc.fill_null(costs["CommitmentDiscountStatus"], ""), "Unused")
    dollars = pc.equal(pc.fill_null(costs["BillingCurrency"], DOLLAR), DOLLAR)
    return costs.filter(pc.and_(pc.and_(usage, pc.invert(unused)), dollars))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Charged:
    """What lives of nodes were charged in one window, hour by hour."""

    lives: tuple[Node, ...]
    node_seconds: IntArray
    """(n_lives, n_hours)."""
    usd: FloatArray
    """(n_lives, n_hours)."""
    covered: Flags
    """(n_lives, n_hours) whether some charge is for that hour of it."""


def _charged(fleet: Fleet, rows: pa.Table, names: Sequence[str], pools: Collection[Pool]) -> _Charged:
    """Spread charges over the time that their nodes were up in their charge periods, as far as those lie in the window."""
    wanted = {node.name for node in fleet.nodes if node.pool in pools}
    lives = [index for index, node in enumerate(fleet.nodes) if node.name in wanted]
    number = {name: index for index, name in enumerate(sorted(wanted))}
    of_life = np.array([number[fleet.nodes[index].name] for index in lives], dtype=np.int64)
    seconds = fleet.node_seconds[lives]
    up = np.zeros((len(number), fleet.window.hours), dtype=np.int64)
    np.add.at(up, of_life, seconds)
    mine = np.array([row for row, name in enumerate(names) if name in number], dtype=np.int64)
    of_row = np.array([number[names[row]] for row in mine.tolist()], dtype=np.int64)
    usd, covered = _by_hour(rows.take(pa.array(mine)), of_row, up, fleet.window)
    return _Charged(
        lives=tuple(fleet.nodes[index] for index in lives),
        node_seconds=seconds,
        usd=usd[of_life] * seconds / np.maximum(up[of_life], 1),
        covered=covered[of_life] & (seconds > 0),
    )


def _by_hour(rows: pa.Table, node: IntArray, up: IntArray, window: Window) -> tuple[FloatArray, Flags]:
    """Return dollars and whether anything was charged, by node and hour (n_nodes, n_hours); `node` (n_rows,) is each row's."""
    start, end = seconds_from(rows["ChargePeriodStart"], window), seconds_from(rows["ChargePeriodEnd"], window)
    inside = np.clip(np.minimum(end, window.seconds) - np.maximum(start, 0.0), 0.0, None) / np.maximum(end - start, 1.0)
    cost = numbers(pc.coalesce(rows["EffectiveCost"], rows["BilledCost"])) * inside
    cells = cut_by_hour(start, end, window)
    at = (node[cells.index], cells.hour)
    weight = up[at] * cells.seconds
    total = np.bincount(cells.index, weights=weight, minlength=rows.num_rows)
    usd, covered = np.zeros(up.shape), np.zeros(up.shape, dtype=np.bool_)
    np.add.at(usd, at, cost[cells.index] * weight / np.where(total > 0, total, 1.0)[cells.index])
    covered[at] |= weight > 0
    return usd, covered


def _rate_of(pool: Pool, charged: Sequence[_Charged]) -> BilledRate | None:
    usd, seconds, named, everyone = 0.0, 0.0, set[str](), set[str]()
    for window in charged:
        mine = np.array([life.pool == pool for life in window.lives], dtype=np.bool_)
        covered = window.covered[mine]
        if pool.instance_type == UNKNOWN_TYPE:
            covered = np.broadcast_to(covered.any(axis=0), covered.shape)
        usd += float(window.usd[mine].sum())
        seconds += float(window.node_seconds[mine][covered].sum())
        names = np.array([life.name for life in window.lives], dtype=np.str_)[mine]
        named |= set(names[window.covered[mine].any(axis=1)].tolist())
        everyone |= set(names.tolist())
    if seconds == 0:
        return None
    rate = micro_usd(usd / seconds * S_PER_HR)
    return BilledRate(micro_usd_hr=rate, nodes_named=len(named), nodes=len(everyone), hours=seconds / S_PER_HR)

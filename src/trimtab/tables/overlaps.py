"""Finds rows of a bundle that would be billed twice: merged if they agree, rejected if they contradict each other.

A row of `nodes` is one life of a node, and no node has two at once; a row of `allocations` is one holding, and no pod holds
one GPU twice at once. Rows that overlap come of two sources, of a collection joined to an older one, or of clocks that differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import Fault
from trimtab.units import S_PER_HR, US_PER_S

CLOCKS_S = S_PER_HR
"""What two lives whose rows differ may overlap by: history is kept by the hour, and clocks differ."""
BILLED_BY = ("provider", "instance_type", "region", "capacity_type", "gpu", "gpu_count")
"""What a node costs by: rows that agree in these are one node."""
HELD_BY = ("workload", "pod", "node", "device", "gpus")
"""What tells holdings apart, but for their times."""
CHARGED_FOR = ("ResourceId", "SkuId", "SkuMeter", "ChargeDescription", "PricingCategory", "CommitmentDiscountId")
"""Columns that distinguish charges for the use of one resource, except their periods."""
_MOST_NAMED = 20

Seconds = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """The intervals of a table's rows (n_rows,) once no two overlap, and which rows others now speak for.

    In seconds since 1970; the end is infinite while it lasts.
    """

    start_s: Seconds
    end_s: Seconds
    drop: npt.NDArray[np.bool_]
    counts: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def count(self, reason: str) -> None:
        """Count one row of a reason."""
        self.counts[reason] = self.counts.get(reason, 0) + 1


def with_ends(table: pa.Table, end_s: Seconds) -> pa.Table:
    """Return a table whose intervals end at these moments (n_rows,); null if one is infinite."""
    at = table.schema.get_field_index("end")
    lasting = np.isinf(end_s)
    moments = np.where(lasting, 0, end_s * US_PER_S).round().astype(np.int64)
    column = pa.array(moments, mask=lasting).cast(pa.timestamp("us", tz="UTC")).cast(table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), column)


def node_lives(nodes: pa.Table, where: str, numbers: Sequence[int]) -> Spans:
    """Return the lives that the rows of `nodes` tell, none of them twice; `numbers` are the rows' own, for people.

    Rows of one node that agree in all that it costs by become one life, from the first start to the last end. Those that differ
    are two nodes of one name: where they overlap by an hour at most the earlier ends as the later starts; beyond, a fault
    names both.
    """
    spans = _spans(nodes)
    for rows in _overlapping(row_codes(nodes, ("node",)), spans):
        facts = nodes.select(BILLED_BY).take(pa.array(rows)).to_pylist()
        billed = dict(zip(rows, facts, strict=True))
        now = rows[0]
        for row in rows[1:]:
            if spans.start_s[row] >= spans.end_s[now]:
                now = row
            elif billed[now] == billed[row]:
                spans.end_s[now] = max(spans.end_s[now], spans.end_s[row])
                spans.drop[row] = True
                spans.count("nodes: rows of one node that overlap, merged")
            elif spans.end_s[now] - spans.start_s[row] <= CLOCKS_S and spans.end_s[row] > spans.end_s[now]:
                spans.end_s[now] = spans.start_s[row]
                spans.count("nodes: lives that overlap by an hour at most, cut (clocks)")
                now = row
            elif len(spans.faults) < _MOST_NAMED:
                spans.faults.append(_contradiction(nodes, (now, row), where, numbers))
    return spans


def holdings(allocations: pa.Table) -> Spans:
    """Return the holdings that the rows of `allocations` tell, none of one GPU by one pod twice.

    Where no GPU is named a pod may hold several: only rows that start at the same moment are one holding.
    """
    spans = _spans(allocations)
    named = np.asarray(allocations["device"].is_valid().to_numpy(zero_copy_only=False))
    alike, at_once = row_codes(allocations, HELD_BY), row_codes(allocations, (*HELD_BY, "start"))
    for rows in _overlapping(np.where(named, alike, alike.max(initial=0) + 1 + at_once), spans):
        now = rows[0]
        for row in rows[1:]:
            if spans.start_s[row] >= spans.end_s[now]:
                now = row
                continue
            spans.end_s[now] = max(spans.end_s[now], spans.end_s[row])
            spans.drop[row] = True
            spans.count("allocations: rows of one holding that overlap, merged")
    return spans


def shared_devices(devices: pa.Table, names: Sequence[str], lives: Spans, where: str) -> Iterator[Fault]:
    """Yield nodes that hold GPUs of the same ids at the same time: one machine under two names, billed twice.

    `names` are the nodes of the lives that are still there.
    """
    repeated = pc.value_counts(devices["device"]).to_pylist()
    twice = pa.array([row["values"] for row in repeated if row["counts"] > 1], pa.string())
    nodes_of: dict[str, list[str]] = defaultdict(list)
    for row in devices.filter(pc.is_in(devices["device"], value_set=twice)).to_pylist():
        nodes_of[row["device"]].append(row["node"])
    rows_of: dict[str, list[int]] = defaultdict(list)
    for name, row in zip(names, np.flatnonzero(~lives.drop).tolist(), strict=True):
        rows_of[name].append(row)
    held: dict[tuple[str, str], list[str]] = defaultdict(list)
    for device, holders in nodes_of.items():
        for first, second in combinations(sorted(set(holders)), 2):
            if _at_once(lives, rows_of[first], rows_of[second]):
                held[first, second].append(device)
    for (first, second), found in list(held.items())[:_MOST_NAMED]:
        yield Fault(
            what=f"the nodes {first} and {second} hold GPUs of the same id at the same time: {len(found)}",
            where=where,
            value=", ".join(found[:3]),
            cure="one machine under two names would be billed twice: keep one name in nodes, devices and allocations",
        )


def charged_twice(costs: pa.Table, where: str) -> Iterator[Fault]:
    """Yield charges for the use of one instance that overlap over different periods: two exports (days, hours) of one bill.

    Charges of one period may repeat: a host's cost is split over what ran on it.
    """
    use = pc.and_(pc.equal(pc.fill_null(costs["ChargeCategory"], "Usage"), "Usage"), pc.is_valid(costs["ResourceId"]))
    paid = pc.and_(pc.is_valid(costs["instance_type"]), pc.greater(costs["BilledCost"], 0.0))
    rows = np.flatnonzero(np.asarray(pc.and_(use, paid).to_numpy(zero_copy_only=False)))
    used = costs.take(pa.array(rows))
    periods = Spans(
        start_s=_seconds(used["ChargePeriodStart"], -np.inf),
        end_s=_seconds(used["ChargePeriodEnd"], np.inf),
        drop=np.zeros(len(rows), dtype=np.bool_),
    )
    contradictions = (
        _two_periods(used, pair, where, rows)
        for same in _overlapping(row_codes(used, CHARGED_FOR), periods)
        for pair in pairwise(same)
        if _differ(periods, *pair)
    )
    yield from islice(contradictions, _MOST_NAMED)


def _differ(periods: Spans, first: int, second: int) -> bool:
    """Return whether two periods, by their starts, overlap and are not the same one."""
    (start_s, next_s), (end_s, last_s) = (moments[[first, second]] for moments in (periods.start_s, periods.end_s))
    return bool(next_s < end_s and (start_s != next_s or end_s != last_s))


def _two_periods(used: pa.Table, pair: tuple[int, int], where: str, rows: Codes) -> Fault:
    said = used.select(["ResourceId", "ChargePeriodStart", "ChargePeriodEnd", "BilledCost"])
    one, other = said.take(pa.array(pair)).to_pylist()
    return Fault(
        what=f"two charges for the use of {one['ResourceId']} overlap, over different periods: billed twice",
        where=f"{where} rows {rows[pair[0]]} and {rows[pair[1]]}",
        value="; ".join(
            f"{row['BilledCost']} from {row['ChargePeriodStart']} to {row['ChargePeriodEnd']}" for row in (one, other)
        ),
        cure="days and hours of one bill are two exports of it: give one of them",
    )


def _at_once(lives: Spans, first: Sequence[int], second: Sequence[int]) -> bool:
    return any(
        min(lives.end_s[row], lives.end_s[other]) - max(lives.start_s[row], lives.start_s[other]) > CLOCKS_S
        for row in first
        for other in second
    )


def _spans(table: pa.Table) -> Spans:
    return Spans(
        start_s=_seconds(table["start"], -np.inf),
        end_s=_seconds(table["end"], np.inf),
        drop=np.zeros(table.num_rows, dtype=np.bool_),
    )


def _seconds(times: pa.ChunkedArray, absent: float) -> Seconds:
    whole = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    seconds = np.asarray(whole.fill_null(0).to_numpy(), dtype=np.float64) / US_PER_S
    return np.where(np.asarray(times.is_null().to_numpy(zero_copy_only=False)), absent, seconds)


def row_codes(table: pa.Table, columns: Sequence[str]) -> Codes:
    """Return one number per row (n_rows,), the same for rows that agree in the columns."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for name in columns:
        encoded = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        of_column = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        codes = np.unique(codes * (of_column.max(initial=0) + 1) + of_column, return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64)


def _overlapping(codes: Codes, spans: Spans) -> Iterator[list[int]]:
    """Yield the rows of each thing (a code) some of which overlap, in the order of their starts, the longer first."""
    order = np.lexsort((-spans.end_s, spans.start_s, codes))
    if len(order) < 2:
        return
    same = codes[order][1:] == codes[order][:-1]
    if not (same & (spans.start_s[order][1:] < spans.end_s[order][:-1])).any():
        # Rows in the order of their starts of which no two neighbours overlap do not overlap at all.
        return
    for rows in np.split(order, np.flatnonzero(~same) + 1):
        if len(rows) > 1 and (spans.start_s[rows[1:]] < np.maximum.accumulate(spans.end_s[rows])[:-1]).any():
            yield rows.tolist()


def _contradiction(nodes: pa.Table, pair: tuple[int, int], where: str, numbers: Sequence[int]) -> Fault:
    rows = sorted(pair)
    said = nodes.select(["node", *BILLED_BY, "start", "end"]).take(pa.array(rows)).to_pylist()
    differ = [name for name in BILLED_BY if said[0][name] != said[1][name]]

    def shown(row: Mapping[str, object]) -> str:
        return f"{' '.join(str(row[name]) for name in differ)} from {row['start']} to {row['end'] or 'now'}"

    return Fault(
        what=f"two rows of the node {said[0]['node']} overlap and differ in {', '.join(differ)}: billed twice",
        where=f"{where} rows {numbers[rows[0]]} and {numbers[rows[1]]}",
        value="; ".join(shown(row) for row in said),
        cure="keep the row that is true, or end the first life where the second starts",
    )

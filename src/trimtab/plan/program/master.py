"""The joint problem as blocks that share rows: one block per workload, balance rows over periods of hours of like use.

The bill is convex in use, so that a program over means never costs more than the hourly one: its optimum is a bound. What it
loses depends on where the cuts are. At the optimum a pool's balance price is the on-demand rate in hours above the committed
count and 0 below, so that cuts by the level of use lose almost nothing: hours are sorted by use and cut into equal parts.
Pools that are coupled within the hour (a spend plan covers them) are cut together, where their use differs most in dollars.

Rows in order: convexity[w]; retain[g,w] and enter[e,w]; per tracked pool balance[p,t] (where a commitment is sold, or nodes
are shared); spend[k,t] per spend plan; quota[p,t] (where there is a quota); shared[s,m,t] and floor[s,w,t]; spot_share. Each
coupling adds its own rows with the columns that belong to no block (`couplings`): metered u[p,t], committed c[p], spend s[k]
and what it covers y[k,p,t], shared n[s,t], and an excess over each limit at a price above anything it could save, so that
prices exist before a plan within the limits is known. Last come the columns z[g] and z[e] of what is paid once. The order
decides which of several equally good plans is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappush, heapreplace
from itertools import count

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.program.couplings.node_commitments import NodeCommitmentRows
from trimtab.plan.program.couplings.parts import (
    CountingRows,
    GatheredPeriods,
    Limit,
    LinkedRows,
    NodePrices,
    NodeRows,
    OptionRows,
    RowInputs,
    TrackedPool,
)
from trimtab.plan.program.couplings.quotas import QuotaRows
from trimtab.plan.program.couplings.shared_nodes import SharedNodeRows, gathered_sharing
from trimtab.plan.program.couplings.spend_plans import SpendPlanRows
from trimtab.plan.program.couplings.spot_share import SpotShareRow
from trimtab.plan.program.decompose import BlockAnswers
from trimtab.plan.program.highs import Program, ProgramColumn
from trimtab.plan.program.table import OptionTable
from trimtab.units import usd

MAX_NUMBERS = 60_000_000
"""Fewer periods than asked for are made where options times periods would exceed this: 0.5 GB."""

_MOST_COMPARED = 2_000_000
"""Numbers up to which hours are compared with one another."""
_WEIGHTS_SEED = 1


def gather(
    table: OptionTable, use: Sequence[FloatArray], most: int, most_limited: int | None = None
) -> tuple[GatheredPeriods, ...]:
    """Gather each tracked pool's hours into at most `most` periods, by the level of `use` (one (n_hours,) per tracked pool).

    Limited pools are gathered into at most `most_limited` where that is given. Pools that are coupled within the hour share
    their periods.
    """
    rows = sum(tracked.count for tracked in table.tracked)
    # options times periods is what the arrays hold
    allowed = max(1, MAX_NUMBERS // max(1, rows))
    gathered: dict[int, GatheredPeriods] = {}
    for places in _together(table):
        tracked = [table.tracked[place] for place in places]
        limited = [at for at, pool in enumerate(tracked) if pool.is_limited]
        parts = min(allowed, most if most_limited is None or not limited else most_limited)
        alike = _alike(tracked, parts)
        label = _cut(table, places, use, parts, limited) if alike is None else alike
        for place, pool in zip(places, tracked, strict=True):
            gathered[place] = _gathered(pool, label, exact=alike is not None)
    return tuple(gathered[place] for place in range(len(table.tracked)))


def _together(table: OptionTable) -> list[list[int]]:
    """Return the places of tracked pools that share their periods."""
    joint: dict[str, list[int]] = {}
    alone: list[list[int]] = []
    for place, tracked in enumerate(table.tracked):
        if tracked.cut_with:
            joint.setdefault(tracked.cut_with, []).append(place)
        else:
            alone.append([place])
    return [*alone, *joint.values()]


def _cut(
    table: OptionTable, places: Sequence[int], use: Sequence[FloatArray], most: int, limited: Sequence[int]
) -> IntArray:
    """Return the period of each hour, by the level of use of one pool or, in dollars, of several."""
    # where a quota binds, at the busiest hours, half of the periods are single hours
    peaks = most // 2 if limited else 0
    if len(places) == 1:
        return _labels(use[places[0]], most, peaks)
    rates = table.problem.rates_micro_usd_hr
    level = np.array([usd(rates[table.tracked[place].pool]) * use[place] for place in places])
    return _cells(
        level, most, {hour for at in limited for hour in np.argsort(-level[at])[: peaks // len(limited)].tolist()}
    )


def _gathered(tracked: TrackedPool, label: IntArray, *, exact: bool) -> GatheredPeriods:
    weight_hr = np.bincount(label).astype(np.float64)
    # sorted by period, the hours of each are one run
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(len(weight_hr)))
    return GatheredPeriods(
        weight_hr=weight_hr,
        nodes=tracked.means(order, first, weight_hr),
        peak=tracked.peaks(order, first) if tracked.is_limited else np.zeros((0, 0)),
        sharing=tuple(gathered_sharing(shared, order, first, weight_hr, exact=exact) for shared in tracked.sharing),
    )


def _alike(tracked: Sequence[TrackedPool], most: int) -> IntArray | None:
    """Return the period of each hour if hours are gathered that are alike in all rows; None where too many differ.

    Nothing is lost then, not even what whole nodes round up: services that do not scale have few different hours.
    """
    sharing = [shared for workload in tracked for shared in workload.sharing]
    rows = [
        *(use for workload in tracked for use in workload.seconds),
        *(line for shared in sharing for room in shared.taken for line in room),
    ]
    if not sharing or len(rows) * len(rows[0]) > _MOST_COMPARED:
        return None
    # an hour is a column here: equal columns are alike in every row
    return equal_columns(np.array(rows), most)


def equal_columns(numbers: IntArray, most: int) -> IntArray | None:
    """Return the place of each column (n_columns,) among those that differ, in their order; None where more than `most` do.

    To sort whole columns takes longer than the relaxation, so a weighted sum tells them apart first.

    >>> equal_columns(np.array([[5, 1, 5, 1], [2, 3, 2, 4]]), 3).tolist()
    [2, 0, 2, 1]
    """
    _, first, label = np.unique(_weights(len(numbers)) @ numbers, return_index=True, return_inverse=True)
    if len(first) > most:
        return None
    if not np.array_equal(numbers, numbers[:, first[label]]):  # two that differ have the same sum
        first = label = np.arange(numbers.shape[1])
    different, place = np.unique(numbers[:, first], axis=1, return_inverse=True)
    return np.asarray(place.reshape(-1)[label], dtype=np.int64) if different.shape[1] <= most else None


def _weights(count: int) -> IntArray:
    return np.random.default_rng(_WEIGHTS_SEED).integers(1, 2**62, count)


def _cells(level: FloatArray, most: int, alone: Collection[int]) -> IntArray:
    """Return the period of each hour of several pools' use (n_pools, n_hours); the hours in `alone` are periods each.

    Of the periods so far the one whose hours differ most is cut in the middle, along the pool in which they do.
    """
    if level.shape[1] <= most:
        return np.arange(level.shape[1])
    rest = np.array([hour for hour in range(level.shape[1]) if hour not in alone], dtype=np.int64)
    done, waiting = [np.array([hour]) for hour in sorted(alone)], [(_spread(level, rest), 0, rest)]
    # numbers break ties in the heap, because arrays have no order
    for number in count(1, 2):
        spread, _, hours = waiting[0]
        # the spread is negative, so that the heap gives the widest; at 0 the hours left do not differ
        if len(done) + len(waiting) >= most or spread == 0:
            break
        along = int(np.argmax(np.ptp(level[:, hours], axis=1)))
        halves = np.array_split(hours[np.argsort(level[along, hours], kind="stable")], 2)
        heapreplace(waiting, (_spread(level, halves[0]), number, halves[0]))
        heappush(waiting, (_spread(level, halves[1]), number + 1, halves[1]))
    label = np.empty(level.shape[1], dtype=np.int64)
    # by their numbers, so that labels do not depend on how the heap lies
    for at, hours in enumerate([*done, *(hours for _, _, hours in sorted(waiting, key=lambda cell: cell[1]))]):
        label[hours] = at
    return label


def _spread(level: FloatArray, hours: IntArray) -> float:
    """Return how much some hours differ, negative: the most by which one pool's use does, times the hours."""
    return -float(np.ptp(level[:, hours], axis=1).max()) * len(hours)


def _labels(level: FloatArray, most: int, peaks: int) -> IntArray:
    """Return the period of each hour; the `peaks` highest stand alone, because a quota binds there."""
    if len(level) <= most:
        return np.arange(len(level))
    label = np.empty(len(level), dtype=np.int64)
    order = np.argsort(level, kind="stable")
    # equal numbers of hours in each period, by rank of use
    rest = len(level) - peaks
    label[order[:rest]] = np.arange(rest) * (most - peaks) // rest
    label[order[rest:]] = most - peaks + np.arange(peaks)
    return label


class Master:
    """A table in gathered periods as a program; also the owner of its blocks.

    Quota rows count the mean nodes of gathered periods, so that the program is a relaxation; with `safe_quotas` they count
    each option's most nodes in any of them, so that its plans keep the quotas in every period, at the price of being no bound.
    `hourly`: periods are hours or alike, and shared nodes are whole in all of them.
    """

    def __init__(
        self,
        table: OptionTable,
        gathered: Sequence[GatheredPeriods],
        *,
        safe_quotas: bool = False,
        hourly: bool = False,
    ) -> None:
        self.table = table
        self.gathered = gathered
        self._program = program = Program()
        inputs = RowInputs(
            program=program, problem=table.problem, tracked=table.tracked, gathered=gathered, hourly=hourly
        )
        # the order of what follows is that of the rows, which decides between equally good plans
        self.convexity = [program.add_row(1.0, 1.0) for _ in range(table.problem.workloads)]
        held = LinkedRows(program, table.linked_groups)
        paid_once = LinkedRows(program, table.linked_costs)
        nodes = NodeCommitmentRows(inputs, table.balanced)
        spend = SpendPlanRows(inputs, nodes)
        quotas = QuotaRows(inputs, safe=safe_quotas)
        shared = SharedNodeRows(inputs, table.workload, (nodes, quotas))
        spot = SpotShareRow(inputs, table.spot_excess_hr)
        self._counting: tuple[CountingRows, ...] = (nodes, quotas)
        # Plans scale the prices that node commitments set; the price of a quota comes on top.
        self._node_rows: tuple[NodeRows, ...] = (nodes, spend, quotas)
        self._option_rows: tuple[OptionRows, ...] = (shared, spot, held, paid_once)
        self.excess_of: dict[Limit, list[int]] = {**quotas.excess, **spot.excess}
        """Columns that break a limit where they are above 0."""
        self._where = [{int(row): at for at, row in enumerate(tracked.rows)} for tracked in table.tracked]
        # what is paid once belongs to no block: it is part of the shared program, between 0 and 1
        for row in range(table.rows, len(table.fixed_usd)):
            rows, values = self._coefficients(row)
            program.put(rows, program.add_column(float(table.fixed_usd[row]), 1.0), values)

    def program(self) -> Program:
        """Return the shared part."""
        return self._program

    @property
    def excess(self) -> list[int]:
        """Return all columns that break a limit where they are above 0."""
        return [column for columns in self.excess_of.values() for column in columns]

    def strict(self) -> Program:
        """Return the shared part without leave to break a limit."""
        program = self._program.copy()
        for column in self.excess:
            program.upper[column] = 0.0
        return program

    def size(self, rows: Sequence[int]) -> int:
        """Return about how many coefficients the columns of some table rows have."""
        wanted = np.zeros(len(self.table.fixed_usd), dtype=bool)
        wanted[list(rows)] = True
        return sum(
            int(wanted[rows].sum()) * len(gathered.weight_hr)
            for tracked, gathered in zip(self.table.tracked, self.gathered, strict=True)
            for rows in tracked.users
        )

    def column(self, row: int) -> ProgramColumn:
        """Return the column of a table row."""
        rows, values = self._coefficients(row)
        workload = int(self.table.workload[row])
        return ProgramColumn(block=workload, key=row, cost=float(self.table.fixed_usd[row]), rows=rows, values=values)

    def _coefficients(self, row: int) -> tuple[IntArray, FloatArray]:
        found = list(self._stands_in(row))
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        line, value = np.concatenate([lines for lines, _ in found]), np.concatenate([values for _, values in found])
        return line[value != 0], value[value != 0]

    def _stands_in(self, row: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield the rows that a table row's column is in: for its own nodes, pool by pool, and beside them."""
        for place, at in ((place, where[row]) for place, where in enumerate(self._where) if row in where):
            for counting in self._counting:
                lines = counting.lines(place)
                if len(lines):
                    yield lines, counting.nodes(place)[at]
        for rows in self._option_rows:
            yield from rows.coefficients(row)

    def price(self, duals: FloatArray) -> BlockAnswers:
        """Price every option at once; the bound holds at any prices, which are first made feasible for the shared part."""
        table = self.table
        prices = NodePrices.none(self.gathered)
        for node_rows in self._node_rows:
            node_rows.price_nodes(duals, prices)
        value_usd = table.fixed_usd.copy()
        for place, (tracked, gathered) in enumerate(zip(table.tracked, self.gathered, strict=True)):
            # a node costs what pays for it and what standing under a limit costs
            value_usd[tracked.rows] += gathered.nodes @ prices.total(place)
        for option_rows in self._option_rows:
            option_rows.price_options(duals, prices, value_usd)
        value_usd[table.in_no_plan] = np.inf
        value_usd, linked_usd = value_usd[: table.rows], value_usd[table.rows :]
        # rows of a workload stand together, so that one reduction finds the least of each
        least = np.minimum.reduceat(value_usd, table.first[:-1]) if table.rows else np.zeros(0)
        # Each block takes its best option; what is paid once is taken where it is below 0; the rest of the bound is what the
        # right-hand sides are worth.
        bound = float(least.sum() + np.minimum(linked_usd, 0.0).sum())
        bound -= sum(rows.paid_anyway_usd(prices) for rows in self._node_rows)
        reduced = value_usd - least[table.workload]
        return BlockAnswers(
            bound=bound, columns=[self.column(row) for row in self._first_least(reduced)], reduced=reduced
        )

    def _first_least(self, reduced: FloatArray) -> list[int]:
        """Return the first row of each workload with reduced cost 0."""
        least = np.flatnonzero(reduced == 0.0)
        _, first = np.unique(self.table.workload[least], return_index=True)
        return [int(row) for row in least[first]]

"""Nodes that several workloads share, slot by slot: whole nodes are paid for what all of them take together.

    shared[s,m,t]: sum_o room[o,s,m,t] / room[s,m] x[o] <= n[s,t]          for each measure m of a site's nodes
    floor[s,w,t]:  sum_{o of w} nodes[o,s,t] x[o] <= n[s,t]                for each workload w: what it would need alone

In gathered periods both are means over the hours gathered, so that what the exact bill rounds up, hour by hour, is never less:
the program stays a relaxation. Floors are implied by whole nodes and make the relaxation tight where few workloads share
(the strong form of facility location; Cornuejols, Nemhauser and Wolsey, 1990). n[s,t] is whole where a
period is one hour, or hours that are alike; it is part of the use of the pool that the site belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import KEEP, Problem, summed
from trimtab.plan.program.couplings.parts import (
    Coefficients,
    CountingRows,
    GatheredSharing,
    NodePrices,
    RowInputs,
    Sharing,
    Slots,
)
from trimtab.plan.program.highs import INFINITY, Program
from trimtab.units import S_PER_HR

_MAX_FLOORS = 20_000
"""Rows of floors per shared pool; beyond, so many workloads share that rounding up no longer matters."""
_MAX_WHOLE = 100
"""Periods per shared pool in which n is whole: more only slow the search down, but where few options are left."""
_TINY = 1e-300
"""A divisor in place of 0."""


# --- the exact use ----------------------------------------------------------------------------------------------------


def shared_usage(parts: Iterable[Slots]) -> dict[Pool, IntArray]:
    """Return the node-seconds of the shared nodes that hold all these slots: whole nodes for whole hours."""
    rooms = summed(taken(part) for part in parts)
    return summed({site.pool: whole_nodes(site, room) * S_PER_HR} for site, room in rooms.items())


def taken(slots: Mapping[SharedPool, IntArray]) -> dict[Site, IntArray]:
    """Return the room (n_measures, n_hours) that slots per hour take of the nodes they stand on."""
    return summed(
        {shared.site: np.multiply.outer(np.array(shared.measures, dtype=np.int64), held)}
        for shared, held in slots.items()
    )


def whole_nodes(site: Site, room: IntArray) -> IntArray:
    """Return how many whole nodes have so much room (..., n_measures, n_hours), by the measure that needs most of them."""
    most = np.array(site.room, dtype=np.int64)[:, None]
    # rounded up in each measure; the measure that needs most nodes decides
    return np.asarray((-(-room // most)).max(axis=-2), dtype=np.int64)


# --- options in arrays ------------------------------------------------------------------------------------------------


def sharing_of(slots: Sequence[Slots]) -> list[Sharing]:
    """Return each site with the table rows that take room there; `slots` are by row."""
    rooms: dict[Site, dict[int, IntArray]] = {}
    for row, held in enumerate(slots):
        for site, room in taken(held).items() if held else ():
            rooms.setdefault(site, {})[row] = room
    return [
        Sharing(site=site, rows=np.array([*room], dtype=np.int64), taken=tuple(room.values()))
        for site, room in sorted(rooms.items(), key=lambda known: known[0])
    ]


def worth_in_nodes(sharing: Sharing) -> FloatArray:
    """Return the nodes' worth of room that each row takes by each measure (n, n_measures, n_hours)."""
    return np.array(sharing.taken, dtype=np.float64) / np.array(sharing.site.room, dtype=np.float64)[:, None]


def nodes_alone(sharing: Sharing) -> FloatArray:
    """Return the whole nodes that each row would need alone (n, n_hours): what the nodes cannot be fewer than with it."""
    return whole_nodes(sharing.site, np.array(sharing.taken, dtype=np.int64)).astype(np.float64)


def gathered_sharing(
    sharing: Sharing, order: IntArray, first: IntArray, weight_hr: FloatArray, *, exact: bool
) -> GatheredSharing:
    """Return means over periods: runs of hours in `order`, beginning at `first`, `weight_hr` long (n_periods,).

    `exact` where the hours of each period are alike.
    """
    held = np.array(sharing.taken, dtype=np.int64)
    # whole numbers, summed exactly
    room = np.add.reduceat(held.take(order, axis=-1), first, axis=-1)
    whole = np.add.reduceat(whole_nodes(sharing.site, held).take(order, axis=-1), first, axis=-1)
    most = np.array(sharing.site.room, dtype=np.float64)[:, None]
    return GatheredSharing(nodes=room / (most * weight_hr), whole=whole / weight_hr, exact=exact)


# --- rows and prices --------------------------------------------------------------------------------------------------


class SharedNodeRows:
    """The rows of every site, and the columns n[s,t]."""

    def __init__(self, inputs: RowInputs, workload: IntArray, counting: Sequence[CountingRows]) -> None:
        """Add them; `workload` is each table row's, and `counting` are the rows in which n counts as use of its pool."""
        self._sites = [
            _SiteRows(
                inputs.program,
                sharing,
                gathered,
                workloads=workload[sharing.rows],
                weight_hr=pool.weight_hr,
                place=place,
                hourly=inputs.hourly,
                counted_in=tuple(rows.lines(place) for rows in counting),
            )
            for place, (tracked, pool) in enumerate(zip(inputs.tracked, inputs.gathered, strict=True))
            for sharing, gathered in zip(tracked.sharing, pool.sharing, strict=True)
        ]

    def coefficients(self, row: int) -> Coefficients:
        """Yield the rows that a table row's column is in."""
        for site in self._sites:
            yield from site.coefficients(row)

    def price_options(self, duals: FloatArray, prices: NodePrices, value_usd: FloatArray) -> None:
        """Add what each table row's slots cost at prices that leave no gain in n[s,t]."""
        for site in self._sites:
            value_usd[site.rows] += site.value(duals, prices.total(site.place))


class _SiteRows:
    """The rows of one site, its columns n[s,t], and what they make of an option."""

    def __init__(
        self,
        program: Program,
        sharing: Sharing,
        gathered: GatheredSharing,
        *,
        workloads: IntArray,
        weight_hr: FloatArray,
        place: int,
        hourly: bool,
        counted_in: tuple[IntArray, ...],
    ) -> None:
        self.rows = sharing.rows
        self.place = place
        self._gathered = gathered
        self._workloads = workloads
        self._at = {int(row): at for at, row in enumerate(sharing.rows)}
        periods = len(weight_hr)
        # A mean over hours that differ is no whole number of nodes: n is whole only where it stands for single hours.
        whole = (weight_hr == 1.0) | gathered.exact
        if periods > _MAX_WHOLE and not hourly:
            whole = np.zeros(periods, dtype=bool)
        # a measure of which no option takes anything limits nothing
        taken_by_any = gathered.nodes.any(axis=(0, 2))
        self._room = gathered.nodes[:, taken_by_any]
        rows = [program.add_row(-INFINITY, 0.0) for _ in range(int(taken_by_any.sum()) * periods)]
        self._shared = np.array(rows, dtype=np.int64).reshape(-1, periods)
        # floors only tighten the program: with too many of them they are left out
        floored = sorted(set(workloads.tolist())) if periods * len(set(workloads.tolist())) <= _MAX_FLOORS else []
        self._floors = {
            workload: np.array([program.add_row(-INFINITY, 0.0) for _ in weight_hr]) for workload in floored
        }
        # n is free here: it is paid for as use of its pool
        columns = np.array([program.add_column(0.0, integer=bool(is_whole)) for is_whole in whole])
        for lines in (*self._shared, *self._floors.values()):
            program.put(lines, columns, -1.0)
        # whole nodes are use of the pool, in the rows that pay for it and in those that limit it
        for lines in counted_in:
            if len(lines):
                program.put(lines, columns, 1.0)

    def coefficients(self, row: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield the rows that an option's column is in, with its coefficients."""
        at = self._at.get(row)
        if at is None:
            return
        yield from zip(self._shared, self._room[at], strict=True)
        floor = self._floors.get(int(self._workloads[at]))
        if floor is not None:
            yield floor, self._gathered.whole[at]

    def value(self, duals: FloatArray, node_price: FloatArray) -> FloatArray:
        """Return what each option's slots cost (n_rows,) at prices that leave no gain in n[s,t].

        `node_price` (n_periods,) is the price of a node in the rows of its pool: what the slots and floors of a period may
        sum to at most.
        """
        room = np.maximum(-duals[self._shared], 0.0)
        floors = {workload: np.maximum(-duals[lines], 0.0) for workload, lines in self._floors.items()}
        total = room.sum(axis=0) + sum(floors.values(), start=0 * node_price)
        # where slots and floors together would pay more than a node costs, n would gain without end
        scale = np.minimum(1.0, node_price / np.maximum(total, _TINY))
        value = np.einsum("rmt,mt->r", self._room, room * scale)
        for workload, price in floors.items():
            of_workload = np.flatnonzero(self._workloads == workload)
            value[of_workload] += self._gathered.whole[of_workload] @ (price * scale)
        return np.asarray(value, dtype=np.float64)


# --- move by move -----------------------------------------------------------------------------------------------------


class SharedNodesInUse:
    """The room that the present choice takes of each site."""

    def __init__(self, problem: Problem, choice: Sequence[int]) -> None:
        self._problem = problem
        self._room: dict[Site, IntArray] = {}
        for workload, option in enumerate(choice):
            for site, room in self._taken(workload, option).items():
                self._room[site] = self._room_of(site) + room

    def added(self, workload: int, tried: Sequence[int]) -> Iterator[tuple[int, Pool, IntArray]]:
        """Yield the whole nodes that some options of a workload, the present one first, add to those of the others."""
        taken_by = [self._taken(workload, option) for option in tried]
        for site in sorted({site for rooms in taken_by for site in rooms}):
            # the first option tried is the present one: without it the others are left
            others = self._room_of(site) - taken_by[0].get(site, 0)
            least = whole_nodes(site, others)
            for at, rooms in enumerate(taken_by):
                if site in rooms:
                    # rounded up together with the others, since a slot on a node that is up anyway costs nothing
                    yield at, site.pool, (whole_nodes(site, others + rooms[site]) - least) * S_PER_HR

    def move(self, workload: int, before: int, after: int) -> list[tuple[Pool, IntArray]]:
        """Make a move and return by what the use of each pool changes."""
        changes = []
        # one after the other: what the second rounds up with is what the first left
        for sign, option in ((-1, before), (1, after)):
            for site, room in self._taken(workload, option).items():
                held = self._room_of(site)
                self._room[site] = held + sign * room
                nodes = whole_nodes(site, self._room[site]) - whole_nodes(site, held)
                changes.append((site.pool, nodes * S_PER_HR))
        return changes

    def _taken(self, workload: int, option: int) -> Mapping[Site, IntArray]:
        """Return the room that a workload's choice takes."""
        return {} if option == KEEP else taken(self._problem.options[workload][option].slots)

    def _room_of(self, site: Site) -> IntArray:
        known = self._room.get(site)
        return np.zeros((len(site.room), self._problem.hours), dtype=np.int64) if known is None else known

"""Commitments already held: what they cover, how well they are used, and when each ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Commitment, Usage, bill
from trimtab.levers.commit_table import Offer
from trimtab.units import S_PER_HR, micro_usd, per_month, usd

_NAMED = 5
"""So many commitments of a kind are named in a remark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A commitment that runs: `count` nodes under `offer`, for the days `[start, end)`."""

    name: str
    offer: Offer
    count: int
    start: date
    end: date

    @property
    def pool(self) -> Pool:
        """Return the pool that it covers."""
        return self.offer.pool

    def runs_at(self, day: date) -> bool:
        """Tell whether it runs on a day."""
        return self.start <= day < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A running commitment, judged on the window's use."""

    owned: Owned
    used_frac: float
    """Share of what it pays for that was in use."""
    coverage_frac: float | None
    """Share of the pool's node time that it covered; None where the pool was not used."""
    unused_usd_mo: float
    """What it costs a month for nodes that nothing ran on: sunk until it ends."""
    days_left: int
    held_after: int
    """Nodes of the same pool that other running commitments still cover when it has ended."""


def owned_nodes(owned: Sequence[Owned], day: date) -> dict[Pool, int]:
    """Return the nodes that running commitments cover on a day, by pool."""
    nodes: dict[Pool, int] = {}
    for one in owned:
        if one.runs_at(day):
            nodes[one.pool] = nodes.get(one.pool, 0) + one.count
    return nodes


def not_running(owned: Sequence[Owned], day: date) -> tuple[str, ...]:
    """Name those that count for nothing on a day: over, or not yet begun."""
    over = [one.name for one in owned if one.end <= day]
    ahead = [one.name for one in owned if one.start > day]
    return tuple(
        f"not counted, {why} {day}: {', '.join(names[:_NAMED])}{' and others' if len(names) > _NAMED else ''} ({len(names)})"
        for why, names in (("over by", over), ("not begun by", ahead))
        if names
    )


def _running(owned: Sequence[Owned], day: date) -> list[Owned]:
    """Return those that run on a day, in the order in which they apply: the first to end first."""
    return sorted((one for one in owned if one.runs_at(day)), key=lambda one: (one.end, one.pool, one.name))


def running_commitments(owned: Sequence[Owned], day: date) -> tuple[Commitment, ...]:
    """Return the commitments that run on a day as the ledger takes them, those that end first before the others."""
    running = _running(owned, day)
    return tuple(
        Commitment(
            pool=one.pool,
            option=one.offer.option,
            count=one.count,
            rate_micro_usd_hr=micro_usd(one.offer.effective_usd_hr),
        )
        for one in running
    )


def inventory(
    owned: Sequence[Owned], usage: Usage, rates_micro_usd_hr: Mapping[Pool, int], day: date
) -> tuple[Held, ...]:
    """Judge every commitment that runs on a day by the one bill, first those that end first; they apply in that order."""
    running = _running(owned, day)
    commitments = running_commitments(running, day)
    priced = bill(usage, rates_micro_usd_hr, commitments)
    unused = priced.unused_commitment().sum(axis=1)
    seconds_of = dict(zip(usage.pools, usage.node_seconds.sum(axis=1).tolist(), strict=True))
    held = []
    for row, one in enumerate(running):
        covered, paid_for = int(priced.covered_seconds[row].sum()), one.count * usage.hours * S_PER_HR
        in_use = seconds_of.get(one.pool, 0)
        held.append(
            Held(
                owned=one,
                used_frac=covered / paid_for if paid_for else 0.0,
                coverage_frac=covered / in_use if in_use else None,
                unused_usd_mo=per_month(usd(int(np.int64(unused[row]))), usage.hours),
                days_left=(one.end - day).days,
                held_after=owned_nodes(running, one.end).get(one.pool, 0),
            )
        )
    return tuple(held)

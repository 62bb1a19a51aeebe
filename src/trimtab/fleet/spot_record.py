"""A fleet's own history on spot, pool by pool: availability, losses of nodes, prices.

`spot_events` says when spot was requested or probed. What was learnt holds until the next event of that zone, for an hour at
most; time of which nothing is known counts for neither side. A record is blended with the stated odds by how much it knows:
`PRIOR_HR` hours of knowledge weigh as much as the assumption, one loss and one drought likewise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.columns import numbers, seconds_from, text
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Assumptions
from trimtab.ledger.arrays import FloatArray
from trimtab.units import S_PER_HR, S_PER_MIN

EVENT_COLUMNS = ("provider", "instance_type", "region", "zone", "at", "event", "spot_usd_hr")
HOLDS_S = float(S_PER_HR)
"""How long what an event shows is assumed to hold: recorded V100 zones without spot stayed so for 0.2 to 0.5 h (medians), 1.5 h
on average."""
TAKEN_S = 15.0 * S_PER_MIN
"""A loss that is followed by `unavailable` within this time was the beginning of a drought, and no loss of its own."""
PRIOR_HR = 6.0
"""Hours of knowledge that weigh as much as the assumed share of time without spot: best at predicting the next three days from
12 to 48 hours on four zones recorded in February 2023 (`benchmarks.spot_record` reports nine others)."""
LOSS_DRIFT = 1.2
"""Standard deviation of the logarithm of a pool's losses an hour between a record and the three days after it: the least with
which intervals hold on four zones recorded in February 2023 (`benchmarks.spot_record` reports the others)."""
_Z_80 = 1.2816
"""Normal quantile that leaves 10 % on each side."""
_UP, _DOWN = {"launched", "available"}, {"unavailable"}
_INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRecord:
    """Observations of one pool's spot nodes in a window."""

    known_hr: float
    """Hours in which it was known whether any zone gave spot nodes."""
    without_hr: float
    """Of them, hours in which none did."""
    droughts: int
    """Spells without spot that were observed to end."""
    droughts_hr: float
    """How long these lasted in all."""
    node_hr: float
    """Hours that spot nodes of the pool were up."""
    losses: int
    """Spot nodes that were reclaimed."""
    losses_at_droughts: int
    """Of them, those with which a drought began."""
    spot_usd_hr: float | None = None
    """Mean of the prices that events reported; None if none did."""

    @property
    def weight_frac(self) -> float:
        """Return how much the record counts beside the assumption, for the share of time without spot."""
        return self.known_hr / (self.known_hr + PRIOR_HR)

    def describe(self) -> str:
        """Describe the observations and their weight."""
        without = self.without_hr / self.known_hr if self.known_hr else 0.0
        return (
            f"none {without:.0%} of {self.known_hr:,.1f} h known, {self.losses} losses in {self.node_hr:,.0f} node-hours; "
            f"the record counts {self.weight_frac:.0%}, stated odds the rest"
        )


_NOTHING_SEEN = SpotRecord(
    known_hr=0.0, without_hr=0.0, droughts=0, droughts_hr=0.0, node_hr=0.0, losses=0, losses_at_droughts=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOdds:
    """The odds that a plan assumes for one pool's spot nodes."""

    loss_per_hr: float
    loss_low_per_hr: float
    """Four in five such pools lose nodes at least as often as this, and at most as often as `loss_high_per_hr`."""
    loss_high_per_hr: float
    unavailable_frac: float
    drought_s: float


def spot_odds(record: SpotRecord | None, assumptions: Assumptions, assumed_loss_per_hr: float) -> SpotOdds:
    """Return a pool's odds: its record's blended with the stated ones, which stand alone without a record.

    The assumed rate of losses is known as well as one loss in `1 / rate` node-hours would tell it. To the doubt of so few
    losses comes what rates change from one week to the next (`LOSS_DRIFT`). Without a record the interval is a seventh of the
    rate to seven times: wider than any published band that has both edges.
    """
    seen = record or _NOTHING_SEEN
    single = seen.losses - (seen.losses_at_droughts if assumptions.spot_droughts_take else 0)
    known = 1 + single
    # a rate of 0 leaves no room for doubt
    rate = known / (1 / assumed_loss_per_hr + seen.node_hr) if assumed_loss_per_hr > 0 else 0.0
    # the logarithm of a rate that n losses tell has a standard error of 1 / sqrt(n)
    factor = math.exp(_Z_80 * math.hypot(1 / math.sqrt(known), LOSS_DRIFT))
    return SpotOdds(
        loss_per_hr=rate,
        loss_low_per_hr=rate / factor,
        loss_high_per_hr=rate * factor,
        unavailable_frac=(seen.without_hr + PRIOR_HR * assumptions.spot_unavailable_frac) / (seen.known_hr + PRIOR_HR),
        drought_s=(seen.droughts_hr * S_PER_HR + assumptions.spot_outage_s) / (seen.droughts + 1),
    )


def spot_records(events: pa.Table, nodes: pa.Table, window: Window) -> dict[Pool, SpotRecord]:
    """Return what was seen in a window, by the pool of the same nodes on demand; only pools with an event are there."""
    at_s = seconds_from(events["at"], window)
    told = text(events["event"])
    zones = text(events["zone"])
    prices = numbers(events["spot_usd_hr"])
    rows: dict[Pool, list[int]] = defaultdict(list)
    places = zip(text(events["provider"]), text(events["instance_type"]), text(events["region"]), strict=True)
    for row, place in enumerate(places):
        if 0 <= at_s[row] < window.seconds:
            rows[Pool(*place)].append(row)
    up_hr = _spot_node_hr(nodes, window)
    return {
        pool: _record(
            [(float(at_s[row]), zones[row], told[row]) for row in sorted(row_numbers, key=lambda row: at_s[row])],
            window.seconds,
            up_hr.get(pool, 0.0),
            prices[row_numbers],
        )
        for pool, row_numbers in sorted(rows.items())
    }


def _record(events: list[tuple[float, str, str]], end_s: float, node_hr: float, prices: FloatArray) -> SpotRecord:
    known_s, without_s, droughts_s = _spells(_stretches(events, end_s))
    lost = [at_s for at_s, _, event in events if event == _INTERRUPTED]
    gone = [at_s for at_s, _, event in events if event in _DOWN]
    priced = prices[~np.isnan(prices)]
    return SpotRecord(
        known_hr=known_s / S_PER_HR,
        without_hr=without_s / S_PER_HR,
        droughts=len(droughts_s),
        droughts_hr=sum(droughts_s) / S_PER_HR,
        node_hr=node_hr,
        losses=len(lost),
        losses_at_droughts=sum(any(0 <= at_s - loss_s <= TAKEN_S for at_s in gone) for loss_s in lost),
        spot_usd_hr=float(priced.mean()) if len(priced) else None,
    )


def _stretches(events: Iterable[tuple[float, str, str]], end_s: float) -> FloatArray:
    """Return from, to and state (1 up, 0 down) of each zone's known times (n, 3), one zone after the other."""
    by_zone: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for at_s, zone, event in events:
        if event in _UP or event in _DOWN:
            by_zone[zone].append((at_s, event in _UP))
    found = []
    for events_there in by_zone.values():
        following = [at_s for at_s, _ in events_there[1:]] + [end_s]
        found += [
            (at_s, min(next_s, at_s + HOLDS_S), up) for (at_s, up), next_s in zip(events_there, following, strict=True)
        ]
    return np.array(found, dtype=np.float64).reshape(-1, 3)


def _spells(stretches: FloatArray) -> tuple[float, float, list[float]]:
    """Return seconds known, seconds without spot, and the lengths of droughts that were observed to end.

    A pool is without spot while a zone is known to have none and no zone is known to have some.
    """
    moments = np.unique(stretches[:, :2])
    lengths_s = np.diff(moments)
    zones = np.zeros((2, len(moments)))  # zones known to be down and up, from each moment to the next
    state = stretches[:, 2].astype(np.int64)
    np.add.at(zones, (state, np.searchsorted(moments, stretches[:, 0])), 1.0)
    np.add.at(zones, (state, np.searchsorted(moments, stretches[:, 1])), -1.0)
    down, up = zones.cumsum(axis=1)[:, :-1] > 0
    drought_s, ended = 0.0, []
    for length_s, none, some in zip(lengths_s.tolist(), (down & ~up).tolist(), up.tolist(), strict=True):
        if none:
            drought_s += length_s
            continue
        if some and drought_s:
            ended.append(drought_s)
        drought_s = 0.0
    return float(lengths_s[down | up].sum()), float(lengths_s[down & ~up].sum()), ended


def _spot_node_hr(nodes: pa.Table, window: Window) -> dict[Pool, float]:
    """Return the hours that spot nodes were up in a window, by the pool of the same nodes on demand."""
    start_s = np.clip(seconds_from(nodes["start"], window), 0, window.seconds)
    end_s = np.clip(seconds_from(nodes["end"], window, absent=float(window.seconds)), 0, window.seconds)
    held = text(nodes["capacity_type"])
    places = zip(text(nodes["provider"]), text(nodes["instance_type"]), text(nodes["region"]), strict=True)
    found: dict[Pool, float] = defaultdict(float)
    for row, place in enumerate(places):
        if held[row] == CapacityType.SPOT.value:
            found[Pool(*place)] += max(0.0, float(end_s[row] - start_s[row])) / S_PER_HR
    return dict(found)

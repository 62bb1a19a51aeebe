"""What a fleet would use once the other levers are in place: the demand that is left to commit to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BuyCommitment
from trimtab.ledger import Usage, nodes_committed
from trimtab.levers.commit_advice import Layer
from trimtab.plan.actions.staging import in_use
from trimtab.plan.planner import Planned


def usage_after(planned: Planned) -> Usage:
    """Return node-seconds per pool and hour of the planned window with every action but commitments in force, as replayed.

    Nodes that no workload held count as unused: nothing is committed for them.
    """
    drafted = planned.drafted
    others = frozenset(number for number, draft in enumerate(drafted.actions) if not draft.discounts)
    used = in_use(drafted, others)
    pools = tuple(sorted(used))
    rows = [used[pool] for pool in pools]
    return Usage(
        pools=pools, node_seconds=np.array(rows, dtype=np.int64).reshape(len(pools), planned.fleet.window.hours)
    )


def ordered_layers(planned: Planned, day: date) -> dict[Pool, tuple[Layer, ...]]:
    """Return the tranches of nodes that a plan's orders say, by pool, in days from a day."""
    effects = [change.effect for action in planned.plan.actions for change in action.changes]
    tranches: dict[Pool, dict[int, int]] = {}
    for effect in effects:
        if isinstance(effect, BuyCommitment):
            for tranche in effect.tranches:
                after = ((tranche.on or day) - day).days
                by_day = tranches.setdefault(effect.pool, {})
                by_day[after] = by_day.get(after, 0) + tranche.quantity
    owned = nodes_committed(planned.owned)
    return {pool: tuple(_layers(by_day, owned.get(pool, 0))) for pool, by_day in tranches.items()}


def _layers(by_day: dict[int, int], held: int) -> Iterator[Layer]:
    for day, quantity in sorted(by_day.items()):
        held += quantity
        yield Layer(day=day, buy=quantity, hold=held)

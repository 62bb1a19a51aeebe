"""Money by who caused it, day by day: what some workload held, and what nobody did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np

from trimtab.diagnose.split import CostSplit
from trimtab.fleet.model import Fleet, IntArray
from trimtab.ledger import IDLE, Allocation
from trimtab.units import HR_PER_DAY

UNALLOCATED = "nobody (idle nodes)"
UNUSED_COMMITMENT = "nobody (unused commitment)"


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

"""What money is split by (a team, workload, namespace, kind, model or label), and who caused how much of it each day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Self, assert_never

import numpy as np

from trimtab.errors import UsageError
from trimtab.fleet.model import Fleet, IntArray, Workload
from trimtab.ledger import IDLE, Allocation
from trimtab.units import HR_PER_DAY

UNNAMED = "unnamed"
LABEL_PREFIX = "label:"


class SplitBy(Enum):
    """What the bill is split by."""

    TEAM = "team"
    WORKLOAD = "workload"
    NAMESPACE = "namespace"
    KIND = "kind"
    MODEL = "model"
    LABEL = "label"


_TAG_KEYS = {
    SplitBy.TEAM: ("team", "owner", "cost_center", "cost-center", "costcenter"),
    SplitBy.WORKLOAD: ("workload",),
    SplitBy.NAMESPACE: ("namespace", "kubernetes_namespace", "kubernetes.io/namespace"),
    SplitBy.MODEL: ("model",),
}
"""Tags of a bill that say the same as Kubernetes does, in the order in which they are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSplit:
    """A way of splitting; `label` is the key where it is by label."""

    by: SplitBy
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `team`, `workload`, `namespace`, `kind`, `model` or `label:KEY`; raises UsageError."""
        if text.startswith(LABEL_PREFIX) and text != LABEL_PREFIX:
            return cls(by=SplitBy.LABEL, label=text.removeprefix(LABEL_PREFIX))
        plain = [way.value for way in SplitBy if way is not SplitBy.LABEL]
        if text not in plain:
            raise UsageError(f"cannot split by {text!r}; write {', '.join(plain)} or label:KEY (label:cost-center)")
        return cls(by=SplitBy(text))

    def of(self, workload: Workload) -> str:
        """Return a workload's value."""
        match self.by:
            case SplitBy.TEAM:
                return workload.team
            case SplitBy.WORKLOAD:
                return workload.name
            case SplitBy.NAMESPACE:
                return workload.namespace
            case SplitBy.KIND:
                return workload.kind.value
            case SplitBy.MODEL:
                return workload.spec.model or UNNAMED
            case SplitBy.LABEL:
                return (workload.spec.labels or {}).get(self.label, UNNAMED)
            case _:
                assert_never(self.by)

    def of_tags(self, tags: Iterable[tuple[str, str]]) -> str | None:
        """Return the value that a charge's tags name, None where they name none. Keys compare without case and prefix."""
        keys = (self.label.casefold(),) if self.by is SplitBy.LABEL else _TAG_KEYS.get(self.by, ())
        found = {_plain(key): value for key, value in tags if value}
        return next((found[key] for key in keys if key in found), None)


def _plain(key: str) -> str:
    """Return a tag's key without the prefixes that clouds put before it (`user:team`, `aws:eks:namespace`, `user_team`)."""
    return key.rpartition(":")[2].casefold().removeprefix("user_")


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

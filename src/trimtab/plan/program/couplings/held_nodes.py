"""Nodes that several workloads held: a node stays billed while any workload that held GPUs on it stays as it was.

    retain[g,w]: keep[w] <= z[g]      for each workload w that held nodes of group g

Nodes are indivisible, so that one workload saves nothing by leaving nodes on which another stays. What a workload held alone
is no coupling: it is part of its row for staying (`held_alone`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger.arrays import IntArray
from trimtab.plan.problem import KEEP, NodeGroup, Problem, summed
from trimtab.plan.program.couplings.parts import LinkedRow, Uses


def held_usage(problem: Problem, choice: Sequence[int]) -> Iterator[Uses]:
    """Yield the use of each group of nodes of which some holder stays as it was."""
    for group in problem.groups:
        if any(choice[workload] == KEEP for workload in group.holders):
            yield group.usage


def held_alone(problem: Problem) -> list[Uses]:
    """Return the use of what each workload held alone."""
    groups: list[list[NodeGroup]] = [[] for _ in range(problem.workloads)]
    for group in problem.groups:
        if len(group.holders) == 1:
            groups[min(group.holders)].append(group)
    return [summed(group.usage for group in alone) for alone in groups]


def held_together(problem: Problem) -> list[NodeGroup]:
    """Return the groups of nodes that several workloads held."""
    return [group for group in problem.groups if len(group.holders) > 1]


def linked_groups(problem: Problem, row_of: Callable[[int, int], int], first: int) -> list[LinkedRow]:
    """Return the groups that several held as linked rows, from row `first` on; `row_of` a workload and its option."""
    return [
        LinkedRow(row=row, users={workload: np.array([row_of(workload, KEEP)]) for workload in sorted(group.holders)})
        for row, group in enumerate(held_together(problem), start=first)
    ]


class HeldNodesInUse:
    """How many holders of each group stay as they were under the present choice."""

    def __init__(self, problem: Problem, choice: Sequence[int]) -> None:
        self._groups = problem.groups
        self._groups_of: list[list[int]] = [[] for _ in choice]
        for at, group in enumerate(problem.groups):
            for workload in group.holders:
                self._groups_of[workload].append(at)
        self._keepers = [sum(choice[workload] == KEEP for workload in group.holders) for group in problem.groups]

    def added(self, workload: int, tried: Sequence[int]) -> Iterator[tuple[int, Pool, IntArray]]:
        """Yield what staying adds to the nodes that stay billed for others; `tried` begins with the present option."""
        for at, option in enumerate(tried):
            for group in self._held_for(workload, tried[0]) if option == KEEP else ():
                for pool, seconds in self._groups[group].usage.items():
                    yield at, pool, seconds

    def move(self, workload: int, before: int, after: int) -> list[tuple[Pool, IntArray]]:
        """Make a move and return by what the use of each pool changes."""
        # 1: comes to stay, -1: leaves, 0: neither
        step = int(after == KEEP) - int(before == KEEP)
        # asked before the counts change below
        groups = self._held_for(workload, before) if step else []
        changes = [(pool, step * seconds) for group in groups for pool, seconds in self._groups[group].usage.items()]
        for group in self._groups_of[workload]:
            self._keepers[group] += step
        return changes

    def _held_for(self, workload: int, present: int) -> list[int]:
        """Return the workload's groups of which no other holder stays."""
        # where the workload stays, it is one of the keepers itself
        own = int(present == KEEP)
        return [group for group in self._groups_of[workload] if self._keepers[group] == own]

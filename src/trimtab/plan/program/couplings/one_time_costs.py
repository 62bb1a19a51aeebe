"""What is paid once for all options that need it: the work of moving to another cloud, a lever's effort for a class.

    enter[e,w]: sum_{o of w, needs e} x[o] <= z[e]      for each workload w with options that need e

No single move sees a cost that several workloads share: whoever leaves first saves nothing. So a choice is also tried without
each cost that it pays (`choice_without`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.couplings.parts import LinkedRow


def one_time_micro_usd(problem: Problem, choice: Sequence[int]) -> int:
    """Return what a choice pays once, each cost that any of its options needs."""
    needed = frozenset[str]().union(*(needs_of(problem, workload, option) for workload, option in enumerate(choice)))
    return sum(problem.entries_micro_usd[name] for name in needed)


def needs_of(problem: Problem, workload: int, option: int) -> frozenset[str]:
    """Return the costs that a workload's option (or KEEP) needs paid, by name."""
    return frozenset() if option == KEEP else problem.options[workload][option].needs


Needing = Mapping[str, Mapping[int, Sequence[int]]]
"""The options that need each cost, by its name and by workload."""


def options_needing(problem: Problem) -> Needing:
    """Return the options that need each cost that the problem has."""
    found: dict[str, dict[int, list[int]]] = {name: {} for name in problem.entries_micro_usd}
    for workload, options in enumerate(problem.options):
        for at, option in enumerate(options):
            for name in option.needs:
                found[name].setdefault(workload, []).append(at)
    return found


def linked_costs(needing: Needing, row_of: Callable[[int, int], int], first: int) -> list[LinkedRow]:
    """Return the costs as linked rows in the order of their names, from row `first` on; `row_of` a workload and its option."""
    return [
        LinkedRow(
            row=row,
            users={
                workload: np.array([row_of(workload, at) for at in options], dtype=np.int64)
                for workload, options in needing[name].items()
            },
        )
        for row, name in enumerate(sorted(needing), start=first)
    ]


def choice_without(
    problem: Problem,
    choice: Sequence[int],
    needing: Mapping[int, Sequence[int]],
    dearer_usd: Callable[[int, int], float],
) -> tuple[tuple[int, ...], float] | None:
    """Return a choice with what needs a cost moved to what does not, and by how much any such choice exceeds the bound.

    `needing` are the options that need it, by workload. `dearer_usd` is the reduced cost of a workload's option (or KEEP): by
    how much more than the bound a plan with it costs at least. None where nothing chosen needs the cost.
    """
    users = {workload for workload, options in needing.items() if choice[workload] in options}
    if not users:
        return None
    least: dict[int, int] = {}
    for workload, options in needing.items():
        free = {KEEP, *range(len(problem.options[workload]))}.difference(options)
        least[workload] = min(sorted(free), key=lambda option: dearer_usd(workload, option))
    # reduced costs of different workloads add up, because each workload is a block of its own
    exceeded_usd = sum(dearer_usd(workload, option) for workload, option in least.items())
    return tuple(least[w] if w in users else option for w, option in enumerate(choice)), exceeded_usd


class OneTimeCostsInUse:
    """How many of the present choice's options need each cost."""

    def __init__(self, problem: Problem, choice: Sequence[int]) -> None:
        self._problem = problem
        self._needing: Counter[str] = Counter()
        for workload, option in enumerate(choice):
            self._needing.update(needs_of(problem, workload, option))

    def added_micro_usd(self, workload: int, tried: Sequence[int]) -> list[int]:
        """Return what some options of a workload, the present one first, add to the costs that others need paid anyway."""
        present = needs_of(self._problem, workload, tried[0])
        return [
            sum(
                self._problem.entries_micro_usd[name]
                for name in needs_of(self._problem, workload, option)
                # no other workload needs it: the count is 1 where the present option needs it, otherwise 0
                if self._needing[name] == (name in present)
            )
            for option in tried
        ]

    def move(self, workload: int, before: int, after: int) -> None:
        """Make a move."""
        self._needing.subtract(needs_of(self._problem, workload, before))
        self._needing.update(needs_of(self._problem, workload, after))

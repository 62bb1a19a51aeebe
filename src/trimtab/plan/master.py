"""The joint problem as a program in periods and dollars: fixed costs, and use of the pools that can be committed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger.arrays import charge
from trimtab.plan.highs import INFINITY, Program
from trimtab.plan.problem import KEEP, Periods, Problem, periods_of
from trimtab.units import HR_PER_WEEK, S_PER_HR, usd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedUse:
    """A use as the program sees it: what costs a fixed sum, and mean nodes per period of each committable pool."""

    fixed_usd: float
    nodes: Mapping[int, FloatArray]

    def at(self, prices: FloatArray) -> float:
        """Return the cost at balance prices (n_pools, n_periods)."""
        return self.fixed_usd + sum(float(prices[pool] @ nodes) for pool, nodes in self.nodes.items())


class Master:
    """Everything about a problem that does not change while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.periods: Periods = periods_of(problem.hours, HR_PER_WEEK)
        self.pools: tuple[Pool, ...] = tuple(sorted(problem.offers))
        self._row = {pool: index for index, pool in enumerate(self.pools)}
        self.options = [[self._priced(option.usage) for option in options] for options in problem.options]
        self.groups = [self._priced(group.usage) for group in problem.groups]

    def _priced(self, usage: Mapping[Pool, IntArray]) -> PricedUse:
        fixed = 0
        nodes: dict[int, FloatArray] = {}
        for pool, seconds in usage.items():
            if pool in self._row:
                nodes[self._row[pool]] = self.periods.mean(seconds) / S_PER_HR
            else:
                fixed += int(charge(self.problem.rates_micro_usd_hr[pool], seconds).sum())
        return PricedUse(fixed_usd=usd(fixed), nodes=nodes)

    def rate_usd_hr(self, pool: int) -> float:
        """Return a committable pool's on-demand rate."""
        return usd(self.problem.rates_micro_usd_hr[self.pools[pool]])

    def committed_usd(self, pool: int) -> float:
        """Return what one commitment costs over the window."""
        return usd(self.problem.offers[self.pools[pool]].rate_micro_usd_hr) * self.problem.hours

    def most_nodes(self, pool: int) -> float:
        """Return a bound on the nodes of a pool that a plan can use at once."""
        uses = [use for options in self.options for use in options] + self.groups
        return float(sum(use.nodes[pool].max(initial=0.0) for use in uses if pool in use.nodes)) + 1

    def program(self, active: Sequence[Sequence[int]]) -> Assembled:
        """Assemble the program over the active options of each workload; leaving one as it is is always among them."""
        return _assemble(self, active)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembled:
    """The program and where its parts are: columns of choices, rows of convexity and of each pool's balance."""

    program: Program
    choices: tuple[tuple[tuple[int, int], ...], ...]
    """(option or KEEP, column) per workload."""
    convexity: tuple[int, ...]
    balance: FloatArray
    """(n_pools, n_periods) row indices, as floats."""

    def prices(self, duals: FloatArray) -> FloatArray:
        """Return the balance prices (n_pools, n_periods) that a solution's duals give, never negative."""
        return np.maximum(-duals[self.balance.astype(np.int64)], 0.0)

    def read(self, values: FloatArray) -> tuple[int, ...]:
        """Return the choice with most weight per workload."""
        return tuple(max(choices, key=lambda pair: (values[pair[1]], -pair[0]))[0] for choices in self.choices)


def _assemble(master: Master, active: Sequence[Sequence[int]]) -> Assembled:
    program = Program()
    balance = _balance(master, program)
    convexity, choices = [], []
    for workload, indices in enumerate(active):
        row = program.add_row(1.0, 1.0)
        convexity.append(row)
        mine = [(KEEP, program.add_column(0.0, 1.0, integer=True))]
        for index in indices:
            use = master.options[workload][index]
            column = program.add_column(use.fixed_usd, 1.0, integer=True)
            _use(program, balance, column, use)
            mine.append((index, column))
        for _, column in mine:
            program.put(row, column, 1.0)
        choices.append(tuple(mine))
    for group, use in zip(master.problem.groups, master.groups, strict=True):
        column = program.add_column(use.fixed_usd, 1.0)
        _use(program, balance, column, use)
        for workload in sorted(group.holders):
            retain = program.add_row(-INFINITY, 0.0)
            program.put(retain, choices[workload][0][1], 1.0)
            program.put(retain, column, -1.0)
    return Assembled(program=program, choices=tuple(choices), convexity=tuple(convexity), balance=balance)


def _balance(master: Master, program: Program) -> FloatArray:
    """Add each pool's balance rows `use - metered - committed <= 0`, with the columns that pay for it."""
    periods = len(master.periods.weight)
    rows = np.zeros((len(master.pools), periods))
    for pool in range(len(master.pools)):
        committed = program.add_column(master.committed_usd(pool), master.most_nodes(pool), integer=True)
        for period in range(periods):
            row = program.add_row(-INFINITY, 0.0)
            rows[pool, period] = row
            metered = program.add_column(master.rate_usd_hr(pool) * float(master.periods.weight[period]))
            program.put(row, metered, -1.0)
        program.put(rows[pool], committed, -1.0)
    return rows


def _use(program: Program, balance: FloatArray, column: int, use: PricedUse) -> None:
    for pool, nodes in use.nodes.items():
        program.put(balance[pool], column, nodes)

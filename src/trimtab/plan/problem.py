"""The joint problem: choose one option per workload and commitments per pool so that the bill is least.

    minimise   sum_p on_demand[p] * sum_t weight[t] * u[p,t] + sum_p committed[p] * H * c[p] + sum_k H * s[k] + fixed costs
               + sum_o own[o] x[o] + sum_e entry[e] z[e]
    subject to convexity[w]:  keep[w] + sum_o x[w,o] = 1
               retain[g,w]:   keep[w] <= z[g]                 for each workload w that held nodes of group g
               enter[e,w]:    sum_{o needs e} x[w,o] <= z[e]  for each workload w with options that need entry e
               balance[p,t]:  sum_o n[o,p,t] x[o] + sum_g n[g,p,t] z[g] <= u[p,t] + c[p] + owned[p] + sum_k y[k,p,t]
               spend[k,t]:    sum_p rate[k,p] y[k,p,t] <= s[k]          (spend plans k on offer; the spend of owned ones stands)

               shared[s,m,t]: sum_o room[o,s,m,t] x[o] <= room[s,m] n[s,t]    (sites s, their measures m; whole n, part of the
                                                                              use of s's pool)
               quota[p,t]:    sum_o n[o,p,t] x[o] + sum_g n[g,p,t] z[g] <= quota[p]
               spot_share:    node-hours on spot <= spot_max_frac * node-hours

A node stays billed while any workload that held GPUs on it stays as it was: nodes are indivisible. An option may cost something
besides nodes (traffic, data copied), and need an entry that is paid once for all that need it (another cloud). A spend plan k
pays s[k] an hour and covers y[k,p,t] nodes of pool p at its rate; providers apply it to the highest discount first, which is
what the program would do. Pools for which nobody sells a commitment or a plan cost a fixed sum per option and need no balance
rows. How hours are gathered into periods is the solver's matter (`periods`); what is reported is always the exact hourly bill
of the choice (`exact_bill`, `own_cost`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.fleet.model import IntArray
from trimtab.ledger import NO_DISCOUNTS, Bill, Commitment, Discounts, SpendPlan, Usage, bill
from trimtab.units import S_PER_HR

KEEP = -1
"""The choice of leaving a workload as it is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """One way to run a workload: node-seconds per pool and hour (n_hours,) on its own nodes, slots per hour in shared ones."""

    usage: Mapping[Pool, IntArray]
    slots: Mapping[SharedPool, IntArray] = field(default_factory=dict)
    own_micro_usd: int = 0
    """What it costs over the window besides nodes."""
    needs: frozenset[str] = frozenset()
    """Entries of the problem that must be paid for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeGroup:
    """Nodes that the same workloads held: they stay billed, all of them, while any holder stays as it was."""

    usage: Mapping[Pool, IntArray]
    holders: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentOffer:
    """A commitment that is sold for a pool: its option and rate per node and hour."""

    option: BuyingOption
    rate_micro_usd_hr: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpendOffer:
    """A commitment to spend that is sold: its option, and what an hour of each pool's nodes takes of it, below on demand."""

    option: BuyingOption
    rates_micro_usd_hr: Mapping[Pool, int]

    def plan(self, spend_micro_usd_hr: int) -> SpendPlan:
        """Return the plan that pays so much an hour."""
        return SpendPlan(
            option=self.option, spend_micro_usd_hr=spend_micro_usd_hr, rates_micro_usd_hr=self.rates_micro_usd_hr
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Options per workload (outer index), the groups of present nodes, rates per pool, commitments on offer, limits."""

    options: tuple[tuple[Option, ...], ...]
    groups: tuple[NodeGroup, ...]
    rates_micro_usd_hr: Mapping[Pool, int]
    offers: Mapping[Pool, CommitmentOffer]
    hours: int
    quotas: Mapping[Pool, int] = field(default_factory=dict)
    """Most nodes of a pool at once (the mean of an hour), for pools that have a quota."""
    spot_max_frac: float | None = None
    """Largest share of all node-hours that may be on spot."""
    owned: Discounts = NO_DISCOUNTS
    """Commitments that are held already: paid whatever is chosen, and used before any of their kind that is bought."""
    spend_offers: tuple[SpendOffer, ...] = ()
    """Commitments to spend on offer, in the order in which they apply; their pools have rates."""
    entries_micro_usd: Mapping[str, int] = field(default_factory=dict)
    """What is paid once over the window where any chosen option needs it, by name."""
    names: tuple[str, ...] = ()
    """What the workloads are called, where a message must name one."""

    @property
    def owned_nodes(self) -> dict[Pool, int]:
        """Return the nodes that owned commitments cover, by pool."""
        return nodes_covered(self.owned.commitments)

    @property
    def owned_micro_usd(self) -> int:
        """Return what the owned commitments cost over the window."""
        return self.owned.micro_usd_hr * self.hours

    @property
    def spend_pools(self) -> frozenset[Pool]:
        """Return the pools that a spend plan may cover, bought or owned: those of one provider share its spend."""
        rates = [*(one.rates_micro_usd_hr for one in self.spend_offers), *self.owned.plan_rates]
        return frozenset(pool for known in rates for pool in known if pool in self.rates_micro_usd_hr)

    @property
    def coupled(self) -> frozenset[Pool]:
        """Return the pools on which a commitment, bought or owned, makes one workload's use another's concern."""
        return frozenset({*self.offers, *self.owned_nodes, *self.spend_pools})

    @property
    def workloads(self) -> int:
        """Return the number of workloads."""
        return len(self.options)


def total_usage(problem: Problem, choice: Sequence[int]) -> dict[Pool, IntArray]:
    """Return node-seconds per pool under a choice (an option index or KEEP per workload); shared nodes round up jointly."""
    options = [problem.options[w][o] for w, o in enumerate(choice) if o != KEEP]
    parts = [option.usage for option in options]
    parts += [group.usage for group in problem.groups if any(choice[w] == KEEP for w in group.holders)]
    return summed([*parts, shared_usage(option.slots for option in options)])


def least_nodes(problem: Problem, pool: Pool) -> dict[str, int]:
    """Return the nodes of a pool that workloads with names hold in their busiest hour whatever is chosen, the most first."""
    least: dict[str, int] = {}
    for workload, (name, options) in enumerate(zip(problem.names, problem.options, strict=False)):
        uses = [option.usage.get(pool) for option in options]
        kept = [group.usage[pool] for group in problem.groups if workload in group.holders and pool in group.usage]
        uses.append(np.asarray(sum(kept)) if kept else None)
        least[name] = min(0 if use is None else ceil(int(use.max(initial=0)) / S_PER_HR) for use in uses)
    return {name: nodes for name, nodes in sorted(least.items(), key=lambda item: (-item[1], item[0])) if nodes}


def own_cost(problem: Problem, choice: Sequence[int]) -> int:
    """Return what a choice costs besides nodes, micro-dollars: its options' own sums and each entry they need, once."""
    options = [problem.options[w][o] for w, o in enumerate(choice) if o != KEEP]
    needed = frozenset[str]().union(*(option.needs for option in options))
    return sum(option.own_micro_usd for option in options) + sum(problem.entries_micro_usd[name] for name in needed)


def summed(parts: Iterable[Mapping[Pool, IntArray]]) -> dict[Pool, IntArray]:
    """Return the sum of several uses, pool by pool."""
    total: dict[Pool, IntArray] = {}
    for part in parts:
        for pool, seconds in part.items():
            total[pool] = np.asarray(total[pool] + seconds) if pool in total else seconds
    return total


def shared_usage(parts: Iterable[Mapping[SharedPool, IntArray]]) -> dict[Pool, IntArray]:
    """Return the node-seconds of the shared nodes that hold all these slots: whole nodes for whole hours."""
    held: dict[Site, IntArray] = {}
    for part in parts:
        for site, room in taken(part).items():
            held[site] = np.asarray(held[site] + room) if site in held else room
    return summed({site.pool: whole_nodes(site, held[site]) * S_PER_HR} for site in held)


def taken(slots: Mapping[SharedPool, IntArray]) -> dict[Site, IntArray]:
    """Return the room (n_measures, n_hours) that slots per hour take of the nodes they stand on."""
    room: dict[Site, IntArray] = {}
    for shared, held in slots.items():
        mine = np.multiply.outer(np.array(shared.takes, dtype=np.int64), held)
        room[shared.site] = np.asarray(room[shared.site] + mine) if shared.site in room else mine
    return room


def whole_nodes(site: Site, room: IntArray) -> IntArray:
    """Return how many whole nodes have so much room (..., n_measures, n_hours), by the measure that needs most of them."""
    most = np.array(site.room, dtype=np.int64)[:, None]
    return np.asarray((-(-room // most)).max(axis=-2), dtype=np.int64)


def nodes_covered(commitments: Iterable[Commitment]) -> dict[Pool, int]:
    """Return the nodes that commitments cover, by pool."""
    nodes: dict[Pool, int] = {}
    for one in commitments:
        nodes[one.pool] = nodes.get(one.pool, 0) + one.count
    return nodes


def beyond(node_seconds: IntArray, nodes: int) -> IntArray:
    """Return the use by hour that so many nodes leave uncovered."""
    return np.maximum(node_seconds - nodes * S_PER_HR, 0) if nodes else node_seconds


def exact_bill(usage: Mapping[Pool, IntArray], rates: Mapping[Pool, int], paid: Discounts, hours: int) -> Bill:
    """Return the exact hourly bill of a use under commitments to nodes and to spend: what is reported."""
    pools = tuple(sorted({*usage, *(commitment.pool for commitment in paid.commitments)}))
    seconds = np.zeros((len(pools), hours), dtype=np.int64)
    for row, pool in enumerate(pools):
        seconds[row] = usage.get(pool, 0)
    return bill(Usage(pools=pools, node_seconds=seconds), rates, paid.commitments, paid.spend_plans)

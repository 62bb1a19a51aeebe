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
what the program would do. Pools for which no commitment or plan is sold cost a fixed sum per option and need no balance
rows. What couples workloads is one module each in `program.couplings`, by these names. How hours are gathered into periods is
the solver's matter (`program.master`); what is reported is always the exact hourly bill of the choice (`program.table`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.ledger import Commitment, CommitmentOffer
from trimtab.ledger.arrays import IntArray

_Key = TypeVar("_Key", bound=Hashable)
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
    is_least: bool = False
    """Its usage is a lower bound, and it is not known whether it keeps its targets."""
    charged_micro_usd: Mapping[Pool, int] = field(default_factory=dict)
    """What its usage of a pool costs on demand, charged hour by hour, for pools of which that is known already."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeGroup:
    """Nodes that the same workloads held: they stay billed, all of them, while any holder stays as it was."""

    usage: Mapping[Pool, IntArray]
    holders: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Options per workload (outer index), the groups of present nodes, rates per pool, commitments on offer, limits."""

    options: tuple[tuple[Option, ...], ...]
    groups: tuple[NodeGroup, ...]
    rates_micro_usd_hr: Mapping[Pool, int]
    offers: tuple[CommitmentOffer, ...]
    """Commitments on sale: at most one to nodes of a pool; those to spend in the order in which they apply."""
    hours: int
    quotas: Mapping[Pool, int] = field(default_factory=dict)
    """Most nodes of a pool at once (the mean of an hour), for pools that have a quota."""
    spot_max_frac: float | None = None
    """Largest share of all node-hours that may be on spot."""
    owned: tuple[Commitment, ...] = ()
    """Commitments that are held already: paid whatever is chosen, and used before any of their kind that is bought."""
    entries_micro_usd: Mapping[str, int] = field(default_factory=dict)
    """What is paid once over the window where any chosen option needs it, by name."""
    names: tuple[str, ...] = ()
    """What the workloads are called, where a message must name one."""

    @property
    def node_offers(self) -> dict[Pool, CommitmentOffer]:
        """Return the commitments to nodes on offer, by pool."""
        return {offer.pool: offer for offer in self.offers if not offer.is_spend}

    @property
    def spend_offers(self) -> tuple[CommitmentOffer, ...]:
        """Return the commitments to spend on offer."""
        return tuple(offer for offer in self.offers if offer.is_spend)

    @property
    def owned_spend(self) -> tuple[Commitment, ...]:
        """Return the commitments to spend that are held already."""
        return tuple(commitment for commitment in self.owned if commitment.offer.is_spend)

    @property
    def spend_pools(self) -> frozenset[Pool]:
        """Return the pools that a spend plan may cover, bought or owned: those of one provider share its spend."""
        offers = (*self.spend_offers, *(commitment.offer for commitment in self.owned_spend))
        return frozenset(
            pool for offer in offers for pool in offer.rates_micro_usd_hr if pool in self.rates_micro_usd_hr
        )

    @property
    def workloads(self) -> int:
        """Return the number of workloads."""
        return len(self.options)

    def around(self, choice: Sequence[int], free: Set[int]) -> Problem:
        """Return the problem of the `free` rows, in order, while all others keep a choice; a last row without options holds
        what those use.

        What the others need is paid already. Those in shared nodes must be free: nodes are rounded up with all who stand there.
        """
        place = {row: at for at, row in enumerate(sorted(free))}
        fixed = [row for row in range(self.workloads) if row not in free]
        moved = [self.options[row][choice[row]] for row in fixed if choice[row] != KEEP]
        staying = {row for row in fixed if choice[row] == KEEP}
        stays = [group.usage for group in self.groups if group.holders & staying]
        paid = frozenset[str]().union(*(option.needs for option in moved))
        others = NodeGroup(usage=summed([*(option.usage for option in moved), *stays]), holders=frozenset({len(place)}))
        return replace(
            self,
            options=(
                *(tuple(replace(option, needs=option.needs - paid) for option in self.options[row]) for row in place),
                (),
            ),
            groups=(
                *(
                    replace(group, holders=frozenset(place[row] for row in group.holders & free))
                    for group in self.groups
                    if group.holders & free and not group.holders & staying
                ),
                others,
            ),
            entries_micro_usd={name: cost for name, cost in self.entries_micro_usd.items() if name not in paid},
            names=tuple(self.names[row] for row in place if row < len(self.names)),
        )


def summed(parts: Iterable[Mapping[_Key, IntArray]]) -> dict[_Key, IntArray]:
    """Return the sum of several uses: pool by pool, or by what else they are told by."""
    total: dict[_Key, IntArray] = {}
    for part in parts:
        for key, amount in part.items():
            # a sum is a new array: what was taken over from a part is never written to
            total[key] = np.asarray(total[key] + amount) if key in total else amount
    return total

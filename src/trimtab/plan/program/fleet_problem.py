"""From a fleet to the joint problem, and from deployments to its bill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.errors import ConservationError
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.reach import quota_of_pools, quotas_of
from trimtab.fleet.settings import Limits, Settings
from trimtab.ledger import IDLE, Bill, Commitment, CommitmentOffer, nodes_committed
from trimtab.ledger.arrays import IntArray, charge
from trimtab.levers import commitments as commitment_lever
from trimtab.levers.idle_release import unheld_nodes
from trimtab.plan.options.composition import Candidate
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.problem import NodeGroup, Option, Problem, summed
from trimtab.plan.program.best_discounts import best_of
from trimtab.plan.program.couplings.shared_nodes import shared_usage
from trimtab.plan.program.table import exact_bill
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Outcome, entries_of, entry_micro_usd, own_micro_usd

_MOST_NAMED = 5
"""Nodes that an error names."""
NOT_HELD: Mapping[str, frozenset[str]] = MappingProxyType({})
"""No node was held before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Groups:
    """Nodes that the same workloads held, those that no workload held (by pool), and those billed whatever is planned.

    Every billed node is in one of them. The holders of a node that no workload holds any more are those that held it before.
    """

    held: tuple[tuple[frozenset[int], Mapping[Pool, IntArray]], ...]
    unheld: Mapping[Pool, tuple[int, ...]]
    stays: Mapping[Pool, IntArray]
    staying: tuple[int, ...]
    """The nodes of `stays`."""
    idle_staying: tuple[int, ...] = ()
    """Those of them that no workload held, and that stay because their GPUs are unknown."""
    of_workload: Mapping[int, Sequence[int]] = field(init=False)
    """The places in `held` of the groups that each workload held nodes of, in order."""

    def __post_init__(self) -> None:
        found: dict[int, list[int]] = {}
        for number, (owners, _) in enumerate(self.held):
            for owner in owners:
                found.setdefault(owner, []).append(number)
        object.__setattr__(self, "of_workload", found)


_groups: WeakKeyDictionary[Fleet, Groups] = WeakKeyDictionary()
"""Of fleets of which nothing is known to have been held before: each plan asks for its fleet's again and again."""
_made: WeakKeyDictionary[Candidate, _MadeOption] = WeakKeyDictionary()
"""From one problem to the next few ways are others, in whatever rows they stand."""
_made_rows: WeakKeyDictionary[WorkloadOptions, _MadeRow] = WeakKeyDictionary()
"""From one problem to the next few workloads have other ways."""
_standings: WeakKeyDictionary[Groups, _Standing] = WeakKeyDictionary()
"""What the nodes of such groups are billed: each draft of a plan asks for it again."""


def groups_of(fleet: Fleet, held_before: Mapping[str, frozenset[str]] = NOT_HELD) -> Groups:
    """Group a fleet's nodes by who held them over the window.

    A node that no workload held in it goes with the workloads that `held_before` names for the node: a plan that moves them
    gives it back. Reserved capacity, capacity blocks and own hardware are paid for whoever holds them: no plan saves by leaving
    them. Nodes with work of unknown holders, and those without a price, cannot be left. Raises ConservationError where a billed
    node is in no group, or in several.
    """
    if held_before:
        return _grouped(fleet, held_before)
    known = _groups.get(fleet)
    if known is None:
        known = _groups[fleet] = _grouped(fleet, held_before)
    return known


def _grouped(fleet: Fleet, held_before: Mapping[str, frozenset[str]]) -> Groups:
    cells = fleet.holdings
    fixed = [
        index
        for index, node in enumerate(fleet.nodes)
        if node.pool.capacity_type.paid_anyway or fleet.is_left_alone(node)
    ]
    # what no plan can leave is in a group of its own and in none of these
    mine = (cells.owner != IDLE) & ~np.isin(cells.node, fixed)
    holders: dict[int, set[int]] = {}
    # each pair of a node and an owner once: a number names both
    number = len(fleet.workloads)
    for pair in np.unique(cells.node[mine].astype(np.int64) * number + cells.owner[mine]).tolist():
        holders.setdefault(pair // number, set()).add(pair % number)
    by_holders: dict[frozenset[int], list[int]] = {}
    for node, owners in sorted(holders.items()):
        by_holders.setdefault(frozenset(owners), []).append(node)
    unheld: dict[Pool, list[int]] = {}
    index_of = {workload.name: index for index, workload in enumerate(fleet.workloads)}
    for node in sorted(set(unheld_nodes(fleet)) - set(fixed)):
        before = held_before.get(fleet.nodes[node].name, frozenset())
        # only where all of them are workloads here: the node goes once all have moved
        if before and before <= index_of.keys():
            by_holders.setdefault(frozenset(index_of[name] for name in before), []).append(node)
        else:
            unheld.setdefault(fleet.nodes[node].pool, []).append(node)
    require_each_once(fleet, [*fixed, *chain(*by_holders.values()), *chain(*unheld.values())])
    return Groups(
        held=tuple((owners, usage_of_nodes(fleet, nodes)) for owners, nodes in by_holders.items()),
        unheld={pool: tuple(nodes) for pool, nodes in unheld.items()},
        stays=usage_of_nodes(fleet, fixed),
        staying=tuple(fixed),
        idle_staying=tuple(_idle_of_unknown_gpus(fleet, fixed)),
    )


def _idle_of_unknown_gpus(fleet: Fleet, fixed: Sequence[int]) -> Iterator[int]:
    """Yield the nodes that stay because their GPUs are unknown, and on which no work is known or observed."""
    unknown = [index for index in fixed if fleet.nodes[index].gpu in fleet.unknown_gpus]
    held = {int(node) for node in fleet.holdings.node[fleet.holdings.owner != IDLE]} if unknown else set()
    yield from (node for node in unknown if node not in held and fleet.nodes[node].name not in fleet.unknown_holders)


def holders_by_node(fleet: Fleet) -> dict[str, frozenset[str]]:
    """Return the names of the workloads that held each node over the window, by the node's name."""
    cells = fleet.holdings
    held = cells.owner != IDLE
    found: dict[str, set[str]] = {}
    for node, owner in {(int(n), int(o)) for n, o in zip(cells.node[held], cells.owner[held], strict=True)}:
        found.setdefault(fleet.nodes[node].name, set()).add(fleet.workloads[owner].name)
    return {node: frozenset(names) for node, names in found.items()}


def require_each_once(fleet: Fleet, grouped: Sequence[int]) -> None:
    """Raise ConservationError unless every node that was billed is in one group."""
    times = np.bincount(np.array(grouped, dtype=np.int64), minlength=len(fleet.nodes))
    # a node that was never billed in the window may be in no group
    wrong = np.flatnonzero((times != 1) & fleet.node_seconds.any(axis=1))
    if len(wrong):
        named = ", ".join(fleet.nodes[index].name for index in wrong[:_MOST_NAMED])
        raise ConservationError(f"{len(wrong)} billed nodes are not in the plan exactly once: {named}")


def usage_of_nodes(fleet: Fleet, nodes: Iterable[int]) -> dict[Pool, IntArray]:
    """Return what some of a fleet's nodes used, by pool."""
    usage: dict[Pool, IntArray] = {}
    for node in nodes:
        pool = fleet.nodes[node].pool
        seconds = fleet.node_seconds[node]
        usage[pool] = usage[pool] + seconds if pool in usage else seconds
    return usage


def fleet_problem(
    fleet: Fleet,
    options: Sequence[WorkloadOptions | None],
    market: Market,
    limits: Limits | None = None,
    owned: tuple[Commitment, ...] = (),
    groups: Groups | None = None,
) -> Problem:
    """Build the problem: one row of options per workload, then one per pool with nodes that no workload holds (give them back).

    A workload without options (None: it cannot be judged) can only stay as it is; so does a last row, which holds what is paid
    for anyway, where there is such a thing. Ways that wait for a replay are options after a workload's candidates. `groups` are
    those of the fleet, where they are known.
    """
    groups = groups or groups_of(fleet)
    made = [None if judged is None else _row(judged, market) for judged in options]
    rows = [() if row is None else row.options for row in made]
    unheld = [
        NodeGroup(usage=usage_of_nodes(fleet, nodes), holders=frozenset({len(rows) + row}))
        for row, (_, nodes) in enumerate(sorted(groups.unheld.items()))
    ]
    fixed = [NodeGroup(usage=groups.stays, holders=frozenset({len(rows) + len(unheld)}))] if groups.stays else []
    # rates are needed for whatever an option, a group or a commitment may use
    pools = set(fleet.usage.pools).union(nodes_committed(owned), *(row.pools for row in made if row is not None))
    stated = limits or Limits()
    return Problem(
        # giving unheld nodes back is an option that uses nothing; what stays has no option at all
        options=(*rows, *(((Option(usage={}),)) for _ in unheld), *(() for _ in fixed)),
        groups=(*(NodeGroup(usage=usage, holders=owners) for owners, usage in groups.held), *unheld, *fixed),
        rates_micro_usd_hr=market.rates(sorted(pools)),
        offers=commitment_lever.propose(pools, market),
        hours=fleet.window.hours,
        quotas=quota_of_pools(quotas_of(stated.quotas), sorted(pools)),
        # a share of 1 limits nothing
        spot_max_frac=stated.spot_max_frac if stated.spot_max_frac < 1 else None,
        owned=owned,
        entries_micro_usd=_entries(options, made, fleet.window.hours),
        names=tuple(workload.name for workload in fleet.workloads),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MadeRow:
    """A workload's ways as the program takes them, in a market."""

    market: Market
    options: tuple[Option, ...]
    pools: frozenset[Pool]
    """Those that any of them uses, or whose nodes it shares."""
    needs: frozenset[str]
    """Entries that any of them needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MadeOption:
    """A way as the program takes it, in a market."""

    market: Market
    option: Option


def _row(judged: WorkloadOptions, market: Market) -> _MadeRow:
    """Return a workload's candidates, and after them the ways that wait for a replay, at a lower bound of their use."""
    known = _made_rows.get(judged)
    if known is None or known.market is not market:
        candidates = (_option(candidate, market, is_least=False) for candidate in judged.candidates)
        options = (*candidates, *(_option(way, market, is_least=True) for way in judged.waiting))
        pools = {pool for option in options for pool in option.usage}
        pools |= {shared.pool for option in options for shared in option.slots}
        known = _made_rows[judged] = _MadeRow(
            market=market,
            options=options,
            pools=frozenset(pools),
            needs=frozenset(name for option in options for name in option.needs),
        )
    return known


def _option(candidate: Candidate, market: Market, *, is_least: bool) -> Option:
    known = _made.get(candidate)
    if known is None or known.market is not market or known.option.is_least is not is_least:
        known = _made[candidate] = _MadeOption(market=market, option=_charged(candidate, market, is_least=is_least))
    return known.option


def _charged(candidate: Candidate, market: Market, *, is_least: bool) -> Option:
    charged = ((pool, charge(market.rate(pool), seconds)) for pool, seconds in candidate.usage.items())
    return Option(
        charged_micro_usd={pool: int(micro_usd.sum()) for pool, micro_usd in charged},
        usage=candidate.usage,
        slots=candidate.slots,
        own_micro_usd=candidate.own_micro_usd,
        needs=candidate.needs,
        is_least=is_least,
    )


def _entries(options: Sequence[WorkloadOptions | None], made: Sequence[_MadeRow | None], hours: int) -> dict[str, int]:
    """Return what the entries that some candidate needs cost over the window."""
    found: dict[str, int] = {}
    for judged, row in zip(options, made, strict=True):
        if judged is not None and row is not None:
            for name in sorted(row.needs):
                found[name] = entry_micro_usd(judged.evaluator.case.settings, hours)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _WorkloadUse:
    """What one workload adds to a bill under a deployment: nodes and slots."""

    deployment: Deployment
    usage: Mapping[Pool, IntArray]
    slots: Mapping[SharedPool, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _WorkloadMove:
    """What one workload costs besides nodes under a deployment, which takes no replay to know."""

    deployment: Deployment
    own_micro_usd: int
    clouds: frozenset[str]
    """Other clouds that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedWorkloads:
    """Some workloads that have moved: what they use and cost together, and what they give back without the help of others.

    Sums of whole seconds: a bill of several such parts is the bill of all their workloads, to the micro-dollar.
    """

    moved: frozenset[int]
    usage: Mapping[Pool, IntArray]
    """Node-seconds on nodes of their own."""
    slots: Mapping[SharedPool, IntArray]
    given_back: Mapping[Pool, IntArray]
    """Node-seconds of the nodes that no other workload held."""
    groups_given_back: Counter[Pool]
    """How many groups of nodes these are, by pool."""
    held_with_others: frozenset[int]
    """The groups of nodes that others held, too."""
    own_micro_usd: int
    """What they cost besides nodes, other clouds aside."""
    clouds: Mapping[str, Settings]
    """Other clouds that they need, with the settings of one who does."""


class _Standing:
    """What a fleet's nodes are billed while some of its workloads have moved: all of them, less those that are given back.

    Sums of whole seconds: to take a few groups off all is as exact as to add up the many that are left.
    """

    def __init__(self, fleet: Fleet, groups: Groups) -> None:
        self._held = groups.held
        self._of_workload = groups.of_workload
        self._unheld: dict[str, list[Mapping[Pool, IntArray]]] = {}
        for node in chain(*groups.unheld.values()):
            self._unheld.setdefault(fleet.nodes[node].name, []).append(usage_of_nodes(fleet, [node]))
        parts = [*(usage for _, usage in groups.held), groups.stays, *chain(*self._unheld.values())]
        self._whole = summed(parts)
        self._parts = Counter(pool for part in parts for pool in part)
        """In how many parts each pool is: one of which all are gone is not billed at all."""

    def split(self, moved: Set[int]) -> tuple[list[Mapping[Pool, IntArray]], frozenset[int]]:
        """Return the groups that some workloads held alone, and the numbers of those that they held with others."""
        numbers = {number for workload in moved for number in self._of_workload.get(workload, ())}
        alone = {number for number in numbers if self._held[number][0] <= moved}
        return [self._held[number][1] for number in sorted(alone)], frozenset(numbers - alone)

    def left(self, parts: Sequence[MovedWorkloads], released: Iterable[str]) -> dict[Pool, IntArray]:
        """Return node-seconds per pool where some workloads have moved and some nodes that no workload held are given back."""
        # nodes stay billed until all who held them have moved
        moved = frozenset[int]().union(*(part.moved for part in parts))
        together = frozenset[int]().union(*(part.held_with_others for part in parts))
        gone = [self._held[number][1] for number in sorted(together) if self._held[number][0] <= moved]
        gone += chain(*(self._unheld.get(name, ()) for name in frozenset(released)))
        left, billed = dict(self._whole), self._parts - Counter(pool for part in gone for pool in part)
        for part in parts:
            billed -= part.groups_given_back
        for uses in (*gone, *(part.given_back for part in parts)):
            for pool, seconds in uses.items():
                left[pool] = left[pool] - seconds
        return {pool: seconds for pool, seconds in left.items() if pool in billed}


@dataclass(slots=True, kw_only=True, eq=False)
class FleetBill:
    """The bill of a fleet when some deployments are in force: on the fit window to plan, on the proof window to prove.

    What is in force maps workload indices to deployments, whole or of some levers only.
    """

    fleet: Fleet
    evaluators: Mapping[int, Evaluator]
    market: Market
    owned: tuple[Commitment, ...] = ()
    """Commitments that are held whatever is planned; they cover before any of their kind that is bought."""
    held_before: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Who held which node, by their names, in the window that was planned on; see `groups_of`."""
    groups: Groups = field(init=False)
    _standing: _Standing = field(init=False)
    _rates: dict[Pool, int] = field(default_factory=dict)
    _uses: dict[tuple[int, int], _WorkloadUse] = field(default_factory=dict)
    """By workload and the identity of its deployment: sets of actions by the thousand differ in few workloads. A value holds
    the deployment, so that no other one can come to have its identity."""
    _moves: dict[tuple[int, int], _WorkloadMove] = field(default_factory=dict)
    """By the same keys."""

    def __post_init__(self) -> None:
        self.groups = groups_of(self.fleet, self.held_before)
        known = _standings.get(self.groups)
        if known is None:
            known = _standings[self.groups] = _Standing(self.fleet, self.groups)
        self._standing = known

    def outcome(self, workload: int, deployment: Deployment) -> Outcome:
        """Return what a workload uses and attains under a deployment."""
        return self.evaluators[workload].outcome(deployment)

    def answered_by(self, evaluators: Mapping[int, Evaluator]) -> FleetBill:
        """Return the bill of the same fleet where others say what its workloads use; its nodes need no other groups."""
        found = copy(self)
        found.evaluators, found._uses, found._moves = evaluators, {}, {}
        return found

    def usage(self, in_force: Mapping[int, Deployment], released: Iterable[str]) -> dict[Pool, IntArray]:
        """Return node-seconds per pool with these deployments in force and these nodes given back.

        A workload of which nothing changes stays on its present nodes, which stay billed for it.
        """
        return self.usage_of([self.moved(in_force)], released)

    def moved(self, in_force: Mapping[int, Deployment]) -> MovedWorkloads:
        """Return what the workloads come to that move under these deployments; those of which nothing changes do not."""
        moved = frozenset(workload for workload, deployment in in_force.items() if deployment.changes)
        uses = [self._use(workload, in_force[workload]) for workload in sorted(moved)]
        own_micro_usd, clouds = self._moves_of(in_force)
        alone, together = self._standing.split(moved)
        return MovedWorkloads(
            moved=moved,
            usage=summed(use.usage for use in uses),
            slots=summed(use.slots for use in uses),
            given_back=summed(alone),
            groups_given_back=Counter(pool for part in alone for pool in part),
            held_with_others=together,
            own_micro_usd=own_micro_usd,
            clouds=clouds,
        )

    def usage_of(self, parts: Sequence[MovedWorkloads], released: Iterable[str]) -> dict[Pool, IntArray]:
        """Return node-seconds per pool where the workloads of some parts have moved and these nodes are given back."""
        own = [part.usage for part in parts]
        shared = shared_usage(part.slots for part in parts)
        return summed([*own, shared, self._standing.left(parts, released)])

    def idle_but(self, released: Iterable[str]) -> dict[Pool, IntArray]:
        """Return node-seconds per pool of the nodes that no workload held in the whole window, without those given back.

        Nodes that stay because their GPUs are unknown are included; nodes with work of unknown holders are not.
        """
        gone = frozenset(released)
        idle = [*self.groups.idle_staying, *chain(*self.groups.unheld.values())]
        return usage_of_nodes(self.fleet, [node for node in idle if self.fleet.nodes[node].name not in gone])

    def bill(self, in_force: Mapping[int, Deployment], released: Iterable[str], bought: Sequence[Commitment]) -> Bill:
        """Return the exact hourly bill with these deployments, releases and purchases in force."""
        usage = self.usage(in_force, released)
        return self.priced(usage, bought)

    def moving(self, in_force: Mapping[int, Deployment]) -> int:
        """Return what these deployments cost besides nodes, in micro-dollars: moves, traffic, each other cloud once."""
        own_micro_usd, clouds = self._moves_of(in_force)
        return own_micro_usd + self._entries_micro_usd(clouds)

    def moving_of(self, parts: Sequence[MovedWorkloads]) -> int:
        """Return what the workloads of some parts cost besides nodes, in micro-dollars."""
        clouds: dict[str, Settings] = {}
        for part in parts:
            clouds |= part.clouds
        return sum(part.own_micro_usd for part in parts) + self._entries_micro_usd(clouds)

    def _moves_of(self, in_force: Mapping[int, Deployment]) -> tuple[int, dict[str, Settings]]:
        """Return what workloads that move cost besides nodes, and the clouds that they need, which takes no replay to know."""
        total, clouds = 0, dict[str, Settings]()
        for index, deployment in in_force.items():
            if deployment.changes:
                move = self._move(index, deployment)
                total += move.own_micro_usd
                # by name of the cloud: paid once, however many workloads go there
                clouds |= dict.fromkeys(move.clouds, self.evaluators[index].case.settings)
        return total, clouds

    def _entries_micro_usd(self, clouds: Mapping[str, Settings]) -> int:
        return sum(entry_micro_usd(settings, self.fleet.window.hours) for settings in clouds.values())

    def _use(self, workload: int, deployment: Deployment) -> _WorkloadUse:
        """Return what a workload uses under a deployment, worked out once."""
        key = (workload, id(deployment))
        if key not in self._uses:
            evaluator = self.evaluators[workload]
            place, outcome = evaluator.place(deployment), evaluator.outcome(deployment)
            self._uses[key] = _WorkloadUse(
                deployment=deployment, usage=outcome.usage(place), slots=outcome.slots(place)
            )
        return self._uses[key]

    def _move(self, index: int, deployment: Deployment) -> _WorkloadMove:
        """Return what a workload costs besides nodes under a deployment, worked out once."""
        key = (index, id(deployment))
        if key not in self._moves:
            case = self.evaluators[index].case
            self._moves[key] = _WorkloadMove(
                deployment=deployment,
                own_micro_usd=own_micro_usd(
                    case.workload, deployment, self.market, case.settings, self.fleet.window.hours
                ),
                clouds=entries_of(case.workload, deployment),
            )
        return self._moves[key]

    def priced(self, usage: Mapping[Pool, IntArray], bought: Sequence[Commitment]) -> Bill:
        """Return the exact hourly bill of a use under the owned commitments and some bought ones."""
        return exact_bill(usage, self.rates(usage), (*self.owned, *bought), self.fleet.window.hours)

    def best_of(self, offers: Sequence[CommitmentOffer], usage: Mapping[Pool, IntArray]) -> tuple[Commitment, ...]:
        """Return how many nodes and how much spend of some offers are best for a use, above what is owned."""
        return best_of(usage, self.rates(usage), offers=offers, owned=self.owned)

    def best_within(self, planned: Sequence[Commitment], usage: Mapping[Pool, IntArray]) -> tuple[Commitment, ...]:
        """Return as much of planned commitments as is best for a use, and none of them beyond its planned quantity.

        So no part of a plan is credited with a purchase that the plan does not ask for.
        """
        # each offer once, though a plan may buy of it in several parts
        offers = [
            commitment.offer
            for at, commitment in enumerate(planned)
            if commitment.offer not in [other.offer for other in planned[:at]]
        ]
        best = self.best_of(offers, usage)
        most = [sum(commitment.quantity for commitment in planned if commitment.offer == found.offer) for found in best]
        return tuple(
            replace(found, quantity=min(found.quantity, quantity)) for found, quantity in zip(best, most, strict=True)
        )

    def rates(self, pools: Iterable[Pool]) -> dict[Pool, int]:
        """Return the rates of pools, each looked up once."""
        for pool in pools:
            if pool not in self._rates:
                self._rates[pool] = self.market.rate(pool)
        return self._rates

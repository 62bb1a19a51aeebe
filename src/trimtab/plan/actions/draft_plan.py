"""A chosen set of effects as actions, the exact bill when any of them are enacted, and what was judged and is not worth doing.

A commitment action means "commit to as much of what is planned as is best for the rest that is enacted": alone it covers the
fleet as it is, last it covers what the other actions leave, and never does it buy more than the plan asks for. So what it is
credited with is what that very purchase can save, and where there is nothing yet to cover it is not charged for it.

No set of actions breaks a target: a workload that would miss one with some of its actions stays as it is until the others are
done (`in_force`). What some actions are worth is what those of them save that pay (`taken`): one that costs money until another
is done waits for it. So no action of a plan is worth less than nothing, alone, last, or in the mean of all orders.

Runs are held for an hour only where starting them at once would cost more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import DeferRuns, HedgeOnSpot, SetCapacityType
from trimtab.deployment.placement import resolve
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Planning, Settings
from trimtab.ledger import IDLE, Bill, Commitment
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.levers import commitments, spot
from trimtab.levers.batching import batches_fit
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.actions.attribution import EXACT_PLAYERS, ShapleyShares, attribute, components
from trimtab.plan.actions.draft_actions import CommitmentPurchase, DraftAction, drafts
from trimtab.plan.actions.roadmap import efforts
from trimtab.plan.effort import class_of, effort_micro_usd
from trimtab.plan.model import NotWorthDoing
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.program.fleet_problem import FleetBill, MovedWorkloads
from trimtab.units import MICRO_PER_USD, S_PER_HR, per_month, usd

Actions = frozenset[int]
"""Indices of the actions in force."""


@dataclass(slots=True, kw_only=True, eq=False)
class DraftPlan:
    """Deployments by workload index, nodes given back (indices), what is bought, and the actions they make."""

    fleet: Fleet
    enacted: FleetBill
    deployments: Mapping[int, Deployment]
    released: tuple[int, ...]
    discounts: tuple[Commitment, ...]
    staged: tuple[CommitmentPurchase, ...] | None = None
    """The same as it is bought, in parts and tranches; None where that is not worked out."""
    actions: tuple[DraftAction, ...] = field(init=False)
    _known: dict[Actions, int] = field(default_factory=dict)
    _held: dict[tuple[int, frozenset[str]], bool] = field(default_factory=dict)
    """Whether a workload keeps its targets with some of its levers only."""
    _parts: dict[tuple[int, frozenset[str]], Deployment] = field(default_factory=dict)
    _paying: dict[Actions, Actions] = field(default_factory=dict)
    _groups: tuple[Actions, ...] = field(init=False)
    """Actions that touch something in common, directly or through others; a bill is the sum of such groups'."""
    _alike: tuple[tuple[Actions, tuple[int, ...]], ...] = field(init=False)
    """Workloads that the very same actions change, with these actions: fewer than workloads, and the same in all sets."""
    _moved: dict[tuple[int, Actions], MovedWorkloads] = field(default_factory=dict)
    """By place in `_alike` and those of its actions that are in force."""

    def __post_init__(self) -> None:
        whole = tuple(CommitmentPurchase(commitment=commitment) for commitment in self.discounts)
        bought = whole if self.staged is None else self.staged
        self.actions = drafts(self.fleet, self.deployments, self.enacted, self.released, bought)
        groups = components(len(self.actions), [draft.touches for draft in self.actions])
        self._groups = tuple(frozenset(group) for group in groups)
        changed_by: dict[int, list[int]] = {}
        for number, draft in enumerate(self.actions):
            for workload in draft.workloads:
                changed_by.setdefault(workload, []).append(number)
        alike: dict[Actions, list[int]] = {}
        for workload, numbers in changed_by.items():
            alike.setdefault(frozenset(numbers), []).append(workload)
        self._alike = tuple((numbers, tuple(workloads)) for numbers, workloads in alike.items())

    @property
    def everything(self) -> Actions:
        """Return all actions."""
        return frozenset(range(len(self.actions)))

    @property
    def groups(self) -> tuple[Actions, ...]:
        """Return the actions that touch something in common, directly or through others: each group is a game of its own."""
        return self._groups

    def in_force(self, some: Actions) -> dict[int, Deployment]:
        """Return the deployments of workloads when some actions are enacted, of those that keep their targets with them."""
        return {
            index: self._restricted(index, levers)
            for index, levers in self._levers(some).items()
            if self._stands(index, levers)
        }

    def _levers(self, some: Actions) -> dict[int, frozenset[str]]:
        """Return the levers of some actions by the workloads that they change."""
        levers: dict[int, set[str]] = {}
        for number in some:
            for workload in self.actions[number].workloads:
                levers.setdefault(workload, set()).add(self.actions[number].lever)
        return {index: frozenset(kept) for index, kept in levers.items()}

    def _parts_in_force(self, some: Actions) -> list[MovedWorkloads]:
        """Return what moves when some actions are enacted, in parts that other sets of actions share."""
        found = []
        for place, (numbers, workloads) in enumerate(self._alike):
            key = place, some & numbers
            if not key[1]:
                continue
            if key not in self._moved:
                levers = frozenset(self.actions[number].lever for number in key[1])
                standing = (index for index in workloads if self._stands(index, levers))
                self._moved[key] = self.enacted.moved({index: self._restricted(index, levers) for index in standing})
            found.append(self._moved[key])
        return found

    def usage(self, some: Actions) -> dict[Pool, IntArray]:
        """Return node-seconds per pool and hour when some actions are enacted."""
        return self.enacted.usage_of(self._parts_in_force(some), self.gone(some))

    def _restricted(self, index: int, levers: frozenset[str]) -> Deployment:
        """Return a workload's deployment with some levers only: the same one whichever set of actions asks."""
        key = index, levers
        if key not in self._parts:
            self._parts[key] = self.deployments[index].restricted(levers)
        return self._parts[key]

    def cost(self, some: Actions) -> int:
        """Return the exact hourly bill when some actions are enacted, with what they cost besides nodes, in micro-dollars."""
        if some not in self._known:
            self._known[some] = self.bill(some).total + self.moving(some)
        return self._known[some]

    def cost_with(self, bought: Sequence[Commitment]) -> int:
        """Return the cost of all actions where these commitments are paid in place of theirs, used or not, in micro-dollars."""
        return self.enacted.priced(self.usage(self.everything), tuple(bought)).total + self.moving(self.everything)

    def moving(self, some: Actions) -> int:
        """Return what some actions cost besides nodes, in micro-dollars."""
        return self.enacted.moving_of(self._parts_in_force(some))

    def saving(self, some: Actions) -> int:
        """Return what some actions save together."""
        return self.cost(frozenset()) - self.cost(some)

    def taken(self, some: Actions) -> Actions:
        """Return those of some actions that pay without the rest of the plan; where too many touch one another, all of them."""
        return frozenset().union(*(self._taken(some & group, group) for group in self._groups if some & group))

    def _taken(self, some: Actions, group: Actions) -> Actions:
        """Return the actions among some that save most together; all of them where they are the whole group."""
        if some == group or not some or len(group) > EXACT_PLAYERS:
            return some
        if some not in self._paying:
            fewer = [self._taken(some - {number}, group) for number in sorted(some)]
            self._paying[some] = max([some, *fewer], key=self.saving)
        return self._paying[some]

    def worth(self, some: Actions) -> int:
        """Return what some actions save where those are done that pay, in micro-dollars; never more than their whole group."""
        if some == self.everything:
            return self.saving(some)
        total = 0
        for group in self._groups:
            if some & group:
                total += min(self.saving(self._taken(some & group, group)), self.saving(group))
        return min(total, self.saving(self.everything))

    def spend(self, number: int) -> int | None:
        """Return today's spend on what an action touches, in micro-dollars at the plan's rates; None where it touches no node.

        Its workloads' own, the idle time of the nodes that they held, and the nodes that it gives back: it can save no more.
        """
        draft, cells = self.actions[number], self.fleet.holdings
        if not draft.workloads and not draft.released:
            return None
        mine = np.isin(cells.owner, draft.workloads)
        beside = (cells.owner == IDLE) & np.isin(cells.node, cells.node[mine])
        given_back = np.isin(
            cells.node, [node for node in self.released if self.fleet.nodes[node].name in draft.released]
        )
        seconds = np.bincount(cells.node, weights=np.where(mine | beside | given_back, cells.node_seconds, 0))
        pools = [self.fleet.nodes[node].pool for node in range(len(seconds))]
        rates = self.enacted.rates(pools)
        return int(sum(rates[pool] * used for pool, used in zip(pools, seconds.tolist(), strict=True)) // S_PER_HR)

    def last_in(self, number: int) -> int:
        """Return what is lost without one action, the others in force."""
        return self.cost(self.everything - {number}) - self.cost(self.everything)

    def shares(self, seed: int) -> ShapleyShares:
        """Return each action's share of the joint saving."""
        groups = [sorted(group) for group in self._groups]
        return attribute(self.worth, groups, len(self.actions), seed=seed, waits=True)

    def hourly_usd(self, some: Actions) -> FloatArray:
        """Return the bill hour by hour when some actions are enacted (n_hours,)."""
        moving_micro_usd_hr = self.moving(some) / self.fleet.window.hours
        return np.asarray((self.bill(some).hourly + moving_micro_usd_hr) / MICRO_PER_USD, dtype=np.float64)

    def without(self, dropped: Actions) -> DraftPlan:
        """Return the draft that leaves some actions out for good."""
        kept = self.in_force(self.everything - dropped)
        names = {name for number in self.everything - dropped for name in self.actions[number].released}
        return DraftPlan(
            fleet=self.fleet,
            enacted=self.enacted,
            deployments={
                index: self._settled(index, deployment) for index, deployment in kept.items() if deployment.changes
            },
            released=tuple(node for node in self.released if self.fleet.nodes[node].name in names),
            discounts=self._best(self.everything - dropped),
        )

    def _settled(self, index: int, deployment: Deployment) -> Deployment:
        """Return a deployment on spot nodes of the place that is left, at their own rate of losses, where they are sold.

        Slots and spot nodes of a region that it no longer moves to go with the move, nodes behind others with those.
        """
        case = self.enacted.evaluators[index].case
        place = resolve(case.workload, deployment)
        if deployment.sharing is not None and place.shared is None:
            return self._settled(index, deployment.without("sharing"))
        if deployment.overflow is not None and place.overflow is None:
            return self._settled(index, deployment.without("overflow"))
        held, rest = deployment.buying, deployment.without("buying")
        if isinstance(held, HedgeOnSpot) and not held.pool.is_beside(place.pool):
            return rest
        if not isinstance(held, SetCapacityType) or held.pool.nodes == place.pool.nodes:
            return deployment
        offers = spot.propose(case.workload, self.enacted.market, case.settings.assumptions)
        fitting = [offer for offer in offers if offer.pool.nodes == place.pool.nodes]
        return rest.plus((dict(deployment.owed_to)["buying"], fitting[0])) if fitting else rest

    def needed_first(self) -> dict[int, frozenset[int]]:
        """Return, per action, the other actions on its workloads that would miss a target without it: it must come first."""
        return {
            number: frozenset(
                other
                for other in self.everything - {number}
                if set(self.actions[other].workloads) & set(self.actions[number].workloads)
            )
            for number in self.everything
            if not self.keeps_targets_without(number)
        }

    def keeps_targets_without(self, number: int) -> bool:
        """Return whether the action's workloads would still fit and keep their targets if it alone were left out."""
        rest = self._levers(self.everything - {number})
        return all(index not in rest or self._stands(index, rest[index]) for index in self.actions[number].workloads)

    def _stands(self, index: int, levers: frozenset[str]) -> bool:
        """Return whether a workload keeps its targets with some levers of its planned changes; with all of them it does."""
        key = index, levers
        if key not in self._held:
            deployment = self._restricted(index, levers)
            # a shorter start by itself changes nothing: no replica comes or goes
            is_start_alone = all(dimension == "start" for dimension, _ in deployment.owed_to)
            is_whole = deployment.levers == self.deployments[index].levers
            self._held[key] = is_start_alone or is_whole or self._holds(index, deployment)
        return self._held[key]

    def _holds(self, index: int, deployment: Deployment) -> bool:
        evaluator = self.enacted.evaluators[index]
        place = evaluator.place(deployment)
        if not batches_fit(evaluator.case, place, self.enacted.market) or not evaluator.keeps_targets(deployment):
            return False
        if place.quota_nodes is None:
            return True
        # an autoscaler without the nodes behind its own would ask for more than its quota
        used = evaluator.outcome(deployment).usage(place).get(place.pool)
        return used is None or int(used.max(initial=0)) <= place.quota_nodes * S_PER_HR

    def bought(self, some: Actions) -> tuple[Commitment, ...]:
        """Return what the commitment actions among some would buy: as much as is best for the use that the others leave."""
        return self._bought(some, self.usage(some))

    def bill(self, some: Actions) -> Bill:
        """Return the exact hourly bill when some actions are enacted."""
        usage = self.usage(some)
        return self.enacted.priced(usage, self._bought(some, usage))

    def gone(self, some: Actions) -> tuple[str, ...]:
        """Return the names of the nodes that some actions give back."""
        return tuple(name for number in sorted(some) for name in self.actions[number].released)

    def _bought(self, some: Actions, usage: Mapping[Pool, IntArray]) -> tuple[Commitment, ...]:
        planned = [commitment for number in sorted(some) for commitment in self.actions[number].discounts]
        return self.enacted.best_within(planned, usage)

    def _best(self, some: Actions) -> tuple[Commitment, ...]:
        """Return what is best to buy where only some actions are left: what one no longer covers another may."""
        offers = [commitment.offer for number in sorted(some) for commitment in self.actions[number].discounts]
        return self.enacted.best_of(offers, self.usage(some))


def without_idle_deferrals(
    drafted: DraftPlan, options: Sequence[WorkloadOptions | None], settings: Settings
) -> DraftPlan:
    """Return the draft with each deferral replaced by another way to hold the same nodes, where that costs no more.

    What it asks of the team counts as cost.
    """
    for index, deployment in drafted.deployments.items():
        judged = options[index]
        if judged is None or not isinstance(deployment.holding, DeferRuns):
            continue
        for other in _at_once(deployment, judged):
            trial = DraftPlan(
                fleet=drafted.fleet,
                enacted=drafted.enacted,
                deployments={**drafted.deployments, index: other},
                released=drafted.released,
                discounts=drafted.discounts,
            )
            if _whole_cost(trial, settings) <= _whole_cost(drafted, settings):
                drafted = trial
                break
    return drafted


def _whole_cost(drafted: DraftPlan, settings: Settings) -> float:
    """Return the bill with all actions and what they ask of the team, in micro-dollars over the window."""
    asked = effort_micro_usd(drafted.actions, settings, drafted.fleet.window.hours)
    return drafted.cost(drafted.everything) + asked


def _at_once(deployment: Deployment, options: WorkloadOptions) -> Iterator[Deployment]:
    """Yield the candidates that differ in how nodes are held only, and hold no run back."""
    for candidate in options.candidates:
        other = candidate.deployment
        same = other.without("holding") == deployment.without("holding")
        if same and other.changes and not isinstance(other.holding, DeferRuns):
            yield other


def refusals(
    fleet: Fleet, options: Sequence[WorkloadOptions | None], cheapest: DraftPlan, plan: DraftPlan
) -> tuple[NotWorthDoing, ...]:
    """Return the levers that apply to a workload and were not chosen, workloads of one class and reason together.

    Those that too much work kept out of the plan are told with their sums (`too_much_work`).
    """
    told = {
        (cheapest.actions[number].lever, index)
        for number in _given_up(cheapest, plan)
        for index in cheapest.actions[number].workloads
    }
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, judged in enumerate(options):
        planned = plan.deployments[index].levers if index in plan.deployments else frozenset()
        for lever, reason in ((judged.why_not if judged else None) or {}).items():
            if (lever, index) not in told and lever not in planned:
                found[lever, reason].append(index)
    return tuple(
        NotWorthDoing(lever=lever, subject=_subject(fleet, members), saving_usd_mo=None, reason=reason)
        for (lever, reason), members in sorted(found.items(), key=lambda item: (item[0][0], item[1]))
    )


def not_worth(adds_usd_mo: float, weeks: float, planning: Planning) -> str | None:
    """Say why what an action adds a month is not worth its effort; None where it is."""
    if adds_usd_mo < planning.min_saving_usd_mo:
        return f"adds less than ${planning.min_saving_usd_mo:,.0f} a month to the other actions"
    cost_usd = weeks * planning.engineer_week_usd
    months = cost_usd / adds_usd_mo
    if months > planning.max_payback_mo:
        return f"{weeks:g} engineer-weeks pay back after {months:.0f} months"
    return None


def too_much_work(cheapest: DraftPlan, plan: DraftPlan, settings: Settings) -> Iterator[NotWorthDoing]:
    """Yield what the cheapest plan at any effort does and the plan does not, with what it would add there."""
    hours, weeks = cheapest.fleet.window.hours, efforts(cheapest.actions, settings, entries=False)
    levers = {action.lever for action in plan.actions}
    for number in _given_up(cheapest, plan):
        draft = cheapest.actions[number]
        effort = effort_of_lever(draft.lever, settings)
        added = per_month(usd(cheapest.last_in(number)), hours)
        reason = not_worth(added, weeks[number], settings.planning)
        if reason is None and effort.once_weeks and draft.lever not in levers:
            reason = (
                f"all that it would add does not pay back the {effort.once_weeks:g} engineer-weeks of its first use"
            )
        yield left_out(draft, added, reason or "what the plan does instead saves nearly as much with less work")


def _given_up(cheapest: DraftPlan, plan: DraftPlan) -> list[int]:
    """Return the actions of the cheapest plan at any effort that the plan does not have, commitments aside."""
    taken = {(action.lever, action.class_name) for action in plan.actions}
    done = {(action.lever, workload) for action in plan.actions for workload in action.workloads}
    return [
        number
        for number, draft in enumerate(cheapest.actions)
        if (draft.lever, draft.class_name) not in taken
        and draft.lever != commitments.NAME
        and not (draft.workloads and all((draft.lever, workload) in done for workload in draft.workloads))
    ]


def left_out(draft: DraftAction, adds_usd_mo: float, reason: str) -> NotWorthDoing:
    """Return the refusal of an action that was priced."""
    return NotWorthDoing(lever=draft.lever, subject=draft.subject, saving_usd_mo=adds_usd_mo, reason=reason)


def _subject(fleet: Fleet, members: Sequence[int]) -> str:
    names = [fleet.workloads[index].name for index in members]
    classes = {class_of(fleet.workloads[index]) for index in members}
    if len(names) > 3 and len(classes) == 1:
        return f"{names[0].partition('/')[0]}/* ({len(names)} workloads)"
    return ", ".join(names)

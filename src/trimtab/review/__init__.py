"""What somebody's manifests would have cost: Kubernetes objects read without a plan, and a history replayed under them.

Two sets of manifests, or manifests and history, are replayed side by side: what changes in the bill and in each target.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import DeferRuns, ReleaseIdle
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Fleet, Target, Window
from trimtab.fleet.settings import RUN_NODES_KEPT_S, SERVICE_NODES_KEPT_S
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.plan.problem import summed
from trimtab.plan.program.fleet_problem import NOT_HELD, FleetBill
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case, is_unchanged
from trimtab.replay.outcomes.service_outcome import baseline_attained
from trimtab.review.deployments import proposed_deployments, unmatched
from trimtab.review.disruption import blocked_up_to
from trimtab.review.manifests import Manifests, Unread, read_objects
from trimtab.review.placing import ManifestFault, Proposed, Weight
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_HR, per_month, usd

__all__ = ["ManifestFault", "Manifests", "Review", "TargetReview", "WorkloadReview", "read_objects", "review_fleet"]

_MANY_PODS = 1000
"""More than any service here has: what lets one of so many go, and of each number below, never blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReview:
    """A target, and the share of requests or runs that keep it before and after; None where it was not measured before."""

    target: Target
    before_frac: float | None
    after_frac: float

    @property
    def kept(self) -> bool:
        """Return whether it is kept after."""
        return self.after_frac >= self.target.required_frac

    @property
    def broken(self) -> bool:
        """Return whether it is missed after, and was not missed before."""
        return not self.kept and (self.before_frac is None or self.before_frac >= self.target.required_frac)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReview:
    """One workload that the objects speak of."""

    workload: str
    changes: tuple[str, ...]
    change_micro_usd: int
    """What it adds to the window's bill; with those of the others this adds up to the bill's change."""
    targets: tuple[TargetReview, ...]
    unjudged: str
    """Why it was not replayed; empty where it was."""
    notes: tuple[str, ...]
    ends_micro_usd: tuple[int, ...] = ()
    """What it adds at the ends of an estimated speed, which its autoscaler follows; empty where nothing hangs on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What manifests would have cost, and kept, over a window."""

    window: Window
    against: str
    before_micro_usd: int
    after_micro_usd: int
    workloads: tuple[WorkloadReview, ...]
    findings: tuple[ManifestFault, ...]
    unread: tuple[Unread, ...]

    @property
    def before_usd_mo(self) -> float:
        """Return the bill before, as a month of 730 hours."""
        return per_month(usd(self.before_micro_usd), self.window.hours)

    @property
    def after_usd_mo(self) -> float:
        """Return the bill after, as a month of 730 hours."""
        return per_month(usd(self.after_micro_usd), self.window.hours)

    @property
    def change_usd_mo(self) -> float:
        """Return by how much the month's bill grows."""
        return self.after_usd_mo - self.before_usd_mo

    @property
    def broken(self) -> tuple[tuple[str, TargetReview], ...]:
        """Return each target that was kept before and is missed after, with its workload."""
        return tuple(
            (workload.workload, target) for workload in self.workloads for target in workload.targets if target.broken
        )

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Return the workloads that the objects change and that could not be replayed."""
        return tuple(workload.workload for workload in self.workloads if workload.unjudged)

    @property
    def passes(self) -> bool:
        """Return whether no target breaks and nothing stops pods from running."""
        return not self.broken and all(finding.weight is not Weight.STOPS for finding in self.findings)


def review_fleet(
    fleet: Fleet,
    cases: Mapping[str, Case | str],
    market: Market,
    proposed: Manifests,
    *,
    present: Manifests | None = None,
    owned: Sequence[Commitment] = (),
    held_before: Mapping[str, frozenset[str]] = NOT_HELD,
) -> Review:
    """Replay a fleet's window under manifests and, where given, under those in force; else beside history as it was.

    `cases` are the fleet's workloads by name, or why they cannot be judged; `held_before` tells who held which node earlier,
    where the window is not the whole history.
    """
    proposed = proposed.laid_on(cases)
    present = None if present is None else present.laid_on(cases)
    evaluators = {
        index: Evaluator(case=case)
        for index, workload in enumerate(fleet.workloads)
        if isinstance(case := cases[workload.name], Case)
    }
    enacted = FleetBill(fleet=fleet, evaluators=evaluators, market=market, owned=tuple(owned), held_before=held_before)
    named = {*proposed.workloads, *(present.workloads if present else ())}
    places = [index for index, workload in enumerate(fleet.workloads) if workload.name in named and index in evaluators]
    judged = {fleet.workloads[index].name: evaluators[index].case for index in places}
    changed = proposed_deployments(judged, market, proposed)
    in_force = {} if present is None else proposed_deployments(judged, market, present)
    after = {index: changed[fleet.workloads[index].name] for index in places}
    before = {index: in_force.get(fleet.workloads[index].name, Proposed()) for index in places}
    bills = _Bills(enacted)
    start = {index: before[index] for index in places}
    cost = first = bills.cost(start)
    rows = []
    for index in places:
        start = {**start, index: before[index] if after[index].refused else after[index]}
        there = bills.cost(start)
        ends = (bills.cost({**start, index: replace(after[index], deployment=end)}) for end in after[index].at_ends)
        row = _row(enacted, index, before[index], after[index], there - cost)
        rows.append(replace(row, ends_micro_usd=tuple(sorted(end - cost for end in ends))))
        cost = there
    rows += [_unjudged(name, str(cases[name])) for name in sorted(named) if isinstance(cases.get(name), str)]
    return Review(
        window=fleet.window,
        against="history" if present is None else "the manifests in force",
        before_micro_usd=first,
        after_micro_usd=cost,
        workloads=tuple(sorted(rows, key=lambda row: row.workload)),
        findings=(
            *unmatched(proposed, cases),
            *(finding for made in after.values() for finding in made.findings),
        ),
        unread=(*proposed.unread, *_unknown(proposed, cases)),
    )


def _unknown(proposed: Manifests, known: Container[str]) -> Iterator[Unread]:
    """Yield what asks for GPUs and never ran: no history tells what it would cost."""
    for name, pods in sorted(proposed.pods.items()):
        is_known = name in known or proposed.is_half(pods, known)
        if not is_known and (pods.gpus or pods.parts) and not proposed.is_placeholder(pods):
            why = "this history does not have it: what it costs is not counted"
            yield Unread(what=f"{pods.kind} {name}", file=pods.files[0], why=why)
    for budget in proposed.budgets:
        selects = any(budget in proposed.budgets_of(pods) for pods in proposed.pods.values())
        if not selects and blocked_up_to([budget], _MANY_PODS):
            why = "it selects no pods of these objects: whether it keeps nodes from being drained is not known"
            yield Unread(what=f"PodDisruptionBudget {budget.namespace}/{budget.name}", file=budget.file, why=why)


@dataclass(slots=True)
class _Bills:
    """Exact bills of a fleet with some workloads under manifests."""

    enacted: FleetBill

    def cost(self, placed: Mapping[int, Proposed]) -> int:
        """Return the bill; nodes that nothing gives back stay billed, however few replicas stand on them."""
        moved, stays = dict[int, Deployment](), dict[int, Deployment]()
        for index, proposed in placed.items():
            if proposed.deployment.changes:
                (moved if self._nodes_follow(index, proposed) else stays)[index] = proposed.deployment
        usage = summed(
            [
                self.enacted.usage(moved, ()),
                *(self._besides(index, placed[index]) for index in moved),
                *(self._beyond(index, placed[index]) for index in stays),
            ]
        )
        return self.enacted.priced(usage, ()).total + self.enacted.moving({**moved, **stays})

    def _nodes_follow(self, index: int, proposed: Proposed) -> bool:
        """Return whether nodes come and go with its pods: those of a NodePool do, others where history shows that they did."""
        workload = self.enacted.fleet.workloads[index]
        if proposed.gives_nodes_back or self.enacted.evaluators[index].place(proposed.deployment).pool != workload.pool:
            return True
        usage = self.enacted.fleet.usage
        held = usage.node_seconds[usage.pools.index(workload.pool)]
        return bool(held.max() > held.min())

    def _besides(self, index: int, proposed: Proposed) -> dict[Pool, IntArray]:
        """Return the node-seconds that a workload takes besides those of its deployment as it is replayed."""
        held, replayed = self._held(index, proposed), self._replayed(index, proposed.deployment)
        nothing = np.zeros(self.enacted.fleet.window.hours, dtype=np.int64)
        return {pool: held.get(pool, nothing) - replayed.get(pool, nothing) for pool in {**held, **replayed}}

    def _beyond(self, index: int, proposed: Proposed) -> dict[Pool, IntArray]:
        """Return the node-seconds that a workload takes beyond those that it held."""
        workload = self.enacted.fleet.workloads[index]
        held = {workload.pool: np.rint(workload.held_node_seconds).astype(np.int64)}
        return {
            pool: np.maximum(0, seconds - held.get(pool, np.zeros_like(seconds)))
            for pool, seconds in self._held(index, proposed).items()
        }

    def _replayed(self, index: int, deployment: Deployment) -> dict[Pool, IntArray]:
        return self.enacted.outcome(index, deployment).usage(self.enacted.evaluators[index].place(deployment))

    def _held(self, index: int, proposed: Proposed) -> dict[Pool, IntArray]:
        """Return the node-seconds of a workload on pools of nodes as these are: what they keep, and how they are shared."""
        evaluator = self.enacted.evaluators[index]
        total: dict[Pool, FloatArray] = {}
        kept_s = RUN_NODES_KEPT_S if evaluator.case.workload.kind in RUN_KINDS else SERVICE_NODES_KEPT_S
        kept_hr = 0.0 if proposed.kept_s is None else max(0.0, proposed.kept_s - kept_s) / S_PER_HR
        for factor, deployment in proposed.mix or ((1.0, proposed.deployment),):
            place, outcome = evaluator.place(deployment), self.enacted.outcome(index, deployment)
            used = outcome.usage(place)
            times = np.ones(self.enacted.fleet.window.hours)
            stands_s = _each_node(evaluator, deployment, proposed)
            if stands_s is not None:
                times, kept_hr = stands_s / np.maximum(1, sum(used.values(), np.zeros_like(times))), 0.0
            for pool, seconds in used.items():
                total[pool] = total.get(pool, np.zeros(len(seconds))) + factor * times * seconds
        held = np.isin(evaluator.case.window.week_hours(), list(proposed.held_hours))
        return {
            pool: np.rint(kept_longer(np.maximum(seconds, 0.0), kept_hr, held)).astype(np.int64)
            for pool, seconds in total.items()
        }


def _each_node(evaluator: Evaluator, deployment: Deployment, proposed: Proposed) -> IntArray | None:
    """Return the node-seconds by hour of replicas that share nodes that files keep, fill or drain otherwise than a plan's do.

    None where they do not: replays bill as a plan's files do.
    """
    place = evaluator.place(deployment)
    as_planned = not proposed.spreads and proposed.moved and proposed.kept_s is None
    if not (place.comes_and_goes and place.holds_several) or as_planned:
        return None
    kept_s = SERVICE_NODES_KEPT_S if proposed.kept_s is None else proposed.kept_s
    return evaluator.node_seconds(deployment, kept_s=kept_s, spreads=proposed.spreads, moves=proposed.moved)


def kept_longer(seconds: FloatArray, kept_hr: float, held: Flags) -> FloatArray:
    """Return node-seconds by hour where nodes stay `kept_hr` hours longer than needed, and in the hours `held` all of them do.

    Parts of an hour lie in proportion between whole ones: half an hour more keeps half of the nodes for an hour more.

    >>> kept_longer(np.array([3.0, 1.0, 1.0, 1.0]), 1.5, np.array([False, False, False, True])).tolist()
    [3.0, 3.0, 2.0, 2.0]
    """
    whole_hr = math.floor(kept_hr)
    kept, longer = (_kept_whole(seconds, hours) for hours in (whole_hr, whole_hr + 1))
    kept += (kept_hr - whole_hr) * (longer - kept)
    for hour in range(1, len(kept)):
        if held[hour]:
            kept[hour] = max(kept[hour], kept[hour - 1])
    return kept


def _kept_whole(seconds: FloatArray, hours: int) -> FloatArray:
    kept = seconds.copy()
    for back in range(1, min(hours, len(seconds) - 1) + 1):
        kept[back:] = np.maximum(kept[back:], seconds[:-back])
    return kept


def _row(enacted: FleetBill, index: int, before: Proposed, after: Proposed, change: int) -> WorkloadReview:
    return WorkloadReview(
        workload=enacted.evaluators[index].case.workload.name,
        changes=tuple(effect.describe() for _, effect in after.deployment.changes),
        change_micro_usd=change,
        targets=() if after.refused else _targets(enacted, index, before.deployment, after),
        unjudged=after.refused,
        notes=tuple(dict.fromkeys(after.notes)),
    )


def _unjudged(name: str, why: str) -> WorkloadReview:
    return WorkloadReview(workload=name, changes=(), change_micro_usd=0, targets=(), unjudged=why, notes=())


def _targets(enacted: FleetBill, index: int, before: Deployment, proposed: Proposed) -> tuple[TargetReview, ...]:
    """Return its targets before and after; of several pools those of the one that keeps them worst."""
    case, after = enacted.evaluators[index].case, proposed.deployment
    if not after.changes and not proposed.waits_s:
        return ()
    earlier = (
        {attained.target: attained.frac for attained in enacted.outcome(index, before).attained}
        if before.changes
        else {}
    )
    ways = proposed.judged or [deployment for factor, deployment in proposed.mix if factor > 0] or [after]
    later = [enacted.outcome(index, way).attained for way in ways]
    return tuple(
        TargetReview(
            target=attained[0].target,
            before_frac=earlier[attained[0].target] if before.changes else baseline_attained(case, attained[0].target),
            after_frac=min(_in_queue(proposed, each.target, each.frac) for each in attained),
        )
        for attained in zip(*later, strict=True)
        if not all(is_unchanged(case.workload, way, attained[0].target) for way in ways)
    )


def _in_queue(proposed: Proposed, target: Target, frac: float) -> float:
    """Return the share of runs that keep a target on their wait, with their wait for quota in it; others as they are."""
    if not proposed.waits_s or target.metric is not TargetMetric.QUEUE_WAIT or target.limit_s is None:
        return frac
    holding = proposed.deployment.holding
    startup_s = holding.startup_s if isinstance(holding, ReleaseIdle | DeferRuns) else 0.0
    return min(frac, float(np.mean(np.array(proposed.waits_s) + startup_s <= target.limit_s)))

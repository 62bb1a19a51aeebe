"""Two sets of manifests, or manifests and history, replayed side by side: what changes in the bill and in each target."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, IntArray, Target, Window
from trimtab.ledger import Commitment
from trimtab.plan.program.fleet_problem import NOT_HELD, FleetBill
from trimtab.plan.program.pool_use import summed
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case, is_unchanged
from trimtab.replay.outcomes.service_outcome import baseline_attained
from trimtab.review.deployments import ManifestFault, Proposed, Weight, proposed_deployments, unmatched
from trimtab.review.manifests import Manifests, Unread
from trimtab.units import per_month, usd

__all__ = ["ManifestFault", "Review", "TargetReview", "WorkloadReview", "review_fleet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReview:
    """A target, and the share of requests or runs that keep it before and after; None where it was not measured before."""

    target: Target
    before_frac: float | None
    after_frac: float

    @property
    def kept(self) -> bool:
        """Tell whether it is kept after."""
        return self.after_frac >= self.target.required_frac

    @property
    def broken(self) -> bool:
        """Tell whether it is missed after, and was not missed before."""
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
        """Tell whether no target breaks and nothing stops pods from running."""
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
        rows.append(_row(enacted, index, before[index], after[index], there - cost))
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
        if name not in known and (pods.gpus or pods.parts) and not proposed.is_placeholder(pods):
            why = "this history does not have it: what it costs is not counted"
            yield Unread(what=f"{pods.kind} {name}", file=pods.files[0], why=why)


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
            [self.enacted.usage(moved, ()), *(self._beyond(index, deployment) for index, deployment in stays.items())]
        )
        return self.enacted.priced(usage, ()).total + self.enacted.moving({**moved, **stays})

    def _nodes_follow(self, index: int, proposed: Proposed) -> bool:
        """Tell whether nodes come and go with its pods: those of a NodePool do, others where history shows that they did."""
        workload = self.enacted.fleet.workloads[index]
        if proposed.gives_nodes_back or self.enacted.evaluators[index].place(proposed.deployment).pool != workload.pool:
            return True
        usage = self.enacted.fleet.usage
        held = usage.node_seconds[usage.pools.index(workload.pool)]
        return bool(held.max() > held.min())

    def _beyond(self, index: int, deployment: Deployment) -> dict[Pool, IntArray]:
        """Return the node-seconds that a workload takes beyond those that it held."""
        place = self.enacted.evaluators[index].place(deployment)
        workload = self.enacted.fleet.workloads[index]
        used = self.enacted.outcome(index, deployment).usage(place)
        held = {workload.pool: np.rint(workload.held_node_seconds).astype(np.int64)}
        return {pool: np.maximum(0, seconds - held.get(pool, np.zeros_like(seconds))) for pool, seconds in used.items()}


def _row(enacted: FleetBill, index: int, before: Proposed, after: Proposed, change: int) -> WorkloadReview:
    return WorkloadReview(
        workload=enacted.evaluators[index].case.workload.name,
        changes=tuple(effect.describe() for _, effect in after.deployment.changes),
        change_micro_usd=change,
        targets=() if after.refused else _targets(enacted, index, before.deployment, after.deployment),
        unjudged=after.refused,
        notes=tuple(dict.fromkeys(after.notes)),
    )


def _unjudged(name: str, why: str) -> WorkloadReview:
    return WorkloadReview(workload=name, changes=(), change_micro_usd=0, targets=(), unjudged=why, notes=())


def _targets(enacted: FleetBill, index: int, before: Deployment, after: Deployment) -> tuple[TargetReview, ...]:
    case = enacted.evaluators[index].case
    if not after.changes:
        return ()
    earlier = (
        {attained.target: attained.frac for attained in enacted.outcome(index, before).attained}
        if before.changes
        else {}
    )
    return tuple(
        TargetReview(
            target=attained.target,
            before_frac=earlier[attained.target] if before.changes else baseline_attained(case, attained.target),
            after_frac=attained.frac,
        )
        for attained in enacted.outcome(index, after).attained
        if not is_unchanged(case.workload, after, attained.target)
    )

"""Act on the proof: a planned way whose targets miss on unseen history gives way to a safer one, or leaves the plan.

Plan, prove, refuse what missed, plan again; at most `_ROUNDS` times. What the proof window says comes in as a veto and in no
other way: a workload whose way missed a target there keeps only the ways that leave at most half of that way's misses *on the
fit window*, and one that misses in the last round stays as it is. Everything else is chosen from the same options, at the same
costs, as before. The repaired plan is proved on the window that vetoed: its figures there are no longer blind, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.deployment.deployment import AS_IT_IS
from trimtab.errors import PlanError
from trimtab.fleet.model import Fleet
from trimtab.plan.model import Repair, TargetResult
from trimtab.plan.options.veto import Veto
from trimtab.plan.planner import Planned, Progress, Prospects, plan_of
from trimtab.plan.proof.proof_window import Proven, prove

_ROUNDS = 3
"""Plans made after the first one. In the last but one a workload that still misses stays as it is; the last is for those that
miss only then, and what then still misses stands in the proof as missed."""


def proven_plan(prospects: Prospects, proof_fleet: Fleet, progress: Progress) -> tuple[Planned, Proven]:
    """Return the plan that its proof lets stand, with that proof; raises PlanError where there is no plan at all.

    Where the limits leave no plan without the ways that missed, the last plan stands, with its misses shown.
    """
    planned, proven = _planned(prospects, proof_fleet, progress)
    first, vetoes, missed = planned, dict[str, Veto](), dict[str, tuple[TargetResult, ...]]()
    for number in range(_ROUNDS):
        found = _missed(proven)
        if not found:
            break
        progress("planning again without what missed in the proof", number / _ROUNDS)
        again = dict(vetoes)
        for name, veto in _vetoes(planned, found, keeps=number >= _ROUNDS - 2).items():
            again[name] = veto.stricter(vetoes[name]) if name in vetoes else veto
        try:
            planned, proven = _planned(prospects.with_vetoes(again), proof_fleet, progress)
        except PlanError:
            break
        vetoes, missed = again, {**found, **missed}
    if not missed:
        return planned, proven
    return planned, proven.repaired(tuple(_repairs(first, planned, missed)), first.plan.joint_saving_micro_usd)


def _planned(prospects: Prospects, proof_fleet: Fleet, progress: Progress) -> tuple[Planned, Proven]:
    planned = plan_of(prospects, progress)
    progress("proving on history the plan has not seen", 0.0)
    return planned, prove(planned, proof_fleet, prospects.market, prospects.settings, seed=prospects.seed)


def _missed(proven: Proven) -> dict[str, tuple[TargetResult, ...]]:
    """Return what the plan misses, and history did not miss as much, by workload."""
    missed: dict[str, tuple[TargetResult, ...]] = {}
    for result in proven.proof.targets:
        if result.is_missed_by_plan:
            missed[result.workload] = (*missed.get(result.workload, ()), result)
    return missed


def _vetoes(planned: Planned, missed: Mapping[str, tuple[TargetResult, ...]], *, keeps: bool) -> dict[str, Veto]:
    """Return what each workload that missed may not do again, by what its way attained on the fit window."""
    vetoes = {}
    for index, workload in enumerate(planned.fleet.workloads):
        results = missed.get(workload.name, ())
        if results:
            outcome = planned.drafted.enacted.outcome(index, planned.deployments[workload.name])
            targets = {result.target for result in results}
            safe_frac = {one.target: one.safe_frac for one in outcome.attained if one.target in targets}
            vetoes[workload.name] = Veto(safe_frac=safe_frac, keeps=keeps)
    return vetoes


def _repairs(first: Planned, planned: Planned, missed: Mapping[str, tuple[TargetResult, ...]]) -> list[Repair]:
    return [
        Repair(workload=name, was=_words(first, name), now=_words(planned, name), missed=results)
        for name, results in sorted(missed.items())
    ]


def _words(planned: Planned, name: str) -> tuple[str, ...]:
    deployment = planned.deployments.get(name, AS_IT_IS)
    return tuple(effect.describe() for _, effect in deployment.changes)

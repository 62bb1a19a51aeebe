"""Act on the proof: a planned way whose targets miss on unseen history gives way to a safer one, or leaves the plan.

The same applies to a way that costs more there than history did, without keeping a target that history missed: leaving the
workload as it is is always an option, and its cost was measured in the proof window. A plan made on quieter weeks may run more
capacity there than history needed. It also applies to a way that moves a service to GPUs whose speed is only predicted, if it
misses there with GPUs as slow as the prediction allows: that uncertainty and what the window brings add up.

Plan, prove, refuse what failed, plan again; at most `_ROUNDS` times. What the proof window says comes in as a veto and in
no other way: a workload whose way missed a target there keeps only the ways that leave at most half of that way's misses
*on the fit window* (any less, where the same autoscaler waits longer before it scales down), and one that misses in the last
round, or costs more, stays as it is. Everything else is chosen from the same options, at the same costs, as before. The
repaired plan is proved on the window that vetoed: its figures there are no longer blind, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.deployment.deployment import AS_IT_IS
from trimtab.errors import PlanError
from trimtab.fleet.model import Fleet
from trimtab.plan.actions.attribution import components
from trimtab.plan.model import Repair, TargetResult
from trimtab.plan.options.composition import Veto
from trimtab.plan.planner import Planned, plan_of
from trimtab.plan.proof.proof_window import PlanOnWindow, ProofResult, prove, results_when_slow
from trimtab.plan.prospects import Progress, Prospects

_ROUNDS = 3
"""Plans made after the first one. In the last but one a workload that still misses stays as it is; the last is for those that
miss only then, and what then still misses is shown in the proof as missed."""


def proven_plan(
    prospects: Prospects, proof_fleet: Fleet, progress: Progress, *, as_measured: bool = True
) -> tuple[Planned, ProofResult]:
    """Return the plan that its proof lets stand, with that proof; raises PlanError where there is no plan at all.

    `as_measured`: the proof window is as it was measured, and not another world's, in which it is unknown what history
    would have cost and kept. Where the limits leave no plan without the ways that missed, the last plan stands, and shows its
    misses.
    """
    planned, proven = _planned(prospects, proof_fleet, progress, as_measured=as_measured)
    first, vetoes, failed = planned, dict[str, Veto](), dict[str, _Failure]()
    for number in range(_ROUNDS):
        found = _failures(planned, proven, as_measured=as_measured)
        if not found:
            break
        progress("planning again without what failed in the proof", number / _ROUNDS)
        again = dict(vetoes)
        for name, veto in _vetoes(planned, found, keeps=number >= _ROUNDS - 2).items():
            again[name] = veto.stricter(vetoes[name]) if name in vetoes else veto
        try:
            # from where the last plan was chosen: what was replayed for it stays known
            latest = planned.prospects or prospects
            planned, proven = _planned(latest.with_vetoes(again), proof_fleet, progress, as_measured=as_measured)
        except PlanError:
            break
        vetoes, failed = again, {**found, **failed}
    if not failed:
        return planned, proven
    return planned, proven.repaired(tuple(_repairs(first, planned, failed)), first.plan.joint_saving_micro_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """Why a workload's way is refused: targets that it misses, or what it costs beyond history."""

    missed: tuple[TargetResult, ...] = ()
    when_slow: bool = False
    """Only with the new GPUs at the low end of their speed."""
    extra_micro_usd: int = 0


def _planned(
    prospects: Prospects, proof_fleet: Fleet, progress: Progress, *, as_measured: bool
) -> tuple[Planned, ProofResult]:
    planned = plan_of(prospects, progress)
    progress("proving on history the plan has not seen", 0.0)
    market, settings = prospects.market, prospects.settings
    proven = prove(
        planned,
        proof_fleet,
        market,
        settings,
        seed=prospects.seed,
        as_measured=as_measured,
        bounded=prospects.explains,  # an outlook on another world does not show it
    )
    return planned, proven


def _failures(planned: Planned, proven: ProofResult, *, as_measured: bool) -> dict[str, _Failure]:
    """Return what fails on the proof window, by workload: misses first, and where there are none, what costs more."""
    when_slow = _missed(results_when_slow(planned, proven))
    missed = _missed(proven.proof.targets)
    found = {name: _Failure(missed=results, when_slow=True) for name, results in when_slow.items()}
    found |= {name: _Failure(missed=results) for name, results in missed.items()}
    if found or not as_measured:
        return found
    return {name: _Failure(extra_micro_usd=extra) for name, extra in _dearer(planned, proven).items()}


def _dearer(planned: Planned, proven: ProofResult) -> dict[str, int]:
    """Return by workload how much more than history its actions cost, where they keep no target that history missed.

    Actions that touch one another are billed together.
    """
    mended = {target.workload for target in proven.proof.targets if target.is_mended}
    after = PlanOnWindow(planned=planned, enacted=proven.enacted)
    touches = [planned.drafted.actions[number].touches for number in planned.order]
    found: dict[str, int] = {}
    for group in components(len(planned.order), touches):
        subjects = {change.subject for place in group for change in planned.plan.actions[place].changes}
        changed = subjects & set(planned.deployments)
        saved = after.cost(frozenset()) - after.cost(frozenset(group))
        if saved < 0 and not subjects & mended:
            found |= dict.fromkeys(changed, -saved)
    return found


def _missed(results: Iterable[TargetResult]) -> dict[str, tuple[TargetResult, ...]]:
    """Return what the plan misses, and history did not miss as much, by workload."""
    missed: dict[str, tuple[TargetResult, ...]] = {}
    for result in results:
        if result.is_missed_by_plan:
            missed[result.workload] = (*missed.get(result.workload, ()), result)
    return missed


def _vetoes(planned: Planned, failed: Mapping[str, _Failure], *, keeps: bool) -> dict[str, Veto]:
    """Return what each workload that failed may not do again, by what its way attained on the fit window."""
    vetoes = {}
    for index, workload in enumerate(planned.fleet.workloads):
        failure = failed.get(workload.name)
        if failure is not None and failure.extra_micro_usd:
            vetoes[workload.name] = Veto(safe_frac={}, keeps=True)
        elif failure is not None:
            results = failure.missed
            way = planned.deployments[workload.name]
            outcome = planned.drafted.enacted.outcome(index, way)
            targets = {result.target for result in results}
            safe_frac = {
                attained.target: attained.safe_frac for attained in outcome.attained if attained.target in targets
            }
            vetoes[workload.name] = Veto(safe_frac=safe_frac, keeps=keeps, ways=(way,))
    return vetoes


def _repairs(first: Planned, planned: Planned, failed: Mapping[str, _Failure]) -> list[Repair]:
    return [
        Repair(
            workload=name,
            was=_words(first, name),
            now=_words(planned, name),
            missed=failure.missed,
            when_slow=failure.when_slow,
            extra_micro_usd=failure.extra_micro_usd,
        )
        for name, failure in sorted(failed.items())
    ]


def _words(planned: Planned, name: str) -> tuple[str, ...]:
    deployment = planned.deployments.get(name, AS_IT_IS)
    return tuple(effect.describe() for _, effect in deployment.changes)

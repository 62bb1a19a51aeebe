"""What an action rests on: the statistics of its workloads that made the lever apply, and what the replay attained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.deployment.deployment import Deployment
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Bands
from trimtab.ledger import Bill
from trimtab.levers.lever import AppliedLever, Fact, FleetPurchase
from trimtab.levers.registry import lever_named
from trimtab.plan.actions.draft_actions import DraftAction
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.provenance import Evidence
from trimtab.replay.outcomes.outcome import Attained, is_unchanged

_SHOWN = 3


def evidence_of(
    draft: DraftAction,
    fleet: Fleet,
    enacted: FleetBill,
    deployments: Mapping[int, Deployment],
    left: Bill,
    bands: Bands,
) -> tuple[Evidence, ...]:
    """Return the evidence of an action; of a class of workloads, that of the largest few.

    `left` is the bill of what the whole plan leaves: what commitments rest on.
    """
    window, lever = str(fleet.window), lever_named(draft.lever)
    if not draft.workloads:
        bought = FleetPurchase(discounts=draft.discounts, owned=enacted.owned, left=left, rates=enacted.rates)
        return tuple(_lines(lever.fleet_evidence(bought), window))
    largest = sorted(draft.workloads, key=lambda index: -fleet.workloads[index].gpu_hours)[:_SHOWN]
    lines: list[Evidence] = []
    for index in largest:
        workload, evaluator = fleet.workloads[index], enacted.evaluators[index]
        applied = AppliedLever(
            lever=draft.lever,
            evaluator=evaluator,
            market=enacted.market,
            deployment=deployments[index],
            place=evaluator.place(deployments[index]),
            outcome=enacted.outcome(index, deployments[index]),
        )
        attained = (
            _attained(workload, met)
            for met in applied.outcome.attained
            if not is_unchanged(workload, deployments[index], met.target)
        )
        facts = (_activity(workload, bands), *lever.evidence(applied), *attained)
        lines += _lines(facts, window, of=f"{workload.name}: ")
    return tuple(lines)


def _lines(facts: Iterable[Fact], window: str, *, of: str = "") -> list[Evidence]:
    return [
        Evidence(what=f"{of}{fact.what}", query=fact.query, window=window, value=fact.value, threshold=fact.threshold)
        for fact in facts
    ]


def _activity(workload: Workload, bands: Bands) -> Fact:
    activity = workload.activity
    if activity.signal == "none":
        query = f"gpu_usage where workload = '{workload.name}'"
        return Fact("GPU activity", query, "not measured; when it needs nodes is known by its runs")
    return Fact(
        what=f"mean {activity.signal}",
        query=f"gpu_usage.{activity.signal}_mean where workload = '{workload.name}'",
        value="not measured" if activity.mean_frac is None else f"{activity.mean_frac:.0%}",
        threshold=f"healthy {bands.find_cause_frac:.0%}-{bands.healthy_frac:.0%}",
    )


def _attained(workload: Workload, attained: Attained) -> Fact:
    return Fact(
        what=f"replayed {attained.target.describe()}",
        query=f"replay of {workload.name}",
        value=f"{attained.frac:.2%}",
        threshold=f">= {attained.target.required_frac * 100:g}% ({attained.target.because})",
    )

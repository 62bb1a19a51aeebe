"""Autoscalers that cannot work, node pools without limits, disruption budgets: untidy, and free of cost by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from trimtab.diagnose.broken import Call, Row
from trimtab.diagnose.offences import Found, HygieneRecords, Offence, OffenceKind, distinct, group_of, number, pairs


def _free(
    kind: OffenceKind, subject: str, items: Iterable[str], call: Call, evidence: str, owner_kind: str = ""
) -> Found:
    offence = Offence(
        kind=kind,
        subject=subject,
        owner_kind=owner_kind,
        nodes=(),
        items=distinct(items),
        call=call,
        evidence=evidence,
        counted_in=None,
    )
    return offence, []


def scaler_offences(records: HygieneRecords) -> Iterator[Found]:
    """Yield the workloads with GPUs whose autoscalers fight, cannot move, or look at CPU alone."""
    with_gpus = {held.workload for held in records.held}
    by_target: dict[str, list[Row]] = defaultdict(list)
    for scaler in records.scalers:
        if scaler["target"] in with_gpus:
            by_target[str(scaler["target"])].append(scaler)
    for target, scalers in sorted(by_target.items()):
        # KEDA makes an HPA of its own for each ScaledObject, named after it
        made = {f"keda-hpa-{scaler['name']}" for scaler in scalers if scaler["kind"] == "ScaledObject"}
        own = [scaler for scaler in scalers if scaler["name"] not in made]
        faults = [fault for scaler in own for fault in _scaler_faults(scaler)]
        if len(own) > 1:
            faults.append(f"{' and '.join(str(scaler['name']) for scaler in own)} both scale it")
        if faults:
            names = (f"{scaler['kind']}/{scaler['name']}" for scaler in own)
            kind = records.owner_kinds.get(target, "")
            yield _free(OffenceKind.SCALER, target, names, Call.OWNER, "; ".join(faults), kind)


def _scaler_faults(scaler: Row) -> Iterator[str]:
    least, most = scaler["min_replicas"], scaler["max_replicas"]
    if isinstance(least, float) and least == most:
        yield f"{scaler['name']} has {least:g} replicas as floor and as ceiling"
    triggers = [trigger.strip() for trigger in str(scaler["triggers"] or "").split(";") if trigger.strip()]
    if triggers and all(trigger.partition(" ")[0] in ("cpu", "memory") for trigger in triggers):
        yield f"{scaler['name']} scales on {', '.join(triggers)}, which says nothing of its GPUs"


def unlimited_pools(records: HygieneRecords) -> Iterator[Found]:
    """Yield the Karpenter pools with GPUs that may buy without end."""
    groups = {group_of(row) for row in records.nodes}
    for scaler in records.scalers:
        if scaler["kind"] == "NodePool" and scaler["name"] in groups and not pairs(scaler["limits"]):
            said = "a Karpenter pool with GPUs and without `limits`: one wrong replica count buys without end"
            yield _free(OffenceKind.UNLIMITED, str(scaler["name"]), (), Call.PLATFORM, said)


def budget_offences(records: HygieneRecords) -> Iterator[Found]:
    """Yield budgets that let no pod go though all are healthy, and services of several replicas that have none."""
    budgeted = {str(budget["workload"]) for budget in records.budgets}
    for budget in records.budgets:
        healthy, expected = number(budget["healthy"]), number(budget["expected"])
        if (
            budget["allowed"] == 0
            and expected
            and healthy >= expected
            and str(budget["workload"]) in records.owner_kinds
        ):
            said = (
                f"{budget['name']} lets no pod go though all {expected:g} are healthy: its nodes can never be drained"
            )
            yield _free(OffenceKind.BUDGET, str(budget["workload"]), (str(budget["name"]),), Call.OWNER, said)
    replicas: dict[str, set[str]] = defaultdict(set)
    for pod in records.pods:
        if number(pod["gpus"]) and pod["owner_kind"] == "Deployment" and pod["phase"] == "Running":
            replicas[str(pod["workload"])].add(str(pod["pod"]))
    for workload, pods in sorted(replicas.items()):
        # where no budget was read at all nobody knows whether there are any
        if records.budgets and len(pods) > 1 and workload not in budgeted | records.notebooks:
            said = f"{len(pods)} replicas and no disruption budget: a drain may take them all at once"
            yield _free(OffenceKind.BUDGET, workload, sorted(pods), Call.OWNER, said, "Deployment")

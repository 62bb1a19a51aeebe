"""What can happen once an action is done, and how much of a risk that makes it: derived from its changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from trimtab.deployment.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    HedgeOnSpot,
    ReleaseIdle,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetPrecision,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    StartBeforeRuns,
    UseSlots,
)
from trimtab.fleet.model import Workload
from trimtab.levers.lever import Risk
from trimtab.plan.model import Change
from trimtab.tables.workloads import WorkloadKind


class Hazard(Enum):
    """What can happen, in words."""

    BINDS = "it is paid to the end of its term, used or not"
    ONE_REPLICA = "one replica is left: the loss of its node is an outage"
    ANSWERS_CHANGE = "answers may change"
    ONE_FAULT_STOPS_ALL = "one fault stops all who share a GPU"
    FAR_AWAY = "it goes to another cloud"
    CAPACITY = "capacity given back may not be there when it is asked for again"
    NOTICED = "people notice where the prediction is off"

    @property
    def risk(self) -> Risk:
        """Return the risk of an action that bears it."""
        return Risk.MEDIUM if self in (Hazard.CAPACITY, Hazard.NOTICED) else Risk.HIGH


_NEEDS_NODES_AGAIN = (
    ReleaseIdle,
    SetSchedule,
    StartBeforeRuns,
    SetReplicaPolicy,
    SetCapacityType,
    HedgeOnSpot,
    BookBlocks,
)
_ANSWERED = frozenset({WorkloadKind.SERVING, WorkloadKind.NOTEBOOK})
"""Kinds of workloads that people wait for."""


def hazards_of(changes: Sequence[Change], workloads: Mapping[str, Workload]) -> tuple[Hazard, ...]:
    """Return what can happen once some changes are made, the worst first; `workloads` are those of the changes, by name."""
    found = {hazard for change in changes for hazard in _of(change, workloads.get(change.subject))}
    return tuple(hazard for hazard in Hazard if hazard in found)


def risk_of(usual: Risk, hazards: Sequence[Hazard]) -> Risk:
    """Return the risk of an action that bears some hazards: no less than is usual for its lever."""
    risks = {usual, *(hazard.risk for hazard in hazards)}
    return next(risk for risk in (Risk.HIGH, Risk.MEDIUM, Risk.LOW) if risk in risks)


def _of(change: Change, workload: Workload | None) -> Iterator[Hazard]:
    effect = change.effect
    if isinstance(effect, BuyCommitment | BuySpendPlan):
        yield Hazard.BINDS
    if isinstance(effect, SetPrecision):
        yield Hazard.ANSWERS_CHANGE
    if isinstance(effect, UseSlots) and not effect.shared.is_isolated:
        yield Hazard.ONE_FAULT_STOPS_ALL
    if isinstance(effect, Relocate) and effect.cloud:
        yield Hazard.FAR_AWAY
    if isinstance(effect, _NEEDS_NODES_AGAIN):
        yield Hazard.CAPACITY
    if workload is not None and workload.kind in _ANSWERED:
        yield Hazard.NOTICED
        if workload.spec.min_replicas is None and _fewest(effect) <= 1 < _had(workload):
            yield Hazard.ONE_REPLICA


def _fewest(effect: object) -> float:
    """Return the fewest replicas that an effect leaves; infinite where it says nothing of them."""
    match effect:
        case SetReplicas():
            return effect.replicas
        case SetReplicaPolicy():
            return effect.hpa.min_replicas
        case SetBatchPolicy() if effect.replicas is not None:
            return effect.replicas
        case _:
            return float("inf")


def _had(workload: Workload) -> int:
    return 1 if workload.service is None else workload.service.most_replicas

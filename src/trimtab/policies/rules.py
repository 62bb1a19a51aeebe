"""All scaling rules behind one function, so that one compiled loop can run any of them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from trimtab.policies.keda import KedaPolicy, Timetable, cron_step, keda_step
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Memory, Observation, hpa_step
from trimtab.policies.serving_stacks import (
    KnativePolicy,
    OutstandingPolicy,
    PlannerPolicy,
    SaturationPolicy,
    TokenAwarePolicy,
    TokenSaturationPolicy,
    TokenVelocityPolicy,
    knative_step,
    outstanding_step,
    planner_step,
    saturation_step,
    token_aware_step,
    token_saturation_step,
    token_velocity_step,
)


class RuleKind(IntEnum):
    """Which of the rules decides."""

    STATIC = 0
    HPA = 1
    CRON = 2
    KEDA = 3
    KNATIVE = 4
    SATURATION = 5
    TOKEN_SATURATION = 6
    PLANNER = 7
    OUTSTANDING = 8
    TOKEN_AWARE = 9
    TOKEN_VELOCITY = 10


class Rule(NamedTuple):
    """Any scaling policy in one shape; only the part that `kind` names counts."""

    kind: RuleKind
    hpa: HpaPolicy
    keda: KedaPolicy
    knative: KnativePolicy
    saturation: SaturationPolicy
    token_saturation: TokenSaturationPolicy
    planner: PlannerPolicy
    outstanding: OutstandingPolicy
    token_aware: TokenAwarePolicy
    token_velocity: TokenVelocityPolicy
    replicas: int
    lead_s: int
    start_s: int
    """Second of the week, from Monday 00:00 UTC, at which step 0 begins."""


def target_frac(rule: Rule) -> float:
    """Return the load of a replica that an autoscaler aims at."""
    if rule.kind == RuleKind.OUTSTANDING:
        return rule.outstanding.hpa.target_frac
    return rule.keda.hpa.target_frac if rule.kind == RuleKind.KEDA else rule.hpa.target_frac


def decide(rule: Rule, by_hour: Timetable, memory: Memory, seen: Observation) -> int:
    """Return the replicas, ready and starting together, that a rule wants after a step."""
    if rule.kind == RuleKind.HPA:
        return hpa_step(rule.hpa, memory, seen)
    if rule.kind == RuleKind.KEDA:
        return keda_step(rule.keda, memory, seen)
    if rule.kind == RuleKind.KNATIVE:
        return knative_step(rule.knative, memory, seen)
    if rule.kind == RuleKind.SATURATION:
        return saturation_step(rule.saturation, seen)
    if rule.kind == RuleKind.TOKEN_SATURATION:
        return token_saturation_step(rule.token_saturation, memory, seen)
    if rule.kind == RuleKind.PLANNER:
        return planner_step(rule.planner, memory, seen)
    if rule.kind == RuleKind.OUTSTANDING:
        return outstanding_step(rule.outstanding, memory, seen)
    if rule.kind == RuleKind.TOKEN_AWARE:
        return token_aware_step(rule.token_aware, memory, seen)
    if rule.kind == RuleKind.TOKEN_VELOCITY:
        return token_velocity_step(rule.token_velocity, seen)
    if rule.kind == RuleKind.CRON:
        return cron_step(by_hour, rule.lead_s, rule.start_s + (seen.step + 1) * SYNC_S)
    return rule.replicas

"""Batching on a place: the law of a replica that batches on its GPU."""

from __future__ import annotations

from trimtab.fleet.effects import SetBatchPolicy
from trimtab.fleet.service_law import ServiceLaw
from trimtab.levers.batching import run_time_spread
from trimtab.plan.outcome import Placement
from trimtab.replay.batched_law import BatchSpeed, carried_curve, law_of_policy


def batching_law(policy: SetBatchPolicy, place: Placement, law: ServiceLaw, *, low: bool = False) -> ServiceLaw:
    """Return the law of a replica that batches there, in place of the law it had; `low`: at the low end of its speed."""
    speed = place.speed.low if low else place.speed.value
    work_speed = place.work_speed.low if low else place.work_speed.value
    curve = carried_curve(policy, speed, work_speed)
    return law_of_policy(policy, BatchSpeed(curve=curve, spread=run_time_spread(law)))

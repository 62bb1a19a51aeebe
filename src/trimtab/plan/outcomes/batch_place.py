"""Batching on a place: the law of a replica that batches on its GPU."""

from __future__ import annotations

import math

from trimtab.fleet.effects import SetBatchPolicy
from trimtab.fleet.service_law import ServiceLaw
from trimtab.levers.batching import run_time_spread
from trimtab.physics.predict import PAIR_SPREAD
from trimtab.physics.transfer import Z_80
from trimtab.plan.outcomes.outcome import Placement
from trimtab.provenance import Basis
from trimtab.replay.batched_law import BatchSpeed, carried_curve, law_of_policy


def batching_law(policy: SetBatchPolicy, place: Placement, law: ServiceLaw, *, low: bool = False) -> ServiceLaw:
    """Return the law of a replica that batches there, in place of the law it had; `low`: at the low end of its speed."""
    speed = place.speed.low if low else place.speed.value
    work_speed = place.work_speed.low if low else place.work_speed.value
    if low and policy.basis is Basis.MODELLED:
        work_speed /= math.exp(Z_80 * PAIR_SPREAD)
    curve = carried_curve(policy, speed, work_speed)
    return law_of_policy(policy, BatchSpeed(curve=curve, spread=run_time_spread(law)))

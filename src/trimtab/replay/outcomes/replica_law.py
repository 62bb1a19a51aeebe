"""How a replica answers at a place: in batches by their own times, in time slices in the time that others leave.

Who the neighbours in time slices will be is not known when options are replayed. So each slice belongs to a class: nobody in it
is at work for more than `busy_frac` of any hour, which is checked for every option (`leaves_enough`), and everybody is judged
as if all its neighbours were as busy as that in every hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from trimtab.deployment.effects import UseSlots
from trimtab.deployment.placement import Placement
from trimtab.fleet.service_law import LatencyByLoad, ServiceLaw
from trimtab.fleet.targets import share_within
from trimtab.fleet.working import busiest_hour_frac
from trimtab.physics.colocation import AS_MET, MET_BOTH_WAYS, left_frac, met_frac
from trimtab.replay.batched_law import BatchSpeed, law_of_policy
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.units import S_PER_HR


def replica_law(law: ServiceLaw, place: Placement, *, low: bool = False) -> tuple[ServiceLaw, float]:
    """Return how a replica answers there, and the speed that its times are divided by; `low`: at the careful end.

    A faster GPU answers sooner only where nothing beside it may be full first. A batching replica's law is made of its own
    times there. Its capacity is `Placement.replica_req_s`, here as everywhere.
    """
    curve, speed = place.batch_curve(low=low), place.speed.low if low else place.speed.value
    if place.batching is not None and curve is not None:
        # batch times are those of this very place: no speed comes on top
        batches = BatchSpeed(curve=curve, spread=law.run_time_spread)
        law, speed = law_of_policy(place.batching, batches), 1.0
    elif not law.faster_counts:
        speed = min(speed, 1.0)
    return contended_law(law, place.shared, low=low), speed


def contended_law(law: ServiceLaw, slot: UseSlots | None, *, low: bool = False) -> ServiceLaw:
    """Return the law of a replica in a slot; `low`: at the careful end. Where nobody takes turns with it, it is the same."""
    if slot is None or not slot.others:
        return law
    return _contended(law, slot.others, slot.shared.busy_frac, MET_BOTH_WAYS if low else AS_MET)


@lru_cache(maxsize=512)
def _contended(law: ServiceLaw, others: int, busy_frac: float, ways: float) -> ServiceLaw:
    """Take the others' time off what a replica serves, and stretch the latency of requests that meet them."""
    met = met_frac(others, busy_frac, ways)
    whole = _stretched(law.latency(), met)
    return replace(
        law,
        capacity_req_s=law.capacity_req_s * left_frac(others, busy_frac),
        share=whole.share,
        le_s=whole.le_s,
        first_token=None if law.first_token is None else _stretched(law.first_token, met),
        per_token=None if law.per_token is None else _stretched(law.per_token, met),
    )


def _stretched(alone: LatencyByLoad, met_frac: Sequence[float]) -> LatencyByLoad:
    """Return a latency whose requests meet none, one, two, ... others with these probabilities, and wait for their turns."""
    if not len(alone.le_s):
        return alone
    # each bound times 1, 2, ... is where a stretched latency may step
    le_s = np.append(np.unique(np.outer(np.arange(1, len(met_frac) + 1), alone.le_s[:-1])), np.inf)
    below = np.zeros((len(alone.load), len(le_s)))
    for met, share in enumerate(met_frac):
        for bucket, bound_s in enumerate(le_s[:-1]):
            # who meets m others takes 1 + m times as long, so it is in time if alone it took that much less
            below[:, bucket] += share * share_within(alone.le_s, alone.share, float(bound_s) / (1 + met))
    # all are below infinity, whatever rounding left
    below[:, -1] = 1.0
    return replace(alone, share=np.diff(below, axis=1, prepend=0.0), le_s=le_s)


def leaves_enough(case: Case, place: Placement, outcome: Outcome) -> bool:
    """Tell whether a workload leaves others that take turns with it the time that they count on: in its busiest hour, at the
    low end of its speed, with the demand that plans leave room for."""
    if place.shared is None or not place.shared.others or outcome.gpus is None:
        return True
    replicas = outcome.gpus / S_PER_HR / place.gpus_per_pod
    # a slower replica is at work for longer on the same requests
    busy = busiest_hour_frac(case.workload, replicas) / place.speed.low
    return busy * (1 + case.settings.planning.demand_headroom_frac) <= place.shared.shared.busy_frac

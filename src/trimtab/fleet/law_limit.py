"""The law that a plan rests on: a service's own, held to the loads that history shows a replica to serve.

Activity says how much of a GPU a request takes, and so what a replica would serve if nothing but the GPU ever filled. What is
full first is told by what history shows, in this order:

1. *one request at a time*: a replica is full while it has one;
2. *places*: requests waited for as long as they were then in work; what was served meanwhile is the capacity;
3. *the GPU*: the capacity by activity is within what was shown, or no further off than the allowance;
4. *something beside the GPU*, a CPU or larger batches: latency rose with load by more than the GPU's own load explains, so that
   the end is near: capacity is the highest load that was sustained, with no allowance; so it is where no places are declared
   and the back-test's busier hours had a fifth more requests in work than the law foretold;
5. *untold*: nothing that was measured says where the end is.

**The allowance.** Rules aim to run a replica no hotter than the highest load that it was seen to sustain. Capacity is that load
over the top of the healthy band (1 / 0.8), since rules aim at 80 % of it at most: bursts, and demand that grows, may go a
quarter beyond what was seen. The quarter shrinks to nothing with the share of the allowed misses that the back-test got wrong:
a law that was a whole target off is left 80 % of the load that was seen. Or one request after the other, if that is more: any
server can do that. The reason: at low load a server with 32 places and one with 200 give the same readings, and so do 40 % and
80 % of a CPU that nobody measured, so that whatever goes further is a guess that costs the target when wrong. When it is too
careful, it costs at most the ratio of the loads, and a load test of twenty minutes ends it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.fleet.back_test import back_test, hourly_load
from trimtab.fleet.law_evidence import (
    FEWEST_STEPS,
    BackTest,
    Bound,
    LawEvidence,
    full_req_s,
    highest_sustained_req_s,
    seconds_in_work,
)
from trimtab.fleet.law_places import served_with_places
from trimtab.fleet.model import Workload
from trimtab.fleet.service_law import ServiceLaw, activity_capacity, activity_law, service_law
from trimtab.fleet.targets import bucket_quantile
from trimtab.units import S_PER_HR

_AS_GOOD_FRAC = 0.9
"""What was served by replicas that were full is what activity says, within a tenth: readings are no better."""
_CLEAR_RISE = 1.3
"""Medians that rise by less than this with load tell nothing of what fills."""
_BEYOND_GPU = 1.2
"""They rise by so much more than the GPU's load explains, if something else fills first."""


def tested_law(workload: Workload, healthy_frac: float) -> ServiceLaw | str:
    """Fit a service's law, test it, and hold it to what history shows; a reason where there is none to fit."""
    service, capacity = workload.service, activity_capacity(workload)
    if isinstance(capacity, str):
        return capacity
    assert service is not None
    by_activity = service_law(workload, healthy_frac)
    if isinstance(by_activity, str):
        return by_activity
    found = back_test(workload, healthy_frac)
    shown = max(highest_sustained_req_s(service), hottest_req_s(workload))
    if capacity.one_by_one:
        bound, most = Bound.ONE_BY_ONE, capacity.req_s
    else:
        bound, most = _most(workload, by_activity, shown, found, healthy_frac)
    tested = LawEvidence(bound=bound, activity_req_s=capacity.req_s, shown_req_s=shown, back_test=found)
    if most >= capacity.req_s:
        return replace(by_activity, tested=tested)
    law = service_law(workload, healthy_frac, most)
    if isinstance(law, str) or bound not in {Bound.UNTOLD, Bound.DECLARED}:
        return law if isinstance(law, str) else replace(law, tested=tested)
    # what demand may grow by lies within the allowance, where times stretch as the GPU's own load says
    return replace(law, tested=tested, top_load=max(1.0, law.top_load), gpu_frac=most / capacity.req_s)


def trust_of(found: BackTest | str) -> float:
    """Return the share of the way beyond what was shown that a back-test allows: 1, less the allowed misses it got wrong."""
    return 1.0 - (found.late_frac if isinstance(found, BackTest) else 0.0)


def allowance(trust_frac: float, healthy_frac: float) -> float:
    """Return how far beyond the highest load sustained capacity may lie, as a factor: see the head of this module."""
    return 1.0 + (1.0 / healthy_frac - 1.0) * trust_frac


def hottest_req_s(workload: Workload) -> float:
    """Return the load that the hottest replicas were seen to sustain, in requests/s; 0 where nothing tells them apart.

    Replicas are never loaded evenly, and what one of them bore each of them bears: in the busiest hours, the second busiest
    device worked so much more than the mean (`Activity.uneven`), for three minutes of the hour, at requests like all others.
    """
    service, uneven = workload.service, workload.activity.uneven
    if service is None or uneven is None:
        return 0.0
    hourly = hourly_load(service)
    known = np.sort(hourly[np.isfinite(hourly)])
    return float(known[-FEWEST_STEPS]) * uneven if len(known) >= FEWEST_STEPS else 0.0


def _most(
    workload: Workload, law: ServiceLaw, shown_req_s: float, found: BackTest | str, healthy_frac: float
) -> tuple[Bound, float]:
    """Return what bounds a replica, and what it serves at most."""
    service, trust_frac = workload.service, trust_of(found)
    assert service is not None
    in_work_s = seconds_in_work(service)
    in_turn = 0.0 if in_work_s is None else 1.0 / in_work_s
    full = full_req_s(service)
    if full is not None:
        most = max(full, in_turn)
        return (Bound.GPU if most >= _AS_GOOD_FRAC * law.capacity_req_s else Bound.PLACES), most
    most = max(shown_req_s * allowance(trust_frac, healthy_frac), in_turn)
    if most >= law.capacity_req_s:
        return Bound.GPU, law.capacity_req_s
    sustained = highest_sustained_req_s(service)
    if _rises_beside_gpu(law, sustained):
        return Bound.BESIDE_GPU, max(sustained, in_turn)
    places = workload.spec.max_concurrency
    declared = "not declared" if places is None else served_with_places(service, places, shown_req_s, trust_frac)
    if isinstance(declared, str) and _crowds(found):
        return Bound.BESIDE_GPU, max(sustained, in_turn)
    if isinstance(declared, str):
        return Bound.UNTOLD, most
    return Bound.DECLARED, min(max(declared, sustained, in_turn), law.capacity_req_s)


def _rises_beside_gpu(law: ServiceLaw, shown_req_s: float) -> bool:
    """Tell whether median latencies rise with load by more than the GPU's load explains, which is by 1 / (1 - load) at most.

    Up to the highest load that was sustained: single steps of more tell of chance.
    """
    sustained = np.flatnonzero(law.load <= shown_req_s / law.capacity_req_s)
    if not law.share.size or len(sustained) < 2:
        return False
    low, high = float(law.load[0]), float(law.load[sustained[-1]])
    first, last = (bucket_quantile(law.le_s, law.share[row], 0.5) for row in (0, sustained[-1]))
    explained = (1 - low) / max(1 - high, 0.01)
    return first > 0 and last >= max(_CLEAR_RISE, _BEYOND_GPU * explained) * first


def _crowds(found: BackTest | str) -> bool:
    """Tell whether requests were in work together by more than the GPU's load explains, on the busier hours of a back-test.

    They hinder one another then, however few of them are late yet: by Little's law each takes longer with every other.
    """
    running = found.running if isinstance(found, BackTest) else None
    return running is not None and running.measured >= _BEYOND_GPU * running.foretold > 0


def tested_activity_law(workload: Workload, healthy_frac: float) -> ServiceLaw:
    """Return the law of a service without request metrics, held to the highest activity of an hour that its replicas showed.

    An hour's mean hides its bursts, so that what was shown is on the low side.
    """
    law = activity_law(workload, healthy_frac)
    held = workload.gpu_seconds / S_PER_HR
    busy = np.divide(workload.activity.busy_gpus, held, out=np.full_like(held, np.nan), where=held > 0)
    seen = np.sort(busy[np.isfinite(busy)])
    if not len(seen):
        return law
    shown = float(seen[-min(FEWEST_STEPS, len(seen))]) * workload.gpus_per_pod
    most = min(law.capacity_req_s, shown / healthy_frac)
    if most <= 0:
        return law
    untold = most < law.capacity_req_s
    return replace(
        law,
        capacity_req_s=most,
        top_load=1.0 if untold else law.top_load,
        gpu_frac=most / law.capacity_req_s,
        tested=LawEvidence(
            bound=Bound.UNTOLD if untold else Bound.GPU,
            activity_req_s=law.capacity_req_s,
            shown_req_s=shown,
            back_test="no request metrics",
        ),
    )

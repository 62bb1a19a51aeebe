"""How a replica answers at a place: in batches by their own times, in time slices in the time that others leave.

Requests leave in whole batches, or come and go in a continuous one; `run_s[n]` is how long a batch of `n` takes, or a request
among `n`. Within a minute requests come as a Poisson stream (what a history by the minute can tell); each load is one replay
of such a stream through the batcher, with the same random numbers for every load and rule. At full load a request takes the
batch before it and its own, beyond its wait for the backlog. The loops are compiled; run through `.py_func` they give the
same bytes.

Which workloads will be the neighbours in time slices is not known when options are replayed. So each slice belongs to a class:
no workload in it is busy for more than `busy_frac` of any hour, which is checked for every option (`leaves_enough`), and
each is evaluated as if all its neighbours were as busy as that in every hour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trimtab.deployment.effects import BatchForm, ServingHalf, SetBatchPolicy, SetReplicaGpus, UseSlots
from trimtab.deployment.placement import Placement
from trimtab.fleet.activity import busiest_hour_frac
from trimtab.fleet.service_law import LatencyByLoad, ServiceLaw
from trimtab.fleet.targets import share_within
from trimtab.fleet.token_work import TokenWork
from trimtab.ledger.arrays import FloatArray
from trimtab.physics.colocation import AS_MET, MET_BOTH_WAYS, BatchCurve, left_frac, met_frac
from trimtab.physics.disaggregated import TIME_SHARES
from trimtab.provenance import Basis
from trimtab.replay.compiled import compiled
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.units import S_PER_HR

REQUESTS = 12_000
"""Requests replayed at each load; the 99th percentile of latency is then known to about 2 %."""
WARM_UP = 1_000
LOADS = tuple(round(0.05 * step, 2) for step in range(1, 20))
BUCKETS = 96
_SEED = 20261120
_JUST_BELOW = 0.999
_LEAST_S = 1e-4
_Times = tuple[tuple[float, ...], ...]
"""By load, at `TIME_SHARES` of the requests."""
_TAIL_SDS = 2.0
"""At full load a batch is assumed to be this many standard deviations (of the logarithm) slower than the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpeed:
    """A batch-time curve on the GPU at hand, and how run times scatter around it (standard deviation of the logarithm)."""

    curve: BatchCurve
    spread: float


@lru_cache(maxsize=512)
def batched_law(form: BatchForm, max_batch: int, window_s: float, speed: BatchSpeed, basis: Basis) -> ServiceLaw:
    """Return the law of a replica that batches so."""
    capacity = speed.curve.most_req_s(max_batch)
    full_s = _full_s(form, max_batch, window_s, speed)
    # in equal ratios, from below the fastest run to far beyond the time at full load
    bounds = np.geomspace(speed.curve.seconds[0] / 4, 40 * full_s, BUCKETS)
    # at full load every answer takes full_s: a bound just below it keeps interpolation from smearing that step
    le_s = np.concatenate((np.union1d(bounds, [_JUST_BELOW * full_s, full_s]), [np.inf]))
    below = np.array([_below(form, max_batch, window_s, speed, load * capacity, le_s) for load in LOADS])
    # at full load no answer comes sooner than full_s
    below = np.vstack([below, le_s >= full_s])
    # sampling noise must not let a higher load answer sooner: the share within a bound never rises with load
    below = np.minimum.accumulate(below, axis=0)
    return ServiceLaw(
        capacity_req_s=capacity,
        load=np.array([*LOADS, 1.0]),
        share=np.diff(below, axis=1, prepend=0.0),
        le_s=le_s,
        top_load=1.0,
        basis=basis,
        because=f"{capacity:.3g} requests a second in batches of {max_batch}; latency by load from replayed batches",
        full_batch_s=full_s,
    )


def law_of_policy(policy: SetBatchPolicy, speed: BatchSpeed) -> ServiceLaw:
    """Return the law of a replica under a batch policy."""
    return batched_law(policy.form, policy.max_batch, policy.window_s, speed, policy.basis)


def _full_s(form: BatchForm, max_batch: int, window_s: float, speed: BatchSpeed) -> float:
    # a whole batch waits for the one that is running; a continuous one takes a request in at once
    batches = 1 if form is BatchForm.CONTINUOUS else 2
    return batches * speed.curve.run_s(max_batch) * math.exp(_TAIL_SDS * speed.spread) + window_s


def _below(
    form: BatchForm, max_batch: int, window_s: float, speed: BatchSpeed, rate_req_s: float, le_s: FloatArray
) -> FloatArray:
    """Return the share of requests within each bound at an arrival rate (n_bounds,)."""
    # the stream starts on an idle replica: the first requests are answered faster than those of a steady load
    latency_s = replayed_latencies(form, max_batch, window_s, speed, rate_req_s)[WARM_UP:]
    return np.asarray(np.searchsorted(np.sort(latency_s), le_s, side="right") / len(latency_s))


def replayed_latencies(
    form: BatchForm, max_batch: int, window_s: float, speed: BatchSpeed, rate_req_s: float
) -> FloatArray:
    """Return the latencies of a Poisson stream of requests, in order of arrival."""
    # the same random numbers for every load and rule, so that what differs is the rule
    rng = np.random.default_rng(_SEED)
    arrival_s = np.cumsum(rng.standard_exponential(REQUESTS)) / rate_req_s
    # log-normal with mean 1: on average the curve holds
    work = np.exp(speed.spread * rng.standard_normal(REQUESTS) - speed.spread**2 / 2)
    # place 0 is never run: it makes the size of a batch its index
    run_s = np.array([0.0, *(speed.curve.run_s(size) for size in range(1, max_batch + 1))])
    latency_s = np.empty(REQUESTS)
    if form is BatchForm.CONTINUOUS:
        stream_latencies(arrival_s, work, run_s, latency_s)
    else:
        least = 1 if form is BatchForm.GREEDY else max_batch
        batch_latencies(arrival_s, work, run_s, least, window_s, latency_s)
    return latency_s


@compiled
def batch_latencies(
    arrival_s: FloatArray, work: FloatArray, run_s: FloatArray, least: int, window_s: float, latency_s: FloatArray
) -> None:
    """Serve requests in batches of at most `len(run_s) - 1` and write each one's latency.

    A batch leaves when the device is free, and not before it holds `least` requests or its oldest has waited `window_s`.
    `work[k]` multiplies the run time of batch `k`.
    """
    most = len(run_s) - 1
    number = len(arrival_s)
    # `first` is the oldest request not yet served; the device is busy until `free_s`
    first = 0
    batch = 0
    free_s = 0.0
    while first < number:
        start_s = max(free_s, arrival_s[first])
        if window_s > 0:
            enough = first + least - 1
            # too few requests are left to fill it: then only the window ends the wait
            full_s = arrival_s[enough] if enough < number else math.inf
            start_s = max(start_s, min(full_s, arrival_s[first] + window_s))
        # whoever has come by the start is taken along, up to the largest batch
        last = first + 1
        while last < number and last - first < most and arrival_s[last] <= start_s:
            last += 1
        free_s = start_s + run_s[last - first] * work[batch]
        for request in range(first, last):
            latency_s[request] = free_s - arrival_s[request]
        first = last
        batch += 1


@compiled
def stream_latencies(arrival_s: FloatArray, work: FloatArray, run_s: FloatArray, latency_s: FloatArray) -> None:
    """Serve requests that join and leave a running batch of at most `len(run_s) - 1`, and write each one's latency.

    Among `n`, every request proceeds at `1 / run_s[n]` of its work a second; `work[i]` is that of request `i`, 1 on average.
    """
    most = len(run_s) - 1
    number = len(arrival_s)
    # Processor sharing in virtual time: `done` is the work that anybody inside since the start would have had by now,
    # so a request is due at `done` at its arrival plus its own work, however the speed changes meanwhile.
    due = np.zeros(most)
    who = np.zeros(most, dtype=np.int64)
    inside = 0
    coming = 0
    done = 0.0
    now_s = 0.0
    while coming < number or inside > 0:
        soonest = 0
        for place in range(1, inside):
            if due[place] < due[soonest]:
                soonest = place
        # virtual time advances at 1 / run_s[inside]: what is left of it takes run_s times as long
        ends_s = now_s + (due[soonest] - done) * run_s[inside] if inside > 0 else math.inf
        comes_s = max(now_s, arrival_s[coming]) if coming < number and inside < most else math.inf
        until_s = min(ends_s, comes_s)
        if inside > 0:
            done += (until_s - now_s) / run_s[inside]
        now_s = until_s
        # where an end and an arrival coincide the end comes first, since it frees the place
        if comes_s < ends_s:
            due[inside] = done + work[coming]
            who[inside] = coming
            inside += 1
            coming += 1
        else:
            latency_s[who[soonest]] = now_s - arrival_s[who[soonest]]
            # the order inside does not matter: the last one moves into the gap
            inside -= 1
            due[soonest] = due[inside]
            who[soonest] = who[inside]


def law_of_times(served: ServingHalf | SetReplicaGpus) -> ServiceLaw:
    """Return the law of a replica whose times by load are predicted: none is promised beyond the last load.

    A half of a service counts its own tokens; a replica that does all counts the work that the service's own law counts.
    """
    tokens = served.scaling.tokens if isinstance(served, ServingHalf) else None
    return _law_of_times(served.replica_req_s, served.loads, served.wait_s, served.token_s, served.answer_s, tokens)


@lru_cache(maxsize=512)
def _law_of_times(
    capacity_req_s: float,
    loads: tuple[float, ...],
    wait_s: _Times,
    token_s: _Times,
    answer_s: _Times,
    tokens: TokenWork | None,
) -> ServiceLaw:
    # one law for all rules of a half: what it says of limits is kept by its identity
    whole = _histograms(loads, answer_s)
    return ServiceLaw(
        capacity_req_s=capacity_req_s,
        load=whole.load,
        share=whole.share,
        le_s=whole.le_s,
        top_load=loads[-1],
        basis=Basis.MODELLED,
        because="predicted step times of the declared model, replayed at each load",
        first_token=_histograms(loads, wait_s),
        per_token=_histograms(loads, token_s) if token_s else None,
        tokens=tokens or "its loads are of the requests that the service's own law counts",
    )


def _histograms(loads: tuple[float, ...], times_s: _Times) -> LatencyByLoad:
    """Return times at shares of requests as histograms; those beyond the highest share are late, since no more is known."""
    low, high = min(row[0] for row in times_s), max(row[-1] for row in times_s)
    le_s = np.append(np.geomspace(max(low, _LEAST_S), max(high, 2 * _LEAST_S), BUCKETS), np.inf)
    below = np.array([np.interp(le_s, row, TIME_SHARES, left=0.0) for row in times_s])
    below[:, -1] = 1.0
    # chance in the replays must not let a higher load answer sooner
    below = np.minimum.accumulate(below, axis=0)
    return LatencyByLoad(load=np.array(loads), share=np.diff(below, axis=1, prepend=0.0), le_s=le_s)


def replica_law(law: ServiceLaw, place: Placement, *, low: bool = False) -> tuple[ServiceLaw, float]:
    """Return how a replica answers there, and the speed that its times are divided by; `low`: at the careful end.

    A faster GPU answers sooner only where nothing beside it may be full first. The law of a replica that batches, or has
    another number of GPUs, is made of its own times there. Its capacity is `Placement.replica_req_s`, here as everywhere.
    """
    curve, speed = place.batch_curve(low=low), place.speed.low if low else place.speed.value
    if place.batching is not None and curve is not None:
        # batch times are those of this very place: no speed comes on top
        batches = BatchSpeed(curve=curve, spread=law.run_time_spread)
        law, speed = law_of_policy(place.batching, batches), 1.0
    elif place.replica_gpus is not None:
        law = law_of_times(place.replica_gpus)
    elif not law.faster_counts:
        speed = min(speed, 1.0)
    return contended_law(law, place.shared, low=low), speed


def contended_law(law: ServiceLaw, slot: UseSlots | None, *, low: bool = False) -> ServiceLaw:
    """Return the law of a replica in a slot; `low`: at the careful end. Without others in the slot it is the same."""
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
    """Return whether a workload leaves others that take turns with it the time that they rely on: in its busiest hour, at the
    low end of its speed, with the demand that plans leave room for."""
    if place.shared is None or not place.shared.others or outcome.gpus is None:
        return True
    replicas = outcome.gpus / S_PER_HR / place.gpus_per_pod
    # a slower replica is busy for longer on the same requests
    busy = busiest_hour_frac(case.workload, replicas) / place.speed.low
    return busy * (1 + case.settings.planning.demand_headroom_frac) <= place.shared.shared.busy_frac

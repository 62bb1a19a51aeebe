"""Services whose owners declare their places, and worlds made against what the planner infers from that.

Written after the rule that uses the places was written and never used to set a number in it: reported apart.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.proving.fleet import P4D, Fleet, ServiceTruth, Site
from benchmarks.proving.parts import (
    Family,
    Rng,
    answers_within,
    batched_service,
    daily_service,
    rng_of,
    too_many_replicas,
)
from benchmarks.proving.world.clock import HOURS_PER_DAY
from benchmarks.proving.world.service import Server

_SLOTS = 24


def _declaring(rng: Rng, days: int, name: str, **further: object) -> ServiceTruth:
    """Return a service with continuous batching whose owner declares its places as they are."""
    service = batched_service(rng, days, name, **further)
    return replace(service, declared={**service.declared, "max_concurrency": service.server.slots})


def places_declared(seed: int, days: int) -> Fleet:
    """A well-behaved server of which the owner declares the places."""
    rng = rng_of("places-declared", seed)
    service = _declaring(rng, days, "prod/chat")
    return Fleet(family="places-declared", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def static_places(seed: int, days: int) -> Fleet:
    """The same with four times as many replicas as the load asks for, in a team that will not have an autoscaler."""
    return too_many_replicas("static-places", seed, days, _declaring)


def _limited(rng: Rng, days: int, server: Server, places: int, *, low: float, high: float) -> ServiceTruth:
    work_s = rng.uniform(4.0, 10.0)
    slow = server.slots / server.rate(server.slots)
    return daily_service(
        rng,
        "prod/chat",
        days,
        sites=(Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(low, high),
        declared={**answers_within(work_s * min(slow, 3.0) * 1.5), "max_concurrency": places},
    )


def batch_plateau(seed: int, days: int) -> Fleet:
    """Batches that are worth no more beyond a size far below the places declared; the GPU is full then."""
    rng = rng_of("batch-plateau", seed)
    server = Server(slots=_SLOTS, crowding=0.03, sm_full_frac=0.95, knee=rng.uniform(6, 9))
    service = _limited(rng, days, server, _SLOTS, low=0.35, high=0.55)
    return Fleet(family="batch-plateau", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def knee_at_sixty(seed: int, days: int) -> Fleet:
    """Cores beside the GPU that are full where history's peak was at 60 % of them; nothing rises before."""
    rng = rng_of("knee-at-sixty", seed)
    server = Server(slots=_SLOTS, crowding=0.0, sm_full_frac=rng.uniform(0.4, 0.5), knee=rng.uniform(6, 9))
    service = _limited(rng, days, server, _SLOTS, low=0.58, high=0.62)
    return Fleet(family="knee-at-sixty", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def lock_at_twice(seed: int, days: int) -> Fleet:
    """A lock that is always taken at twice the load of history's peak; nothing rises before."""
    rng = rng_of("lock-at-twice", seed)
    server = Server(slots=_SLOTS, crowding=0.0, sm_full_frac=rng.uniform(0.4, 0.5), knee=rng.uniform(6, 9))
    service = _limited(rng, days, server, _SLOTS, low=0.48, high=0.52)
    return Fleet(family="lock-at-twice", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def fewer_places(seed: int, days: int) -> Fleet:
    """The owner declares 24 places and there are 6 to 8: a pool of workers before the server."""
    rng = rng_of("fewer-places", seed)
    server = Server(slots=int(rng.integers(6, 9)), crowding=0.02, sm_full_frac=rng.uniform(0.4, 0.5))
    service = _limited(rng, days, server, _SLOTS, low=0.3, high=0.6)
    return Fleet(family="fewer-places", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


ADVERSARIAL = (
    Family(name="places-declared", make=places_declared, truth="places declared as they are", frozen=False),
    Family(name="static-places", make=static_places, truth="the same, four times too many replicas", frozen=False),
    Family(
        name="batch-plateau", make=batch_plateau, truth="batches of a third of the places fill the GPU", frozen=False
    ),
    Family(name="knee-at-sixty", make=knee_at_sixty, truth="cores are full at 1.7 x the peak seen", frozen=False),
    Family(name="lock-at-twice", make=lock_at_twice, truth="a lock is full at 2 x the peak seen", frozen=False),
    Family(name="fewer-places", make=fewer_places, truth="a third of the places declared", frozen=False),
)

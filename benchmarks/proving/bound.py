"""The least that a fleet's work can cost in its own world: nothing of it rests on what an audit thinks possible.

Per service and hour: the work that came in, at the rate of a full replica and the world's own speeds, on the kind of node where
that is cheapest, fractions of nodes allowed; never below the replicas that must stand. Runs: the GPU-seconds that they held,
at the true speed, on the cheapest node that holds one of their pods. Loading, waiting for nodes, headroom for latency and whole
nodes are left out, so that no plan on demand reaches it.
Runs keep their width and start no later than they did. The window begins with the runs that history left: what it had not done
by then is done by every plan, which is in force from there on.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from benchmarks.proving.claims import Claim
from benchmarks.proving.fleet import Fleet, RunsTruth, ServiceTruth
from benchmarks.proving.world.billing import HOME_REGION
from benchmarks.proving.world.clock import HOUR_S
from benchmarks.proving.world.hardware import GPUS
from trimtab.catalog import BuyingOption, load_catalog

Floats = npt.NDArray[np.float64]


class _Shape(NamedTuple):
    """A kind of node that the world knows, at today's price list."""

    instance_type: str
    gpu: str
    gpus: int
    usd_hr: float
    spot: bool


@cache
def _shapes(region: str) -> tuple[_Shape, ...]:
    """Return every AWS node of a region with whole GPUs that the world has a data sheet of, on demand and as spot."""
    catalog = load_catalog()
    found = []
    for option in (BuyingOption.ON_DEMAND, BuyingOption.SPOT):
        for price in catalog.prices.offerings(provider="aws", region=region, option=option):
            kind = catalog.prices.instance_types[price.provider, price.instance_type]
            if kind.gpu in GPUS and kind.gpu_frac == 1:
                spot = option is BuyingOption.SPOT
                found.append(_Shape(price.instance_type, kind.gpu, kind.gpu_count, price.usd_hr, spot))
    return tuple(found)


def bound_usd(fleet: Fleet, claim: Claim) -> float:
    """Return what the proof window costs at least; commitments that are there already are paid whatever runs."""
    start_s, hours = claim.proof_start_hr * HOUR_S, claim.proof_hours
    end_s = start_s + hours * HOUR_S
    work = sum(_service_usd(fleet, service, start_s, hours) for service in fleet.services)
    work += sum(_runs_usd(fleet, one, start_s, end_s) for one in fleet.runs)
    for stray in fleet.strays:
        if stray.sm_frac:
            held_s = max(0.0, min(stray.end_s, end_s) - max(stray.start_s, start_s))
            work += held_s / HOUR_S * _usd_hr(fleet, stray.machine.instance_type)
    owned = sum(one.nodes * one.usd_hr for one in fleet.owned) * hours
    relief = sum(one.nodes * _usd_hr(fleet, one.instance_type) for one in fleet.owned) * hours
    return owned + max(0.0, work - relief)


def _usd_hr(fleet: Fleet, instance_type: str, listed: float = 0.0) -> float:
    own = fleet.usd_hr.get(instance_type, listed)
    return own if isinstance(own, float) else float(own[-1])


def _service_usd(fleet: Fleet, service: ServiceTruth, start_s: float, hours: int) -> float:
    """Return the least cost of a service: each hour's work, or the replicas that must stand, whichever is more."""
    hour = ((service.arrival_s - start_s) // HOUR_S).astype(np.int64)
    inside = (hour >= 0) & (hour < hours) & np.isfinite(fleet.played[service.name].latency_s)
    work_s = _by_hour(hour[inside], service.work_s[inside], hours)
    # what comes in at an hour's end may be done in the next one, where that has replicas to spare
    late = inside & ((service.arrival_s - start_s) % HOUR_S >= HOUR_S - service.gives_up_s)
    late_s = _by_hour(hour[late], service.work_s[late], hours)
    least = cast("int", service.declared.get("min_replicas", 1))
    costs = [
        _replica_hours(work_s, late_s, least, service.server.rate(service.server.slots) * speed)
        * service.gpus_per_replica
        * usd_gpu_hr
        for speed, usd_gpu_hr in _rates(fleet, service, service.home.region, service.gpus_per_replica, spot=False)
    ]
    return min(costs)


def _by_hour(hour: npt.NDArray[np.int64], work_s: Floats, hours: int) -> Floats:
    return np.asarray(np.bincount(hour, weights=work_s, minlength=hours), dtype=np.float64)


def _replica_hours(work_s: Floats, late_s: Floats, least: int, rate: float) -> float:
    """Return the replica-hours of work that a full replica does at `rate` seconds of it a second."""
    needed, late = work_s / rate / HOUR_S, late_s / rate / HOUR_S
    spare = np.append(needed[1:], 0.0) < least
    return float(np.maximum(needed, least).sum() - late[spare].sum())


def _runs_usd(fleet: Fleet, one: RunsTruth, start_s: float, end_s: float) -> float:
    width = {run.name: run.pod_gpus for run in one.runs}
    spot = bool(one.declared.get("interruptible"))
    rates: dict[int, list[tuple[float, float]]] = {}
    total = 0.0
    for hold in fleet.stories[one.name].holds:
        begin_s, done_s = max(hold.start_s, start_s), min(hold.end_s, end_s)
        if begin_s >= done_s:
            continue
        gpus = width[hold.run]
        if gpus not in rates:
            rates[gpus] = _rates(fleet, one, one.machine.region, gpus, spot=spot)
        # a slower GPU may be at work on it when the window ends
        usd = min(min((done_s - begin_s) / speed, end_s - begin_s) * usd_gpu_hr for speed, usd_gpu_hr in rates[gpus])
        total += usd / HOUR_S * len(hold.places)
    return total


def _rates(
    fleet: Fleet, truth: ServiceTruth | RunsTruth, region: str, gpus: int, *, spot: bool
) -> list[tuple[float, float]]:
    """Return (true speed, dollars a GPU-hour) of each kind of node that holds one pod."""
    found = []
    for shape in _shapes(region):
        speed = truth.speed(shape.gpu)
        if (
            speed is None
            or shape.gpus < gpus
            or GPUS[shape.gpu].memory_gib < truth.memory_gib
            or (shape.spot and not spot)
        ):
            continue
        own = shape.usd_hr if shape.spot or region != HOME_REGION else _usd_hr(fleet, shape.instance_type, shape.usd_hr)
        found.append((speed, own / shape.gpus))
    return found

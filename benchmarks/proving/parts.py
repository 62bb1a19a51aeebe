"""What fleets of every family are made of: services, their declarations, and times of submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.proving.fleet import G6E, P4D, Fleet, ServiceTruth, Site
from benchmarks.proving.world.arrivals import arrivals, day_shape, lognormal, wandering
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY, MINUTE_S
from benchmarks.proving.world.runs import Run
from benchmarks.proving.world.service import Server

DAYS, SMALL_DAYS = 14, 10
FIT_DAYS = 7
"""Of either length: the planner takes whole weeks, and at least a third of the history is for the proof."""
Rng = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of fleet: how one is made, and what its truth is that a planner may miss."""

    name: str
    make: Callable[[int, int], Fleet]
    """(seed, days) to a fleet."""
    truth: str
    frozen: bool = True
    """False: added after the planner's rules were last changed on the account of others."""


def rng_of(name: str, seed: int) -> Rng:
    """Return the random numbers of a family's fleet."""
    return np.random.default_rng([seed, *name.encode()])


def daily_service(
    rng: Rng,
    name: str,
    days: int,
    *,
    sites: tuple[Site, ...],
    server: Server,
    work_s: float,
    peak_frac: float,
    floor_frac: float = 0.25,
    sigma: float = 0.4,
    dispersion: float = 1.0,
    factor: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None,
    **further: object,
) -> ServiceTruth:
    """Return a service whose daily peak is a share of what its replicas can do at home's speed."""
    minutes = days * DAY_S // MINUTE_S
    replicas = sum(site.replicas for site in sites)
    peak = peak_frac * replicas * server.capacity_req_s(work_s)
    shape = day_shape(minutes, floor_frac=floor_frac, peak_hour=rng.uniform(11, 18), weekend_frac=rng.uniform(0.7, 1.0))
    rate = peak * shape * wandering(minutes, rng)
    if factor is not None:
        rate = rate * factor
    arrival = arrivals(rate, rng, dispersion=dispersion)
    return ServiceTruth(
        name=name,
        sites=sites,
        server=server,
        arrival_s=arrival,
        work_s=lognormal(len(arrival), work_s, sigma, rng),
        **further,  # type: ignore[arg-type]  # fields of a service, named by the families below
    )


def answers_within(
    limit_s: float, *, quantile: float = 0.95, cold_start_s: float = 90.0, most: int = 32
) -> dict[str, object]:
    """Return what is declared of a service: so many of its requests answered within a limit, two replicas at least.

    `cold_start_s` is a replica's own start on a node that is up, as `ServiceTruth.load_s`: a node's start comes in addition.
    """
    target = {"metric": "latency", "quantile": quantile, "limit_s": round(limit_s, 3)}
    return {
        "kind": "serving",
        "targets": [target],
        "cold_start_s": cold_start_s,
        "max_replicas": most,
        "min_replicas": 2,
    }


def batched_service(rng: Rng, days: int, name: str, **further: object) -> ServiceTruth:
    """Return a service with continuous batching, whose SM activity follows the work that it does."""
    server = Server(slots=int(rng.integers(8, 17)), crowding=rng.uniform(0.04, 0.08), sm_full_frac=0.95)
    work_s = rng.uniform(6.0, 14.0)
    slow = work_s * (1 + server.crowding * (server.slots - 1))
    options: dict[str, object] = {
        "sites": (Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        "peak_frac": rng.uniform(0.35, 0.55),
        "declared": answers_within(slow * 2.2),
    }
    return daily_service(rng, name, days, server=server, work_s=work_s, **{**options, **further})  # type: ignore[arg-type]


def too_many_replicas(family: str, seed: int, days: int, make: Callable[..., ServiceTruth] = batched_service) -> Fleet:
    """Return a service with four times as many replicas as the load asks for, in a team that will not have an autoscaler."""
    rng = rng_of(family, seed)
    service = make(
        rng,
        days,
        "prod/chat",
        sites=(Site(machine=G6E, replicas=16),),
        peak_frac=rng.uniform(0.16, 0.22),
        floor_frac=0.8,
    )
    return Fleet(
        family=family,
        seed=seed,
        hours=days * HOURS_PER_DAY,
        services=(service,),
        options=("--set", "efforts.autoscaling.weeks=5000"),
    )


def tuning_runs(rng: Rng, hours: int) -> list[Run]:
    """Return eight runs a day of one GPU, which take two to eight hours."""
    return [
        Run(name=f"tune-{at}", workload="research/tune", submit_s=submit, pods=1, pod_gpus=1,
            work_s=float(rng.uniform(2, 8) * HOUR_S))
        for at, submit in enumerate(poisson_times(rng, 8, hours * HOUR_S))
    ]  # fmt: skip


def poisson_times(rng: Rng, per_day: float, horizon_s: float) -> list[float]:
    """Return times of submission, so many a day; none so late that a run has no time to begin."""
    count = rng.poisson(per_day * horizon_s / DAY_S)
    return sorted(float(at) for at in rng.uniform(0, horizon_s * 0.97, count))

"""Families that were added after the planner's rules were mended for the others: nothing was ever mended on their account."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.proving.fleet import G5, G6E, P4D, Fleet, RunsTruth, Site
from benchmarks.proving.parts import (
    FIT_DAYS,
    Family,
    Rng,
    answers_within,
    batched_service,
    daily_service,
    poisson_times,
    rng_of,
)
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY, MINUTE_S
from benchmarks.proving.world.runs import Run
from benchmarks.proving.world.service import Server

Floats = npt.NDArray[np.float64]


def _fleet(family: str, seed: int, days: int, **further: object) -> Fleet:
    return Fleet(family=family, seed=seed, hours=days * HOURS_PER_DAY, **further)  # type: ignore[arg-type]  # its fields


def _minutes(days: int) -> Floats:
    return np.arange(days * DAY_S // MINUTE_S, dtype=np.float64) * MINUTE_S


def batch_bound(seed: int, days: int) -> Fleet:
    """Many places that crowd one another: two thirds of the speed are there with a quarter of the places taken."""
    rng = rng_of("batch-bound", seed)
    server = Server(
        slots=int(rng.integers(32, 49)), crowding=rng.uniform(0.15, 0.3), sm_full_frac=rng.uniform(0.7, 0.95)
    )
    work_s = rng.uniform(1.5, 4.0)
    slow = work_s * (1 + server.crowding * (server.slots - 1))
    service = daily_service(
        rng,
        "prod/generate",
        days,
        sites=(Site(machine=P4D, replicas=8),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(0.3, 0.6),
        declared=answers_within(slow * 1.5),
    )
    return _fleet("batch-bound", seed, days, services=(service,))


def slow_drift(seed: int, days: int) -> Fleet:
    """Demand grows, or shrinks, by some per cent of itself every day."""
    rng = rng_of("slow-drift", seed)
    daily = rng.choice([-0.03, 0.03, 0.05])
    factor = (1 + daily) ** (_minutes(days) / DAY_S)
    peak = rng.uniform(0.25, 0.4)
    service = batched_service(rng, days, "prod/chat", peak_frac=peak, factor=factor)
    return _fleet("slow-drift", seed, days, services=(service,))


def flipped_day(seed: int, days: int) -> Fleet:
    """Day and night change places when the proof begins: the users of another continent take over."""
    rng = rng_of("flipped-day", seed)
    minutes = _minutes(days)
    wave = 0.3 + 0.7 * (0.5 + 0.5 * np.cos(2 * np.pi * (minutes / DAY_S - rng.uniform(0.4, 0.7))))
    turned = np.where(minutes < FIT_DAYS * DAY_S, wave, np.roll(wave, HOURS_PER_DAY * HOUR_S // MINUTE_S // 2))
    service = batched_service(rng, days, "prod/chat", floor_frac=1.0, factor=turned)
    return _fleet("flipped-day", seed, days, services=(service,))


def longer_requests(seed: int, days: int) -> Fleet:
    """As many requests as before, each a third longer from the day on which the fit ends."""
    rng = rng_of("longer-requests", seed)
    service = batched_service(rng, days, "prod/chat", peak_frac=rng.uniform(0.3, 0.45))
    longer = np.where(service.arrival_s >= FIT_DAYS * DAY_S, rng.uniform(1.2, 1.4), 1.0)
    return _fleet("longer-requests", seed, days, services=(replace(service, work_s=service.work_s * longer),))


def heavy_tailed_runs(seed: int, days: int) -> Fleet:
    """Runs of which most last minutes and a few a day or two, on shared nodes (Pareto, as Philly's and Helios' are)."""
    rng = rng_of("heavy-tailed-runs", seed)
    hours = days * HOURS_PER_DAY
    runs = [
        Run(name=f"job-{at}", workload="research/mix", submit_s=submit, pods=1, pod_gpus=int(rng.choice([1, 1, 1, 2, 8])),
            work_s=float(min(600 * (1 + rng.pareto(0.9)), 36 * HOUR_S)))
        for at, submit in enumerate(poisson_times(rng, 30, hours * HOUR_S))
    ]  # fmt: skip
    truth = RunsTruth(
        name="research/mix",
        machine=P4D,
        standing=int(rng.integers(3, 6)),
        runs=runs,
        declared={"targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}]},
    )
    return _fleet("heavy-tailed-runs", seed, days, runs=(truth,))


def bursty_clients(seed: int, days: int) -> Fleet:
    """An image service of a dozen clients: each is silent most of the time, then sends for minutes to hours."""
    rng = rng_of("bursty-clients", seed)
    minutes = days * DAY_S // MINUTE_S
    factor = sum((_client(rng, minutes) for _ in range(12)), np.full(minutes, 0.05))
    server = Server(slots=int(rng.integers(1, 5)), crowding=rng.uniform(0.2, 0.5), sm_full_frac=0.95)
    work_s = rng.uniform(2.0, 6.0)
    slow = work_s * (1 + server.crowding * (server.slots - 1))
    service = daily_service(
        rng,
        "prod/image",
        days,
        sites=(Site(machine=G6E, replicas=int(rng.integers(8, 15))),),
        server=server,
        work_s=work_s,
        peak_frac=0.6,
        floor_frac=0.7,
        sigma=0.8,
        dispersion=4.0,
        factor=factor / factor.max(),
        declared=answers_within(slow * 5),
    )
    return _fleet("bursty-clients", seed, days, services=(service,))


def _client(rng: Rng, minutes: int) -> Floats:
    """Return one client's share of the demand by minute: on and off by Pareto lengths, at a level of its own."""
    level, at, sends = np.zeros(minutes), 0, False
    weight = rng.lognormal(0.0, 0.8)
    while at < minutes:
        length = int(min((10 if sends else 90) * (1 + rng.pareto(1.5)), minutes))
        level[at : at + length] = weight if sends else 0.0
        at, sends = at + length, not sends
    return level


def two_regions(seed: int, days: int) -> Fleet:
    """The same server in two regions, a cluster each, where the same nodes cost 25 % more in one."""
    rng = rng_of("two-regions", seed)
    there = replace(P4D, region="eu-central-1")
    services = (
        batched_service(rng, days, "prod/chat", sites=(Site(machine=P4D, replicas=8),)),
        batched_service(rng, days, "prod-eu/chat-eu", sites=(Site(machine=there, replicas=8),)),
    )
    return _fleet("two-regions", seed, days, services=services)


def maintenance(seed: int, days: int) -> Fleet:
    """Every node is replaced twice a week, one after the other; for some minutes the old and the new are up and billed."""
    rng = rng_of("maintenance", seed)
    at_s = rng.uniform(0, 6) * HOUR_S
    restarts = [day * DAY_S + at_s for day in range(1, days) if day % 7 in {1, 4}]
    site = Site(machine=G5, replicas=int(rng.integers(8, 15)))
    service = batched_service(rng, days, "prod/chat", sites=(site,), restarts_s=restarts)
    return _fleet("maintenance", seed, days, services=(service,))


def metrics_missing(seed: int, days: int) -> Fleet:
    """Monitoring was down for two days of the fit and for some hours of the proof; work went on."""
    rng = rng_of("metrics-missing", seed)
    first = float(rng.integers(1, FIT_DAYS - 2)) * DAY_S
    later = (FIT_DAYS + 1) * DAY_S + float(rng.integers(0, 12)) * HOUR_S
    service = batched_service(rng, days, "prod/chat", sites=(Site(machine=P4D, replicas=8),))
    blind = ((first, first + 2 * DAY_S), (later, later + 5 * HOUR_S))
    return _fleet("metrics-missing", seed, days, services=(service,), blind=blind)


def idle_nights(seed: int, days: int) -> Fleet:
    """An office's service on whole nodes: hardly a request at night and at the weekend, and a gateway that holds the first."""
    rng = rng_of("idle-nights", seed)
    minutes = _minutes(days)
    hour = minutes // HOUR_S % HOURS_PER_DAY
    opens, closes = int(rng.integers(7, 10)), int(rng.integers(16, 20))
    at_work = (hour >= opens) & (hour < closes) & (minutes // DAY_S % 7 < 5)
    declared = answers_within(60.0, most=4)
    gateway = {"query": 'sum(rate(gateway_requests_total{route="office"}[2m]))', "hold_s": 900.0}
    service = batched_service(
        rng,
        days,
        "office/chat",
        sites=(Site(machine=P4D, replicas=int(rng.integers(1, 3))),),
        gpus_per_replica=P4D.gpus,
        factor=np.where(at_work, 1.0, rng.uniform(0.0002, 0.001)),
        declared={**declared, "min_replicas": 0, "wakes_on": gateway},
        gives_up_s=900.0,
    )
    return _fleet("idle-nights", seed, days, services=(service,))


ADDED_AFTER = tuple(
    Family(name=name, make=make, truth=truth, frozen=False)
    for name, make, truth in (
        ("batch-bound", batch_bound, "two thirds of the speed with a quarter of the places"),
        ("slow-drift", slow_drift, "demand grows or shrinks day by day"),
        ("flipped-day", flipped_day, "day and night change places after the fit"),
        ("longer-requests", longer_requests, "requests a third longer after the fit"),
        ("heavy-tailed-runs", heavy_tailed_runs, "most runs last minutes, a few a day or two"),
        ("bursty-clients", bursty_clients, "a dozen clients that come and go"),
        ("two-regions", two_regions, "two clusters, 25 % dearer in one"),
        ("maintenance", maintenance, "nodes replaced in turn, twice a week"),
        ("metrics-missing", metrics_missing, "no metrics for two days"),
        ("idle-nights", idle_nights, "hardly a request at night; a gateway holds the first"),
    )
)

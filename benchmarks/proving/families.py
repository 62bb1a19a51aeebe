"""Families of fleets, each a function of a seed: what they have in common is what could prove the proof wrong.

`frozen` families were there when the rules of the planner were last changed on their account; others were added after and are
reported apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.proving.fleet import G5, G6E, G6E_12, P4D, Fleet, RunsTruth, ServiceTruth, Site, Stray
from benchmarks.proving.world.arrivals import arrivals, day_shape, lognormal, wandering
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY, MINUTE_S
from benchmarks.proving.world.runs import Checkpoints, Run
from benchmarks.proving.world.service import Server

DAYS, SMALL_DAYS = 14, 10
Rng = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of fleet: how one is made, and what its truth is that a planner may miss."""

    name: str
    make: Callable[[int, int], Fleet]
    """(seed, days) to a fleet."""
    truth: str
    frozen: bool = True


def _rng(name: str, seed: int) -> Rng:
    return np.random.default_rng([seed, *name.encode()])


def _service(
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


def _declared(limit_s: float, *, quantile: float = 0.95, cold_start_s: float = 270.0, most: int = 32) -> dict[str, object]:
    target = {"metric": "latency", "quantile": quantile, "limit_s": round(limit_s, 3)}
    return {"kind": "serving", "targets": [target], "cold_start_s": cold_start_s, "max_replicas": most, "min_replicas": 2}


def _batched(rng: Rng, days: int, name: str, **further: object) -> ServiceTruth:
    """Return a service with continuous batching, whose SM activity follows the work that it does."""
    server = Server(slots=int(rng.integers(8, 17)), crowding=rng.uniform(0.04, 0.08), sm_full_frac=0.95)
    work_s = rng.uniform(6.0, 14.0)
    slow = work_s * (1 + server.crowding * (server.slots - 1))
    options: dict[str, object] = {
        "sites": (Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        "peak_frac": rng.uniform(0.35, 0.55),
        "declared": _declared(slow * 2.2),
    }
    return _service(rng, name, days, server=server, work_s=work_s, **{**options, **further})  # type: ignore[arg-type]


def well_behaved(seed: int, days: int) -> Fleet:
    """One service, continuous batching, SM activity in proportion to work, a daily wave."""
    rng = _rng("well-behaved", seed)
    return Fleet(family="well-behaved", seed=seed, hours=days * HOURS_PER_DAY, services=(_batched(rng, days, "prod/chat"),))


def slot_limited(seed: int, days: int) -> Fleet:
    """A server with few places: full at an SM activity of 42-45 %, running and waiting counts reported."""
    rng = _rng("slot-limited", seed)
    server = Server(slots=int(rng.integers(2, 5)), crowding=0.0, sm_full_frac=rng.uniform(0.42, 0.45))
    work_s = rng.uniform(3.0, 8.0)
    service = _service(
        rng,
        "prod/caption",
        days,
        sites=(Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(0.4, 0.65),
        declared=_declared(work_s * 3),
    )
    return Fleet(family="slot-limited", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def cpu_bound(seed: int, days: int) -> Fleet:
    """Replicas limited by the CPU beside the GPU: full at a fifth of the GPU, no faster on a faster one."""
    rng = _rng("cpu-bound", seed)
    server = Server(slots=8, crowding=0.12, sm_full_frac=rng.uniform(0.18, 0.28))
    work_s = rng.uniform(3.0, 6.0)
    service = _service(
        rng,
        "prod/rerank",
        days,
        sites=(Site(machine=G5, replicas=int(rng.integers(8, 17))),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(0.45, 0.65),
        host_frac=0.8,
        compute_frac=0.1,
        declared=_declared(work_s * 5),
        memory_gib=9.0,
    )
    return Fleet(family="cpu-bound", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def _poisson_times(rng: Rng, per_day: float, horizon_s: float) -> list[float]:
    count = rng.poisson(per_day * horizon_s / DAY_S)
    return sorted(float(at) for at in rng.uniform(0, horizon_s * 0.97, count))


def multi_pod_runs(seed: int, days: int) -> Fleet:
    """Training over several nodes: a run is pods of eight GPUs; `jobs.gpus` is the run's total, allocations are per pod."""
    rng = _rng("multi-pod-runs", seed)
    hours = days * HOURS_PER_DAY
    pods = int(rng.integers(3, 6))
    runs = [
        Run(name=f"pretrain-{at}", workload="research/pretrain", submit_s=submit, pods=pods, pod_gpus=8,
            work_s=float(rng.uniform(3, 9) * HOUR_S))
        for at, submit in enumerate(_poisson_times(rng, 1.3, hours * HOUR_S))
    ]  # fmt: skip
    return Fleet(
        family="multi-pod-runs",
        seed=seed,
        hours=hours,
        runs=(
            RunsTruth(
                name="research/pretrain",
                machine=P4D,
                standing=pods * int(rng.integers(1, 3)),
                runs=runs,
                declared={"kind": "training", "targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}]},
            ),
        ),
    )


def mixed_widths(seed: int, days: int) -> Fleet:
    """Runs of one and of four GPUs in one workload; the wide ones use their four."""
    rng = _rng("mixed-widths", seed)
    hours = days * HOURS_PER_DAY
    wide = rng.uniform(0.3, 0.5)
    runs = [
        Run(name=f"exp-{at}", workload="research/exp", submit_s=submit, pods=1, pod_gpus=4 if rng.random() < wide else 1,
            work_s=float(rng.uniform(0.5, 4) * HOUR_S))
        for at, submit in enumerate(_poisson_times(rng, 9, hours * HOUR_S))
    ]  # fmt: skip
    return Fleet(
        family="mixed-widths",
        seed=seed,
        hours=hours,
        runs=(
            RunsTruth(
                name="research/exp",
                machine=G6E_12,
                standing=int(rng.integers(3, 6)),
                runs=runs,
                declared={"targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}]},
            ),
        ),
    )


def unknown_holder(seed: int, days: int) -> Fleet:
    """Beside a service a node whose GPUs work, and of which nobody knows who holds it."""
    rng = _rng("unknown-holder", seed)
    service = _batched(rng, days, "prod/chat")
    strays = [Stray(name=f"bare-{at}", machine=P4D, sm_frac=rng.uniform(0.3, 0.8)) for at in range(int(rng.integers(1, 3)))]
    return Fleet(family="unknown-holder", seed=seed, hours=days * HOURS_PER_DAY, services=(service,), strays=strays)


def quota(seed: int, days: int) -> Fleet:
    """The cloud gives no more nodes than history had of the small type that a plan would scale on."""
    rng = _rng("quota", seed)
    replicas = int(rng.integers(10, 17))
    service = _batched(
        rng,
        days,
        "prod/chat",
        sites=(Site(machine=G6E, replicas=replicas),),
        peak_frac=rng.uniform(0.7, 0.85),
        memory_gib=30.0,
    )
    most = replicas
    return Fleet(
        family="quota",
        seed=seed,
        hours=days * HOURS_PER_DAY,
        services=(service,),
        options=("--quota", f"g6e.xlarge={most}"),
        quotas={"g6e.xlarge": most},
    )


def resumable_runs(seed: int, days: int) -> Fleet:
    """Interruptible runs with checkpoints, in a region where spot is gone for hours at a time."""
    rng = _rng("spot-droughts", seed)
    hours = days * HOURS_PER_DAY
    runs = [
        Run(name=f"tune-{at}", workload="research/tune", submit_s=submit, pods=1, pod_gpus=1,
            work_s=float(rng.uniform(2, 8) * HOUR_S))
        for at, submit in enumerate(_poisson_times(rng, 8, hours * HOUR_S))
    ]  # fmt: skip
    droughts, at_s = [], 0.0
    while at_s < hours * HOUR_S:
        at_s += float(rng.exponential(4 * HOUR_S))
        end_s = at_s + float(rng.exponential(8 * HOUR_S))
        droughts.append((at_s, end_s))
        at_s = end_s
    return Fleet(
        family="spot-droughts",
        seed=seed,
        hours=hours,
        droughts=droughts,
        runs=(
            RunsTruth(
                name="research/tune",
                machine=G6E,
                standing=int(rng.integers(6, 9)),
                runs=runs,
                checkpoints=Checkpoints(interval_s=900.0, restore_s=120.0),
                declared={
                    "interruptible": True,
                    "checkpoint": {"interval_s": 900.0, "save_s": 0.0, "restore_s": 120.0},
                    "targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}],
                },
            ),
        ),
    )


FAMILIES = (
    Family(name="well-behaved", make=well_behaved, truth="as the planner thinks"),
    Family(name="slot-limited", make=slot_limited, truth="full at 42-45 % SM activity"),
    Family(name="cpu-bound", make=cpu_bound, truth="full at a fifth of the GPU"),
    Family(name="multi-pod-runs", make=multi_pod_runs, truth="a run is several pods on several nodes"),
    Family(name="mixed-widths", make=mixed_widths, truth="runs of 1 and of 4 GPUs that use them"),
    Family(name="unknown-holder", make=unknown_holder, truth="a node works for nobody known"),
    Family(name="quota", make=quota, truth="no more nodes than the quota"),
    Family(name="spot-droughts", make=resumable_runs, truth="spot is gone for hours"),
)

"""The families on whose account the planner's rules were mended: what each has in common is what could prove the proof wrong.

Those that came after are in `families_after` and `families_recorded`, and are reported apart.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np

from benchmarks.proving.fleet import G6E, G6E_12, P4D, USD_HR, Fleet, RunsTruth, ServiceTruth, Site, Stray
from benchmarks.proving.parts import (
    FIT_DAYS,
    Family,
    Rng,
    answers_within,
    batched_service,
    daily_service,
    poisson_times,
    rng_of,
    too_many_replicas,
    tuning_runs,
)
from benchmarks.proving.world.billing import Committed
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY, MINUTE_S
from benchmarks.proving.world.runs import Checkpoints, Run
from benchmarks.proving.world.service import Server


def well_behaved(seed: int, days: int) -> Fleet:
    """One service, continuous batching, SM activity in proportion to work, a daily wave."""
    rng = rng_of("well-behaved", seed)
    return Fleet(
        family="well-behaved",
        seed=seed,
        hours=days * HOURS_PER_DAY,
        services=(batched_service(rng, days, "prod/chat"),),
    )


def slot_limited(seed: int, days: int) -> Fleet:
    """A server with few places: full at an SM activity of 42-45 %, running and waiting counts reported."""
    rng = rng_of("slot-limited", seed)
    server = Server(slots=int(rng.integers(2, 5)), crowding=0.0, sm_full_frac=rng.uniform(0.42, 0.45))
    work_s = rng.uniform(3.0, 8.0)
    service = daily_service(
        rng,
        "prod/caption",
        days,
        sites=(Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(0.15, 0.5),
        declared=answers_within(work_s * 3),
    )
    return Fleet(family="slot-limited", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def cpu_bound(seed: int, days: int) -> Fleet:
    """Replicas limited by the CPU beside the GPU: full at a fifth of the GPU, no faster on a faster one."""
    rng = rng_of("cpu-bound", seed)
    server = Server(slots=8, crowding=0.12, sm_full_frac=rng.uniform(0.18, 0.28))
    work_s = rng.uniform(3.0, 6.0)
    service = daily_service(
        rng,
        "prod/rerank",
        days,
        sites=(Site(machine=P4D, replicas=int(rng.integers(1, 3)) * 8),),
        server=server,
        work_s=work_s,
        peak_frac=rng.uniform(0.15, 0.5),
        host_frac=0.8,
        compute_frac=0.1,
        declared=answers_within(work_s * 5),
        memory_gib=9.0,
    )
    return Fleet(family="cpu-bound", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def multi_pod_runs(seed: int, days: int) -> Fleet:
    """Training over several nodes: a run is pods of eight GPUs; `jobs.gpus` is the run's total, allocations are per pod."""
    rng = rng_of("multi-pod-runs", seed)
    hours = days * HOURS_PER_DAY
    pods = int(rng.integers(3, 6))
    runs = [
        Run(name=f"pretrain-{at}", workload="research/pretrain", submit_s=submit, pods=pods, pod_gpus=8,
            work_s=float(rng.uniform(3, 9) * HOUR_S))
        for at, submit in enumerate(poisson_times(rng, 1.3, hours * HOUR_S))
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
                declared={
                    "kind": "training",
                    "targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}],
                },
            ),
        ),
    )


def mixed_widths(seed: int, days: int) -> Fleet:
    """Runs of one and of four GPUs in one workload; the wide ones use their four."""
    rng = rng_of("mixed-widths", seed)
    hours = days * HOURS_PER_DAY
    wide = rng.uniform(0.3, 0.5)
    runs = [
        Run(name=f"exp-{at}", workload="research/exp", submit_s=submit, pods=1, pod_gpus=4 if rng.random() < wide else 1,
            work_s=float(rng.uniform(0.5, 4) * HOUR_S))
        for at, submit in enumerate(poisson_times(rng, 9, hours * HOUR_S))
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
    rng = rng_of("unknown-holder", seed)
    service = batched_service(rng, days, "prod/chat")
    strays = [
        Stray(name=f"bare-{at}", machine=P4D, sm_frac=rng.uniform(0.3, 0.8)) for at in range(int(rng.integers(1, 3)))
    ]
    return Fleet(family="unknown-holder", seed=seed, hours=days * HOURS_PER_DAY, services=(service,), strays=strays)


def quota(seed: int, days: int) -> Fleet:
    """The cloud gives so few small nodes that a service that moves to them is short at its peaks."""
    rng = rng_of("quota", seed)
    most = int(rng.integers(6, 11))
    service = batched_service(
        rng, days, "prod/chat", sites=(Site(machine=P4D, replicas=16),), peak_frac=rng.uniform(0.4, 0.6)
    )
    limits = dict.fromkeys(("g6e.xlarge", "g6.xlarge", "g5.xlarge", "g4dn.xlarge", "p5.4xlarge"), most)
    return Fleet(
        family="quota",
        seed=seed,
        hours=days * HOURS_PER_DAY,
        services=(service,),
        options=("--quota", ",".join(f"{name}={most}" for name in limits)),
        quotas=limits,
    )


def resumable_runs(seed: int, days: int) -> Fleet:
    """Interruptible runs with checkpoints, in a region where spot is gone for hours at a time."""
    rng = rng_of("spot-droughts", seed)
    hours = days * HOURS_PER_DAY
    runs = tuning_runs(rng, hours)
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


def _bursting(rng: Rng, days: int, *, shows_requests: bool) -> ServiceTruth:
    """Return a service that rests at a few per cent of its replicas, but for six minutes of every hour or two."""
    minutes = days * DAY_S // MINUTE_S
    factor = np.ones(minutes)
    at = int(rng.integers(30, 90))
    while at < minutes:
        factor[at : at + 6] = rng.uniform(7, 10)
        at += int(rng.integers(60, 150))
    server = Server(slots=4, crowding=0.08, sm_full_frac=0.95)
    work_s = rng.uniform(3.0, 6.0)
    return daily_service(
        rng,
        "prod/image",
        days,
        sites=(Site(machine=G6E, replicas=int(rng.integers(10, 15))),),
        server=server,
        work_s=work_s,
        peak_frac=0.1,
        floor_frac=0.6,
        factor=factor,
        shows_requests=shows_requests,
        declared=answers_within(work_s * 4),
    )


def bursts(seed: int, days: int) -> Fleet:
    """Bursts of six minutes inside the hour; requests are measured."""
    rng = rng_of("bursts", seed)
    service = _bursting(rng, days, shows_requests=True)
    return Fleet(family="bursts", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def bursts_unseen(seed: int, days: int) -> Fleet:
    """The same bursts with no request metrics: hourly means hide them, the hour's 95th percentile of activity does not."""
    rng = rng_of("bursts-unseen", seed)
    service = _bursting(rng, days, shows_requests=False)
    return Fleet(family="bursts-unseen", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def mixed_gpus(seed: int, days: int) -> Fleet:
    """One service on two types of GPU, of unlike speed."""
    rng = rng_of("mixed-gpus", seed)
    sites = (Site(machine=P4D, replicas=8), Site(machine=G6E, replicas=int(rng.integers(4, 9))))
    service = batched_service(rng, days, "prod/chat", sites=sites, peak_frac=rng.uniform(0.3, 0.45))
    return Fleet(family="mixed-gpus", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def price_cut(seed: int, days: int) -> Fleet:
    """The price of the nodes falls by a third within the history (AWS, p4d, 5 June 2025)."""
    rng = rng_of("price-cut", seed)
    start = datetime(2025, 6, 5, tzinfo=UTC) - timedelta(days=days - 4)
    cut_hr = (date(2025, 6, 5) - start.date()).days * HOURS_PER_DAY
    hours = days * HOURS_PER_DAY
    by_hour = np.where(np.arange(hours) < cut_hr, 32.7726, USD_HR["p4d.24xlarge"])
    service = batched_service(rng, days, "prod/chat")
    return Fleet(
        family="price-cut",
        seed=seed,
        hours=hours,
        services=(service,),
        usd_hr={**USD_HR, "p4d.24xlarge": by_hour},
        start=start,
    )


def regime_change(seed: int, days: int) -> Fleet:
    """Demand is half as much again from the day on which the fit window ends."""
    rng = rng_of("regime-change", seed)
    factor = np.ones(days * DAY_S // MINUTE_S)
    factor[FIT_DAYS * DAY_S // MINUTE_S :] = 1.5
    service = batched_service(rng, days, "prod/chat", peak_frac=rng.uniform(0.3, 0.5), factor=factor)
    return Fleet(family="regime-change", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def idle_nodes(seed: int, days: int) -> Fleet:
    """Nodes that no workload holds beside a service that needs its own."""
    rng = rng_of("idle-nodes", seed)
    service = batched_service(rng, days, "prod/chat", sites=(Site(machine=P4D, replicas=8),))
    strays = [Stray(name=f"left-over-{at}", machine=P4D) for at in range(int(rng.integers(1, 3)))]
    return Fleet(family="idle-nodes", seed=seed, hours=days * HOURS_PER_DAY, services=(service,), strays=strays)


def small_runs(seed: int, days: int) -> Fleet:
    """Many runs of one GPU each that share nodes of eight."""
    rng = rng_of("small-runs", seed)
    hours = days * HOURS_PER_DAY
    runs = [
        Run(name=f"exp-{at}", workload="research/small", submit_s=submit, pods=1, pod_gpus=1,
            work_s=float(rng.uniform(1, 6) * HOUR_S))
        for at, submit in enumerate(poisson_times(rng, 25, hours * HOUR_S))
    ]  # fmt: skip
    return Fleet(
        family="small-runs",
        seed=seed,
        hours=hours,
        runs=(
            RunsTruth(
                name="research/small",
                machine=P4D,
                standing=int(rng.integers(2, 4)),
                runs=runs,
                declared={"targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}]},
            ),
        ),
    )


def static_replicas(seed: int, days: int) -> Fleet:
    """Four times as many replicas as the load asks for, in a team that will not have an autoscaler."""
    return too_many_replicas("static-replicas", seed, days)


def owned_idle(seed: int, days: int) -> Fleet:
    """Nodes that are committed to for a year yet, and in part idle: giving them back saves nothing."""
    rng = rng_of("owned-idle", seed)
    nodes = int(rng.integers(2, 4))
    service = batched_service(rng, days, "prod/chat", sites=(Site(machine=P4D, replicas=8),))
    strays = [Stray(name=f"spare-{at}", machine=P4D) for at in range(nodes - 1)]
    rate = 13.921094
    rows = ["name,provider,instance_type,region,count,term_years,upfront_usd,usd_hr,start,end"]
    rows.append(f"ri,aws,p4d.24xlarge,us-east-1,{nodes},1,0,{rate},2026-08-01,2027-08-01")
    return Fleet(
        family="owned-idle",
        seed=seed,
        hours=days * HOURS_PER_DAY,
        services=(service,),
        strays=strays,
        options=("--owned", "owned.csv"),
        files={"owned.csv": "\n".join(rows) + "\n"},
        owned=(Committed(instance_type="p4d.24xlarge", nodes=nodes, usd_hr=rate),),
    )


def clustered_arrivals(seed: int, days: int) -> Fleet:
    """A well-behaved server whose requests come in clumps: a minute's count varies six times as much as Poisson's."""
    rng = rng_of("clustered-arrivals", seed)
    service = batched_service(
        rng, days, "prod/chat", sites=(Site(machine=G6E, replicas=int(rng.integers(6, 13))),), dispersion=6.0
    )
    return Fleet(family="clustered-arrivals", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def refused_capacity(seed: int, days: int) -> Fleet:
    """A well-behaved server in a cloud that gives no new node for an hour or two, most days."""
    rng = rng_of("refused-capacity", seed)
    service = batched_service(rng, days, "prod/chat", sites=(Site(machine=G6E, replicas=int(rng.integers(8, 15))),))
    refusals = []
    for day in range(days):
        if rng.random() < 0.7:
            begin = day * DAY_S + rng.uniform(6, 14) * HOUR_S
            refusals.append((begin, begin + rng.uniform(1, 3) * HOUR_S))
    return Fleet(
        family="refused-capacity", seed=seed, hours=days * HOURS_PER_DAY, services=(service,), refusals=refusals
    )


FAMILIES = (
    Family(name="well-behaved", make=well_behaved, truth="as the planner thinks"),
    Family(name="slot-limited", make=slot_limited, truth="full at 42-45 % SM activity"),
    Family(name="cpu-bound", make=cpu_bound, truth="full at a fifth of the GPU"),
    Family(name="multi-pod-runs", make=multi_pod_runs, truth="a run is several pods on several nodes"),
    Family(name="mixed-widths", make=mixed_widths, truth="runs of 1 and of 4 GPUs that use them"),
    Family(name="unknown-holder", make=unknown_holder, truth="a node works for nobody known"),
    Family(name="quota", make=quota, truth="no more small nodes than the quota"),
    Family(name="spot-droughts", make=resumable_runs, truth="spot is gone for hours"),
    Family(name="bursts", make=bursts, truth="six minutes of every hour or two"),
    Family(name="bursts-unseen", make=bursts_unseen, truth="the same, and no request metrics"),
    Family(name="mixed-gpus", make=mixed_gpus, truth="two types of GPU, two capacities"),
    Family(name="price-cut", make=price_cut, truth="nodes cost a third less from some day on"),
    Family(name="regime-change", make=regime_change, truth="demand x 1.5 after the fit"),
    Family(name="idle-nodes", make=idle_nodes, truth="nodes that no workload holds"),
    Family(name="small-runs", make=small_runs, truth="eight runs to a node"),
    Family(name="static-replicas", make=static_replicas, truth="four times too many, no autoscaler wanted"),
    Family(name="owned-idle", make=owned_idle, truth="paid for a year, in part idle"),
    Family(name="clustered-arrivals", make=clustered_arrivals, truth="requests come in clumps"),
    Family(name="refused-capacity", make=refused_capacity, truth="no new node for an hour or two a day"),
)

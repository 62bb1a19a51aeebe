"""Which services could take turns on shared GPUs, replayed: what `trimtab replay --pool` reports beside the policies."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimtab.catalog import Gpu, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.cluster_file import parse_cluster_file, with_cluster_wide
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.model_pools import PoolMember, SharedGpu, missing_models, pool_files
from trimtab.emit.manifests.own_replicas import SEEN_LATE_S, OwnReplicas
from trimtab.errors import InputError, UsageError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.declared_models import need_on, served_model
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Target, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.inputs.files import read_text
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.pooling import (
    ASLEEP_GIB,
    DISK,
    HOST_MEMORY,
    PoolDay,
    PoolPlan,
    PoolService,
    choose_pool,
    replay_daily,
    warm_frac,
)
from trimtab.pipeline import SEED, split_window
from trimtab.policies.pooling import LLAMA_SWAP, OWN_REPLICAS, PoolPolicy, serves_bursts
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import cold_start_of
from trimtab.replay.pooling import PooledModel, PoolRequests, blocks
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_MO, S_PER_DAY, S_PER_HR, usd

_HEADROOM_FRAC = 0.95
"""Of a GPU's memory; the rest is left to fragments."""
_MOST_AT_ONCE = 256
_ANY_S = 1e9
_LIMITS = (TargetMetric.TTFT, TargetMetric.LATENCY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The lines to print, and the shared GPUs of the placement to put in place, with what no file can carry.

    `policy` is what was replayed, and what the files carry out.
    """

    policy: PoolPolicy
    lines: tuple[str, ...]
    gpus: tuple[SharedGpu, ...]
    not_written: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PoolCase:
    """The services of one node pool over both windows, and the GPU that they would share."""

    pool: Pool
    services: Sequence[PoolService]
    workloads: Mapping[str, Workload]
    start_s: float
    end_s: float
    gpu: Gpu
    memory_gib: float
    usd_mo: float
    policy: PoolPolicy


def pool_report(
    bundle: Bundle, settings: Settings, tell: Callable[[str, float], None], *, own_replicas: bool = False
) -> PoolReport:
    """Return the report: each day of the later window is placed on the history before it, and replayed.

    With `own_replicas`, models with many requests at once get replicas of their own for a while.
    """
    policy = OWN_REPLICAS if own_replicas else LLAMA_SWAP
    whole = bundle_window(bundle)
    split = split_window(whole, settings)
    tell("reading the fleet", 0.0)
    fit, rest = build_fleet(bundle, settings, split.fit), build_fleet(bundle, settings, split.proof)
    market = Market(catalog=load_catalog(), at=whole.end.date(), max_term_years=1, assumptions=settings.assumptions)
    by_pool: dict[Pool, list[PoolService]] = defaultdict(list)
    lines: list[str] = []
    for name, case in cases_of(fit, settings, SEED).items():
        allowed = isinstance(case, Case) and case.workload.spec.pool
        if isinstance(case, str) or not allowed:
            continue
        found = pool_service(case, market)
        if isinstance(found, str):
            lines.append(f"{name}: not pooled, {found}.")
        else:
            by_pool[case.workload.pool].append(found)
    if not by_pool and not lines:
        raise InputError(
            "no service may share a GPU in turns: declare `pool: true` in workloads.yaml for those that may"
        )
    gpus: list[SharedGpu] = []
    missing: list[str] = []
    for pool, services in by_pool.items():
        part = _part(pool, services, fit, rest, market, policy)
        if isinstance(part, str):
            lines.append(part)
            continue
        days = _replayed_days(part, tell)
        plan = _newest_plan(part)
        lines += [*_day_lines(part, days, rest), *_plan_lines(part, plan)]
        gpus += _shared_gpus(part, plan, first_number=len(gpus) + 1)
        members = [number for gpu in plan.gpus for number in gpu.services]
        specs = [part.workloads[part.services[number].model.name] for number in members]
        missing += missing_models([(each.name, each.spec.model, each.spec.sleep_level) for each in specs])
    return PoolReport(policy=policy, lines=tuple(lines), gpus=tuple(gpus), not_written=tuple(missing))


def pool_facts(cluster_file: Path | None) -> EmitFacts:
    """Return what a cluster file says of the cluster as a whole, else its defaults.

    Raises BundleError for a faulty file, and UsageError where it asks for another autoscaler than the one that is written.
    """
    if cluster_file is None:
        return EmitFacts()
    facts = with_cluster_wide(EmitFacts(), parse_cluster_file(read_text(cluster_file), where=str(cluster_file)))
    if facts.autoscaler is not Autoscaler.KEDA:
        raise UsageError(
            f"{cluster_file}: autoscaler: {facts.autoscaler.value}, but own replicas start from none, which only KEDA can do "
            "here: leave the key out, or --own-replicas"
        )
    return facts


def write_pool_files(report: PoolReport, folder: Path, facts: EmitFacts | None = None) -> str:
    """Write the pods of the shared GPUs and say where; raises UsageError where a file would be incomplete."""
    if report.not_written:
        raise UsageError("--emit-pool: " + "; ".join(report.not_written))
    if not report.gpus:
        raise UsageError("--emit-pool: no services share a GPU, so there is nothing to write")
    own = OwnReplicas(policy=report.policy, facts=facts or EmitFacts()) if serves_bursts(report.policy) else None
    files = pool_files(report.gpus, own)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the pool's files to {folder}: {error}") from error
    return f"Written to {folder}: {', '.join(files)}. Build the image first; its Dockerfile is among them."


def pool_service(case: Case, market: Market) -> PoolService | str:
    """Return a service as the pool's replay sees it, from its own measured latencies; or why it cannot be pooled."""
    workload, law = case.workload, case.law
    gpu = market.gpu(workload.gpu)
    if law is None or workload.service is None or gpu is None:
        return "its requests, its latency or its GPU are not known"
    if workload.gpus_per_pod != 1:
        return f"a replica holds {workload.gpus_per_pod:g} GPUs; only models on one GPU take turns"
    limits = [target for target in case.targets if target.metric in _LIMITS and target.limit_s is not None]
    if not limits:
        return "no limit on its latency is known, so nothing says how long a request may wait"
    need_gib = need_on(workload, served_model(workload), gpu)
    if need_gib is None:
        return "its memory is not known: declare need_gib"
    first_s, request_s = _alone_s(law)
    # throughput at a full batch is what the history says that a replica serves
    growth = min(1.0, 1 / (law.capacity_req_s * float(request_s.mean())))
    level = DISK if workload.spec.sleep_level == 2 else HOST_MEMORY
    wake_s = workload.spec.wake_s if workload.spec.wake_s is not None else level.wake_s(need_gib)
    at_once = workload.spec.max_concurrency or _MOST_AT_ONCE
    return PoolService(
        model=PooledModel(
            name=workload.name, awake_gib=need_gib + ASLEEP_GIB, asleep_gib=ASLEEP_GIB, wake_s=wake_s, sleep_s=wake_s,
            growth=growth, concurrency=at_once, own_concurrency=at_once, own_start_s=cold_start_of(case) + SEEN_LATE_S,
            wait_limit_s=min(_limit_s(limits, TargetMetric.TTFT), _limit_s(limits, TargetMetric.LATENCY)),
        ),
        requests=_requests(workload, first_s, request_s),
        required_frac=max(target.required_frac for target in limits),
        first_limit_s=_limit_s(limits, TargetMetric.TTFT),
        last_limit_s=_limit_s(limits, TargetMetric.LATENCY),
    )  # fmt: skip


def _limit_s(targets: Sequence[Target], metric: TargetMetric) -> float:
    return min((target.limit_s for target in targets if target.metric is metric and target.limit_s), default=_ANY_S)


def _alone_s(law: ServiceLaw) -> tuple[FloatArray, FloatArray]:
    """Return the times to the first token and to the last at the lowest load seen, as equally likely values."""
    levels = (np.arange(100) + 0.5) / 100
    request_s = _values(law.share[0], law.le_s, levels)
    first = law.first_token
    first_s = request_s if first is None else np.minimum(_values(first.share[0], first.le_s, levels), request_s)
    return first_s, request_s


def _values(share: FloatArray, le_s: FloatArray, levels: FloatArray) -> FloatArray:
    """Return upper bounds of the buckets at some quantiles; twice the last finite bound stands for the open bucket."""
    bounds = np.where(np.isfinite(le_s), le_s, 2 * le_s[np.isfinite(le_s)].max())
    at = np.searchsorted(np.cumsum(share) / share.sum(), levels)
    return np.asarray(bounds[np.minimum(at, len(bounds) - 1)], dtype=np.float64)


def _requests(workload: Workload, first_s: FloatArray, request_s: FloatArray) -> PoolRequests:
    """Draw the moments of a service's requests within the recorded steps, and the time that each takes alone."""
    service = workload.service
    assert service is not None
    rng = np.random.default_rng(SEED)
    counts = rng.poisson(np.nan_to_num(service.arrivals))
    step = np.repeat(np.arange(len(counts)), counts)
    arrival_s = np.sort((step + rng.random(len(step))) * service.step_s)
    at = rng.integers(len(request_s), size=len(arrival_s))
    return PoolRequests(arrival_s=arrival_s, prompt_s=first_s[at], answer_s=request_s[at] - first_s[at])


def _part(
    pool: Pool, services: Sequence[PoolService], fit: Fleet, rest: Fleet, market: Market, policy: PoolPolicy
) -> _PoolCase | str:
    """Return the services with the requests of both windows on one clock; or why they cannot be replayed."""
    workloads = {workload.name: workload for workload in fit.workloads}
    later = {workload.name: workload for workload in rest.workloads}
    first = workloads[services[0].model.name]
    gpu = market.gpu(first.gpu)
    if gpu is None:
        return f"{pool}: not replayed, its GPU is not in the catalog."
    fit_s = fit.window.hours * S_PER_HR
    return _PoolCase(
        pool=pool,
        services=[_over_both(service, later.get(service.model.name), fit_s) for service in services],
        workloads=workloads,
        start_s=fit_s,
        end_s=fit_s + rest.window.hours * S_PER_HR,
        gpu=gpu,
        memory_gib=gpu.memory_gib * _HEADROOM_FRAC,
        usd_mo=usd(market.rate(pool)) * HR_PER_MO / first.gpus_per_node,
        policy=policy,
    )


def _over_both(service: PoolService, later: Workload | None, fit_s: float) -> PoolService:
    """Return a service with the requests of the later window after those of the first."""
    if later is None or later.service is None:
        return service
    past = service.requests
    coming = _requests(later, past.prompt_s, past.prompt_s + past.answer_s)
    return service.with_requests(
        PoolRequests(
            arrival_s=np.concatenate([past.arrival_s, coming.arrival_s + fit_s]),
            prompt_s=np.concatenate([past.prompt_s, coming.prompt_s]),
            answer_s=np.concatenate([past.answer_s, coming.answer_s]),
        )
    )


def _replayed_days(part: _PoolCase, tell: Callable[[str, float], None]) -> list[PoolDay]:
    """Replay each day of the later window under the placement chosen before it; placing many services takes minutes."""
    number = max(1, math.ceil((part.end_s - part.start_s) / S_PER_DAY))
    days: list[PoolDay] = []
    tell(f"placing {len(part.services)} services on {part.pool}", 0.0)
    for day in replay_daily(
        part.services,
        part.policy,
        memory_gib=part.memory_gib,
        start_s=part.start_s,
        end_s=part.end_s,
        history_s=part.start_s,
    ):
        days.append(day)
        tell(f"{part.pool}: day {len(days)} of {number}", len(days) / number)
    return days


def _day_lines(part: _PoolCase, days: Sequence[PoolDay], rest: Fleet) -> Iterator[str]:
    """Yield what sharing would have changed on the later window: the GPUs held, and each service's requests in time."""
    held = {workload.name: workload.gpu_hours for workload in rest.workloads}
    now = sum(held.get(service.model.name, 0.0) for service in part.services) / rest.window.hours
    pooled = float(np.average([day.gpus for day in days], weights=[day.span_s for day in days]))
    yield (
        f"{part.pool}: {len(part.services)} services would have held {pooled:.1f} GPUs instead of {now:.1f} "
        f"(${pooled * part.usd_mo:,.0f} a month instead of ${now * part.usd_mo:,.0f}) over {rest.window}, "
        "placed again each day on the history before it."
    )
    in_time = np.sum([day.in_time for day in days], axis=0)
    requests = np.sum([day.requests for day in days], axis=0)
    wakes = np.sum([day.wakes for day in days], axis=0)
    for number, service in enumerate(part.services):
        later = service.with_requests(service.requests.within(part.start_s, part.end_s))
        warm = warm_frac(later, memory_gib=part.memory_gib, span_s=part.end_s - part.start_s)
        share = in_time[number] / requests[number] if requests[number] else 1.0
        verdict = "kept" if share >= min(service.required_frac, warm) else "MISSED"
        yield (
            f"  {service.model.name}: {share:.2%} in time ({service.required_frac:.0%} required, {warm:.2%} with a warm "
            f"replica): {verdict}; woke {wakes[number]:.0f} times, {service.model.wake_s:.1f} s each."
        )


def _newest_plan(part: _PoolCase) -> PoolPlan:
    """Return the placement to put in place: chosen on the newest history, as long as the first window."""
    newest = [
        service.with_requests(service.requests.within(part.end_s - part.start_s, part.end_s))
        for service in part.services
    ]
    return choose_pool(newest, part.policy, memory_gib=part.memory_gib, span_s=part.start_s)


def _plan_lines(part: _PoolCase, plan: PoolPlan) -> Iterator[str]:
    for at, gpu in enumerate(plan.gpus, start=1):
        names = ", ".join(part.services[number].model.name for number in gpu.services)
        yield f"  Next, GPU {at}: {names}" + (" (too little history to judge)." if gpu.newcomers else ".")
    for number, reason in sorted(plan.alone.items()):
        yield f"  {part.services[number].model.name}: keeps a warm replica, {reason}."


def _shared_gpus(part: _PoolCase, plan: PoolPlan, first_number: int) -> Iterator[SharedGpu]:
    for at, gpu in enumerate(plan.gpus, start=first_number):
        models = [part.services[number].model for number in gpu.services]
        early = [blocks(model, models, part.memory_gib) for model in models]
        yield SharedGpu(
            number=at,
            instance_type=part.pool.instance_type,
            gpu=part.gpu.name,
            gpu_gib=part.gpu.memory_gib,
            usable_gib=part.memory_gib,
            members=tuple(
                PoolMember(
                    workload=model.name,
                    model=part.workloads[model.name].spec.model or "",
                    awake_gib=model.awake_gib,
                    asleep_gib=model.asleep_gib,
                    at_once=model.concurrency,
                    own_at_once=model.own_concurrency,
                    sleeps_after_s=max(1, math.ceil(part.policy.early_sleep_s)) if sleeps else None,
                )
                for model, sleeps in zip(models, early, strict=True)
            ),
        )

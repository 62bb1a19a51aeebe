"""Which services could take turns on shared GPUs, replayed: what `trimtab replay --pool` reports beside the policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.errors import InputError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.declared_models import need_on, served_model
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Target, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.pooling import (
    ASLEEP_GIB,
    DISK,
    HOST_MEMORY,
    PoolPlan,
    PoolService,
    choose_pool,
    replay_gpu,
    warm_frac,
)
from trimtab.pipeline import SEED, split_window
from trimtab.policies.pooling import PoolPolicy
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.pooling import PooledModel, PoolRequests
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_MO, S_PER_HR, usd

POLICY = PoolPolicy()
_HEADROOM_FRAC = 0.95
"""Of a GPU's memory; the rest is left to fragments."""
_MOST_AT_ONCE = 256
_ANY_S = 1e9
_LIMITS = (TargetMetric.TTFT, TargetMetric.LATENCY)


def pool_report(bundle: Bundle, settings: Settings, tell: Callable[[str, float], None]) -> list[str]:
    """Return the lines of the report: shared GPUs chosen on the first part of the history, replayed on the rest."""
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
    for pool, services in by_pool.items():
        tell(f"pooling {len(services)} services on {pool}", 0.5)
        lines += _lines(pool, services, fit, rest, market)
    return lines


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
            growth=growth, concurrency=at_once, own_concurrency=at_once, own_start_s=_ANY_S,
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


def _lines(pool: Pool, services: Sequence[PoolService], fit: Fleet, rest: Fleet, market: Market) -> Iterator[str]:
    """Yield what sharing one pool's GPUs would change, on the later window."""
    workloads = {workload.name: workload for workload in rest.workloads}
    first = workloads.get(services[0].model.name)
    gpu = None if first is None else market.gpu(first.gpu)
    if first is None or gpu is None:
        yield f"{pool}: not replayed, {services[0].model.name} is not in the later window."
        return
    memory_gib = gpu.memory_gib * _HEADROOM_FRAC
    plan = choose_pool(services, POLICY, memory_gib=memory_gib, span_s=fit.window.hours * S_PER_HR)
    usd_mo = usd(market.rate(pool)) * HR_PER_MO / first.gpus_per_node
    later = [_later(service, workloads) for service in services]
    held = sum(workloads[service.model.name].gpu_hours for service in services if service.model.name in workloads)
    now = held / rest.window.hours
    yield (
        f"{pool}: {len(services)} services could hold {plan.gpu_count:.1f} GPUs instead of {now:.1f} "
        f"(${plan.gpu_count * usd_mo:,.0f} a month instead of ${now * usd_mo:,.0f}), replayed over {rest.window}."
    )
    yield from _gpu_lines(plan, later, memory_gib, rest.window.hours * S_PER_HR)
    for number, reason in sorted(plan.alone.items()):
        yield f"  {services[number].model.name}: keeps a warm replica, {reason}."


def _later(service: PoolService, workloads: dict[str, Workload]) -> PoolService:
    """Return a service with the requests of the later window."""
    workload = workloads.get(service.model.name)
    if workload is None or workload.service is None:
        return service.without_requests()
    levels = service.requests
    return service.with_requests(_requests(workload, levels.prompt_s, levels.prompt_s + levels.answer_s))


def _gpu_lines(plan: PoolPlan, later: Sequence[PoolService], memory_gib: float, span_s: float) -> Iterator[str]:
    for at, gpu in enumerate(plan.gpus, start=1):
        members = [later[number] for number in gpu.services]
        replayed, shares = replay_gpu(members, POLICY, memory_gib=memory_gib, span_s=span_s)
        for service, share, wakes in zip(members, shares, replayed.wakes, strict=True):
            warm = warm_frac(service, memory_gib=memory_gib, span_s=span_s)
            verdict = "kept" if share >= min(service.required_frac, warm) else "MISSED"
            yield (
                f"  GPU {at}: {service.model.name} {share:.2%} in time ({service.required_frac:.0%} required, "
                f"{warm:.2%} with a warm replica): {verdict}; woke {wakes} times, {service.model.wake_s:.1f} s each."
            )

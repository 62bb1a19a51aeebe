"""Guards on latency and cache: what is recorded of them, and what asks for more replicas while a limit is passed.

Two series a target. `guard_asks` is there while more of the last minutes' requests are late than the target allows and chance
explains (`policies.scaling.beyond_chance`): the replicas that would
bring it back in proportion, from those that served all that time: what came since has not shown what it does. `guard_times`
remembers how many times the load's replicas that was, and lets go by halves (`policies.scaling.guard_times`, which is
replayed). The trigger asks for that many times the mean load: replicas follow it while the guard remembers how slow they are.
A HorizontalPodAutoscaler reads no PromQL: for it the same load is recorded as `guard_load`, an external metric each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.demand_rules import LOAD, READY, series, server_selector
from trimtab.emit.manifests.emission import Plain
from trimtab.emit.manifests.facts import ServiceFacts, WorkloadFacts
from trimtab.fleet.model import Target
from trimtab.policies.scaling import (
    GUARD_CHANCE_SDS,
    GUARD_HALF_LIFE_S,
    GUARD_LEAST,
    GUARD_LEAST_LOAD,
    GUARD_MOST,
    GUARD_OFF,
    GUARD_WINDOW_S,
    SYNC_S,
)
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_MIN

GUARD_ASKS = "trimtab:guard_asks"
GUARD_TIMES = "trimtab:guard_times"
GUARD_LOAD = "trimtab:guard_load"
KV_CACHE = "kv-cache"
KV_CACHE_LIMIT_FRAC = 0.95
"""Above this, vLLM begins to preempt requests; the guard adds replicas in proportion."""
GUARD_WINDOW = f"{GUARD_WINDOW_S // S_PER_MIN}m"
_REMEMBERED = "1h"
"""How long a memory outlives a Prometheus that is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyGuard:
    """A target whose latency the server exports: the guard's name, and PromQL of the quantile."""

    target: Target
    name: str
    quantile: str
    limit_s: float


def latency_quantile(service: ServiceFacts, target: Target, known: WorkloadFacts) -> str | None:
    """Return PromQL of the quantile that a target bounds, over the last hour; None where it is not exported."""
    return _quantile(service, target, known, f"{target.required_frac:.6g}", "1h")


def _quantile(service: ServiceFacts, target: Target, known: WorkloadFacts, share: str, window: str) -> str | None:
    histogram = _histogram(service, target)
    if histogram is None:
        return None
    buckets = f"sum by (namespace, le) (rate({histogram}_bucket{server_selector(known)}[{window}]))"
    return f"histogram_quantile({share}, {buckets})"


def _histogram(service: ServiceFacts, target: Target) -> str | None:
    names = {TargetMetric.LATENCY: service.signals.latency, TargetMetric.TTFT: service.signals.ttft}
    return None if target.limit_s is None else names.get(target.metric)


def _beyond_chance(service: ServiceFacts, target: Target, known: WorkloadFacts) -> str:
    """Return PromQL of the share that must be in time of the window's requests, lest more were late than chance explains."""
    selector = f'{server_selector(known)[:-1]},le="+Inf"}}'
    came = f"sum(increase({_histogram(service, target)}_bucket{selector}[{GUARD_WINDOW}]))"
    chance = GUARD_CHANCE_SDS * math.sqrt(target.required_frac * (1 - target.required_frac))
    return f"scalar(clamp_min({target.required_frac:.6g} - {chance:.6g} / sqrt(clamp_min({came}, 1)), 0))"


def latency_guards(known: WorkloadFacts) -> Iterator[LatencyGuard]:
    """Yield the guards of a service; none where no request of it is measured."""
    service = known.service
    for target in service.targets if service else ():
        share = _beyond_chance(service, target, known) if service else ""
        quantile = _quantile(service, target, known, share, GUARD_WINDOW) if service else None
        if quantile is not None and target.limit_s is not None:
            name = f"{target.metric.value}-p{target.required_frac * 100:g}".replace(".", "-")
            yield LatencyGuard(target=target, name=name, quantile=quantile, limit_s=target.limit_s)


def served_then(known: WorkloadFacts) -> str:
    """Return PromQL of the replicas that were ready all through a guard's window."""
    return f"sum(min_over_time({series(READY, known)}[{GUARD_WINDOW}]))"


def proportion(value: str, limit: float) -> str:
    """Return PromQL of how many times a value is over its limit, as far as a guard goes by it; nothing while it is within."""
    return f"clamp((sum({value}) / {limit:.6g}) > 1, {GUARD_LEAST:g}, {GUARD_MOST:g})"


def guard_records(effect: SetReplicaPolicy, known: WorkloadFacts) -> Iterator[Mapping[str, Plain]]:
    """Yield the recording rules of a service's guards, each after what it reads."""
    load = f"clamp_min({_mean_load(known)}, {GUARD_LEAST_LOAD:g})"
    kept = 0.5 ** (SYNC_S / GUARD_HALF_LIFE_S)
    for guard in latency_guards(known):
        labels: dict[str, Plain] = {
            "namespace": known.namespace,
            "workload": known.short_name,
            "guard": guard.name,
        }
        asks, times = (_of_guard(name, known, guard) for name in (GUARD_ASKS, GUARD_TIMES))
        asked = f"sum({asks}) * {effect.hpa.target_frac:.6g} / {load}"
        held = f"1 + {kept:.10g} * (sum(last_over_time({times}[{_REMEMBERED}])) - 1)"
        yield {
            "record": GUARD_ASKS,
            "expr": f"{served_then(known)} * {proportion(guard.quantile, guard.limit_s)}",
            "labels": labels,
        }
        yield {
            "record": GUARD_TIMES,
            "expr": f"clamp_max(({asked}) > ({held}) or ({held}) or ({asked}), {GUARD_MOST:g})",
            "labels": labels,
        }


def guard_query(known: WorkloadFacts, guard: LatencyGuard) -> str:
    """Return what a guard's trigger asks: so many times the mean load, and 0 while it remembers nothing that matters."""
    return f"sum({_of_guard(GUARD_TIMES, known, guard)} > {GUARD_OFF:g}) * {_mean_load(known)} or vector(0)"


def kv_cache_query(known: WorkloadFacts) -> str | None:
    """Return the replicas that the guard on the KV cache asks for, 0 while its limit is kept; None where it is not exported."""
    if known.service is None or known.service.signals.kv_cache is None:
        return None
    use = f"max by (namespace) ({known.service.signals.kv_cache}{server_selector(known)})"
    return f"{served_then(known)} * {proportion(use, KV_CACHE_LIMIT_FRAC)} or vector(0)"


def guard_loads(effect: SetReplicaPolicy, known: WorkloadFacts) -> dict[str, str]:
    """Return what each guard asks for, by its name, as a load that the policy's own target divides."""
    cache = kv_cache_query(known)
    of_cache = {} if cache is None else {KV_CACHE: f"{effect.hpa.target_frac:.6g} * {cache}"}
    return of_cache | {guard.name: guard_query(known, guard) for guard in latency_guards(known)}


def guard_load_records(effect: SetReplicaPolicy, known: WorkloadFacts) -> Iterator[Mapping[str, Plain]]:
    """Yield the recording rules of what guards ask for, after all that they read."""
    for name, expression in guard_loads(effect, known).items():
        labels: dict[str, Plain] = {"namespace": known.namespace, "workload": known.short_name, "guard": name}
        yield {"record": GUARD_LOAD, "expr": expression, "labels": labels}


def _mean_load(known: WorkloadFacts) -> str:
    return f"sum(avg_over_time({series(LOAD, known)}[{GUARD_WINDOW}]))"


def _of_guard(name: str, known: WorkloadFacts, guard: LatencyGuard) -> str:
    return f'{series(name, known)[:-1]},guard="{guard.name}"}}'

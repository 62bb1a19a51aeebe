"""Demand in replicas as PromQL: what a scaling policy was replayed on, from the series that the model server exports.

The replay sees, at the end of each step, the replicas that the step's arrivals would keep busy, plus the queue in
replica-seconds over one decision interval. Servers count answers, not arrivals; arrivals are answers plus the growth of the
queue. So, per pod: (rate(completed) + deriv(waiting) + waiting / 15 s) / capacity. Unlike a duty cycle it does not saturate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.emit.facts import EmitFacts, ServiceFacts, WorkloadFacts
from trimtab.emit.signals import ServerSignals
from trimtab.policies.scaling import SYNC_S, Metric
from trimtab.units import S_PER_MIN

PER_REPLICA = "trimtab:demand_per_replica"
DEMAND = "trimtab:demand_replicas"
READY = "trimtab:replicas_ready"
WANTED = "trimtab:replicas_wanted"
ACTIVITY_WINDOW_S = 5 * S_PER_MIN
"""Over which GPU activity is averaged where it stands in for requests."""
_POD_SUFFIX = {
    "Deployment": "-[a-z0-9]{6,10}-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRules:
    """PromQL of one service: `per_replica` by (namespace, pod), `total` over its pods, `ready` replicas."""

    per_replica: str
    total: str
    ready: str


def series(name: str, known: WorkloadFacts) -> str:
    """Return the selector of a recorded series of a workload."""
    return f'{name}{{namespace="{known.namespace}",workload="{known.short_name}"}}'


def pods_of(known: WorkloadFacts) -> str:
    """Return a pattern that the names of a workload's pods match, and those of no sibling with a longer name."""
    return f"{known.short_name}{_POD_SUFFIX.get(known.owner_kind, '-.+')}"


def pod_selector(known: WorkloadFacts) -> str:
    """Return the selector of what a workload's pods export themselves."""
    return f'{{namespace="{known.namespace}",pod=~"{pods_of(known)}"}}'


def demand_rules(known: WorkloadFacts, facts: EmitFacts, metric: Metric) -> DemandRules:
    """Return the expressions of a service's demand: from its requests where known, else from GPU activity."""
    ready = f'sum by (namespace) (kube_pod_status_ready{pod_selector(known)[:-1]},condition="true"}})'
    if known.service is None:
        activity = _activity(facts, known)
        return DemandRules(per_replica=activity, total=f"sum by (namespace) ({activity})", ready=ready)
    window_s = rate_window_s(known.service, facts.scrape_interval_s)
    service = (
        known.service if metric is not Metric.DUTY_CYCLE else replace(known.service, signals=_answers(known.service))
    )
    total = _request_demand(service, pod_selector(known), window_s, "by (namespace)")
    return DemandRules(
        per_replica=_request_demand(service, pod_selector(known), window_s, "by (namespace, pod)"),
        total=f"clamp_min({total}, 0)",
        ready=ready,
    )


def _answers(service: ServiceFacts) -> ServerSignals:
    """Return signals without queue and arrivals: answers over capacity are the busy share."""
    return replace(service.signals, arrived=None, waiting=None)


def rate_window_s(service: ServiceFacts, scrape_interval_s: int) -> int:
    """Return the window of rates: the step of the replayed history, and at least two scrapes."""
    return max(2 * scrape_interval_s, round(service.history_step_s))


def _request_demand(service: ServiceFacts, selector: str, window_s: int, by: str) -> str:
    signals = service.signals
    rate = f"sum {by} (rate({signals.arrived or signals.completed}{selector}[{window_s}s]))"
    capacity = f"{service.capacity_req_s:.6g}"
    if signals.waiting is None:
        return f"{rate} / {capacity}"
    waiting = f"{signals.waiting}{selector}"
    # A server that answered nothing yet has no counter: its rate is 0, not absent.
    answered = f"({rate} or 0 * sum {by} ({waiting}))"
    growth = "" if signals.arrived else f" + sum {by} (deriv({waiting}[{window_s}s]))"
    return f"({answered}{growth} + sum {by} ({waiting}) / {SYNC_S}) / {capacity}"


def _activity(facts: EmitFacts, known: WorkloadFacts) -> str:
    """Return each pod's mean SM activity under the labels `namespace` and `pod`, however the scrape spells them."""
    by = (facts.namespace_label, facts.pod_label)
    selector = f'{{{by[0]}="{known.namespace}",{by[1]}=~"{pods_of(known)}"}}'
    mean = f"avg by ({by[0]}, {by[1]}) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE{selector}[{ACTIVITY_WINDOW_S}s]))"
    for label, wanted in zip(by, ("namespace", "pod"), strict=True):
        if label != wanted:
            mean = f'label_replace({mean}, "{wanted}", "$1", "{label}", "(.*)")'
    return mean if by == ("namespace", "pod") else f"max by (namespace, pod) ({mean})"

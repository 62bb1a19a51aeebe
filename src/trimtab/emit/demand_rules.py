"""Demand in replicas as PromQL: what a scaling policy was replayed on, from the series that the model server exports.

The replay sees, at the end of each step, the replicas that the step's arrivals would keep busy, plus the queue in
replica-seconds over one decision interval. Servers count answers, not arrivals; arrivals are answers plus the growth of the
queue. So, per pod: (rate(completed) + growth of waiting + waiting / 15 s) / capacity. Unlike a duty cycle it does not saturate.

An HPA on a pods metric holds while replicas start: it counts those that are not ready as idle. One on an external metric,
which is what KEDA makes, does not. `scaling_demand` mends that: where the ready replicas have enough to do it never asks for
fewer than there are, so that both controllers decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.emit.facts import EmitFacts, ServiceFacts, WorkloadFacts
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric
from trimtab.units import S_PER_MIN

PER_REPLICA = "trimtab:demand_per_replica"
DEMAND = "trimtab:demand_replicas"
READY = "trimtab:replicas_ready"
CURRENT = "trimtab:replicas_current"
SCALING = "trimtab:scaling_demand"
WANTED = "trimtab:replicas_wanted"
ACTIVITY_WINDOW_S = 5 * S_PER_MIN
"""Over which GPU activity is averaged where it stands in for requests."""
_POD_SUFFIX = {
    "Deployment": "-[a-z0-9]{6,10}-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRules:
    """PromQL of one service: `per_replica` by (namespace, pod), `total` over its pods; replicas `ready`, and all there are."""

    per_replica: str
    total: str
    ready: str
    current: str


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
    per_replica = _request_demand(known, known.service, facts, metric) if known.service else _activity(known, facts)
    kind = known.owner_kind.lower()
    here = f'namespace="{known.namespace}"'
    return DemandRules(
        per_replica=per_replica,
        # Summed over pods that still report: a rate alone would count a pod that is gone until its window has passed.
        total=f"clamp_min(sum by (namespace) ({per_replica}), 0)",
        ready=f'sum by (namespace) (kube_pod_status_ready{pod_selector(known)[:-1]},condition="true"}})',
        current=f'sum by (namespace) (kube_{kind}_status_replicas{{{here},{kind}="{known.short_name}"}})',
    )


def scaling_demand(policy: HpaPolicy, known: WorkloadFacts) -> str:
    """Return demand as an external metric must state it for the pods metric's decisions, from the recorded series.

    Below the tolerance of the ready replicas' target it is the demand; else at least what holds the replicas there are.
    """
    demand, ready, current = (series(name, known) for name in (DEMAND, READY, CURRENT))
    floor = f"{policy.target_frac * (1 - policy.tolerance_down_frac):.6g} * {ready}"
    held = f"{policy.target_frac:.6g} * {current}"
    return f"({demand} < {floor}) or ({demand} > {held}) or ({held} and {demand})"


def _request_demand(known: WorkloadFacts, service: ServiceFacts, facts: EmitFacts, metric: Metric) -> str:
    signals, scrape_s = service.signals, facts.scrape_interval_s
    # The last two scrapes: a longer window is calmer, but late, and the replayed rule saw each step as it ended.
    last = f"{pod_selector(known)}[{2 * scrape_s}s]"
    answered = f"sum by (namespace, pod) (irate({signals.arrived or signals.completed}{last}))"
    capacity = f"{service.capacity_req_s:.6g}"
    if signals.waiting is None or metric is Metric.DUTY_CYCLE:
        return f"{answered} / {capacity}"
    waiting = f"sum by (namespace, pod) ({signals.waiting}{pod_selector(known)})"
    growth = f" + sum by (namespace, pod) (idelta({signals.waiting}{last})) / {scrape_s}"
    # A server that answered nothing yet has no counter: its rate is 0, not absent.
    arrived = f"({answered} or 0 * {waiting}){'' if signals.arrived else growth}"
    return f"({arrived} + {waiting} / {SYNC_S}) / {capacity}"


def _activity(known: WorkloadFacts, facts: EmitFacts) -> str:
    """Return each pod's mean SM activity under the labels `namespace` and `pod`, however the scrape spells them."""
    by = (facts.namespace_label, facts.pod_label)
    selector = f'{{{by[0]}="{known.namespace}",{by[1]}=~"{pods_of(known)}"}}'
    mean = f"avg by ({by[0]}, {by[1]}) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE{selector}[{ACTIVITY_WINDOW_S}s]))"
    for label, wanted in zip(by, ("namespace", "pod"), strict=True):
        if label != wanted:
            mean = f'label_replace({mean}, "{wanted}", "$1", "{label}", "(.*)")'
    return mean if by == ("namespace", "pod") else f"max by (namespace, pod) ({mean})"

"""Demand in replicas as PromQL: what a scaling policy was replayed on, from the series that the model server exports.

The replay sees, at the end of each step, the replicas that the step's arrivals would keep busy, plus the queue in
replica-seconds over one decision interval. Servers count answers, not arrivals; arrivals are answers plus the growth of the
queue. So, per pod: (rate(completed) + growth of waiting + waiting / 15 s) / capacity. Unlike a duty cycle it does not saturate.

A policy that counts tokens has, in place of the answers, the work of the tokens that were computed, in mean requests:
rate(prompt tokens) x what one takes + rate(answers' tokens) x what one takes, less what prompt tokens from the cache save. What
waits counts as mean requests, since no server tells how long those are that it has not begun.

An HPA on a pods metric holds while replicas start: it counts those that are not ready as idle. One on an external metric,
which is what KEDA makes, does not. `scaling_demand` corrects that: where the ready replicas have enough to do it never asks for
fewer than there are, so that both controllers decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.emit.manifests.facts import EmitFacts, ServerSignals, ServiceFacts, WorkloadFacts
from trimtab.fleet.token_work import TokenWork
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric
from trimtab.units import S_PER_MIN

PER_REPLICA = "trimtab:demand_per_replica"
DEMAND = "trimtab:demand_replicas"
READY = "trimtab:replicas_ready"
CURRENT = "trimtab:replicas_current"
SCALING = "trimtab:scaling_demand"
LOAD = "trimtab:load_replicas"
LOAD_WANTED = "trimtab:load_wanted"
ACTIVITY_WINDOW_S = 5 * S_PER_MIN
"""Over which GPU activity is averaged where it is used instead of requests."""
_ACTIVITY = {"sm_active": ("DCGM_FI_PROF_SM_ACTIVE", ""), "gpu_util": ("DCGM_FI_DEV_GPU_UTIL", " / 100")}
"""Activity signal -> DCGM's series and what brings it to 0..1."""
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]"
"""The letters of names that Kubernetes makes up (k8s.io/apimachinery util/rand): no vowel, so few words of a sibling's name."""
_RANDOM_LETTERS = 5
_GENERATE_FROM = 63 - _RANDOM_LETTERS
"""`generateName` is cut to so many letters before the random ones (k8s.io/apiserver storage/names)."""
_HASH_LETTERS = 10
"""The most letters of a pod template's hash, which are those of a 32-bit number."""
_COUNTED_KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
"""Kinds of whose replicas kube-state-metrics exports the number."""
_MISSED_SCRAPES = 3
"""A rate still stands when so many scrapes in a row have failed."""
_LEAST_WINDOW_S = S_PER_MIN
_RESTART_S = 30 * S_PER_MIN
"""How far back a counter is looked up from before its container restarted: weights take minutes to load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRules:
    """PromQL of one service: `per_replica` by (namespace, pod), `total` over its pods; replicas `ready`, and all there are.

    `load` is the total without the queue: what arrives, which is what forecasts are made of.
    """

    per_replica: str
    total: str
    load: str
    ready: str
    current: str


def series(name: str, known: WorkloadFacts) -> str:
    """Return the selector of a recorded series of a workload."""
    return f'{name}{{namespace="{known.namespace}",workload="{known.short_name}"}}'


def pods_of(known: WorkloadFacts) -> str:
    """Return a pattern that the names of a workload's pods match, and those of no sibling with a longer name."""
    name = known.short_name.replace(".", "[.]")
    match known.owner_kind:
        case "Deployment" | "Rollout" | "LLMInferenceService" | "KServeComponent":
            return _of_replica_set(known.short_name)
        case "InferenceService" | "KnativeService":
            # a Deployment of its own, or one for each revision of a Knative Service
            revision = (
                f"{name}-[0-9]{{5}}-deployment-{_GENERATED}{{1,{_HASH_LETTERS}}}-{_GENERATED}{{{_RANDOM_LETTERS}}}"
            )
            return f"({_of_replica_set(known.short_name)}|{revision})"
        case "ReplicaSet" | "Job":
            return f"{name}-{_GENERATED}{{{_RANDOM_LETTERS}}}"
        case "StatefulSet":
            return f"{name}-[0-9]+"
        case "LeaderWorkerSet":
            return f"{name}-[0-9]+(-[0-9]+)?"
        case _:
            return f"{name}-.+"


def _of_replica_set(name: str) -> str:
    """Return the pattern of a Deployment's pods, whose names are those of its ReplicaSets, cut, and five letters.

    Where the name is long the cut takes the last hyphen, then letters of the hash, at last letters of the name.
    """
    said, room = name.replace(".", "[.]"), _GENERATE_FROM - len(name) - 1
    whole = f"{said}-{_GENERATED}{{1,{_HASH_LETTERS}}}-{_GENERATED}{{{_RANDOM_LETTERS}}}"
    if room > _HASH_LETTERS:
        return whole
    if room <= 0:
        return f"{name[:_GENERATE_FROM].replace('.', '[.]')}-?{_GENERATED}{{{_RANDOM_LETTERS}}}"
    return f"({whole}|{said}-{_GENERATED}{{{room + _RANDOM_LETTERS}}})"


def pod_selector(known: WorkloadFacts) -> str:
    """Return the selector of the series of a workload's pods."""
    return f'{{namespace="{known.namespace}",pod=~"{pods_of(known)}"}}'


def server_selector(known: WorkloadFacts) -> str:
    """Return the selector of what the server in a workload's pods exports, without what is no request to it."""
    only = known.service.signals.only if known.service else ()
    return ",".join((pod_selector(known)[:-1], *only)) + "}"


def demand_rules(
    known: WorkloadFacts, facts: EmitFacts, metric: Metric, tokens: TokenWork | None = None
) -> DemandRules:
    """Return the expressions of a service's demand: from its requests or `tokens` where known, else from GPU activity.

    A duty cycle is answers alone, which saturate.
    """
    if known.service is None:
        per_replica = arriving = _activity(known, facts)
    else:
        signals = known.service.signals
        seen = replace(signals, arrived=None, waiting=None) if metric is Metric.DUTY_CYCLE else signals
        arriving, queue = _arriving_and_queue(known, seen, tokens, facts)
        per_replica = _per_capacity(f"{arriving} + {queue}" if queue else arriving, known.service)
        arriving = _per_capacity(arriving, known.service)
    return DemandRules(
        per_replica=per_replica,
        total=f"clamp_min(sum by (namespace) ({per_replica}), 0)",
        load=f"clamp_min(sum by (namespace) ({arriving}), 0)",
        ready=f'sum by (namespace) (kube_pod_status_ready{pod_selector(known)[:-1]},condition="true"}})',
        current=_current(known),
    )


def _current(known: WorkloadFacts) -> str:
    """Return the replicas that there are: as its kind counts them, else its pods, ready or not."""
    if known.owner_kind not in _COUNTED_KINDS:
        return f'count by (namespace) (kube_pod_status_ready{pod_selector(known)[:-1]},condition="true"}})'
    kind = known.owner_kind.lower()
    return (
        f'sum by (namespace) (kube_{kind}_status_replicas{{namespace="{known.namespace}",{kind}="{known.short_name}"}})'
    )


def rate_window_s(scrape_s: int) -> int:
    """Return the window of `irate` and `idelta`, which take the last two scrapes in it: long enough to outlast missed ones."""
    return max((_MISSED_SCRAPES + 1) * scrape_s, _LEAST_WINDOW_S)


def followed_series(policy: HpaPolicy) -> str:
    """Return the name of the series that an autoscaler on an external metric follows."""
    return LOAD_WANTED if policy.metric is Metric.SIGNAL else SCALING


def scaling_demand(policy: HpaPolicy, known: WorkloadFacts) -> str:
    """Return demand as an external metric must state it for the pods metric's decisions, from the recorded series.

    Below the tolerance of the ready replicas' target it is the demand; else at least what holds the replicas there are. A
    metric with a window has the mean load of that window in place of the load of now.
    """
    now, ready, current = (series(name, known) for name in (DEMAND, READY, CURRENT))
    demand = now
    if policy.window_s > SYNC_S:
        load = series(LOAD, known)
        # a second short, as the forecast's windows are: 5 minutes shall hold 20 samples of 15 s
        demand = f"({now} - {load} + avg_over_time({load}[{policy.window_s - 1}s]))"
    floor = f"{policy.target_frac * (1 - policy.tolerance_down_frac):.6g} * {ready}"
    held = f"{policy.target_frac:.6g} * {current}"
    return f"({demand} < {floor}) or ({demand} > {held}) or ({held} and {demand})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What a server counts as PromQL by pod: its rate by the last two scrapes, and all since the server began."""

    rate: str
    since_start: str
    counter: str
    """The counter that shows that a pod is up, and that its container restarted."""
    at_arrival: bool
    """Whether it counts what comes, and not what was done."""


def _requests(signals: ServerSignals, pods: str, last: str) -> _Counted:
    counter = signals.arrived or signals.completed
    return _Counted(
        rate=f"sum by (namespace, pod) (irate({counter}{last}))",
        since_start=f"sum by (namespace, pod) ({counter}{pods})",
        counter=counter,
        at_arrival=signals.arrived is not None,
    )


def _tokens(signals: ServerSignals, work: TokenWork, pods: str, last: str) -> _Counted:
    """Return the work of the tokens computed, in mean requests; raises ValueError where a server counts none."""
    prompts, answers = signals.prompt_tokens, signals.answer_tokens
    if prompts is None or answers is None:
        raise ValueError(f"{signals.server} exports no counters of tokens")
    saved = (signals.cached_tokens, work.cached_req - work.input_req)
    counted = [(prompts, work.input_req), (answers, work.output_req), *([saved] if saved[0] and saved[1] else [])]
    return _Counted(
        rate=_sum_of_work([(f"irate({name}{last})", each) for name, each in counted]),
        since_start=_sum_of_work([(f"{name}{pods}", each) for name, each in counted]),
        counter=prompts,
        at_arrival=False,
    )


def _sum_of_work(counted: list[tuple[str, float]]) -> str:
    """Return the work by pod of (series, what one takes): of the first, and of the others where they are there.

    A hit in the cache is counted when a prompt is admitted, the prompt when it is computed: for a moment that may be below 0.
    """
    first, *others = (f"sum by (namespace, pod) ({series}) * {each:.8g}" for series, each in counted)
    terms = [first, *(f"({other} or 0 * {first})" for other in others)]
    return f"clamp_min({' + '.join(terms)}, 0)"


def _arriving_and_queue(
    known: WorkloadFacts, signals: ServerSignals, tokens: TokenWork | None, facts: EmitFacts
) -> tuple[str, str]:
    """Return requests/s that arrive at each pod, and its queue over one decision interval (empty where not exported)."""
    scrape_s = facts.scrape_s(known)
    # irate and idelta take the last two scrapes: a longer average is calmer, but late, and the replayed rule saw each step as
    # it ended. The window is wider only so that a missed scrape leaves two in it.
    pods, window = server_selector(known), f"[{rate_window_s(scrape_s)}s]"
    last = pods + window
    seen = _requests(signals, pods, last) if tokens is None else _tokens(signals, tokens, pods, last)
    # Pods that still report: a rate alone would count one that is gone until its window has passed. One whose last scrape
    # failed, and which is ready all the same, is there: without it the demand of two would be read as that of one.
    readiness = f'kube_pod_status_ready{pod_selector(known)[:-1]},condition="true"}}'
    ready = f"sum by (namespace, pod) ({readiness}) > 0"
    reports = _last_seen(seen.counter, pods, last, ready)
    answered = f"{seen.rate} and {reports}"
    came, restarted = seen.since_start, _restarted(seen.counter + pods, readiness + window)
    if signals.waiting is None:
        return f"({came} / {scrape_s} and {restarted} or {answered})", ""
    waiting = _last_seen(signals.waiting, pods, last, ready)
    growth = f" + sum by (namespace, pod) (idelta({signals.waiting}{last})) / {scrape_s}"
    # A server that answered nothing yet has no counter: its rate is 0. One whose counter is there has no rate only where a
    # scrape failed: that is not known, and never 0.
    idle = f"(0 * {waiting} unless {reports})"
    usual = f"({answered} or {idle}){'' if seen.at_arrival else growth}"
    came = came if seen.at_arrival else f"({came} + sum by (namespace, pod) ({signals.waiting}{pods}))"
    return f"({came} / {scrape_s} and {restarted} or {usual})", f"{waiting} / {SYNC_S}"


def _restarted(counter: str, readiness: str) -> str:
    """Return what is there for pods whose container came back since the scrape before: a counter that fell, after no readiness.

    A rate would spread the requests since then over all the time that the pod was away. It came back within the last scrape
    interval, or it would have been scraped. The condition on readiness leaves out a reset that was no restart.
    """
    fell = f"count by (namespace, pod) (idelta({counter}[{_RESTART_S}s]) < 0)"
    return f"{fell} and sum by (namespace, pod) (min_over_time({readiness})) == 0"


def _last_seen(metric: str, pods: str, last: str, ready: str) -> str:
    """Return a metric by pod; of pods that are ready and whose scrapes failed what it was last, within a rate's window."""
    now = f"sum by (namespace, pod) ({metric}{pods})"
    return f"({now} or (sum by (namespace, pod) (last_over_time({metric}{last})) and {ready}))"


def _per_capacity(requests_s: str, service: ServiceFacts) -> str:
    return f"({requests_s}) / {service.capacity_req_s:.6g}"


def _activity(known: WorkloadFacts, facts: EmitFacts) -> str:
    """Return each pod's mean activity under the labels `namespace` and `pod`, however the scrape spells them."""
    by = (facts.namespace_label, facts.pod_label)
    selector = f'{{{by[0]}="{known.namespace}",{by[1]}=~"{pods_of(known)}"}}'
    name, scale = _ACTIVITY[known.activity_signal]
    mean = f"avg by ({by[0]}, {by[1]}) (avg_over_time({name}{selector}[{ACTIVITY_WINDOW_S}s])){scale}"
    for label, asked in zip(by, ("namespace", "pod"), strict=True):
        if label != asked:
            mean = f'label_replace({mean}, "{asked}", "$1", "{label}", "(.*)")'
    return mean if by == ("namespace", "pod") else f"max by (namespace, pod) ({mean})"

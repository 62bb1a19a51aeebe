"""A group of recording rules, and the server that scrapes a service's pods, evaluates it and answers an autoscaler's query.

As prometheus.io/docs/prometheus/latest/configuration/recording_rules documents it: at each interval a group's rules are
evaluated one after the other at the same moment, each over what those before it recorded; a series that a rule no longer
yields has ended.

What pods export follows vLLM's documentation (docs.vllm.ai, usage/metrics): the counter of requests that ended
`vllm:request_success_total`, which a server has from its start on, and the gauge `vllm:num_requests_waiting`;
kube-state-metrics tells which pods are ready and how many replicas a Deployment has (docs/metrics/workload:
`kube_pod_status_ready`, `kube_deployment_status_replicas`). Requests that wait are shared evenly by the pods that are ready. A
pod that is being removed still serves what it has, and is no longer ready.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ctypes import CFUNCTYPE, c_double
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.proving.world.promql import Expression, Moment, NotUnderstood, Scope, Vector, parse
from benchmarks.proving.world.samples import Labels, Store, labels_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A rule as a file has it."""

    record: str
    expression: str
    labels: Mapping[str, str]


class Group:
    """Rules that are evaluated in their order; raises NotUnderstood for one that cannot be read, with its name."""

    def __init__(self, rules: Sequence[RecordingRule]) -> None:
        """Read all expressions."""
        self.scope = Scope(records=frozenset(rule.record for rule in rules))
        self._rules = [(rule, _read(rule, self.scope)) for rule in rules]

    def evaluate(self, store: Store, at_s: float) -> None:
        """Evaluate every rule at a moment and write what it yields."""
        group = object()
        for rule, expression in self._rules:
            value = expression.value(Moment(store, at_s, group))
            found: Vector = {(): value} if isinstance(value, float) else value
            store.write(rule.record, at_s, {_labelled(labels, rule.labels): one for labels, one in found.items()})


def _read(rule: RecordingRule, scope: Scope) -> Expression:
    try:
        return parse(rule.expression, scope)
    except NotUnderstood as error:
        raise NotUnderstood(f"{rule.record}: {error}") from error


def _labelled(labels: Labels, further: Mapping[str, str]) -> Labels:
    return labels_of({**dict(labels), **further}) if further else labels


class Pod(NamedTuple):
    """What there is to scrape of a pod that has not gone yet."""

    number: int
    """Its own: no later pod has it again."""
    serves: bool
    ready: bool
    answered: float
    """Requests, since it began."""
    activity_frac: float
    """SM activity since the last scrape."""


EXPORTED = frozenset(
    {
        "vllm:request_success_total",
        "vllm:num_requests_waiting",
        "DCGM_FI_PROF_SM_ACTIVE",
        "kube_pod_status_ready",
        "kube_deployment_status_replicas",
    }
)
"""The series that there are to scrape."""


class Monitoring:
    """A Prometheus server beside one service, which an autoscaler asks one query."""

    def __init__(self, namespace: str, deployment: str, rules: Sequence[RecordingRule], query: str) -> None:
        """Read the rules and the query; raises NotUnderstood, for a series too that nothing here exports or records."""
        self._group = Group(rules)
        scope = self._group.scope
        self._query = parse(query, scope)
        unknown = scope.reach_s.keys() - EXPORTED - scope.records
        if unknown:
            raise NotUnderstood(f"nothing exports or records {', '.join(sorted(unknown))}")
        self.store = Store(scope.reach_s)
        self._namespace, self._deployment = namespace, deployment

    def told(self, at_s: float, pods: Sequence[Pod], waiting: int, replicas: int) -> float:
        """Scrape, evaluate the rules and return what the query says; NaN where it yields nothing, or more than one element."""
        self._scrape(at_s, pods, waiting, replicas)
        self._group.evaluate(self.store, at_s)
        value = self._query.value(Moment(self.store, at_s))
        if isinstance(value, float):
            return value
        # KEDA takes an answer of several elements, and of none, for a fault
        return next(iter(value.values())) if len(value) == 1 else math.nan

    def _scrape(self, at_s: float, pods: Sequence[Pod], waiting: int, replicas: int) -> None:
        ready = sum(pod.ready for pod in pods)
        serving = [(self._labels(pod), pod) for pod in pods if pod.serves]
        each = waiting / max(ready, 1)
        write = self.store.write
        write("vllm:request_success_total", at_s, {labels: pod.answered for labels, pod in serving})
        write("vllm:num_requests_waiting", at_s, {labels: each if pod.ready else 0.0 for labels, pod in serving})
        write("DCGM_FI_PROF_SM_ACTIVE", at_s, {labels: pod.activity_frac for labels, pod in serving})
        write(
            "kube_pod_status_ready",
            at_s,
            {self._labels(pod, condition="true"): float(pod.ready) for pod in pods},
        )
        deployment = labels_of({"namespace": self._namespace, "deployment": self._deployment})
        write("kube_deployment_status_replicas", at_s, {deployment: float(replicas)})

    def _labels(self, pod: Pod, **further: str) -> Labels:
        name = f"{self._deployment}-{_HASH}-{_letters(pod.number)}"
        return labels_of({"namespace": self._namespace, "pod": name, **further})


_HASH = "7d4b9c6f5"
"""Of one pod template; its digits and letters are such as Kubernetes makes names of."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@cache
def _letters(number: int) -> str:
    """Return the five letters that tell a pod from its siblings (k8s.io/apimachinery, util/rand)."""
    found = ""
    for _ in range(5):
        number, at = divmod(number, len(_LETTERS))
        found += _LETTERS[at]
    return found


ASK = CFUNCTYPE(c_double, c_double)
STATE, BORN, ANSWERED, ACTIVITY = range(4)
"""Rows of what the loop shows of its pods."""


class Asked:
    """What the compiled loop calls at each decision of an autoscaler that follows recorded series."""

    def __init__(self, monitoring: Monitoring | None, places: int) -> None:
        """Take what scrapes the pods (None: nothing does) and for how many there are places."""
        self.pods = np.zeros((4, places))
        self.shown = np.zeros(3, np.int64)
        """Places for pods in use, requests that wait, replicas."""
        self.error: NotUnderstood | None = None
        self._monitoring = monitoring
        self._numbers: dict[tuple[int, float], int] = {}

    def told(self, at_s: float) -> float:
        """Return what the autoscaler's query says now; NaN for nothing."""
        if self._monitoring is None or self.error is not None:
            return math.nan
        high, waiting, replicas = (int(count) for count in self.shown)
        try:
            return self._monitoring.told(
                at_s, [self._pod(at) for at in range(high) if self.pods[STATE, at]], waiting, replicas
            )
        except NotUnderstood as error:
            # nothing is raised through compiled code
            self.error = error
            return math.nan

    def _pod(self, at: int) -> Pod:
        state, born, answered, activity = self.pods[:, at].tolist()
        return Pod(
            # a place is taken again, but never twice at the same moment
            number=self._numbers.setdefault((at, born), len(self._numbers)),
            serves=state != 1,
            ready=state == 2,
            answered=answered,
            activity_frac=activity,
        )

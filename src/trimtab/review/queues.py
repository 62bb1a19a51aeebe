"""Kueue: which runs wait for quota, and for how long; queues that a clock opens and closes.

As Kueue v0.19.2 has it (site/content/en/docs/concepts/cluster_queue.md): a LocalQueue hands its runs to a ClusterQueue, which
admits one once a flavor has as much quota left as all of its pods ask for, the first such flavor of its list. A run that asks
for more than a flavor's capacity never gets it (pkg/scheduler/flavorassigner, "> maximum capacity"). `StrictFIFO` lets older
runs that do not fit block newer ones, `BestEffortFIFO`, the default, does not. Only GPUs are counted.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.policies.deferral import DeferPolicy
from trimtab.review.pools import GPU, Taint, object_at
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, quantity, text
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

_GROUP = "kueue.x-k8s.io"
QUEUE_KINDS = frozenset({"ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort"})
_UNREAD = {
    "preemption": "no run is taken back for another",
    "flavorFungibility": "a run takes the first flavor that has room",
    "fairSharing": "runs are let in as they come",
    "admissionChecks": "every check is taken to pass at once",
    "admissionChecksStrategy": "every check is taken to pass at once",
    "admissionScope": "runs are let in as they come",
    "concurrentAdmissionPolicy": "runs do not move between flavors",
}
"""Fields of a ClusterQueue that are not modelled, and what is taken instead."""
_DAILY = re.compile(r"(?P<minute>\d+)(?:,\d+)* (?P<hour>\d+) \* \* \*")
_STOPPED = re.compile(r'"stopPolicy": ?"(?P<policy>None|Hold|HoldAndDrain)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuota:
    """The GPUs of one flavor that a ClusterQueue may use: its own, and what it may borrow (None: all that others lend)."""

    flavor: str
    gpus: float
    borrows: float | None
    lends: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    """A ClusterQueue: quotas of GPUs in the order in which they are tried; none where it is not said how many."""

    name: str
    file: str
    quotas: tuple[FlavorQuota, ...]
    cohort: str
    strict: bool
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """A LocalQueue: the ClusterQueue behind it."""

    file: str
    cluster_queue: str
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A ResourceFlavor: labels of the nodes that its pods then select, and what they tolerate."""

    labels: Mapping[str, str]
    tolerations: tuple[Taint, ...]


@dataclass(slots=True, kw_only=True)
class Queues:
    """What objects say of Kueue."""

    cluster: dict[str, ClusterQueue] = field(default_factory=dict)
    local: dict[str, LocalQueue] = field(default_factory=dict)
    """By namespace and name."""
    flavors: dict[str, Flavor] = field(default_factory=dict)
    turns: dict[str, dict[str, int]] = field(default_factory=dict)
    """Namespace and name of a LocalQueue -> the second of the day (UTC) at which a clock sets each stop policy."""

    def take(self, kind: str, name: str, namespace: str, file: str, body: Object) -> Iterator[tuple[str, str]]:
        """Read an object of Kueue; yield what of it is not read, and why."""
        match kind:
            case "LocalQueue":
                self.local[f"{namespace}/{name}"] = LocalQueue(
                    file=file, cluster_queue=text(body, "spec", "clusterQueue"), stopped=_is_stopped(body)
                )
            case "ResourceFlavor":
                self.flavors[name] = _flavor(body)
            case "ClusterQueue":
                self.cluster[name] = _cluster_queue(name, file, body)
                for key, taken in _UNREAD.items():
                    if at(body, "spec", key):
                        yield f"ClusterQueue {name}: {key}", f"not modelled: {taken}"
            case _:
                yield f"{kind} {name}", "quotas of cohorts are not modelled, only those of their ClusterQueues"

    def takes_turn(self, namespace: str, cron_job: Object) -> bool:
        """Read a CronJob that opens or closes a LocalQueue; tell whether it is one."""
        template = object_at(cron_job, "spec", "jobTemplate", "spec", "template", "spec")
        for container in listed(template, "containers"):
            said = at(container, "args")
            words = [str(word) for word in said] if isinstance(said, list) else []
            policy = _STOPPED.search(" ".join(words))
            if words[:2] == ["patch", f"localqueues.{_GROUP}"] and policy is not None:
                daily = _DAILY.fullmatch(text(cron_job, "spec", "schedule"))
                at_s = -1 if daily is None else int(daily["hour"]) * S_PER_HR + int(daily["minute"]) * S_PER_MIN
                self.turns.setdefault(f"{namespace}/{words[2]}", {})[policy["policy"]] = at_s
                return True
        return False

    def quota_of(self, queue: ClusterQueue) -> tuple[float, ...]:
        """Return the GPUs of each of its flavors, with what the rest of its cohort lends."""
        others = [other for other in self.cluster.values() if queue.cohort == other.cohort != "" and other != queue]
        return tuple(quota.gpus + _borrowed(quota, others) for quota in queue.quotas)


def _borrowed(quota: FlavorQuota, others: Sequence[ClusterQueue]) -> float:
    same = [other for queue in others for other in queue.quotas if other.flavor == quota.flavor]
    lent = sum(other.gpus if other.lends is None else other.lends for other in same)
    return lent if quota.borrows is None else min(lent, quota.borrows)


def _is_stopped(body: Object) -> bool:
    return text(body, "spec", "stopPolicy") in ("Hold", "HoldAndDrain")


def _flavor(body: Object) -> Flavor:
    return Flavor(
        labels=mapping(body, "spec", "nodeLabels"),
        tolerations=tuple(
            Taint(
                key=text(toleration, "key"), value=text(toleration, "value"), effect=text(toleration, "effect"),
                operator=text(toleration, "operator") or "Equal",
            )
            for toleration in listed(body, "spec", "tolerations")
        ),
    )  # fmt: skip


def _cluster_queue(name: str, file: str, body: Object) -> ClusterQueue:
    flavors = [flavor for group in listed(body, "spec", "resourceGroups") for flavor in listed(group, "flavors")]
    quotas = [
        FlavorQuota(
            flavor=text(flavor, "name"),
            gpus=quantity(at(resource, "nominalQuota")) or 0.0,
            borrows=quantity(at(resource, "borrowingLimit")),
            lends=quantity(at(resource, "lendingLimit")),
        )
        for flavor in flavors
        for resource in listed(flavor, "resources")
        if text(resource, "name") == GPU
    ]
    return ClusterQueue(
        name=name,
        file=file,
        quotas=tuple(quotas),
        # `cohort` until v1beta1, `cohortName` since v1beta2
        cohort=text(body, "spec", "cohortName") or text(body, "spec", "cohort"),
        strict=text(body, "spec", "queueingStrategy") == "StrictFIFO",
        stopped=_is_stopped(body),
    )


def deferral_of(turns: Mapping[str, int]) -> DeferPolicy | str:
    """Return the rule that a queue amounts to which a clock closes and opens each day, or why it cannot be read.

    >>> deferral_of({"None": 2 * 3600, "Hold": 8 * 3600})
    DeferPolicy(start_hour=2, within_s=64800)
    """
    opens, closes = turns.get("None"), turns.get("Hold")
    if opens is None or closes is None or min(opens, closes) < 0:
        return "its queue is opened and closed at times that are not those of one hour of every day (UTC)"
    if opens % S_PER_HR:
        return "its queue opens at a time that is not on the hour"
    return DeferPolicy(start_hour=opens // S_PER_HR, within_s=int((opens - closes) % S_PER_DAY))


class QueuedRuns(NamedTuple):
    """Runs in a queue, in any order (n_runs,): when each is submitted, how long it runs, the GPUs of all its pods."""

    submit_s: FloatArray
    run_s: FloatArray
    gpus: FloatArray


def waits_s(runs: QueuedRuns, quotas: Sequence[float], *, strict: bool) -> FloatArray:
    """Return how long each run waits for quota (n_runs,); infinite where it never gets it.

    Of equal submissions the first in the order given comes first. A run that ends frees its quota before others are let in.

    >>> runs = QueuedRuns(np.array([0.0, 1.0, 2.0]), np.array([10.0, 10.0, 10.0]), np.array([2.0, 4.0, 2.0]))
    >>> waits_s(runs, [4.0], strict=False).tolist(), waits_s(runs, [4.0], strict=True).tolist()
    ([0.0, 11.0, 0.0], [0.0, 9.0, 18.0])
    """
    wait_s = np.full(len(runs.submit_s), np.inf)
    free = list(quotas)
    order = np.argsort(runs.submit_s, kind="stable").tolist()
    ends: list[tuple[float, int, float]] = []
    pending: list[int] = []
    coming = 0
    while coming < len(order) or (pending and ends):
        now = min(runs.submit_s[order[coming]] if coming < len(order) else math.inf, ends[0][0] if ends else math.inf)
        while ends and ends[0][0] <= now:
            _, flavor, gpus = heapq.heappop(ends)
            free[flavor] += gpus
        while coming < len(order) and runs.submit_s[order[coming]] <= now:
            pending.append(order[coming])
            coming += 1
        left = []
        for place, run in enumerate(pending):
            gpus = float(runs.gpus[run])
            flavor = next((number for number, room in enumerate(free) if gpus <= room), -1)
            if flavor < 0:
                left.append(run)
                if strict:
                    left += pending[place + 1 :]
                    break
                continue
            free[flavor] -= gpus
            wait_s[run] = now - runs.submit_s[run]
            heapq.heappush(ends, (now + float(runs.run_s[run]), flavor, gpus))
        pending = left
    return wait_s


def only_flavor(queues: Queues, queue: str) -> Flavor | None:
    """Return the flavor of a LocalQueue's runs where there is one only, whose labels and tolerations they get."""
    local = queues.local.get(queue)
    cluster = None if local is None else queues.cluster.get(local.cluster_queue)
    if cluster is None or len(cluster.quotas) != 1:
        return None
    return queues.flavors.get(cluster.quotas[0].flavor)


def of_lists(parts: Sequence[QueuedRuns]) -> QueuedRuns:
    """Return the runs of several workloads, one after the other."""
    return QueuedRuns(*(np.concatenate([np.asarray(part[column]) for part in parts]) for column in range(3)))

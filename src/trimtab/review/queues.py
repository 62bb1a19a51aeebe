"""Kueue: which runs wait for quota, and for how long; queues that a clock opens and closes.

As Kueue v0.19.2 has it (site/content/en/docs/concepts/cluster_queue.md): a LocalQueue hands its runs to a ClusterQueue, which
admits one once a flavor has as much quota left as all of its pods ask for, the first such flavor of its list. A run that asks
for more than a flavor's capacity never gets it (pkg/scheduler/flavorassigner, "> maximum capacity"). `StrictFIFO` lets older
runs that do not fit block newer ones, `BestEffortFIFO`, the default, does not. Queues of a tree of cohorts share what they lend
and borrow (pkg/cache/scheduler/resource_node.go); of their oldest runs those that borrow nothing are let in first, then the
older ones (pkg/scheduler/scheduler.go, makeClassicalIterator). Only GPUs are counted.
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
class Cohort:
    """A Cohort: its own quotas, which its queues and the cohorts below it may use, and the cohort above it."""

    quotas: tuple[FlavorQuota, ...]
    parent: str


@dataclass(slots=True, kw_only=True, eq=False)
class SharedQuota:
    """The GPUs of one flavor at a ClusterQueue or Cohort, as a node of a tree of cohorts (resource_node.go)."""

    nominal: float
    borrows: float | None
    lends: float | None
    parent: SharedQuota | None = None
    children: list[SharedQuota] = field(default_factory=list)
    subtree: float = 0.0
    """What it and all below it hold, but for what those keep to themselves."""
    used: float = 0.0

    def join(self, parent: SharedQuota) -> None:
        """Put it below a cohort's."""
        self.parent = parent
        parent.children.append(self)

    def settle(self) -> None:
        """Work out what it and all below it hold."""
        for child in self.children:
            child.settle()
        self.subtree = self.nominal + sum(child.subtree - child.kept for child in self.children)

    @property
    def kept(self) -> float:
        """Return what it never lends."""
        return 0.0 if self.lends is None else max(0.0, self.subtree - self.lends)

    def available(self) -> float:
        """Return how many GPUs it may still use, its own and borrowed ones."""
        if self.parent is None:
            return self.subtree - self.used
        above = self.parent.available()
        if self.borrows is not None:
            above = min(self.subtree - self.kept - max(0.0, self.used - self.kept) + self.borrows, above)
        return max(0.0, self.kept - self.used) + above

    def take(self, gpus: float) -> None:
        """Use GPUs, those first that it never lends."""
        above = gpus - max(0.0, self.kept - self.used)
        self.used += gpus
        if self.parent is not None and above > 0:
            self.parent.take(above)

    def give_back(self, gpus: float) -> None:
        """Stop to use GPUs, the shared ones first."""
        shared = self.used - self.kept
        self.used -= gpus
        if self.parent is not None and shared > 0:
            self.parent.give_back(min(gpus, shared))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admission:
    """A ClusterQueue as it lets runs in: its quotas in the order in which they are tried."""

    quotas: tuple[SharedQuota, ...]
    strict: bool

    @classmethod
    def of(cls, quotas: Sequence[float], *, strict: bool) -> Admission:
        """Return a queue of no cohort."""
        alone = [SharedQuota(nominal=gpus, borrows=None, lends=None, subtree=gpus) for gpus in quotas]
        return cls(quotas=tuple(alone), strict=strict)


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
    cohorts: dict[str, Cohort] = field(default_factory=dict)
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
                # `parent` in v1alpha1
                parent = text(body, "spec", "parentName") or text(body, "spec", "parent")
                self.cohorts[name] = Cohort(quotas=tuple(_quotas(body)), parent=parent)
                if at(body, "spec", "fairSharing"):
                    yield f"Cohort {name}: fairSharing", f"not modelled: {_UNREAD['fairSharing']}"

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

    def admissions(self) -> dict[str, Admission]:
        """Return how each ClusterQueue lets runs in, before any is."""
        cohorts: dict[tuple[str, str], SharedQuota] = {}
        found = {}
        for queue in self.cluster.values():
            leaves = tuple(_shared(quota) for quota in queue.quotas)
            for leaf, quota in zip(leaves, queue.quotas, strict=True):
                if queue.cohort:
                    leaf.join(self._cohort(queue.cohort, quota.flavor, cohorts))
            found[queue.name] = Admission(quotas=leaves, strict=queue.strict)
        for cohort in list(self.cohorts):
            # a cohort without queues still lends what it has
            for flavor in {flavor for _, flavor in cohorts}:
                self._cohort(cohort, flavor, cohorts)
        for node in (*cohorts.values(), *(leaf for admission in found.values() for leaf in admission.quotas)):
            if node.parent is None:
                node.settle()
        return found

    def _cohort(self, name: str, flavor: str, made: dict[tuple[str, str], SharedQuota]) -> SharedQuota:
        """Return a cohort's quota of a flavor, with those above it; one that no object describes has none of its own."""
        if (name, flavor) in made:
            return made[name, flavor]
        stated = self.cohorts.get(name, Cohort(quotas=(), parent=""))
        own = next((quota for quota in stated.quotas if quota.flavor == flavor), None)
        node = SharedQuota(nominal=0.0, borrows=None, lends=None) if own is None else _shared(own)
        made[name, flavor] = node
        if stated.parent:
            above = self._cohort(stated.parent, flavor, made)
            # below cohorts that are above one another Kueue lets no run in; here the one that closes the ring has none above it
            if not _is_above(node, above):
                node.join(above)
        return node


def _is_above(node: SharedQuota, other: SharedQuota) -> bool:
    """Return whether a node is another, or above it."""
    step: SharedQuota | None = other
    while step is not None and step is not node:
        step = step.parent
    return step is node


def _shared(quota: FlavorQuota) -> SharedQuota:
    return SharedQuota(nominal=quota.gpus, borrows=quota.borrows, lends=quota.lends)


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


def _quotas(body: Object) -> Iterator[FlavorQuota]:
    """Yield the GPUs of each flavor of a ClusterQueue or a Cohort."""
    for group in listed(body, "spec", "resourceGroups"):
        for flavor in listed(group, "flavors"):
            for resource in listed(flavor, "resources"):
                if text(resource, "name") == GPU:
                    yield FlavorQuota(
                        flavor=text(flavor, "name"),
                        gpus=quantity(at(resource, "nominalQuota")) or 0.0,
                        borrows=quantity(at(resource, "borrowingLimit")),
                        lends=quantity(at(resource, "lendingLimit")),
                    )


def _cluster_queue(name: str, file: str, body: Object) -> ClusterQueue:
    return ClusterQueue(
        name=name,
        file=file,
        quotas=tuple(_quotas(body)),
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


def waits_s(lines: Sequence[tuple[QueuedRuns, Admission]]) -> list[FloatArray]:
    """Return how long each run of some lists waits for quota, `(n_runs,)` each; infinite where it never gets it.

    Lists of one queue name the same admission. Of equal submissions the first in the order given comes first. A run that ends
    frees its quota before others are let in.

    >>> runs = QueuedRuns(np.array([0.0, 1.0, 2.0]), np.array([10.0, 10.0, 10.0]), np.array([2.0, 4.0, 2.0]))
    >>> [waits_s([(runs, Admission.of([4.0], strict=strict))])[0].tolist() for strict in (False, True)]
    [[0.0, 11.0, 0.0], [0.0, 9.0, 18.0]]
    """
    if not lines:
        return []
    runs = QueuedRuns(*(np.concatenate([np.asarray(part[column]) for part, _ in lines]) for column in range(3)))
    sizes = [len(part.submit_s) for part, _ in lines]
    queue_of = [admission for (_, admission), size in zip(lines, sizes, strict=True) for _ in range(size)]
    wait_s = np.full(len(queue_of), np.inf)
    order = np.argsort(runs.submit_s, kind="stable").tolist()
    ends: list[tuple[float, int, SharedQuota]] = []
    pending: dict[Admission, list[int]] = {admission: [] for _, admission in lines}
    coming = 0
    while coming < len(order) or (any(pending.values()) and ends):
        now = min(runs.submit_s[order[coming]] if coming < len(order) else math.inf, ends[0][0] if ends else math.inf)
        while ends and ends[0][0] <= now:
            _, run, quota = heapq.heappop(ends)
            quota.give_back(float(runs.gpus[run]))
        while coming < len(order) and runs.submit_s[order[coming]] <= now:
            pending[queue_of[order[coming]]].append(order[coming])
            coming += 1
        for run, quota in _let_in(pending, runs):
            wait_s[run] = now - runs.submit_s[run]
            heapq.heappush(ends, (now + float(runs.run_s[run]), run, quota))
    return np.split(wait_s, np.cumsum(sizes)[:-1])


def _let_in(pending: dict[Admission, list[int]], runs: QueuedRuns) -> Iterator[tuple[int, SharedQuota]]:
    """Yield the runs that are let in now, each with the quota that it then uses; the others stay pending."""
    tried = dict.fromkeys(pending, 0)
    while True:
        heads = [
            (_asked(queue, float(runs.gpus[left[tried[queue]]])), left[tried[queue]], queue)
            for queue, left in pending.items()
            if tried[queue] < len(left)
        ]
        if not heads:
            return
        # those that borrow come last, and of equals the older one first
        (_, quota), run, queue = min(heads, key=lambda head: (head[0][0], runs.submit_s[head[1]], head[1]))
        if quota is not None:
            pending[queue].pop(tried[queue])
            quota.take(float(runs.gpus[run]))
            yield run, quota
        else:
            # a run that does not fit blocks those behind it in a strict queue
            tried[queue] = len(pending[queue]) if queue.strict else tried[queue] + 1


def _asked(queue: Admission, gpus: float) -> tuple[bool, SharedQuota | None]:
    """Return whether a run would borrow, and the first quota that has room for it; none where none has."""
    quota = next((quota for quota in queue.quotas if gpus <= quota.available()), None)
    return quota is not None and quota.used + gpus > quota.nominal, quota


def only_flavor(queues: Queues, queue: str) -> Flavor | None:
    """Return the flavor of a LocalQueue's runs where there is one only, whose labels and tolerations they get."""
    local = queues.local.get(queue)
    cluster = None if local is None else queues.cluster.get(local.cluster_queue)
    if cluster is None or len(cluster.quotas) != 1:
        return None
    return queues.flavors.get(cluster.quotas[0].flavor)

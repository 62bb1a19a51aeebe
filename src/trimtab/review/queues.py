"""Kueue: which runs wait for quota, and for how long; queues that a clock opens and closes.

As Kueue v0.19.2 has it (site/content/en/docs/concepts/cluster_queue.md): a LocalQueue hands its runs to a ClusterQueue, which
admits one once a flavor has as much quota left as all of its pods ask for, the first such flavor of its list. A run that asks
for more than a flavor's capacity never gets it (pkg/scheduler/flavorassigner, "> maximum capacity"). `StrictFIFO` lets older
runs that do not fit block newer ones, `BestEffortFIFO`, the default, does not. Queues of a tree of cohorts share what they lend
and borrow (pkg/cache/scheduler/resource_node.go); of their first runs those that borrow nothing are let in first, then those of
higher priority, then the older ones (pkg/scheduler/scheduler.go, makeClassicalIterator). In a queue too higher priorities come
first, then older runs. Only GPUs are counted.

A run that finds no room takes that of runs of its own ClusterQueue where `preemption.withinClusterQueue` says so: of those of
lower priority, or as high and newer, the lowest and of equals the one let in last goes first, until there is room; those that
need not have gone stay (pkg/scheduler/preemption: preemption.go, classicalPreemptions, fillBackWorkloads; common/ordering.go).
What is preempted goes to its old place in the queue, and is assumed to begin again.
"""

from __future__ import annotations

import bisect
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
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, quantity, text, texts
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

_GROUP = "kueue.x-k8s.io"
QUEUE_KINDS = frozenset({"ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "WorkloadPriorityClass"})
_UNREAD = {
    "flavorFungibility": "a run takes the first flavor that has room",
    "fairSharing": "runs are admitted in the order in which they come",
    "admissionChecks": "every check is assumed to pass at once",
    "admissionChecksStrategy": "every check is assumed to pass at once",
    "admissionScope": "runs are admitted in the order in which they come",
    "concurrentAdmissionPolicy": "runs do not move between flavors",
}
"""Fields of a ClusterQueue that are not modelled, and what is taken instead."""
_UNREAD_PREEMPTION = {
    "reclaimWithinCohort": "no run is preempted for one of another queue",
    "borrowWithinCohort": "no run is preempted for one that borrows in another queue",
}
_NEVER = "Never"
PRIORITY_LABEL = f"{_GROUP}/priority-class"
"""Of a workload: the WorkloadPriorityClass that counts in queues, whatever the priority of its pods."""
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
    preempts: str
    """Which runs of its own it takes back for others (`withinClusterQueue`)."""


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
    preempts: str = _NEVER

    @classmethod
    def of(cls, quotas: Sequence[float], *, strict: bool, preempts: str = _NEVER) -> Admission:
        """Return a queue of no cohort."""
        alone = [SharedQuota(nominal=gpus, borrows=None, lends=None, subtree=gpus) for gpus in quotas]
        return cls(quotas=tuple(alone), strict=strict, preempts=preempts)


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
    priorities: dict[str, float] = field(default_factory=dict)
    """Of WorkloadPriorityClasses, by name."""
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
            case "WorkloadPriorityClass":
                self.priorities[name] = number(body, "value") or 0.0
            case "ClusterQueue":
                self.cluster[name] = _cluster_queue(name, file, body)
                for key, taken in _UNREAD.items():
                    if at(body, "spec", key):
                        yield f"ClusterQueue {name}: {key}", f"not modelled: {taken}"
                for key, taken in _UNREAD_PREEMPTION.items():
                    stated = at(body, "spec", "preemption", key)
                    policy = stated if isinstance(stated, str) else text(stated, "policy")
                    if policy not in ("", _NEVER):
                        yield f"ClusterQueue {name}: preemption.{key}", f"not modelled: {taken}"
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
            words = texts(container, "args")
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
            found[queue.name] = Admission(quotas=leaves, strict=queue.strict, preempts=queue.preempts)
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
        preempts=text(body, "spec", "preemption", "withinClusterQueue") or _NEVER,
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
    """Runs in a queue, in any order (n_runs,): when each is submitted, how long it runs, the GPUs of all its pods; and how they
    stand to other runs."""

    submit_s: FloatArray
    run_s: FloatArray
    gpus: FloatArray
    priority: float = 0.0


class AdmittedRuns(NamedTuple):
    """What a queue makes of runs (n_runs,): how long each waits, and how long it worked for nothing until it was preempted."""

    waits_s: FloatArray
    """All the times that it waits; infinite where it is never let in, or never again."""
    lost_s: FloatArray


def admit(lines: Sequence[tuple[QueuedRuns, Admission]]) -> list[AdmittedRuns]:
    """Return what queues make of some lists of runs.

    Lists of one queue name the same admission. Of equal submissions the first in the order given comes first. A run that ends
    frees its quota before others are let in.

    >>> runs = QueuedRuns(np.array([0.0, 1.0, 2.0]), np.array([10.0, 10.0, 10.0]), np.array([2.0, 4.0, 2.0]))
    >>> [admit([(runs, Admission.of([4.0], strict=strict))])[0].waits_s.tolist() for strict in (False, True)]
    [[0.0, 11.0, 0.0], [0.0, 9.0, 18.0]]
    """
    if not lines:
        return []
    runs = [
        _QueuedRun(
            submit_s=float(part.submit_s[run]), run_s=float(part.run_s[run]), gpus=float(part.gpus[run]),
            priority=part.priority, queue=queue,
        )
        for part, queue in lines
        for run in range(len(part.submit_s))
    ]  # fmt: skip
    _play(runs)
    cuts = np.cumsum([len(part.submit_s) for part, _ in lines])[:-1]
    waits_s, lost_s = (
        np.split(np.array(column), cuts) for column in ([r.wait_s for r in runs], [r.lost_s for r in runs])
    )
    return [AdmittedRuns(*both) for both in zip(waits_s, lost_s, strict=True)]


@dataclass(slots=True, kw_only=True, eq=False)
class _QueuedRun:
    """One run on its way through a queue."""

    submit_s: float
    run_s: float
    gpus: float
    priority: float
    queue: Admission
    quota: SharedQuota | None = None
    """What it uses while it runs."""
    since_s: float = 0.0
    """When it was let in."""
    place: int = 0
    """The how-manieth it was to be let in."""
    lost_s: float = 0.0
    wait_s: float = math.inf

    @property
    def before(self) -> tuple[float, float]:
        """Return what those that come first in a queue have the least of."""
        return -self.priority, self.submit_s

    def yields_to(self, other: _QueuedRun) -> bool:
        """Return whether it is preempted for another run of its queue (common/preemption_policy.go)."""
        if self.priority < other.priority:
            return self.queue.preempts != _NEVER
        newer = self.priority == other.priority and other.submit_s < self.submit_s
        return newer and self.queue.preempts == "LowerOrNewerEqualPriority"


def _play(runs: Sequence[_QueuedRun]) -> None:
    """Let runs in as their queues do, until none is left or no event is to come."""
    order = sorted(runs, key=lambda run: run.submit_s)
    pending: dict[Admission, list[_QueuedRun]] = {run.queue: [] for run in runs}
    at_work: dict[Admission, list[_QueuedRun]] = {run.queue: [] for run in runs}
    ends: list[tuple[float, int, _QueuedRun]] = []
    coming = places = 0
    while coming < len(order) or ends:
        now = min(order[coming].submit_s if coming < len(order) else math.inf, ends[0][0] if ends else math.inf)
        while ends and ends[0][0] <= now:
            _, place, run = heapq.heappop(ends)
            # one that was preempted meanwhile does not end then
            if run.quota is not None and run.place == place:
                run.quota.give_back(run.gpus)
                run.quota = None
                at_work[run.queue].remove(run)
        while coming < len(order) and order[coming].submit_s <= now:
            bisect.insort(pending[order[coming].queue], order[coming], key=lambda run: run.before)
            coming += 1
        for run, quota in _let_in(pending, at_work, now):
            places += 1
            run.quota, run.since_s, run.place = quota, now, places
            run.wait_s = now - run.submit_s - run.lost_s
            at_work[run.queue].append(run)
            heapq.heappush(ends, (now + run.run_s, places, run))


def _let_in(
    pending: Mapping[Admission, list[_QueuedRun]], at_work: Mapping[Admission, list[_QueuedRun]], now: float
) -> Iterator[tuple[_QueuedRun, SharedQuota]]:
    """Yield the runs that are let in now, each with the quota that it then uses; the others stay pending."""
    tried = dict.fromkeys(pending, 0)
    while True:
        heads = [
            (_asked(queue, left[tried[queue]].gpus), left[tried[queue]], queue)
            for queue, left in pending.items()
            if tried[queue] < len(left)
        ]
        if not heads:
            return
        # those that borrow come last, then the higher priority comes first, and of equals the older one
        (_, quota), run, queue = min(heads, key=lambda head: (head[0][0], head[1].before))
        if quota is None and (victims := _victims(run, at_work[queue])):
            for victim in victims:
                _take_back(victim, pending[queue], at_work[queue], now)
            _, quota = _asked(queue, run.gpus)
        if quota is not None:
            # those that were preempted are behind it, or they would not have been
            pending[queue].remove(run)
            quota.take(run.gpus)
            yield run, quota
        else:
            # a run that does not fit blocks those behind it in a strict queue
            tried[queue] = len(pending[queue]) if queue.strict else tried[queue] + 1


def _asked(queue: Admission, gpus: float) -> tuple[bool, SharedQuota | None]:
    """Return whether a run would borrow, and the first quota that has room for it; none where none has."""
    quota = next((quota for quota in queue.quotas if gpus <= quota.available()), None)
    return quota is not None and quota.used + gpus > quota.nominal, quota


def _victims(run: _QueuedRun, at_work: Sequence[_QueuedRun]) -> list[_QueuedRun]:
    """Return the runs of its queue that make room for a run, in the first flavor where that is enough; none where none is."""
    if run.queue.preempts == _NEVER:
        return []
    for quota in run.queue.quotas:
        candidates = [other for other in at_work if other.quota is quota and other.yields_to(run)]
        candidates.sort(key=lambda other: (other.priority, -other.since_s, -other.place))
        taken: list[_QueuedRun] = []
        for other in candidates:
            quota.give_back(other.gpus)
            taken.append(other)
            if run.gpus <= quota.available():
                break
        enough = bool(taken) and run.gpus <= quota.available()
        needed = taken[-1:]
        for other in reversed(taken[:-1] if enough else taken):
            quota.take(other.gpus)
            if enough and run.gpus > quota.available():
                quota.give_back(other.gpus)
                needed.append(other)
        if enough:
            for other in needed:
                quota.take(other.gpus)
            return needed
    return []


def _take_back(run: _QueuedRun, pending: list[_QueuedRun], at_work: list[_QueuedRun], now: float) -> None:
    """Stop a run and put it where it stood in its queue."""
    if run.quota is None:
        raise ValueError("a run that is not active cannot be preempted")
    run.quota.give_back(run.gpus)
    run.quota, run.wait_s = None, math.inf
    run.lost_s += now - run.since_s
    at_work.remove(run)
    bisect.insort(pending, run, key=lambda other: other.before)


def only_flavor(queues: Queues, queue: str) -> Flavor | None:
    """Return the flavor of a LocalQueue's runs where there is one only, whose labels and tolerations they get."""
    local = queues.local.get(queue)
    cluster = None if local is None else queues.cluster.get(local.cluster_queue)
    if cluster is None or len(cluster.quotas) != 1:
        return None
    return queues.flavors.get(cluster.quotas[0].flavor)

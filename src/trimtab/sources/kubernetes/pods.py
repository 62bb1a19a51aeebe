"""The pods of a snapshot: whose they are, what they ask for, and when they held their node.

A pod needs the larger of the sum of its containers and any one init container; an init container that restarts always (a
sidecar) runs beside them and counts with the sum. Source: kubernetes.io/docs/concepts/workloads/pods/init-containers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trimtab.sources.hour_grid import Life
from trimtab.sources.kubernetes.board_shares import BoardShares, boards_of_cores, renamed_boards
from trimtab.sources.kubernetes.health import pod_health, started_at
from trimtab.sources.kubernetes.holds import DeviceShare, Hold, mig_share
from trimtab.sources.kubernetes.nodes import BOARD_RESOURCES, CORE_RESOURCE, cores_per_board
from trimtab.sources.kubernetes.objects import (
    Object,
    Objects,
    at,
    condition,
    listed,
    mapping,
    moment_at,
    number,
    quantity,
    selects,
    text,
    texts,
)
from trimtab.sources.kubernetes.owners import Owner, owners_of
from trimtab.sources.kubernetes.resource_claims import ResourceClaims
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.units import BYTES_PER_GIB

MIG_PREFIX = "nvidia.com/mig-"
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_WHOLE = 1.0
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What a pod asks for and is allowed; None where it does not say."""

    gpu_resource: str | None
    gpu_pieces: float
    """Pieces of `gpu_resource`: boards, MIG instances or shares."""
    cpu_request: float | None
    cpu_limit: float | None
    memory_request_bytes: float | None
    memory_limit_bytes: float | None

    def gpus(self, product: str, replicas: float, cores: float | None, tally: Tally) -> float:
        """Return the boards' worth of GPUs; `replicas` is how many shares one board is advertised as (1 = not shared).

        `cores` is how many NeuronCores a chip has.
        """
        if self.gpu_resource is None:
            return 0.0
        if self.gpu_resource == CORE_RESOURCE:
            return boards_of_cores(self.gpu_pieces, cores, tally)
        if self.gpu_resource.startswith(MIG_PREFIX):
            return self.gpu_pieces * mig_share(self.gpu_resource.removeprefix(MIG_PREFIX), product)
        return self.gpu_pieces / max(replicas, _WHOLE)


def is_gpu_resource(name: str) -> bool:
    """Return whether an extended resource is a GPU, a share of one or a MIG instance."""
    return name in BOARD_RESOURCES or name == CORE_RESOURCE or name.startswith(MIG_PREFIX)


def asked_by(spec: object, claimable: frozenset[str] = frozenset()) -> PodResources:
    """Return what a pod spec asks for; a GPU counts by its limit where no request is stated, for the two must be equal.

    `claimable` are extended resources that are GPUs because a DeviceClass says so.
    """
    requests = _needed(spec, "requests")
    limits = _needed(spec, "limits")
    asked = {**_devices_asked(spec, claimable), **limits, **requests}
    gpus = {
        name: amount for name, amount in asked.items() if amount > 0 and (is_gpu_resource(name) or name in claimable)
    }
    resource = max(sorted(gpus), key=lambda name: gpus[name], default=None)
    return PodResources(
        gpu_resource=resource,
        gpu_pieces=gpus[resource] if resource else 0.0,
        cpu_request=requests.get("cpu"),
        cpu_limit=limits.get("cpu"),
        memory_request_bytes=requests.get("memory"),
        memory_limit_bytes=limits.get("memory"),
    )


def _devices_asked(spec: object, claimable: frozenset[str]) -> dict[str, float]:
    """Return the limits of resources that only a DeviceClass tells to be GPUs, over all containers."""
    asked: dict[str, float] = {}
    for container in listed(spec, "containers"):
        for name, amount in _amounts(container, "limits").items():
            if name in claimable:
                asked[name] = asked.get(name, 0.0) + amount
    return asked


def _needed(spec: object, which: str) -> dict[str, float]:
    init = listed(spec, "initContainers")
    sidecars = [container for container in init if text(container, "restartPolicy") == "Always"]
    together = _sum([*listed(spec, "containers"), *sidecars], which)
    alone = [_amounts(container, which) for container in init if text(container, "restartPolicy") != "Always"]
    for amounts in alone:
        for name, amount in amounts.items():
            together[name] = max(together.get(name, 0.0), amount)
    return together


def _sum(containers: Sequence[Object], which: str) -> dict[str, float]:
    """Add up containers; a limit that one of them lacks is no limit for the pod."""
    total: dict[str, float] = {}
    each = [_amounts(container, which) for container in containers]
    for amounts in each:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + amount
    if which == "limits":
        total = {
            name: amount
            for name, amount in total.items()
            if is_gpu_resource(name) or all(name in amounts for amounts in each)
        }
    return total


def _amounts(container: Object, which: str) -> dict[str, float]:
    stated = at(container, "resources", which)
    if not isinstance(stated, Mapping):
        return {}
    amounts = {str(name): quantity(value) for name, value in stated.items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def gpu_containers_of(spec: object) -> str | None:
    """Return which containers of a pod spec ask for GPUs, by place, where they say so, and what starts them.

    Such as `0:limits+requests:args`.
    """
    found = []
    for place, container in enumerate(listed(spec, "containers")):
        said = [which for which in ("limits", "requests") if any(map(is_gpu_resource, _amounts(container, which)))]
        if said:
            found.append(f"{place}:{'+'.join(said)}:{_started_by(container)}")
    return joined(found)


def _started_by(container: Object) -> str:
    """Return where a container says with which words its program starts, as the column `gpu_containers` has it."""
    command, args = texts(container, "command"), texts(container, "args")
    if any(word.rpartition("/")[2] in _SHELLS for word in (*command, *args)):
        return "shell"
    if command and not any("vllm" in word for word in command):
        return "program"
    return "args" if args else "command" if command else "image"


def resources_of_containers(spec: object) -> str | None:
    """Return what each container of a pod spec asks for, as a JSON list; None where there is none.

    Amounts are in cores, GiB and pieces. A limit without a request is the request too, as an API server completes it. An init
    container has a `role`: `init`, or `sidecar` where it runs beside the others.
    """
    main = [(container, "") for container in listed(spec, "containers")]
    init = [
        (container, "sidecar" if text(container, "restartPolicy") == "Always" else "init")
        for container in listed(spec, "initContainers")
    ]
    told: list[dict[str, object]] = []
    for container, role in (*main, *init):
        limits = _in_gib(_amounts(container, "limits"))
        stated = {"requests": limits | _in_gib(_amounts(container, "requests")), "limits": limits}
        told.append(stated | {"role": role} if role else dict(stated))
    return json.dumps(told, sort_keys=True) if told else None


def _in_gib(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount / BYTES_PER_GIB if name == "memory" else amount for name, amount in amounts.items()}


def images_of(spec: object) -> str | None:
    """Return the images of a pod spec's containers, comma separated."""
    return joined(text(container, "image") for container in listed(spec, "containers"))


def joined(items: Iterable[str]) -> str | None:
    """Return distinct texts comma separated, or None where there are none."""
    return ",".join(dict.fromkeys(item for item in items if item)) or None


def queue_of(item: Object) -> str | None:
    """Return the queue that a pod or a run names in its labels or annotations, or None."""
    labels, notes = mapping(item, "metadata", "labels"), mapping(item, "metadata", "annotations")
    named = labels.get(KUEUE_QUEUE) or notes.get(KUEUE_QUEUE) or notes.get(VOLCANO_QUEUE) or labels.get(VOLCANO_QUEUE)
    return named or text(item, "spec", "queue") or None


_FOLLOWS_NODES = frozenset({"DaemonSet", "Node"})
_DONE = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod of a snapshot: who it belongs to, what it asks for, where and when it ran."""

    namespace: str
    name: str
    source: Object
    owner: Owner
    asked: PodResources
    gpus: float
    node: str | None
    created: datetime
    scheduled: datetime | None
    ready: datetime | None
    ended: datetime | None
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels by which its Deployment or StatefulSet selects its pods."""
    device_class: str | None = None
    """Of the GPUs that it claims."""
    devices: tuple[DeviceShare, ...] = ()
    """GPUs that its claims hold, and its parts of boards."""
    until: datetime | None = None
    """From when on other pods are known to hold what it only reserves."""
    gpu_claims: str | None = None
    """What they are made from (`ResourceClaims.told_of`)."""


REPLICA_LABELS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")
"""Feature discovery's, and GKE's (cloud.google.com/kubernetes-engine/docs/how-to/timesharing-gpus)."""


def shares_of_a_board(labels: Mapping[str, str]) -> float:
    """Return as how many shares a node advertises each board (time-slicing, MPS); 1 where it does not share."""
    told = (quantity(labels.get(name)) for name in REPLICA_LABELS)
    return max(next((replicas for replicas in told if replicas), 1.0), 1.0)


def cores_of_boards(node: Object) -> float | None:
    """Return the NeuronCores of a node's chips; None where it has none."""
    capacity = mapping(node, "status", "capacity")
    boards = max((quantity(capacity[name]) or 0.0 for name in BOARD_RESOURCES if name in capacity), default=0.0)
    return cores_per_board(quantity(capacity.get(CORE_RESOURCE)), boards)


def placed_pods(objects: Objects, tally: Tally, claims: ResourceClaims, shares: BoardShares) -> list[PlacedPod]:
    """Return the pods of a snapshot; those without a moment of creation are counted and left out."""
    owners = owners_of(objects)
    labels = {text(node, "metadata", "name"): mapping(node, "metadata", "labels") for node in objects.of("Node")}
    cores = {text(node, "metadata", "name"): cores_of_boards(node) for node in objects.of("Node")}
    renamed = {text(node, "metadata", "name"): renamed_boards(node) for node in objects.of("Node")}
    selectors = {
        f"{text(controller, 'metadata', 'namespace')}/{text(controller, 'metadata', 'name')}": mapping(
            controller, "spec", "selector", "matchLabels"
        )
        for kind in ("StatefulSet", "Deployment")
        for controller in objects.of(kind)
    }
    placed = []
    for pod in objects.of("Pod"):
        created = moment_at(pod, "metadata", "creationTimestamp")
        if created is None:
            tally.count("pods without a moment of creation, left out")
            continue
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
        node, asked = text(pod, "spec", "nodeName") or None, asked_by(at(pod, "spec"), claims.extended)
        if not owners.knows(namespace, name):
            tally.count("pods without an owner")
        on, claimed = labels.get(node or "", {}), claims.of(pod)
        replicas = renamed.get(node or "", {}).get(asked.gpu_resource or "", shares_of_a_board(on))
        asked_gpus = asked.gpus(on.get("nvidia.com/gpu.product", ""), replicas, cores.get(node or ""), tally)
        parts = shares.of(namespace, name)
        if parts is not None:
            asked_gpus = sum(part.gpus for part in parts)
        by_claims = tuple(DeviceShare(device=held.gpu.uuid or None, gpus=held.gpus) for held in claimed.devices)
        placed.append(
            PlacedPod(
                namespace=namespace,
                name=name,
                source=pod,
                owner=owners.of(namespace, name),
                asked=asked,
                gpus=claimed.gpus + (0.0 if claimed.for_extended_resources else asked_gpus),
                node=node,
                created=created,
                scheduled=_scheduled(pod) if node else None,
                ready=_ready(pod),
                ended=_ended(pod),
                selector=selectors.get(owners.of(namespace, name).workload, {}),
                device_class=claimed.device_class,
                devices=(*by_claims, *(parts or ())),
                gpu_claims=claims.told_of(pod),
            )
        )
    began = {(pod.namespace, pod.name): pod.scheduled for pod in placed if pod.scheduled is not None}
    return [replace(pod, until=_held_by_others(pod, shares, began)) for pod in placed]


_BINDING = timedelta(minutes=5)
"""A board is reserved for a pod that is about to start: until then no other pod is shown for it."""


def _held_by_others(pod: PlacedPod, shares: BoardShares, began: Mapping[tuple[str, str], datetime]) -> datetime | None:
    """Return from when on the pods that a reservation is for hold its board; None for others, and where none was read."""
    members = shares.reserves_for.get((pod.namespace, pod.name), ())
    first = min((began[member] for member in members if member in began), default=None)
    if first is None or pod.scheduled is None:
        return first
    return pod.scheduled if first - pod.scheduled <= _BINDING else first


def _scheduled(pod: Object) -> datetime | None:
    told = condition(pod, "PodScheduled")
    return moment_at(told, "lastTransitionTime") or moment_at(pod, "status", "startTime")


def _ready(pod: Object) -> datetime | None:
    """Return when a pod last became ready; None where it is not, or where that may be of a container's second life."""
    if any(item.get("restartCount") for item in listed(pod, "status", "containerStatuses")):
        return None
    return moment_at(condition(pod, "Ready"), "lastTransitionTime")


def _ended(pod: Object) -> datetime | None:
    """Return when a finished pod let go: its last container's end, else the last change of its conditions."""
    if text(pod, "status", "phase") not in _DONE:
        return None
    ends = [moment_at(item, "state", "terminated", "finishedAt") for item in listed(pod, "status", "containerStatuses")]
    known = [end for end in ends if end is not None]
    changes = [moment_at(item, "lastTransitionTime") for item in listed(pod, "status", "conditions")]
    known = known or [change for change in changes if change is not None]
    return max(known, default=moment_at(pod, "status", "startTime"))


def holds_of(pods: Sequence[PlacedPod], nodes: set[str], standing: set[str], end: datetime, tally: Tally) -> list[Hold]:
    """Return who held what, of pods on the named nodes; pods that follow the nodes hold nothing.

    `standing` are all nodes of the dump, those without known GPUs too.
    """
    holds = []
    for pod in pods:
        if pod.node is None or pod.scheduled is None:
            continue
        if pod.node not in nodes:
            where = (
                "nodes whose GPUs are not known (dump resourceslices too)"
                if pod.node in standing
                else "nodes that are gone"
            )
            tally.count(f"pods with GPUs on {where}, not judged", int(pod.gpus > 0))
            continue
        if pod.gpus == 0 and (pod.owner.kind in _FOLLOWS_NODES or pod.ended is not None):
            continue
        ended = pod.ended if pod.until is None else pod.until
        if pod.until is not None and pod.until <= pod.scheduled:
            continue
        if pod.scheduled >= end or (ended is not None and ended <= pod.scheduled):
            tally.count("pods that held nothing within the window")
            continue
        life = Life(start_s=pod.scheduled.timestamp(), end_s=ended.timestamp() if ended else None)
        holds.append(Hold(namespace=pod.namespace, pod=pod.name, node=pod.node, device=None, gpus=pod.gpus, life=life))
    return holds


def pod_row(pod: PlacedPod, pull: tuple[float, float | None] | None = None) -> dict[str, object]:
    """Return a pod's row of `pods`; `pull` is what its images took, in seconds and GiB, where that is known."""
    spec = at(pod.source, "spec")
    pull_s, pulled_gib = pull or (None, None)
    request, limit = pod.asked.memory_request_bytes, pod.asked.memory_limit_bytes
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        "workload": pod.owner.workload,
        "owner_kind": pod.owner.kind,
        "node": pod.node,
        "phase": text(pod.source, "status", "phase") or "Unknown",
        "gpus": pod.gpus,
        "gpu_resource": pod.asked.gpu_resource or pod.device_class,
        "gpu_pieces": pod.asked.gpu_pieces if pod.asked.gpu_resource else None,
        "gpu_containers": gpu_containers_of(spec),
        "gpu_claims": pod.gpu_claims,
        "containers": resources_of_containers(spec) if pod.gpus > 0 else None,
        "cpu_request": pod.asked.cpu_request,
        "cpu_limit": pod.asked.cpu_limit,
        "memory_request_gib": None if request is None else request / BYTES_PER_GIB,
        "memory_limit_gib": None if limit is None else limit / BYTES_PER_GIB,
        "created": pod.created,
        "scheduled": pod.scheduled,
        "ready": pod.ready,
        "started": started_at(pod.source),
        "pull_s": pull_s,
        "pulled_gib": pulled_gib,
        "ended": pod.ended,
        "queue": queue_of(pod.source),
        "priority_class": text(spec, "priorityClassName") or None,
        "deadline_s": number(spec, "activeDeadlineSeconds"),
        "node_selector": mapping(spec, "nodeSelector"),
        "tolerations": _tolerations(spec),
        "affinity": ",".join(_affinity_keys(spec)) or None,
        "keeps_apart": ",".join(_apart_keys(spec, mapping(pod.source, "metadata", "labels"))) or None,
        "selector": dict(pod.selector),
        "images": images_of(spec),
        **pod_health(pod.source),
    }


def _tolerations(spec: object) -> dict[str, str]:
    """Return tolerations by key: `value:effect`, with ` for N s` where it ends."""
    found: dict[str, list[str]] = {}
    for toleration in listed(spec, "tolerations"):
        seconds = number(toleration, "tolerationSeconds")
        ends = "" if seconds is None else f" for {seconds:.0f} s"
        found.setdefault(text(toleration, "key") or "*", []).append(
            f"{text(toleration, 'value')}:{text(toleration, 'effect')}{ends}"
        )
    return {key: ", ".join(texts) for key, texts in found.items()}


def _apart_keys(spec: object, labels: Mapping[str, str]) -> list[str]:
    """Return the labels of nodes by which a pod keeps apart from others of its own, by need or by preference, each once."""
    apart = at(spec, "affinity", "podAntiAffinity")
    terms = [
        *listed(apart, "requiredDuringSchedulingIgnoredDuringExecution"),
        *(at(each, "podAffinityTerm") for each in listed(apart, "preferredDuringSchedulingIgnoredDuringExecution")),
        *listed(spec, "topologySpreadConstraints"),
    ]
    keys = [text(term, "topologyKey") for term in terms if selects(at(term, "labelSelector"), labels)]
    return list(dict.fromkeys(key for key in keys if key))


def _affinity_keys(spec: object) -> list[str]:
    """Return the labels of nodes that a pod requires by affinity, each once."""
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = listed(required, "nodeSelectorTerms")
    keys = [
        text(expression, "key")
        for term in terms
        for part in ("matchExpressions", "matchFields")
        for expression in listed(term, part)
    ]
    return list(dict.fromkeys(key for key in keys if key))

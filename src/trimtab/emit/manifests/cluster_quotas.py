"""Quotas of the cluster that would refuse a plan's pods: what has to be raised before an action, in words.

A ResourceQuota refuses pods above it, of each resource by its own name: a MIG slice is another one than a GPU. Kueue keeps runs
waiting above the quota of their ClusterQueue, and for good where that does not cover a resource which they ask for. Neither
forbids a plan, since a person can raise it: the action says by how much.

Sources: kubernetes.io, "Resource Quotas"; kubernetes pkg/quota/v1/evaluator/core/pods.go (scopes); kueue.sigs.k8s.io,
"Cluster Queue" (quotas, borrowing).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.diagnose.cluster_records import number, pairs
from trimtab.emit.manifests.claim_templates import MIG_CLASS
from trimtab.emit.manifests.facts import EmitFacts, namespace_of
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, leaves_no_room
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec
from trimtab.emit.manifests.scope import Scope, actions_in, cluster_of, clusters_of, facts_in, local_name, scope_of
from trimtab.emit.manifests.workload_files import claim_change, gpu_ask
from trimtab.emit.manifests.workload_patch import pool_selector
from trimtab.plan.model import Plan, Precondition
from trimtab.tables.schemas import DEVICES_OF_CLASS, UNKNOWN_SCOPES

Row = Mapping[str, object]
Amounts = Mapping[str, float]
"""What pods ask for together, by the name of the resource without what quotas put before it."""
_SLACK = 1e-6
_DONE = frozenset({"Succeeded", "Failed"})
_ONE_NAME = {"requests.cpu": "cpu", "requests.memory": "memory", "count/pods": "pods"}
_ASKED = {
    "cpu": "cpu_request", "limits.cpu": "cpu_limit", "memory": "memory_request_gib", "limits.memory": "memory_limit_gib",
}  # fmt: skip
"""Resource -> column of `pods`."""
_CLUSTER_QUEUE, _LOCAL_QUEUE = "ClusterQueue", "LocalQueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingQuotas:
    """What a cluster rations, and the pods that stood in it: rows of `resource_quotas`, `queues` and `pods`."""

    quotas: Sequence[Row]
    queues: Sequence[Row]
    pods: Sequence[Row]
    queue_of: Mapping[str, str]
    """Workload -> the queue that its runs name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """What a workload asks for: when the cluster was read, at most in history, and at most under the plan."""

    placed: PlacedWorkload
    pod: Row
    """One of its pods; empty where none was read."""
    now: Amounts
    past: Amounts
    most: Amounts
    surge: Amounts
    """What a rollout asks for beside all that it holds, where it cannot go on without."""

    def grows(self, resource: str) -> bool:
        """Return whether the plan has it ask for more of a resource than it ever did."""
        return self.most.get(resource, 0.0) > self.past.get(resource, 0.0) + _SLACK

    def adds(self, resource: str) -> float:
        """Return by how much more it may ask for than when the cluster was read."""
        return max(self.most.get(resource, 0.0) - self.now.get(resource, 0.0), 0.0)


def with_preconditions(plan: Plan, facts: EmitFacts, standing: StandingQuotas) -> Plan:
    """Return the plan whose actions say which quotas must be raised before them.

    Others are assumed to hold what they held when the cluster was read; what a workload held never counts against itself.
    """
    said: dict[str, list[Precondition]] = defaultdict(list)
    clusters = clusters_of(facts, plan.actions)
    for cluster in clusters:
        alone = clusters == ("",)
        here = facts if alone else facts_in(facts, cluster)
        actions = plan.actions if alone else actions_in(plan.actions, facts, cluster)
        scope = scope_of(actions, here, replace(plan, actions=actions))
        rows = standing if alone else _in_cluster(standing, cluster)
        asking = [_asking(placed, scope, rows.pods) for placed in scope.here.values()]
        told = (*_of_namespaces(asking, rows), *_of_queues(asking, rows), *_of_flavors(asking, rows, scope))
        for words, growing in told:
            for action in dict.fromkeys(action.id for one in growing for action in one.placed.actions):
                said[action].append(Precondition(what=words, cluster=cluster))
    return replace(
        plan, actions=tuple(replace(action, preconditions=tuple(said[action.id])) for action in plan.actions)
    )


def _in_cluster(standing: StandingQuotas, cluster: str) -> StandingQuotas:
    """Return what stands in one cluster, in its own names."""

    def local(rows: Sequence[Row], named_by: str, columns: Sequence[str]) -> list[Row]:
        mine = [row for row in rows if cluster_of(str(row[named_by])) == cluster]
        return [{**row, **{name: local_name(str(row[name])) for name in columns if row[name]}} for row in mine]

    return StandingQuotas(
        quotas=local(standing.quotas, "namespace", ["namespace"]),
        queues=local(standing.queues, "name", ["name", "parent"]),
        pods=local(standing.pods, "workload", ["workload"]),
        queue_of={local_name(name): queue for name, queue in standing.queue_of.items() if cluster_of(name) == cluster},
    )


def _asking(placed: PlacedWorkload, scope: Scope, pods: Sequence[Row]) -> _Asking:
    known = placed.known
    mine = [pod for pod in pods if pod["workload"] == known.name]
    alive = [pod for pod in mine if pod["phase"] not in _DONE]
    newest = max(mine, key=lambda pod: (str(pod["created"]), str(pod["pod"])), default={})
    before = _of_pod(newest) if newest else {"pods": 1.0, GPU_RESOURCE: known.gpus_per_pod}
    after = _after(placed, scope, before, newest)
    most = known.replicas if placed.most_replicas is None else placed.most_replicas
    past = {name: amount * known.replicas for name, amount in before.items()}
    return _Asking(
        placed=placed,
        pod=newest,
        # where no pod was read at all it may be its own pods that use the quota
        now=_sum(_of_pod(pod) for pod in alive) if pods else past,
        past=past,
        most={name: amount * most for name, amount in after.items()},
        surge={name: amount * _surge_pods(placed, scope) for name, amount in after.items()},
    )


_SURGE_FRAC = 0.25
"""Usual `maxSurge`, rounded up, and `maxUnavailable`, rounded down (kubernetes.io, Deployment, "Rolling Update")."""


def _surge_pods(placed: PlacedWorkload, scope: Scope) -> int:
    """Return how many new pods a rollout makes before the first old one goes; 0 where it takes old ones away as well."""
    spec, replicas = scope.spec(placed.name), placed.known.replicas
    waits = placed.known.owner_kind == "Deployment" and math.floor(_SURGE_FRAC * replicas) == 0
    if spec is None or not waits or leaves_no_room(spec, scope.facts):
        return 0
    return math.ceil(_SURGE_FRAC * replicas)


def _of_pod(pod: Row) -> dict[str, float]:
    """Return what a pod asks for, as quotas count it."""
    asked = {name: number(pod[column]) for name, column in _ASKED.items() if pod[column] is not None} | {"pods": 1.0}
    resource, pieces = str(pod["gpu_resource"] or ""), pod["gpu_pieces"]
    if resource and pod["gpu_claims"]:
        asked[f"{resource}{DEVICES_OF_CLASS}"] = number(pod["gpus"])
    elif resource:
        asked[resource] = number(pod["gpus"] if pieces is None else pieces)
    return asked


def _after(placed: PlacedWorkload, scope: Scope, before: Amounts, pod: Row) -> Amounts:
    """Return what one of its pods asks for under the plan."""
    others = {name: amount for name, amount in before.items() if "/" not in name}
    if placed.known.gpu_claims:
        change = claim_change(placed, scope)
        if change is None:
            return before
        device_class = MIG_CLASS if change.profile else str(pod.get("gpu_resource") or "")
        held = sum(amount for name, amount in before.items() if name.endswith(DEVICES_OF_CLASS))
        return others | {f"{device_class}{DEVICES_OF_CLASS}": held if change.count is None else float(change.count)}
    ask = gpu_ask(placed, scope.spec(placed.name))
    return before if ask is None else others | {ask.resource: float(ask.count)}


def _sum(amounts: Iterable[Amounts]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for each in amounts:
        for name, amount in each.items():
            total[name] += amount
    return dict(total)


# Quotas of namespaces


def _of_namespaces(asking: Sequence[_Asking], standing: StandingQuotas) -> Iterator[tuple[str, list[_Asking]]]:
    """Yield each quota of a namespace that the plan would exceed, in words, with those that ask for more."""
    for quota in standing.quotas:
        said, scopes, namespace = str(quota["resource"]), str(quota["scopes"] or ""), str(quota["namespace"])
        resource, hard = _resource(said), number(quota["hard"])
        counted = [one for one in asking if namespace_of(one.placed.name) == namespace and counts(scopes, one.pod)]
        growing = [one for one in counted if one.grows(resource)]
        rolling = [one for one in counted if one.surge.get(resource, 0.0) > _SLACK and not one.grows(resource)]
        if not growing and not rolling:
            continue
        used = _used(quota, resource, standing)
        doubt = ", if it counts these pods (kube-state-metrics does not say which)" if scopes == UNKNOWN_SCOPES else ""
        head = f"raise {said} of ResourceQuota {quota['name']} in namespace {namespace} from {_amount(said, hard)} to"
        need = _need(used, growing, resource)
        if growing and need > hard + _SLACK:
            who = _askers(growing, resource, used, said)
            yield f"{head} {_amount(said, need)}{doubt}: {who}, and pods above the quota are refused", growing
            continue
        held = need if growing else used
        for one in rolling:
            wanted = held + one.surge[resource]
            if wanted > hard + _SLACK:
                why = "its first new pod comes before an old one goes (unless its strategy has maxUnavailable: 1)"
                told = f"{head} {_amount(said, wanted)} while {one.placed.name} is rolled out{doubt}: {why}"
                yield f"{told}, and the quota refuses it", [one]


def _used(quota: Row, resource: str, standing: StandingQuotas) -> float:
    """Return what a quota is used by: as its status says, else by the pods that it counts."""
    if quota["used"] is not None:
        return number(quota["used"])
    namespace, scopes = str(quota["namespace"]), str(quota["scopes"] or "")
    held = (_of_pod(pod) for pod in standing.pods if _is_counted(pod, namespace) and counts(scopes, pod))
    return _sum(held).get(resource, 0.0)


def _is_counted(pod: Row, namespace: str) -> bool:
    return pod["namespace"] == namespace and pod["phase"] not in _DONE


def _resource(said: str) -> str:
    """Return the name of a resource by which pods ask for what a quota limits."""
    if "/" in said and not said.endswith(DEVICES_OF_CLASS):
        said = said.removeprefix("requests.")
    return _ONE_NAME.get(said, said)


def counts(scopes: str, pod: Row) -> bool:
    """Return whether a quota of such scopes (a cell of `resource_quotas`) counts a pod; where they are unknown it may.

    Whether pods end by a deadline (`Terminating`) is not known: they are taken not to.
    """
    return all(_is_in(scope, pod) for scope in scopes.split("; ") if scope not in ("", UNKNOWN_SCOPES))


def _is_in(scope: str, pod: Row) -> bool:
    name, _, rest = scope.partition(" ")
    operator, _, values = rest.partition(" ")
    match name:
        case "PriorityClass":
            priority = str(pod.get("priority_class") or "")
            match operator:
                case "In":
                    return priority in values.split(",") and priority != ""
                case "NotIn":  # a pod without a class is in none of them
                    return priority not in values.split(",") or priority == ""
                case "DoesNotExist":
                    return priority == ""
                case _:
                    return priority != ""
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case _:
            return name == "NotTerminating"


def _is_best_effort(pod: Row) -> bool:
    """Return whether a pod asks for no CPU and no memory: GPUs do not count there (kubernetes.io, "Pod QoS classes")."""
    return all(pod.get(column) is None for column in _ASKED.values())


def _need(used: float, growing: Sequence[_Asking], resource: str) -> float:
    """Return what a quota has to be: for what is used and added, and no less than what those that ask for more may ask for."""
    most = sum(one.most.get(resource, 0.0) for one in growing)
    return max(used + sum(one.adds(resource) for one in growing), most)


def _askers(growing: Sequence[_Asking], resource: str, used: float, said: str) -> str:
    asked = ", ".join(
        f"{one.placed.name} may ask for {_amount(said, one.most.get(resource, 0.0))} at once" for one in growing
    )
    others = max(used - sum(one.now.get(resource, 0.0) for one in growing), 0.0)
    return f"{asked}, beside {_amount(said, others)} of other pods" if others > _SLACK else asked


def _amount(said: str, amount: float) -> str:
    """Return an amount in words; in whole pieces, by which quotas are raised."""
    if said.endswith("memory"):
        return f"{math.ceil(amount - _SLACK):,} GiB"
    return f"{math.ceil(amount - _SLACK):,}"


# Quotas of Kueue


def _of_queues(asking: Sequence[_Asking], standing: StandingQuotas) -> Iterator[tuple[str, list[_Asking]]]:
    """Yield each quota of a ClusterQueue that the plan would exceed, in words, with those that ask for more."""
    behind = _cluster_queues(asking, standing)
    waiting: dict[tuple[str, str], list[_Asking]] = defaultdict(list)
    for one in asking:
        queue = behind.get(one.placed.name, "")
        for resource in one.most if queue else ():
            if _is_extended(resource) and one.grows(resource):
                waiting[queue, resource].append(one)
    rows = [row for row in standing.queues if row["kind"] == _CLUSTER_QUEUE]
    for (queue, resource), growing in sorted(waiting.items(), key=lambda item: item[0]):
        mine = [row for row in rows if row["name"] == queue]
        covered = [row for row in mine if row["resource"] == resource]
        if any(row["quota_gpus"] is None for row in covered):
            continue
        asked = math.ceil(sum(one.most.get(resource, 0.0) for one in growing) - _SLACK)
        if mine and not covered:
            who = _askers(growing, resource, 0.0, resource)
            why = "Kueue never lets in what asks for a resource that its queue does not cover"
            yield f"let ClusterQueue {queue} cover {resource} with a quota of {asked}: {who}, and {why}", growing
            continue
        quota = sum(number(row["quota_gpus"]) for row in covered)
        told = [row["used_gpus"] for row in covered]
        # where nothing tells what is used, what asks for more uses at least what it holds
        own = sum(one.now.get(resource, 0.0) for one in growing)
        used = own if None in told else sum(map(number, told))
        need, room = _need(used, growing, resource), quota + sum(_borrowable(row, rows) for row in covered)
        if covered and need > room + _SLACK:
            head = f"raise {resource} of ClusterQueue {queue} from {_amount(resource, quota)} to"
            who = _askers(growing, resource, used, resource)
            yield f"{head} {_amount(resource, quota + need - room)}: {who}, and Kueue keeps the rest waiting", growing


def _borrowable(row: Row, rows: Sequence[Row]) -> float:
    """Return what a ClusterQueue can borrow of one flavor: what the others of its cohort leave, up to its own limit."""
    if not row["parent"]:
        return 0.0
    unused = sum(
        max(number(other["quota_gpus"]) - number(other["used_gpus"]), 0.0)
        for other in rows
        # a queue whose use is unknown may use all of it
        if other["used_gpus"] is not None
        and other["parent"] == row["parent"]
        and other["name"] != row["name"]
        and (other["resource"], other["flavor"]) == (row["resource"], row["flavor"])
    )
    limit = row["borrowing_gpus"]
    return unused if limit is None else min(unused, number(limit))


def _is_extended(resource: str) -> bool:
    """Return whether Kueue counts a resource by this name: what claims ask for it names by its own configuration."""
    return "/" in resource and not resource.endswith(DEVICES_OF_CLASS)


def _cluster_queues(asking: Sequence[_Asking], standing: StandingQuotas) -> dict[str, str]:
    """Return the ClusterQueue of each workload whose pods or runs name a LocalQueue."""
    behind = {
        (row["namespace"], row["name"]): str(row["parent"]) for row in standing.queues if row["kind"] == _LOCAL_QUEUE
    }
    named = {one.placed.name: one.pod.get("queue") or standing.queue_of.get(one.placed.name) for one in asking}
    found = {name: behind.get((namespace_of(name), queue), "") for name, queue in named.items()}
    return {name: queue for name, queue in found.items() if queue}


def _of_flavors(
    asking: Sequence[_Asking], standing: StandingQuotas, scope: Scope
) -> Iterator[tuple[str, list[_Asking]]]:
    """Yield each ClusterQueue none of whose flavors lets its pods go to the plan's nodes, in words.

    Kueue has pods select nodes by the labels of their flavor as well: on nodes without them they never start.
    """
    behind = _cluster_queues(asking, standing)
    for one in asking:
        spec, queue = scope.spec(one.placed.name), behind.get(one.placed.name, "")
        if spec is None or not queue:
            continue
        flavors = [
            pairs(row["flavor_labels"])
            for row in standing.queues
            if row["kind"] == _CLUSTER_QUEUE and row["name"] == queue and row["resource"] in one.most
        ]
        if flavors and not any(_fits(labels, one.placed, spec) for labels in flavors):
            words = ", ".join(f"{key}: {value}" for key, value in pool_selector(spec).items())
            yield (
                (
                    f"give ClusterQueue {queue} a ResourceFlavor for the nodes with {words}: Kueue has the pods of "
                    f"{one.placed.name} select nodes by the labels of their flavor too, and these nodes have those of none"
                ),
                [one],
            )


_OF_THE_GPU = ("nvidia.com/gpu.", "cloud.google.com/gke-accelerator")
"""How labels begin that feature discovery and GKE give nodes by their GPU."""


def _fits(labels: Mapping[str, str], placed: PlacedWorkload, spec: PoolSpec) -> bool:
    """Return whether the nodes of a pool will have the labels of a flavor, as far as the plan says what they have."""
    there = {key: {str(value)} for key, value in pool_selector(spec).items()} | {
        "node.kubernetes.io/instance-type": set(spec.instance_types),
        "topology.kubernetes.io/region": {spec.pool.region},
        "karpenter.sh/capacity-type": {"on-demand", *(["spot"] if spec.spot else [])},
    }
    same_gpu = placed.place.gpu == placed.known.gpu
    return all(
        same_gpu if key.startswith(_OF_THE_GPU) else value in there.get(key, ()) for key, value in labels.items()
    )

"""What workloads ask a cluster for: when it was read, at most in its history, and at most under a plan, by resource."""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.diagnose.cluster_records import number
from trimtab.emit.manifests.claim_templates import MIG_CLASS
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, leaves_no_room
from trimtab.emit.manifests.pool_specs import PlacedWorkload
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_files import claim_change, gpu_ask
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.schemas import DEVICES_OF_CLASS
from trimtab.units import BYTES_PER_GIB, BYTES_PER_MIB

Amounts = Mapping[str, float]
"""What pods ask for together, by the name of the resource without what quotas put before it."""
SLACK = 1e-6
DONE = frozenset({"Succeeded", "Failed"})
ASKED = {
    "cpu": "cpu_request", "limits.cpu": "cpu_limit", "memory": "memory_request_gib", "limits.memory": "memory_limit_gib",
}  # fmt: skip
"""Resource -> column of `pods`: what makes its quality of service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingQuotas:
    """What a cluster rations, and the pods that stood in it: rows of the tables of these names (`resource_quotas`)."""

    quotas: Sequence[RecordedRow]
    limit_ranges: Sequence[RecordedRow]
    queues: Sequence[RecordedRow]
    pods: Sequence[RecordedRow]
    queue_of: Mapping[str, str]
    """Workload -> the queue that its runs name."""
    whole_boards: Mapping[str, float]
    """Cluster -> the `nvidia.com/gpu` that its nodes advertise; without clusters of which that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedResources:
    """What a workload asks for: when the cluster was read, at most in history, and at most under the plan."""

    placed: PlacedWorkload
    pod: RecordedRow
    """One of its pods; empty where none was read."""
    now: Amounts
    past: Amounts
    most: Amounts
    surge: Amounts
    """What a rollout asks for beside all that it holds, where it cannot go on without."""

    def grows(self, resource: str) -> bool:
        """Return whether the plan has it ask for more of a resource than it ever did."""
        return self.most.get(resource, 0.0) > self.past.get(resource, 0.0) + SLACK

    def adds(self, resource: str) -> float:
        """Return by how much more it may ask for than when the cluster was read."""
        return max(self.most.get(resource, 0.0) - self.now.get(resource, 0.0), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Something that a person must change in a cluster, in words, and the workloads that need it.

    `command` changes it; empty where no single command does.
    """

    what: str
    askers: tuple[AskedResources, ...]
    command: str = ""


def queue_of(asking: AskedResources, standing: StandingQuotas) -> str:
    """Return the queue that a workload's pods or runs name; empty for none."""
    return str(asking.pod.get("queue") or standing.queue_of.get(asking.placed.name) or "")


def asking_of(placed: PlacedWorkload, scope: Scope, pods: Sequence[RecordedRow]) -> AskedResources:
    """Return what a workload asks for, given the rows of `pods`."""
    known = placed.known
    mine = [pod for pod in pods if pod["workload"] == known.name]
    alive = [pod for pod in mine if pod["phase"] not in DONE]
    newest = max(mine, key=lambda pod: (str(pod["created"]), str(pod["pod"])), default={})
    before = of_pod(newest) if newest else {"pods": 1.0, GPU_RESOURCE: known.gpus_per_pod}
    after = _after(placed, scope, before, newest)
    most = known.replicas if placed.most_replicas is None else placed.most_replicas
    past = {name: amount * known.replicas for name, amount in before.items()}
    return AskedResources(
        placed=placed,
        pod=newest,
        # where no pod was read at all it may be its own pods that use the quota
        now=summed(of_pod(pod) for pod in alive) if pods else past,
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


def of_pod(pod: RecordedRow) -> dict[str, float]:
    """Return what a pod asks for, as quotas count it."""
    asked = {name: number(pod[column]) for name, column in ASKED.items() if pod[column] is not None} | {"pods": 1.0}
    resource, pieces = str(pod["gpu_resource"] or ""), pod["gpu_pieces"]
    if resource and pod["gpu_claims"]:
        asked[f"{resource}{DEVICES_OF_CLASS}"] = number(pod["gpus"])
    elif resource:
        asked[resource] = number(pod["gpus"] if pieces is None else pieces)
    return asked


def _after(placed: PlacedWorkload, scope: Scope, before: Amounts, pod: RecordedRow) -> Amounts:
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


def summed(amounts: Iterable[Amounts]) -> dict[str, float]:
    """Return what several ask for together."""
    total: dict[str, float] = defaultdict(float)
    for each in amounts:
        for name, amount in each.items():
            total[name] += amount
    return dict(total)


def need(used: float, growing: Sequence[AskedResources], resource: str) -> float:
    """Return what a quota has to be: for what is used and added, and no less than what those that ask for more may ask for."""
    most = sum(asker.most.get(resource, 0.0) for asker in growing)
    return max(used + sum(asker.adds(resource) for asker in growing), most)


def askers(growing: Sequence[AskedResources], resource: str, used: float, said: str) -> str:
    """Say who asks for how much of a resource that a quota calls `said`, and what others use of it."""
    asked = ", ".join(
        f"{asker.placed.name} may ask for {amount_words(said, asker.most.get(resource, 0.0))} at once"
        for asker in growing
    )
    others = max(used - sum(asker.now.get(resource, 0.0) for asker in growing), 0.0)
    return f"{asked}, beside {amount_words(said, others)} of other pods" if others > SLACK else asked


def amount_words(said: str, amount: float) -> str:
    """Return an amount in words; in whole pieces, by which quotas are raised."""
    if said.endswith("memory"):
        return f"{math.ceil(amount - SLACK):,} GiB"
    return f"{math.ceil(amount - SLACK):,}"


def quantity_words(resource: str, amount: float) -> str:
    """Return an amount (cores, GiB, pieces) exactly, as Kubernetes spells it."""
    if not resource.endswith("memory"):
        return f"{amount:.3f}".rstrip("0").rstrip(".")
    size_bytes = round(amount * BYTES_PER_GIB)
    units = (("Gi", BYTES_PER_GIB), ("Mi", BYTES_PER_MIB), ("", 1))
    return next(f"{size_bytes // unit}{suffix}" for suffix, unit in units if size_bytes % unit == 0)


def kubectl_patch(kind: str, name: str, namespace: str, patch: object) -> str:
    """Return the command that patches an object: a list of JSON patch operations, or a part that is merged into it."""
    how = "json" if isinstance(patch, list) else "merge"
    where = f" -n {shlex.quote(namespace)}" if namespace else ""
    return f"kubectl patch {kind} {shlex.quote(name)}{where} --type={how} -p {shlex.quote(json.dumps(patch))}"

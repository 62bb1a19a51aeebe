"""The orders that give back the nodes which workloads leave: one for each node group, with its nodes by name.

A plan's saving counts the present nodes as gone. Workloads that are pointed at another pool leave them idle, and an idle node
is billed like a busy one: a group of a fixed size, or a pool that keeps its minimum, gives nothing back by itself.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import ReleaseNodes
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, Withheld, node_name
from trimtab.emit.manifests.facts import NodeFacts
from trimtab.emit.manifests.scope import Scope

KARPENTER = "karpenter.sh/nodepool"
_EKS = "eks.amazonaws.com/nodegroup"
_GKE = "cloud.google.com/gke-nodepool"
_AKS = frozenset({"kubernetes.azure.com/agentpool", "agentpool"})
GROUP_LABELS = (
    KARPENTER,
    _EKS,
    "alpha.eksctl.io/nodegroup-name",
    _GKE,
    *sorted(_AKS),
    "node.kubernetes.io/instancegroup",
)
"""Labels that name a node's group, the surest first."""
_BOUND = frozenset({CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.OWNED})


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptiedGroup:
    """A node group and which of its nodes no workload holds once the workloads have moved."""

    pool: Pool
    group: tuple[str, str] | None
    goes: tuple[NodeFacts, ...]
    """In the order in which to drain them: the fewest holders first."""
    stays: tuple[NodeFacts, ...]
    actions: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return what people call the group."""
        return self.group[1] if self.group else f"{self.pool.instance_type} in {self.pool.region}"


def give_back_files(scope: Scope) -> Iterator[Piece]:
    """Yield an order for each group that is emptied, and the workloads whose nodes are not known."""
    leaving = _leaving(scope)
    for group in emptied_groups(scope, leaving):
        yield ManifestFile(
            path=f"orders/{node_name('give-back', group.title)}.md",
            text=give_back_order(group),
            kind="steps for a person",
            actions=group.actions,
            stage=ApplyStage.RELEASE,
        )
    seen = {workload for node in scope.facts.nodes for workload in node.goes_with}
    for workload, actions in sorted(leaving.items()):
        if workload not in seen:
            reason = "the nodes that it leaves are not known by name: give them back once nothing runs there"
            yield from (Withheld(action=action, subject=workload, reason=reason) for action in actions)


def _leaving(scope: Scope) -> dict[str, tuple[str, ...]]:
    """Return the workloads that go to other nodes, with the actions that send them there."""
    found = {
        workload: tuple(action.id for action in scope.here[workload].actions)
        for spec in scope.specs
        for workload in spec.workloads
        if workload in scope.here
    }
    moved = {name: (action.id,) for name, (action, _) in scope.away.items() if action in scope.actions}
    return found | moved


def emptied_groups(scope: Scope, leaving: Mapping[str, Sequence[str]]) -> list[EmptiedGroup]:
    """Return the groups that lose nodes when these workloads have left theirs."""
    own = {name for spec in scope.specs for name in (spec.name, spec.floor_name, spec.behind_name)}
    released = {
        node
        for action in scope.actions
        for change in action.changes
        if isinstance(change.effect, ReleaseNodes)
        for node in change.effect.nodes
    }
    groups: dict[tuple[Pool, tuple[str, str] | None], list[NodeFacts]] = defaultdict(list)
    for node in scope.facts.nodes:
        if node.group is None or node.group[1] not in own:
            groups[node.pool, node.group].append(node)
    return [
        group
        for (pool, label), nodes in sorted(groups.items(), key=lambda item: str(item[0]))
        if (group := _emptied(pool, label, [node for node in nodes if node.name not in released], leaving)).goes
    ]


def _emptied(
    pool: Pool, label: tuple[str, str] | None, nodes: Sequence[NodeFacts], leaving: Mapping[str, Sequence[str]]
) -> EmptiedGroup:
    goes = [node for node in nodes if node.goes_with and all(workload in leaving for workload in node.goes_with)]
    return EmptiedGroup(
        pool=pool,
        group=label,
        goes=tuple(sorted(goes, key=lambda node: (len(node.held_by), node.name))),
        stays=tuple(sorted((node for node in nodes if node not in goes), key=lambda node: node.name)),
        actions=tuple(
            dict.fromkeys(name for node in goes for workload in node.goes_with for name in leaving[workload])
        ),
    )


def give_back_order(group: EmptiedGroup) -> str:
    """Return the order as Markdown: what must be empty, in which order to drain, how the group shrinks, the way back."""
    before, after = len(group.goes) + len(group.stays), len(group.stays)
    rows = "\n".join(f"| {number} | `{node.name}` | {_held_today(node)} |" for number, node in enumerate(group.goes, 1))
    kept = "\n".join(f"| `{node.name}` | {_held_today(node)} |" for node in group.stays)
    stays = f"\n## What stays\n\n| node | held by |\n|---|---|\n{kept}\n" if group.stays else ""
    names = " ".join(shlex.quote(node.name) for node in group.goes)
    return f"""# Give back {_nodes(len(group.goes))} of {group.title}

Their workloads move to other nodes ({", ".join(group.actions)}). Until these are gone the bill holds both, and the saving is \
not there.{_bound(group.pool)}

Only when the workloads have run on their new nodes for as long as the canary of each decision record asks.

| order | node | held today by |
|---|---|---|
{rows}
{stays}
## 1. Nothing may come back

```sh
kubectl cordon {names}
```

## 2. See that no GPU is held there

The list must be empty; runs under way end by themselves (a run is not drained).

```sh
for node in {names}; do
  kubectl get pods -A --field-selector "spec.nodeName=$node" -o json |
    jq -r '.items[] | select(.status.phase == "Running" or .status.phase == "Pending")
      | select([.spec.containers[].resources.limits // {{}} | keys[] | select(startswith("nvidia.com/"))] != [])
      | "\\(.metadata.namespace)/\\(.metadata.name)"'
done
```

## 3. Make the group smaller, then drain, one node at a time

{_smaller(group, before, after)}

## 4. See that they are gone

`kubectl get nodes {names}` finds none of them, and tomorrow's bill has {after} node{"" if after == 1 else "s"} of this group.

## The way back

{_way_back(group, before)}
"""


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _held_today(node: NodeFacts) -> str:
    if node.held_by or not node.held_before:
        return _names(node.held_by) or "none on record; see the plan"
    return f"none; before by {_names(node.held_before)}"


def _names(workloads: Sequence[str]) -> str:
    return ", ".join(f"`{workload}`" for workload in workloads)


def _bound(pool: Pool) -> str:
    if pool.capacity_type in _BOUND:
        return (
            f" These nodes are {pool.capacity_type.value}: they are paid for until their term ends, whether they run or not; "
            "give them to work that is paid on demand today before you shut them down."
        )
    return ""


def _ended(nodes: Sequence[str], *ends: str) -> list[str]:
    """Return shell lines that drain nodes one by one and then end each; they stop at one that cannot be drained."""
    return [
        f"for node in {' '.join(map(shlex.quote, nodes))}; do",
        '  kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data || break',
        *(f"  {line}" for line in ends),
        "done",
    ]


_ENDS: Mapping[str, tuple[str, ...]] = {
    "aws": (
        "id=\"$(kubectl get node \"$node\" -o jsonpath='{.spec.providerID}' | sed 's|.*/||')\"",
        "aws autoscaling terminate-instance-in-auto-scaling-group --region REGION --should-decrement-desired-capacity "
        '--instance-id "$id"',
    ),
    "gcp": (
        'zone="$(kubectl get node "$node" -o jsonpath=' r"'{.metadata.labels.topology\.kubernetes\.io/zone}'" ')"',
        'made_by="$(gcloud compute instances describe "$node" --zone "$zone" --format='
        "'value[](metadata.items.created-by)'"
        ')"',
        'gcloud compute instance-groups managed delete-instances "${made_by##*/}" --instances "$node" --zone "$zone"',
    ),
}
"""What ends a node by its name, with its place in the group: `--should-decrement-desired-capacity` of EC2 Auto Scaling, and
`instanceGroupManagers.deleteInstances` of Compute Engine, which reduces the target size by the instances deleted. A group that
is only made smaller chooses itself: "resize will pick instances to remove at random" (cloud.google.com/sdk/gcloud/reference/
container/clusters/resize)."""


_AKS_POOL = "az aks nodepool {} --resource-group GROUP --cluster-name CLUSTER --name {}"


def _smaller(group: EmptiedGroup, before: int, after: int) -> str:
    """Return how the group is made smaller, by who made it."""
    key, name = group.group or ("", "")
    said, region = shlex.quote(name), shlex.quote(group.pool.region)
    nodes = [node.name for node in group.goes]
    ends = [line.replace("REGION", region) for line in _ENDS.get(group.pool.provider, ())]
    if key == KARPENTER:
        lines = [
            f"# no new node, so that nothing moves back: it holds {_nodes(before)} today",
            f"kubectl get nodepool {said} -o jsonpath='{{.spec.limits}}'   # note it down for the way back",
            f'kubectl patch nodepool {said} --type merge -p \'{{"spec":{{"limits":{{"nodes":"{after}"}}}}}}\'',
            *_ended(nodes, 'kubectl delete node "$node"   # ends its NodeClaim'),
        ]
    elif key == _EKS:
        lines = [*_eks_minimum(said, region, after), *_ended(nodes, *ends)]
    elif key == _GKE:
        lines = [*_gke_minimum(said, region, after), *_ended(nodes, *ends)]
    elif key in _AKS:
        delete = f'{_AKS_POOL.format("delete-machines", said)} --machine-names "$node"'
        lines = [*_aks_minimum(said, after), *_ended(nodes, delete)]
    else:
        lines = _ended(nodes, *ends)
    return _by_hand(group, before, after) + "```sh\n" + "\n".join(lines) + "\n```"


def _eks_minimum(name: str, region: str, after: int) -> Iterator[str]:
    """Yield shell lines that lower the minimum of a node group of EKS where it is above `after`; its other sizes stay."""
    group = f"--region {region} --cluster-name CLUSTER --nodegroup-name {name}"
    yield f"# where the group keeps more than {_nodes(after)}"
    yield f'least="$(aws eks describe-nodegroup {group} --query nodegroup.scalingConfig.minSize --output text)"'
    yield f'if [ "$least" -gt {after} ]; then'
    yield f"  aws eks update-nodegroup-config {group} --scaling-config minSize={after}"
    yield "fi"


def _gke_minimum(name: str, region: str, after: int) -> Iterator[str]:
    """Yield shell lines that lower the minimum of a pool of GKE where it is above `after`; its maximum stays.

    A minimum of 0 is left out of what the API answers. Limits are totals or by zone, never both
    (cloud.google.com/sdk/gcloud/reference/container/node-pools/update); those by zone want its zones: a person sets them.
    """
    pool = f"{name} --cluster CLUSTER --location {region}"
    yield f"# where the pool scales by itself and keeps more than {_nodes(after)} in all; lower --min-nodes by hand"
    yield f"least=\"$(gcloud container node-pools describe {pool} --format='value(autoscaling.totalMinNodeCount)')\""
    yield f'if [ "${{least:-0}}" -gt {after} ]; then'
    yield f"  most=\"$(gcloud container node-pools describe {pool} --format='value(autoscaling.totalMaxNodeCount)')\""
    yield (
        f'  gcloud container node-pools update {pool} --enable-autoscaling --total-min-nodes {after} --total-max-nodes "$most"'
    )
    yield "fi"


def _aks_minimum(name: str, after: int) -> Iterator[str]:
    """Yield shell lines that lower the minimum of a pool of AKS where it scales by itself and its minimum is above `after`.

    `--update-cluster-autoscaler` wants both counts, and a pool without an autoscaler has neither (Azure/azure-cli 022126c,
    `acs/agentpool_decorator.py`, `__validate_counts_in_autoscaler` and `update_auto_scaler_properties`).
    """
    yield f"# where the pool scales by itself and keeps more than {_nodes(after)}; its maximum stays"
    kept = f"[@][?minCount > `{after}`].maxCount | [0]"
    yield f'most="$({_AKS_POOL.format("show", name)} --query {shlex.quote(kept)} --output tsv)"'
    yield 'if [ -n "$most" ]; then'
    yield f'  {_AKS_POOL.format("update", name)} --update-cluster-autoscaler --min-count {after} --max-count "$most"'
    yield "fi"


def _by_hand(group: EmptiedGroup, before: int, after: int) -> str:
    """Return what a person must do to the group where no command here does it; empty where one does."""
    key, name = group.group or ("", "")
    if key in {KARPENTER, _EKS, _GKE, *_AKS}:
        return ""
    count = len(group.goes)
    minimum = (
        f"Lower the minimum of `{name}` from {before} to {after} first"
        if name
        else "It is not known which group these nodes belong to (their labels were not collected): lower its minimum by "
        f"{count} first, from {before} to {after} of what was seen"
    )
    if group.pool.provider in _ENDS:
        return f"{minimum}: below it no node can be ended.\n\n"
    chosen = f" A group whose size is only lowered chooses itself which of its {before} nodes go." if after else ""
    return (
        f"{minimum}. A drained node is still billed: once it is drained, have its provider delete it by name and lower the "
        f"group's size with it.{chosen}\n\n"
    )


def _way_back(group: EmptiedGroup, before: int) -> str:
    if group.group is not None and group.group[0] == KARPENTER:
        return f"Give the NodePool `{group.group[1]}` the limits that it had; it makes nodes as pods ask for them."
    return f"Set the minimum and the size of {group.title} back to {before}, then take the Components out again (`rollback/`)."

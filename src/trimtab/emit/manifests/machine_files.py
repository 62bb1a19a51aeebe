"""What enacts a plan on machines that no Kubernetes runs: Slurm's nodes, Terraform variables, scripts for cut GPUs, orders.

The variables say types, sizes and how instance groups are held. Which resources a site's own modules make of them is theirs;
the comments name the arguments of the providers' resources (hashicorp/aws aws_autoscaling_group, hashicorp/google
google_compute_autoscaler, hashicorp/azurerm azurerm_linux_virtual_machine_scale_set).
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece
from trimtab.emit.manifests.facts import SLURM, EmitFacts, NodeFacts
from trimtab.emit.manifests.host_scripts import host_files
from trimtab.emit.manifests.karpenter import node_limit
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.pool_specs import PoolSpec, pool_specs
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.slurm_files import CLOUDS, slurm_files


def machine_files(scope: Scope) -> Iterator[Piece]:
    """Yield the files of the workloads that run outside Kubernetes; nothing where there is none."""
    on_slurm = [workload for workload in scope.off.values() if workload.known.owner_kind == SLURM]
    elsewhere = [workload for workload in scope.off.values() if workload.known.owner_kind != SLURM]
    slurm_specs, other_specs = pool_specs(on_slurm), pool_specs(elsewhere)
    # clouds give Slurm new nodes by name; owned nodes, and machines of a group, are those that are there
    stay = _staying(scope, [spec for spec in slurm_specs if spec.pool.provider not in CLOUDS])
    yield from slurm_files(slurm_specs, on_slurm, scope.facts, stay)
    yield from terraform_files(other_specs, elsewhere, scope.facts)
    yield from host_files((*slurm_specs, *other_specs))
    yield from _given_back(scope, slurm_specs, stay, slurm=True)
    yield from _given_back(scope, other_specs, _staying(scope, other_specs), slurm=False)


def _left_by(scope: Scope, specs: Sequence[PoolSpec]) -> list[NodeFacts]:
    """Return the machines that only the workloads of some needs hold, in the order in which to empty them."""
    leaving = {name for spec in specs for name in spec.workloads}
    found = [node for node in scope.facts.nodes if node.goes_with and leaving.issuperset(node.goes_with)]
    return sorted(found, key=lambda node: (len(node.held_by), node.name))


def _staying(scope: Scope, specs: Sequence[PoolSpec]) -> dict[str, tuple[str, ...]]:
    """Return the present machines that a need goes on with, by its name: as many as it asks for, of its own kind."""
    return {
        spec.name: tuple(
            [node.name for node in reversed(_left_by(scope, [spec])) if node.pool.nodes == spec.pool.nodes][
                : spec.nodes
            ]
        )
        for spec in specs
        if not spec.spot
    }


def _given_back(
    scope: Scope, specs: Sequence[PoolSpec], stay: Mapping[str, Sequence[str]], *, slurm: bool
) -> Iterator[ManifestFile]:
    """Yield an order for each kind of machine that only those who leave hold."""
    kept = {name for names in stay.values() for name in names}
    groups: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in _left_by(scope, specs):
        if node.name not in kept:
            groups[node.pool.instance_type].append(node)
    for instance_type, nodes in sorted(groups.items()):
        held_by = sorted({workload for node in nodes for workload in node.goes_with})
        actions = dict.fromkeys(action.id for name in held_by for action in scope.off[name].actions)
        yield ManifestFile(
            path=f"orders/{node_name('give-back', 'slurm' if slurm else 'machines', instance_type)}.md",
            text=_page(instance_type, nodes, held_by, slurm=slurm),
            kind="steps for a person",
            actions=tuple(actions),
            stage=ApplyStage.RELEASE,
        )


def _page(instance_type: str, nodes: Sequence[NodeFacts], held_by: Sequence[str], *, slurm: bool) -> str:
    names = [node.name for node in nodes]
    commas = shlex.quote(",".join(names))
    steps = (
        f"""```sh
scontrol update NodeName={commas} State=DRAIN Reason="given back: their jobs run elsewhere"
squeue --nodelist={commas}      # empty: runs under way end by themselves
```

Then take the nodes out of their `NodeName` and `PartitionName` lines, restart slurmctld, and end the machines (owned ones: \
switch them off, or give them to other work)."""
        if slurm
        else """Take them from their load balancer or queue, see with `nvidia-smi` that nothing holds a GPU, lower the group's \
size (`min_size` and `max_size` in Terraform), and end these machines and no others (scale-in protection on those that stay)."""
    )
    listed = "\n".join(f"{number}. `{name}`" for number, name in enumerate(names, 1))
    return f"""# Give back {len(names)} machine{"" if len(names) == 1 else "s"} of {instance_type}

Only {", ".join(f"`{name}`" for name in held_by)} held them. Until they are gone the bill holds both.

{listed}

{steps}

The way back: the same machines and lines again; nothing else changes for their jobs than the partition or group that they name.
"""


_ARGUMENTS: Mapping[str, str] = {
    "aws": "aws_autoscaling_group: min_size, max_size; instance_type and spot in its launch template or mixed_instances_policy",
    "gcp": "google_compute_autoscaler: autoscaling_policy.min_replicas, max_replicas; machine_type and "
    "scheduling.provisioning_model in google_compute_instance_template",
    "azure": "azurerm_linux_virtual_machine_scale_set: sku, priority; azurerm_monitor_autoscale_setting: capacity",
}


def terraform_files(
    specs: Sequence[PoolSpec], placed: Sequence[PlacedWorkload], facts: EmitFacts
) -> Iterator[ManifestFile]:
    """Yield the variables of all groups, and how many machines each may have; nothing where there is no group."""
    if specs:
        yield ManifestFile(
            path="terraform/trimtab-instance-groups.tf",
            text=terraform_text(specs, placed, facts),
            kind="Terraform variables",
            actions=tuple(dict.fromkeys(action.id for spec in specs for action in spec.actions)),
            stage=ApplyStage.NODES,
        )


def terraform_text(specs: Sequence[PoolSpec], placed: Sequence[PlacedWorkload], facts: EmitFacts) -> str:
    """Return one variable whose default is the plan: a site's module reads it with `for_each`."""
    providers = sorted({spec.pool.provider for spec in specs})
    where = "".join(f"# {name}: {_ARGUMENTS[name]}\n" for name in providers if name in _ARGUMENTS)
    groups = "".join(
        _group(spec, [workload for workload in placed if workload.name in spec.workloads], facts) for spec in specs
    )
    return f"""# Made by trimtab; nothing here was applied. Read it into the module that makes your instance groups:
#   for_each = var.trimtab_instance_groups
{where}# The groups that these replace shrink by the orders in orders/, after the new machines have held.

variable "trimtab_instance_groups" {{
  description = "Instance groups of the plan, by name: what machines, how many, and how they are held."
  type = map(object({{
    provider      = string
    region        = string
    instance_type = string
    spot          = bool
    min_size      = number
    max_size      = number
    idle_after_s  = number
    workloads     = list(string)
  }}))
  default = {{
{groups}  }}

  validation {{
    condition     = alltrue([for group in var.trimtab_instance_groups : group.min_size <= group.max_size])
    error_message = "A group's min_size is above its max_size."
  }}
}}
"""


def _group(spec: PoolSpec, members: Sequence[PlacedWorkload], facts: EmitFacts) -> str:
    least, most = sum(_least_nodes(workload) for workload in members), node_limit(spec, facts)
    rows = {
        "provider": spec.pool.provider,
        "region": spec.pool.region,
        "instance_type": spec.pool.instance_type,
        "spot": spec.spot,
        "min_size": min(least, most),
        "max_size": most,
        "idle_after_s": round(spec.kept_s),
        "workloads": list(spec.workloads),
    }
    width = max(map(len, rows))
    body = "".join(f"      {key:{width}} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())
    actions = ", ".join(action.id for action in spec.actions)
    return f"    # {actions}\n    {json.dumps(node_name(spec.name))} = {{\n{body}    }}\n"


def _least_nodes(workload: PlacedWorkload) -> int:
    """Return the machines that a workload never goes below: none for runs, those of its fewest replicas for a service."""
    if workload.runs_to_end:
        return 0
    scaling = workload.place.scaling
    replicas = (
        scaling.hpa.min_replicas
        if isinstance(scaling, SetReplicaPolicy)
        else workload.set_replicas or workload.known.replicas
    )
    return -(-replicas // max(1, workload.place.pods_per_node)) * workload.place.nodes_per_pod

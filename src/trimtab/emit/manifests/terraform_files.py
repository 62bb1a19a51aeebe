"""Instance groups of fleets without Kubernetes and Slurm, as Terraform variables: types, sizes, how they are held.

Which resources a site's own modules make of them is theirs; the comments name the arguments of the providers' own resources
(hashicorp/aws aws_autoscaling_group, hashicorp/google google_compute_autoscaler, hashicorp/azurerm
azurerm_linux_virtual_machine_scale_set).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.karpenter import node_limit
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.pool_specs import PoolSpec

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

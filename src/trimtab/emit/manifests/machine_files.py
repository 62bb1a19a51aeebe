"""What enacts a plan on machines that no Kubernetes runs: Slurm's nodes, instance groups, scripts for cut GPUs, orders."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece
from trimtab.emit.manifests.facts import SLURM, NodeFacts
from trimtab.emit.manifests.host_scripts import host_files
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.manifests.pool_specs import PoolSpec, pool_specs
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.slurm_files import CLOUDS, slurm_files
from trimtab.emit.manifests.terraform_files import terraform_files


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

"""What is to be emitted: the actions asked for, the workloads as they will be, the node pools underneath."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab.deployment.effects import Relocate
from trimtab.emit.manifests.facts import OFF_KUBERNETES, EmitFacts, NodeMaker, is_kubernetes_name
from trimtab.emit.manifests.karpenter import node_class
from trimtab.emit.manifests.node_groups import by_hand
from trimtab.emit.manifests.placed import PlacedWorkload, here, placed_workloads
from trimtab.emit.manifests.pool_specs import PoolSpec, pool_specs
from trimtab.plan.model import Action, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is to be emitted: the actions asked for, the workloads as they will be, the node pools underneath."""

    actions: tuple[Action, ...]
    facts: EmitFacts
    placed: Mapping[str, PlacedWorkload]
    """The workloads that the actions change, wherever they then run."""
    here: Mapping[str, PlacedWorkload]
    """Those of them whose nodes are this cluster's."""
    specs: tuple[PoolSpec, ...]
    off: Mapping[str, PlacedWorkload]
    """Workloads that the actions change and that no Kubernetes runs: Slurm's jobs, machines."""
    away: Mapping[str, tuple[Action, Relocate]]
    """Workloads that the plan moves to another region or cloud, whether or not that is emitted: their nodes are not here."""

    def spec(self, workload: str) -> PoolSpec | None:
        """Return the pool that a workload will run on, where Karpenter can make it, or a node group."""
        for spec in self.specs:
            owner = node_class(spec.pool.provider, self.facts)
            if workload in spec.workloads and (by_hand(spec) is None if spec.by_group else owner is not None):
                return spec
        return None

    def waits_for_nodes(self, workload: str) -> bool:
        """Tell whether a person must make its node groups first: until then its pods must ask for nothing new."""
        return any(workload in spec.workloads and spec.by_group and by_hand(spec) is not None for spec in self.specs)


def scope_of(actions: tuple[Action, ...], facts: EmitFacts, plan: Plan) -> Scope:
    """Return what is to be emitted for some of a plan's actions; workloads that Kubernetes cannot name are left out."""
    away = {
        change.subject: (action, change.effect)
        for action in plan.actions
        for change in action.changes
        if isinstance(change.effect, Relocate)
    }
    known = tuple(
        workload
        for workload in facts.workloads
        if is_kubernetes_name(workload.name) and workload.owner_kind not in OFF_KUBERNETES
    )
    placed = placed_workloads(actions, known)
    as_they_will_be = tuple(
        placed[workload.name].as_it_will_be if workload.name in placed else workload for workload in known
    )
    stays = here(placed, away)
    others = placed_workloads(
        actions, (workload for workload in facts.workloads if workload.owner_kind in OFF_KUBERNETES)
    )
    return Scope(
        actions=actions,
        facts=replace(facts, workloads=as_they_will_be),
        placed=placed | others,
        here=stays,
        specs=pool_specs(stays.values(), by_group=facts.node_maker is NodeMaker.NODE_GROUPS),
        off=here(others, away),
        away=away,
    )

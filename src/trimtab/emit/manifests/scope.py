"""What is to be emitted: the actions asked for, the workloads and node pools as they will be, for each cluster by itself.

A bundle of several clusters says `prod/chat@east`; the cluster itself says `prod/chat`, and the files that are for it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, FleetEffect, ReleaseNodes, Relocate
from trimtab.emit.manifests.facts import OFF_KUBERNETES, EmitFacts, NodeFacts, NodeMaker, is_kubernetes_name
from trimtab.emit.manifests.karpenter import node_class
from trimtab.emit.manifests.node_groups import by_hand
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec, here, placed_workloads, pool_specs
from trimtab.plan.model import Action, Change, Plan
from trimtab.tables.workloads import cluster_of, local_name


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

    def spec(self, workload: str, role: str = "") -> PoolSpec | None:
        """Return the pool that a workload, or its part of a role, will run on, where Karpenter can make it, or a node group."""
        for spec in self.specs:
            owner = node_class(spec.pool.provider, self.facts)
            is_made = by_hand(spec) is None if spec.by_group else owner is not None
            if workload in spec.workloads and spec.role == role and is_made:
                return spec
        return None

    def waits_for_nodes(self, workload: str) -> bool:
        """Return whether a person must make its node groups first: until then its pods must ask for nothing new."""
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
        specs=tuple(
            replace(spec, spot_types=facts.spot_types(spec.pool) if spec.spot else ())
            for spec in pool_specs(stays.values(), by_group=facts.node_maker is NodeMaker.NODE_GROUPS)
        ),
        off=here(others, away),
        away=away,
    )


def clusters_of(facts: EmitFacts, actions: Iterable[Action]) -> tuple[str, ...]:
    """Return the clusters of a fleet in order; one of no name where there is just one, or none."""
    subjects = [
        change.subject for action in actions for change in action.changes if not isinstance(change.effect, FleetEffect)
    ]
    known = [*(workload.name for workload in facts.workloads), *(node.name for node in facts.nodes)]
    named = {cluster_of(name) for name in (*known, *subjects)}
    return tuple(sorted(named)) or ("",)


def facts_in(facts: EmitFacts, cluster: str) -> EmitFacts:
    """Return what is known of one cluster, in its own names."""
    return replace(
        facts,
        workloads=tuple(
            replace(workload, name=local_name(workload.name))
            for workload in facts.workloads
            if cluster_of(workload.name) == cluster
        ),
        nodes=tuple(_node(node) for node in facts.nodes if cluster_of(node.name) == cluster),
    )


def _node(node: NodeFacts) -> NodeFacts:
    return replace(
        node,
        name=local_name(node.name),
        held_by=tuple(local_name(workload) for workload in node.held_by),
        held_before=tuple(local_name(workload) for workload in node.held_before),
    )


def actions_in(actions: Iterable[Action], facts: EmitFacts, cluster: str) -> tuple[Action, ...]:
    """Return the actions that change something in a cluster, with those changes and conditions alone and in its names.

    A purchase belongs to each cluster that has nodes it covers: there its price is shown.
    """
    found = []
    for action in actions:
        changes = tuple(here for change in action.changes if (here := _change_in(change, facts, cluster)) is not None)
        if changes:
            conditions = tuple(condition for condition in action.preconditions if condition.cluster == cluster)
            found.append(replace(action, changes=changes, preconditions=conditions))
    return tuple(found)


def _change_in(change: Change, facts: EmitFacts, cluster: str) -> Change | None:
    match change.effect:
        case ReleaseNodes(nodes=nodes):
            names = tuple(local_name(node) for node in nodes if cluster_of(node) == cluster)
            return Change(subject=", ".join(names), effect=replace(change.effect, nodes=names)) if names else None
        case BuyCommitment(pool=pool):
            pools = [
                *(node.pool for node in facts.nodes if cluster_of(node.name) == cluster),
                *(
                    workload.pool
                    for workload in facts.workloads
                    if workload.pool and cluster_of(workload.name) == cluster
                ),
            ]
            sites = {(site.provider, site.region) for site in pools}
            return change if (pool.provider, pool.region) in sites else None
        case BuySpendPlan():
            return None
        case _:
            if cluster_of(change.subject) != cluster:
                return None
            return replace(change, subject=local_name(change.subject))

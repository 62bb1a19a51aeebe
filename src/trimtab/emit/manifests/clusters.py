"""A plan over several clusters, seen from each of them: its workloads, nodes and actions, by the names that it knows.

A bundle of several clusters says `prod/chat@east`; the cluster itself says `prod/chat`, and the files that are for it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, FleetEffect, ReleaseNodes
from trimtab.emit.manifests.facts import EmitFacts, NodeFacts
from trimtab.plan.model import Action, Change

_AT = "@"


def cluster_of(name: str) -> str:
    """Return the cluster behind the name of a workload or node; empty where the bundle has just one."""
    return name.rpartition(_AT)[2] if _AT in name else ""


def local_name(name: str) -> str:
    """Return the name that the cluster itself knows."""
    return name.rpartition(_AT)[0] if _AT in name else name


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
    """Return the actions that change something in a cluster, with those changes alone and in its names.

    A purchase belongs to each cluster that has nodes it covers: there its price is shown.
    """
    found = []
    for action in actions:
        changes = tuple(here for change in action.changes if (here := _change_in(change, facts, cluster)) is not None)
        if changes:
            found.append(replace(action, changes=changes))
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

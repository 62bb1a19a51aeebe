"""A workload as the emitted actions leave it: the placement that was replayed, and what of it Kubernetes must be told."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.deployment.deployment import Deployment, dimension_of
from trimtab.deployment.effects import (
    FleetEffect,
    HedgeOnSpot,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    WorkloadEffect,
)
from trimtab.deployment.placement import Placement, resolve, without_effect
from trimtab.emit.manifests.facts import SERVING, WorkloadFacts
from trimtab.plan.model import Action

_NO_NODES = frozenset({"precision", "relocation"})
"""What asks nothing of node pools: another format of the weights, and a move, whose nodes are another cluster's."""

_BURST = 2
"""Times the replicas or runs of the past that a pool without a ceiling of its own has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWorkload:
    """What is known of a workload, its deployment under the emitted actions, and where that leads."""

    known: WorkloadFacts
    deployment: Deployment
    place: Placement
    actions: tuple[Action, ...]
    """Those that ask something of its nodes."""
    waits: Mapping[str, str]
    """Dimensions of which an effect comes to nothing without another action, and what it waits for."""

    @property
    def name(self) -> str:
        """Return the workload."""
        return self.known.name

    @property
    def most_replicas(self) -> int | None:
        """Return the most replicas or runs that it may have at once; None where nothing that is emitted says so."""
        counts = []
        match self.place.scaling:
            case SetReplicaPolicy():
                counts.append(self.place.scaling.hpa.max_replicas)
            case SetReplicas(replicas=count):
                counts.append(count)
            case None:
                pass
        if self.place.batching is not None and self.place.batching.replicas is not None:
            counts.append(self.place.batching.replicas)
        if self.place.shared is not None or isinstance(self.place.holding, SetSchedule):
            counts.append(self.known.replicas)
        return max(counts, default=None)

    @property
    def set_replicas(self) -> int | None:
        """Return the replicas that its own manifest must say; None where that stays as it is, or an autoscaler says it."""
        if isinstance(self.place.scaling, SetReplicas):
            return self.place.scaling.replicas
        return None if self.place.batching is None else self.place.batching.replicas

    @property
    def most_gpus(self) -> float | None:
        """Return the GPUs that so many replicas hold."""
        return None if self.most_replicas is None else self.most_replicas * self.place.gpus_per_pod

    @property
    def burst_nodes(self) -> int:
        """Return the most nodes that it is let have where nothing says how many it may: a bound on what goes wrong.

        Twice the replicas or runs that history had at once, and no fewer than a node for each. Runs that queued in history
        count as if they had not: under the plan, as it is proved, they start on nodes that are made for them.
        """
        most = max(self.known.most_replicas, self.known.pods_if_none_waited)
        packed = math.ceil(most / self.place.pods_per_node)
        return max(_BURST * packed, most) * self.place.nodes_per_pod

    @property
    def most_slots(self) -> int:
        """Return the slots of shared nodes that so many replicas hold; at least one."""
        shared, gpus = self.place.shared, self.most_gpus or 0.0
        if shared is None:
            return 0
        return max(1, math.ceil(gpus / self.place.gpus_per_node * shared.shared.slots_per_node - 1e-9))

    def waits_for(self, effect: WorkloadEffect) -> str | None:
        """Return what an effect waits for; None where it does something by itself."""
        return self.waits.get(dimension_of(effect))

    @property
    def runs_to_end(self) -> bool:
        """Tell whether its pods must not be moved, so that only empty nodes are given back."""
        plan = self.deployment
        closes = (
            None if self.known.service is not None else plan.holding
        )  # a service that is closed is one all the same
        ends = (plan.gpu_count, plan.memory, closes)
        bought = plan.buying is not None and not isinstance(plan.buying, HedgeOnSpot)
        return bought or any(ends) or (plan.offering is not None and self.known.owner_kind not in SERVING)

    @property
    def as_it_will_be(self) -> WorkloadFacts:
        """Return the facts with what a replica will serve."""
        service = self.known.service
        if service is None:
            return self.known
        capacity = self.place.replica_req_s(service.capacity_req_s, faster_counts=service.faster_counts)
        return replace(self.known, service=replace(service, capacity_req_s=capacity, assumes=self._assumed))

    @property
    def _assumed(self) -> str:
        """Return what a replica's capacity counts on that a page asks of a person, and no object brings about."""
        precision, batching = self.place.precision, self.place.batching
        parts = [] if precision is None else [f"its model in {precision.after.value}, not {precision.before.value}"]
        parts += [] if batching is None else [f"batches of up to {batching.max_batch} requests"]
        return ", ".join(parts)


def placed_workloads(actions: Sequence[Action], known: Iterable[WorkloadFacts]) -> dict[str, PlacedWorkload]:
    """Return each workload that some actions change, resolved; those whose present nodes nobody knows are left out."""
    found = {}
    for facts in known:
        deployment = deployment_of(actions, facts.name)
        if deployment.changes and facts.home is not None:
            place = resolve(facts.home, deployment)
            waits = without_effect(deployment, place)
            idle = _NO_NODES | waits.keys()
            found[facts.name] = PlacedWorkload(
                known=facts,
                deployment=deployment,
                place=place,
                actions=tuple(action for action in actions if _asks_for_nodes(action, facts.name, idle)),
                waits=waits,
            )
    return found


def deployment_of(actions: Iterable[Action], workload: str) -> Deployment:
    """Return what some actions do to a workload; raises ValueError where two change the same of it."""
    return Deployment.of(
        *(
            (action.lever, change.effect)
            for action in actions
            for change in action.changes
            if change.subject == workload and not isinstance(change.effect, FleetEffect)
        )
    )


def _asks_for_nodes(action: Action, workload: str, idle: Collection[str]) -> bool:
    """Tell whether an action asks something of a workload's nodes, in other dimensions than those that ask nothing."""
    effects = [change.effect for change in action.changes if change.subject == workload]
    return any(not isinstance(effect, FleetEffect) and dimension_of(effect) not in idle for effect in effects)


def here(placed: Mapping[str, PlacedWorkload], away: Iterable[str]) -> dict[str, PlacedWorkload]:
    """Return the workloads whose nodes are this cluster's, and are asked for something."""
    gone = frozenset(away)
    return {name: workload for name, workload in placed.items() if name not in gone and workload.actions}

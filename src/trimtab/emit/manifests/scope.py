"""What is to be emitted: the actions asked for, the facts as they will be, the node pools underneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.emit.manifests.batching import batch_curve
from trimtab.emit.manifests.facts import EmitFacts, WorkloadFacts, is_kubernetes_name
from trimtab.emit.manifests.karpenter import node_class
from trimtab.emit.manifests.pool_needs import PoolNeed, PoolSpec, by_workload, need_of, pool_specs
from trimtab.fleet.effects import (
    Effect,
    Relocate,
    SetBatchPolicy,
    SetPrecision,
    UseOffering,
    UseSlots,
)
from trimtab.plan.model import Action, Change, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is to be emitted: the actions asked for, the facts as they will be, the node pools underneath."""

    actions: tuple[Action, ...]
    facts: EmitFacts
    needs: dict[str, tuple[PoolNeed, ...]]
    specs: tuple[PoolSpec, ...]
    away: Mapping[str, tuple[Action, Relocate]]
    """Workloads that the plan moves to another region or cloud, whether or not that is emitted: their nodes are not here."""

    def spec(self, workload: str) -> PoolSpec | None:
        """Return the pool that a workload will run on, where Karpenter can make it."""
        for spec in self.specs:
            if workload in spec.workloads and node_class(spec.pool.provider, self.facts) is not None:
                return spec
        return None


def scope_of(actions: tuple[Action, ...], facts: EmitFacts, plan: Plan) -> Scope:
    """Return what is to be emitted for some of a plan's actions; workloads that Kubernetes cannot name are left out."""
    away = {
        change.subject: (action, change.effect)
        for action in plan.actions
        for change in action.changes
        if isinstance(change.effect, Relocate)
    }
    changes = [(action, change) for action in actions for change in action.changes]
    known = tuple(_sped_up(one, changes) for one in facts.workloads if is_kubernetes_name(one.name))
    facts = replace(facts, workloads=known)
    here = [one for one in changes if one[1].subject not in away]
    needs = by_workload((need for one in here if (need := need_of(*one, facts)) is not None), facts)
    return Scope(
        actions=actions,
        facts=facts,
        needs=needs,
        specs=pool_specs(needs),
        away=away,
    )


def _sped_up(known: WorkloadFacts, changes: Sequence[tuple[Action, Change]]) -> WorkloadFacts:
    """Return a service with what a replica will serve once it runs on another GPU, or serves several requests at once."""
    if known.service is None:
        return known
    mine = [change.effect for _, change in changes if change.subject == known.name]
    size, precision = moved(mine), stored(mine)
    batching = next((effect for effect in mine if isinstance(effect, SetBatchPolicy)), None)
    capacity = known.service.capacity_req_s * (size.speed.value if size else 1.0)
    if precision is not None:
        capacity *= (precision.speed_there if size else precision.speed).value
    if batching is not None:
        capacity = batching.max_batch / batch_curve(batching, size, precision).run_s(batching.max_batch)
    return replace(known, service=replace(known.service, capacity_req_s=capacity))


def stored(effects: Sequence[Effect]) -> SetPrecision | None:
    """Return the effect that stores a model's weights another way, where there is one."""
    return next((effect for effect in effects if isinstance(effect, SetPrecision)), None)


def moved(effects: Sequence[Effect]) -> UseOffering | UseSlots | None:
    """Return the effect that moves a workload to other GPUs or slices of them, where there is one."""
    here = (effect.to if isinstance(effect, Relocate) else effect for effect in effects)
    return next((effect for effect in here if isinstance(effect, UseOffering | UseSlots)), None)

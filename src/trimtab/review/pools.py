"""Pools of nodes that come and go as pods ask: what a NodePool and a node group have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.catalog.kinds import Isolation
from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Object, at

GPU = "nvidia.com/gpu"
NODE_POOL_LABEL = "karpenter.sh/nodepool"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
INSTANCE_TYPE_LABELS = (INSTANCE_TYPE, "beta.kubernetes.io/instance-type")
CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node, or a toleration of a pod: `value` is empty and `operator` is Exists where any value will do."""

    key: str
    value: str = ""
    effect: str = ""
    operator: str = "Equal"

    def tolerates(self, taint: Taint) -> bool:
        """Return whether this toleration covers a taint (kubernetes.io, Taints and Tolerations)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        if self.operator in ("Gt", "Lt"):
            return self.key == taint.key and Need.of_number(self.operator, taint.value, self.value)
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSharing:
    """What a configuration of the device plugin makes of each whole GPU."""

    isolation: Isolation
    per_gpu: int
    resource: str
    """What a share is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A requirement of a node pool's instances: a label of the provider, an operator and its values."""

    key: str
    operator: str
    values: tuple[str, ...]

    def holds(self, value: str) -> bool:
        """Return whether a value of the label is allowed; numbers are compared as such (karpenter.sh v1, NodePools)."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Gt" | "Gte" | "Lt" | "Lte":
                return bool(self.values) and self.of_number(self.operator, value, self.values[0])
            case _:
                return self.operator == "Exists"

    @staticmethod
    def of_number(operator: str, value: str, bound: str) -> bool:
        """Return whether a value compares so with a bound; what is not a whole number never does."""
        try:
            have, than = int(value), int(bound)
        except ValueError:
            return False
        over = have > than if operator.startswith("G") else have < than
        return over or (operator.endswith("te") and have == than)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes that come and go as pods ask: a Karpenter NodePool, or a node group of a provider."""

    name: str
    file: str
    requirements: Mapping[str, tuple[str, ...]]
    """Labels that must have one of some values (operator In)."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    gpu_limit: int | None
    consolidates: bool
    """Whether nodes that could be emptied onto others are; else only empty ones go."""
    kind: str = "node pool"
    """What people call it."""
    node_limit: int | None = None
    """The most nodes that it may have; None: no such limit."""
    held_as: tuple[str, ...] = ()
    """How its nodes are bought, where no requirement says so."""
    elastic: bool = True
    """Whether nodes that nothing needs are given back."""
    least_nodes: int = 0
    """How many nodes it keeps whatever is asked for."""
    block_nodes: int = 0
    """How many of its nodes are in capacity blocks, which are used first."""
    on_demand_types: tuple[str, ...] = ()
    """The types that it starts on demand, where those are fewer than it starts on spot; empty: the same."""
    one_in: int = 0
    """One replica in so many stays on demand, by the even spread of its pods over groups; 0: as spot has it."""
    sharing: GpuSharing | None = None
    """How the provider itself shares each of its GPUs, each share under the name of a whole GPU."""
    profile: str = ""
    """Into which MIG slices the provider itself cuts them, each under the name of a whole GPU; empty: into none."""
    part_limits: Mapping[str, int] = field(default_factory=dict)
    """The most parts of GPUs that it may have, by resource."""
    weight: int = 0
    """Of several pools that a pod may run on the heaviest comes first."""
    needs: tuple[Need, ...] = ()
    """What its instances must be like, besides or in place of their names."""
    open_labels: frozenset[str] = frozenset()
    """Labels of its own of which it allows values by other operators than In: any that pods ask for, as far as is read."""
    kept_s: float | None = None
    """How long a node that nothing needs is kept; None: as replays have it."""
    held_hours: frozenset[int] = frozenset()
    """Hours of the week (UTC) in which nodes that nothing needs are not given back."""
    expires_s: float | None = None
    """How old its nodes become; None: as old as they may."""
    drains_s: float | None = None
    """How long a node that is to go waits for its pods; None: for ever."""

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Return the instance types that it may start; empty: any."""
        return next((self.requirements[label] for label in INSTANCE_TYPE_LABELS if label in self.requirements), ())

    def starts_on_demand(self, instance_type: str) -> bool:
        """Return whether it may start an instance type on demand, where it may start it at all."""
        return not self.on_demand_types or instance_type in self.on_demand_types

    def gives(self, key: str) -> tuple[str, ...]:
        """Return the values that its nodes may have of a label."""
        return (self.labels[key],) if key in self.labels else self.requirements.get(key, ())

    @property
    def capacity_types(self) -> tuple[str, ...]:
        """Return how it may buy them; on demand where it does not say."""
        return self.held_as or self.requirements.get(CAPACITY_TYPE_LABEL, ("on-demand",))


def object_at(body: Object, *path: str) -> Object:
    """Return the mapping under a path of keys; an empty one where there is none."""
    part = at(body, *path)
    return part if isinstance(part, Mapping) else {}


def whole_number(value: object, where: str) -> int:
    """Return a whole number; raises InputError that names the place."""
    try:
        return int(str(value))
    except ValueError as error:
        raise InputError(f"{where}: {value!r} is not a whole number; write one, such as 8") from error


def fewer_on_demand(spot: Sequence[NodePool], on_demand: Sequence[NodePool]) -> tuple[str, ...] | None:
    """Return the types that some pools start on demand, of those that others start on spot; None where they are no such part.

    On spot several types find more capacity than one does; behind them one is enough. Pools that all start the same types are
    no such case.
    """
    types = tuple(dict.fromkeys(name for pool in spot for name in pool.instance_types))
    behind = {pool.instance_types for pool in on_demand}
    if len(behind) != 1 or not all(pool.instance_types for pool in spot):
        return None
    (fewer,) = behind
    return fewer if fewer and set(fewer) < set(types) else None

"""Pools of nodes that come and go as pods ask, with what their nodes are like, and Karpenter's NodePool read as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, text

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
        """Tell whether this toleration covers a taint (kubernetes.io, Taints and Tolerations)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and self.value == taint.value


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
    part_limits: Mapping[str, int] = field(default_factory=dict)
    """The most parts of GPUs that it may have, by resource."""

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Return the instance types that it may start; empty: any."""
        return next((self.requirements[label] for label in INSTANCE_TYPE_LABELS if label in self.requirements), ())

    @property
    def capacity_types(self) -> tuple[str, ...]:
        """Return how it may buy them; on demand where it does not say."""
        return self.held_as or self.requirements.get(CAPACITY_TYPE_LABEL, ("on-demand",))


def object_at(body: Object, *path: str) -> Object:
    """Return the mapping under a path of keys; an empty one where there is none."""
    part = at(body, *path)
    return part if isinstance(part, Mapping) else {}


def node_pool(name: str, file: str, body: Object) -> NodePool:
    """Return a NodePool object as a pool of nodes."""
    template = object_at(body, "spec", "template", "spec")
    needs = listed(template, "requirements")
    limits = {
        resource: whole_number(value, f"{file}: NodePool {name}, limit of {resource}")
        for resource, value in object_at(body, "spec", "limits").items()
        if str(resource).startswith("nvidia.com/")
    }
    return NodePool(
        name=name,
        file=file,
        requirements={
            text(need, "key"): tuple(str(value) for value in _list(need, "values"))
            for need in needs
            if text(need, "operator") == "In"
        },
        labels=mapping(body, "spec", "template", "metadata", "labels"),
        taints=tuple(
            Taint(key=text(taint, "key"), value=text(taint, "value"), effect=text(taint, "effect"))
            for taint in listed(template, "taints")
        ),
        gpu_limit=limits.pop(GPU, None),
        consolidates=text(body, "spec", "disruption", "consolidationPolicy") != "WhenEmpty",
        part_limits=limits,
    )


def unread_needs(name: str, body: Object) -> Iterator[tuple[str, str]]:
    """Yield a pool's requirements of other operators than In, and why they are not read."""
    for need in listed(body, "spec", "template", "spec", "requirements"):
        if text(need, "operator") != "In":
            what = f"NodePool {name}: {text(need, 'key')} {text(need, 'operator')}"
            yield what, "only requirements with In are modelled"


def whole_number(value: object, where: str) -> int:
    """Return a whole number; raises InputError that names the place."""
    try:
        return int(str(value))
    except ValueError as error:
        raise InputError(f"{where}: {value!r} is no whole number; write one, such as 8") from error


def _list(body: Object, key: str) -> list[object]:
    found = at(body, key)
    return found if isinstance(found, list) else []

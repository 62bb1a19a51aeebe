"""Pools: what a node is, for money's sake."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog.kinds import CapacityType, Isolation


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """Nodes that cost the same: provider, instance type, region and how they are held."""

    provider: str
    instance_type: str
    region: str
    capacity: str = CapacityType.ON_DEMAND.value

    @property
    def capacity_type(self) -> CapacityType:
        """Return how the pool's nodes are held."""
        return CapacityType(self.capacity)

    @property
    def nodes(self) -> Pool:
        """Return the pool of the same nodes on demand: what they are, however they are held."""
        return self.held_as(CapacityType.ON_DEMAND)

    def is_beside(self, other: Pool) -> bool:
        """Return whether two pools lie in one region of one provider."""
        return (self.provider, self.region) == (other.provider, other.region)

    def held_as(self, capacity_type: CapacityType) -> Pool:
        """Return the pool of the same nodes, held another way."""
        return replace(self, capacity=capacity_type.value)

    def __str__(self) -> str:
        return f"{self.instance_type} {self.capacity} in {self.region} ({self.provider})"


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Nodes of a pool that hold slots side by side: what one node has room for, by every measure that limits it."""

    pool: Pool
    room: tuple[int, ...]
    layout: str
    cluster: str = ""
    """The cluster whose nodes they are, in a history of several: no node is in two."""

    def __str__(self) -> str:
        at = f" of {self.cluster}" if self.cluster else ""
        return f"{self.layout or 'whole GPUs'} on {self.pool.instance_type}{at}"


_KEPT_UP = (0, 1)


@dataclass(frozen=True, slots=True, order=True)
class SharedPool:
    """Nodes of a pool cut into slots that workloads share: whole GPUs, instances of a MIG `profile`, or shares of GPUs.

    What keeps those on one GPU apart is `isolation`. In time slices none is busy for more than `busy_frac` of any hour.
    Instances of different profiles stand side by side: one `takes` some of the node's `room` by each measure
    (`catalog.mig`); where there is no room stated, slots are all alike and a node holds `slots_per_node` of them.

    What one replica holds divides `slots_per_node`, and all such sizes divide one another, so that any set of replicas fits
    into `ceil(slots / slots_per_node)` nodes (Coffman, Garey and Johnson, Bin packing with divisible item sizes, 1987).

    Nodes of whole GPUs have a second measure: pods of runs that cannot be moved (`kept_up`), of which each may stand on a node
    of its own, so that there are no fewer nodes than such pods.
    """

    pool: Pool
    slots_per_node: int
    profile: str = ""
    isolation: str = Isolation.HARDWARE.value
    busy_frac: float = 1.0
    takes: tuple[int, ...] = (1,)
    room: tuple[int, ...] = ()
    cluster: str = ""
    """The cluster whose nodes they are, in a history of several."""

    def __post_init__(self) -> None:
        if self.slots_per_node < 1:
            raise ValueError(f"a node of {self.pool} needs at least one slot, got {self.slots_per_node}")
        if len(self.takes) != max(1, len(self.room)) and self.takes != _KEPT_UP:
            raise ValueError(f"a slot of {self.pool} takes {self.takes} of the node's {self.room}")

    @property
    def site(self) -> Site:
        """Return the nodes that it shares with slots of other kinds."""
        if self.room:
            return Site(self.pool, self.room, "MIG slices", self.cluster)
        room = (self.slots_per_node,) if self.is_cut else (self.slots_per_node, 1)
        return Site(self.pool, room, self.layout, self.cluster)

    @property
    def measures(self) -> tuple[int, ...]:
        """Return what a slot takes of a node of the site, by each measure that limits it."""
        return self.takes + (0,) * (len(self.site.room) - len(self.takes))

    @property
    def kept_up(self) -> SharedPool:
        """Return, of nodes of whole GPUs, what a pod takes that keeps its node up: a node, and of its GPUs nothing more."""
        return replace(self, takes=_KEPT_UP)

    @property
    def kept_apart_by(self) -> Isolation:
        """Return what keeps the workloads on one GPU apart."""
        return Isolation(self.isolation)

    @property
    def is_isolated(self) -> bool:
        """Return whether hardware keeps them apart."""
        return self.kept_apart_by is Isolation.HARDWARE

    @property
    def is_cut(self) -> bool:
        """Return whether a slot is a part of a GPU."""
        return bool(self.profile) or not self.is_isolated

    @property
    def layout(self) -> str:
        """Return how the GPUs of a node are shared, in one word that tells shared pools of the same nodes apart."""
        match self.kept_apart_by:
            case Isolation.MPS:
                return f"mps-{self.slots_per_node}"
            case Isolation.TIME_SLICING:
                return f"turns-{self.slots_per_node}-busy-{self.busy_frac * 100:g}"
            case _:
                return self.profile

    def __str__(self) -> str:
        match self.kept_apart_by:
            case Isolation.MPS:
                what = f"{self.slots_per_node} MPS shares a node"
            case Isolation.TIME_SLICING:
                what = f"{self.slots_per_node} time slices a node, each busy {self.busy_frac:.0%} of an hour at most,"
            case _:
                what = self.profile or "whole GPUs"
        return f"{what} on {self.pool.instance_type}"

"""Pools: what a node is, for money's sake."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog.kinds import CapacityType


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

    def held_as(self, capacity_type: CapacityType) -> Pool:
        """Return the pool of the same nodes, held another way."""
        return replace(self, capacity=capacity_type.value)

    def __str__(self) -> str:
        return f"{self.instance_type} {self.capacity} in {self.region} ({self.provider})"


@dataclass(frozen=True, slots=True, order=True)
class SharedPool:
    """Nodes of a pool cut into equal slots that workloads share: whole GPUs (an empty `profile`) or instances of a MIG profile.

    What one replica holds divides `slots_per_node`, and all such sizes divide one another, so that any set of replicas fits
    into `ceil(slots / slots_per_node)` nodes (Coffman, Garey and Johnson, Bin packing with divisible item sizes, 1987).
    """

    pool: Pool
    slots_per_node: int
    profile: str = ""

    def __post_init__(self) -> None:
        if self.slots_per_node < 1:
            raise ValueError(f"a node of {self.pool} needs at least one slot, got {self.slots_per_node}")

    def __str__(self) -> str:
        return f"{self.profile or 'whole GPUs'} on {self.pool.instance_type}"

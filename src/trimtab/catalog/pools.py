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

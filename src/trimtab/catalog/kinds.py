"""The closed sets of the catalog: capacity types, buying options, precisions, interruption buckets."""

from __future__ import annotations

from enum import Enum


class CapacityType(Enum):
    """How a node is held, in Karpenter's words, plus what Karpenter does not know."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    CAPACITY_BLOCK = "capacity-block"
    OWNED = "owned"


class BuyingOption(Enum):
    """What one pays under: a column of the price book."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED_1Y = "reserved-1y"
    RESERVED_3Y = "reserved-3y"
    CAPACITY_BLOCK = "capacity-block"
    OWNED = "owned"

    @property
    def capacity_type(self) -> CapacityType:
        """Return the way of holding a node that this option pays for."""
        match self:
            case BuyingOption.RESERVED_1Y | BuyingOption.RESERVED_3Y:
                return CapacityType.RESERVED
            case _:
                return CapacityType(self.value)

    @property
    def term_years(self) -> int:
        """Return the years one is bound for; 0 where one is not."""
        return {BuyingOption.RESERVED_1Y: 1, BuyingOption.RESERVED_3Y: 3}.get(self, 0)


class Precision(Enum):
    """Number formats whose dense tensor rate the GPU table states."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"

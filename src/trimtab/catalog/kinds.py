"""The closed sets of the catalog: capacity types, buying options, isolation, precisions, interruption buckets."""

from __future__ import annotations

from enum import Enum


class CapacityType(Enum):
    """How a node is held, in Karpenter's words, plus what Karpenter does not know."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    CAPACITY_BLOCK = "capacity-block"
    OWNED = "owned"

    @property
    def paid_anyway(self) -> bool:
        """Return whether the node is paid for whether it is used or not, so that giving it back saves nothing."""
        return self in (CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.OWNED)


class Isolation(Enum):
    """What keeps programs on one GPU apart; NONE is only ever asked for: whichever of them."""

    HARDWARE = "hardware"
    """Each has GPUs or MIG instances of its own."""
    MPS = "mps"
    """Shares of memory and processors that CUDA's Multi-Process Service enforces; bandwidth and faults are shared."""
    TIME_SLICING = "time-slicing"
    """They take turns; memory, time and faults are shared."""
    NONE = "none"

    def admits(self, other: Isolation) -> bool:
        """Return whether who asks for this may be kept apart by the other."""
        return other is Isolation.HARDWARE or self in (other, Isolation.NONE)


class BuyingOption(Enum):
    """What one pays under: a column of the price book."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED_1Y = "reserved-1y"
    RESERVED_3Y = "reserved-3y"
    SAVINGS_PLAN_1Y = "savings-plan-1y"
    SAVINGS_PLAN_3Y = "savings-plan-3y"
    CAPACITY_BLOCK = "capacity-block"
    OWNED = "owned"

    @property
    def capacity_type(self) -> CapacityType:
        """Return the way of holding a node that this option pays for."""
        match self:
            case BuyingOption.RESERVED_1Y | BuyingOption.RESERVED_3Y:
                return CapacityType.RESERVED
            case BuyingOption.SAVINGS_PLAN_1Y | BuyingOption.SAVINGS_PLAN_3Y:
                return CapacityType.ON_DEMAND
            case _:
                return CapacityType(self.value)

    @property
    def term_years(self) -> int:
        """Return the years one is bound for; 0 where one is not."""
        return _TERM_YEARS.get(self, 0)

    @property
    def commits_spend(self) -> bool:
        """Return whether one is bound to spend so much an hour on whatever the plan covers, not to nodes of one type."""
        return self in (BuyingOption.SAVINGS_PLAN_1Y, BuyingOption.SAVINGS_PLAN_3Y)

    @property
    def commits_nodes(self) -> bool:
        """Return whether one is bound to nodes of one type and region."""
        return self.term_years > 0 and not self.commits_spend


_TERM_YEARS = {
    BuyingOption.RESERVED_1Y: 1,
    BuyingOption.RESERVED_3Y: 3,
    BuyingOption.SAVINGS_PLAN_1Y: 1,
    BuyingOption.SAVINGS_PLAN_3Y: 3,
}


class Precision(Enum):
    """Number formats whose dense tensor rate the GPU table states."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"


class PriceBasis(Enum):
    """How a price was obtained."""

    LISTED = "listed"
    """Read from the provider's price list, or from a public copy of it."""
    DERIVED = "derived"
    """Computed from a listed price and a published average; never observed as such (AWS spot from the Spot Advisor)."""
    NEGOTIATED = "negotiated"
    """The user's own rate, from a file."""
    OWNED = "owned"
    """Computed from what owned hardware costs: capital, power, operations, years."""


class InterruptionBucket(Enum):
    """The share of spot instances interrupted within a month, in the bands in which AWS publishes it."""

    UNDER_5 = "<5%"
    FROM_5_TO_10 = "5-10%"
    FROM_10_TO_15 = "10-15%"
    FROM_15_TO_20 = "15-20%"
    OVER_20 = ">20%"

    @property
    def low_frac(self) -> float:
        """Return the lower edge of the band, as a share per month."""
        return list(InterruptionBucket).index(self) * 0.05

    @property
    def high_frac(self) -> float | None:
        """Return the upper edge of the band, as a share per month; None where it is open."""
        return None if self is InterruptionBucket.OVER_20 else self.low_frac + 0.05


class Lifecycle(Enum):
    """Where an instance type stands with its provider."""

    CURRENT = "current"
    PREVIOUS = "previous"
    """A previous generation: still sold, but a plan should not move onto it."""
    RETIRED = "retired"
    """No longer sold; kept to price a fleet's past."""

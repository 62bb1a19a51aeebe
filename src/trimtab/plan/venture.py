"""What is judged for every fleet though no plan contains it: another cloud, own kernels, own hardware, a savings plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trimtab.provenance import Estimate


class VentureKind(Enum):
    """What people propose whatever the fleet."""

    ANOTHER_CLOUD = "another cloud"
    OWN_KERNELS = "own kernels"
    OWN_HARDWARE = "buying hardware"
    SAVINGS_PLAN = "a savings plan"
    UNISOLATED = "sharing without isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Venture:
    """One of them with its sum, beside the plan's bill. The saving is after what it costs to run, not what it costs to do."""

    kind: VentureKind
    subject: str
    saving_usd_mo: Estimate
    once_usd: float
    """What doing it costs once: work, data, machines."""
    worth: bool
    """Whether the low end of the saving pays `once_usd` back in time."""
    payback_mo: float | None
    """Months after which `once_usd` is paid back, as estimated; None where never."""
    reason: str
    assumptions: tuple[str, ...]
    """`setting = value`, as in force; where each comes from stands in the reference of settings."""

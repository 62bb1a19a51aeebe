"""What a diagnosis says: waste that sums to the bill, a verdict on each workload, what could not be judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trimtab.provenance import Evidence


class WasteKind(Enum):
    """Where money went that bought nothing; `USEFUL` is the rest, so that all kinds together are the bill."""

    FAILED_RUNS = "failed or repeated work"
    FAULTY_NODES = "broken or slowed hardware"
    UNUSED_COMMITMENT = "unused commitment"
    UNALLOCATED_NODES = "unallocated nodes"
    UNKNOWN_HOLDER = "holder unknown"
    HOURS_NOT_USED = "held hours not used"
    NON_GPU_PODS = "non-GPU pods hold GPU nodes"
    IDLE = "allocated but idle"
    OVER_PARALLEL = "more GPUs than used"
    OVER_PROVISIONED = "over-provisioned replicas"
    OVER_SIZED = "over-sized GPU"
    BUYING_OPTION = "wrong buying option"
    UNMEASURED = "not measured"
    USEFUL = "useful work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """One kind of waste over the fit window, in micro-dollars, with the workloads that carry most of it."""

    kind: WasteKind
    micro_usd: int
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a workload's activity says, with the evidence."""

    workload: str
    headline: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A workload that no plan was made for: it stays in the report with its cost and the reason."""

    workload: str
    micro_usd: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductForm:
    """GPU-hours paid that did work, as allocation x busy x efficiency (shares 0..1; None where not measured)."""

    allocation_frac: float
    busy_frac: float | None
    efficiency_frac: float | None

    @property
    def product_frac(self) -> float | None:
        """Return the product of the three."""
        if self.busy_frac is None or self.efficiency_frac is None:
            return None
        return self.allocation_frac * self.busy_frac * self.efficiency_frac


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A share of the bill, for a table."""

    name: str
    micro_usd: int
    gpu_hours: float
    activity_frac: float | None
    team: str | None = None
    """Of a workload's share."""
    kind: str | None = None
    """Of a workload's share."""

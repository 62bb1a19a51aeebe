"""What a search for a GPU answers: the ways that work, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import BuyingOption, Gpu
from trimtab.physics.footprint import Footprint
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import Architecture
from trimtab.physics.offers import Caveat, NodeOffer
from trimtab.physics.transfer import Binding
from trimtab.provenance import Estimate


class Unmet(Enum):
    """Why a way of serving does not work."""

    MEMORY = "does not fit"
    FORMAT = "not supported"
    DRIVER = "driver too old"
    TARGET = "misses the target"
    PRICE = "no price"
    UNKNOWN = "never measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOption:
    """One way of serving that works: what it takes, what it does, what it costs."""

    model: Architecture
    gpu: Gpu
    tensor: int
    stored: WeightFormat
    concurrency: int
    replicas: int
    replica_req_s: float
    tok_s: Estimate
    ttft_s: Estimate
    tpot_s: Estimate
    latency_s: float
    binding: Binding
    footprint: Footprint
    offer: NodeOffer
    option: BuyingOption
    nodes: int
    stranded_gpus: int
    usd_hr: float
    usd_per_mtok: Estimate
    usd_hr_by_option: Mapping[BuyingOption, float]
    """What an hour of these nodes costs under each way of buying; spot with the nodes that replace lost ones."""
    served_req_s: float
    """Requests a second that are answered on average."""
    caveats: tuple[Caveat, ...] = ()
    """Why this option is ranked after those without caveats."""
    pipeline: int = 1
    """Nodes that a replica spans as stages."""
    expert: int = 1
    """GPUs that share out the experts; beyond `tensor`, each serves the attention of its own requests."""
    network_gb_s: float = 0.0
    """Between the nodes of a replica, of each GPU; 0 within one node."""

    @property
    def replica_gpus(self) -> int:
        """Return the GPUs of one replica."""
        return self.expert if self.expert > self.tensor else self.tensor * self.pipeline

    @property
    def layout(self) -> str:
        """Return how a replica is spread, in the words of engines."""
        if self.expert > self.tensor:
            return f"EP {self.expert}"
        stages = f", PP {self.pipeline}" if self.pipeline > 1 else ""
        return f"TP {self.tensor}{stages}"

    @property
    def gpus(self) -> int:
        """Return the GPUs that serve."""
        return self.replicas * self.replica_gpus

    @property
    def tok_s_per_usd_hr(self) -> float | None:
        """Return tokens a second of all replicas for a dollar an hour; None on hardware that costs nothing here."""
        return self.tok_s.value * self.replicas / self.usd_hr if self.usd_hr else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """One way of serving or training that does not work, why, and how near it came."""

    gpu: str
    what: str
    reason: Unmet
    because: str
    miss_frac: float = math.inf
    """How far beyond the limit it lies; infinite where there is no nearness."""

"""How fast two nodes exchange data: the published network bandwidth of an instance type, and within a node NVLink or PCIe.

Anything that crosses nodes (a cache handed from prefill to decode, tensor or expert parallelism over nodes) is predicted only
where the bandwidth is published or stated. `data/fabrics.csv` has it by instance type, with its source; what kind of network it
is on AWS is the number of EFA devices that the same commit of Karpenter lists (website/content/en/docs/reference/
instance-types.md, `vpc.amazonaws.com/efa`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from trimtab.catalog import Gpu
from trimtab.physics.offers import NodeOffer
from trimtab.physics.serving_query import slot_gb_s
from trimtab.units import BYTES_PER_GB

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What carries data between GPUs: bytes a second in one direction, for one node, and where the figure comes from."""

    node_byte_s: float
    label: str
    """The figure in words: how fast, of what."""
    kind: str = ""
    """EFA and how many of them, or InfiniBand; empty where it is not known."""
    source: str = ""
    """Where it was published; empty for a figure of the catalog or the user's own."""

    def of_gpus(self, gpus: int, node_gpus: int) -> float:
        """Return the share of a node's bandwidth that so many of its GPUs have."""
        return self.node_byte_s * min(1.0, gpus / node_gpus)


@lru_cache(maxsize=1)
def _published() -> Mapping[tuple[str, str], Fabric]:
    text = files("trimtab.physics").joinpath("data/fabrics.csv").read_text(encoding="utf-8")
    return {
        (row["provider"], row["instance_type"]): Fabric(
            node_byte_s=float(row["gbit_s"]) * BYTES_PER_GB / BITS_PER_BYTE,
            label=f"{row['gbit_s']} Gbit/s of {row['instance_type']}",
            kind=row["kind"],
            source=f"{row['source']}, {row['as_of']}",
        )
        for row in csv.DictReader(text.splitlines())
    }


def between_nodes(offer: NodeOffer) -> Fabric | None:
    """Return the network of a node shape; None where it is not published."""
    return published_fabric(offer.provider, offer.instance_type)


def published_fabric(provider: str, instance_type: str) -> Fabric | None:
    """Return the network of a node of an instance type; None where it is not published."""
    return _published().get((provider, instance_type))


def within_node(gpu: Gpu, node_gpus: int) -> Fabric:
    """Return the links between the GPUs of one node: NVLink, else the PCIe slot of each."""
    # a transfer from one GPU to another takes each slot once, and each direction of NVLink is half of its figure
    link, gb_s = ("NVLink", gpu.nvlink_gb_s / 2) if gpu.nvlink_gb_s else ("PCIe", slot_gb_s(gpu))
    return Fabric(node_byte_s=gb_s * BYTES_PER_GB * node_gpus, label=f"{gb_s:.3g} GB/s of {link} a GPU")


def stated(gb_s: float) -> Fabric:
    """Return the user's own figure for a node."""
    return Fabric(node_byte_s=gb_s * BYTES_PER_GB, label=f"{gb_s:g} GB/s a node, as stated")

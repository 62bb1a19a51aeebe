"""From a rate to replicas, GPUs and whole nodes: requirement first, then headroom, then what a node strands."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.errors import InputError


def replicas_for(rate: float, per_replica: float, *, headroom_frac: float = 0.0) -> int:
    """Return the replicas that a rate needs, headroom on top of the whole replicas.

    500 requests a second at 200 a replica need 3 (2.5 rounded up), and with 20 % headroom 4 (3.6 rounded up): a replica that
    fails or starts is a whole one, so headroom is counted on replicas and not on the rate. Both rates share a unit; at least 1.
    """
    if not rate >= 0 or not per_replica > 0 or not 0 <= headroom_frac < 10:
        raise InputError(f"a rate of {rate} at {per_replica} a replica with headroom {headroom_frac} cannot be sized")
    # the tolerance keeps rounding errors of the quotient from asking for one more
    needed = max(1, math.ceil(rate / per_replica - 1e-9))
    return math.ceil(needed * (1 + headroom_frac) - 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Whole nodes for GPUs that are needed, and what they strand."""

    nodes: int
    gpus_per_node: int
    gpus_needed: int

    @property
    def stranded_gpus(self) -> int:
        """Return the GPUs that are paid and not needed."""
        return self.nodes * self.gpus_per_node - self.gpus_needed


def nodes_for(replicas: int, gpus_per_replica: int, gpus_per_node: int) -> Nodes:
    """Return the whole nodes that replicas take; a replica that fits a node does not span two.

    Replicas larger than a node take whole nodes each.
    """
    if min(replicas, gpus_per_replica, gpus_per_node) < 1:
        raise InputError("replicas, GPUs a replica and GPUs a node must be at least 1")
    if gpus_per_replica >= gpus_per_node:
        nodes = replicas * math.ceil(gpus_per_replica / gpus_per_node)
    else:
        nodes = math.ceil(replicas / (gpus_per_node // gpus_per_replica))
    return Nodes(nodes=nodes, gpus_per_node=gpus_per_node, gpus_needed=replicas * gpus_per_replica)

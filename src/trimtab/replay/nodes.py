"""Which nodes are up while replicas come and go: those that hold any, and empty ones until they are given back.

Replicas fill the nodes that are up before they ask for others, and an autoscaler of nodes gives an empty one back once it has
been empty for a while. So as many are up as were needed at most within that while.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.policies.metrics import ROUNDING
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.compiled import compiled, inlined
from trimtab.replay.series import CountArray, IntArray
from trimtab.units import S_PER_HR

STEPS_PER_HR = S_PER_HR // SYNC_S


@inlined
def nodes_for(replicas: int, replicas_per_node: float) -> int:
    """Return the whole nodes that so many replicas need."""
    # a quotient that exceeds a whole number by rounding only is that number
    return math.ceil(replicas / replicas_per_node - ROUNDING)


@inlined
def most_of_late(counts: CountArray, step: int, kept_steps: int) -> int:
    """Return the highest count of a step and of as many before it as an empty node is kept."""
    most = 0
    for j in range(max(0, step - kept_steps), step + 1):
        most = max(most, counts[j])
    return most


@compiled
def bill_nodes(
    held: CountArray, replicas_per_node: float, kept_steps: int, node_seconds: IntArray, replica_seconds: IntArray
) -> None:
    """Add the nodes that are up while `held` `(n_steps,)` replicas are ready or starting, and the replicas, to their hours."""
    falling = np.zeros(len(held), dtype=np.int64)  # steps within the while whose counts no later one reaches
    # A queue with falling counts, in places [first, after): its first step holds the highest count of the while, and
    # each step enters and leaves once.
    first, after = 0, 0
    most, nodes = 0, 0
    for step in range(len(held)):
        # a later count as high outlasts these
        while after > first and held[falling[after - 1]] <= held[step]:
            after -= 1
        falling[after] = step
        after += 1
        # one leaves at most, since the while moves on by one step
        if falling[first] < step - kept_steps:
            first += 1
        # nodes are counted anew only where the highest count changes
        if held[falling[first]] != most:
            most = held[falling[first]]
            nodes = nodes_for(most, replicas_per_node)
        hour = step // STEPS_PER_HR
        replica_seconds[hour] += held[step] * SYNC_S
        node_seconds[hour] += nodes * SYNC_S

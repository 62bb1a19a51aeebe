"""Which nodes are up while replicas come and go: those that hold any, and empty ones until they are given back.

Replicas fill the nodes that are up before they ask for others, and an autoscaler of nodes gives an empty one back once it has
been empty for a while. So as many are up as were needed at most within that while.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.ledger.arrays import IntArray
from trimtab.policies.scaling import ROUNDING, SYNC_S
from trimtab.replay.compiled import CountArray, compiled, inlined
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
    # last steps of the runs of equal counts within the while that no later one is as high as
    lasts = np.zeros(len(held), dtype=np.int64)
    # A queue with falling counts, in places [first, after): its first run holds the highest count of the while, and
    # each run enters and leaves once.
    first, after = 0, 0
    begin = 0
    while begin < len(held):
        count, end = held[begin], begin + 1
        while end < len(held) and held[end] == count:
            end += 1
        # a later count as high outlasts these
        while after > first and held[lasts[after - 1]] <= count:
            after -= 1
        lasts[after] = end - 1
        after += 1
        step = begin
        while step < end:
            # the run that goes on now never leaves
            while lasts[first] < step - kept_steps:
                first += 1
            nodes = nodes_for(held[lasts[first]], replicas_per_node)
            # so many are up until the highest count leaves the while, or the run ends
            until = min(end, lasts[first] + kept_steps + 1)
            while step < until:
                hour = step // STEPS_PER_HR
                seconds = (min(until, (hour + 1) * STEPS_PER_HR) - step) * SYNC_S
                replica_seconds[hour] += count * seconds
                node_seconds[hour] += nodes * seconds
                step += seconds // SYNC_S
        begin = end

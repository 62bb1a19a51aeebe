"""Which nodes are up while replicas come and go: those that hold any, and empty ones until they are given back.

`bill_nodes`: replicas fill the nodes that are up before they ask for others, are kept together, and an autoscaler of nodes
gives an empty one back once it has been empty for a while. So as many are up as were needed at most within that while.
`bill_each_node`: the nodes one by one, for pods that a scheduler spreads, or that nothing moves.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.ledger.arrays import Flags, IntArray
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


@compiled
def bill_each_node(
    held: CountArray, per_node: int, kept_steps: int, spreads: bool, moves: bool, node_seconds: IntArray
) -> None:
    """Add the nodes that are up while `held` `(n_steps,)` replicas are ready or starting to their hours, node by node.

    A new replica goes to the emptiest node with room where the scheduler `spreads`, as kube-scheduler does by default
    (NodeResourcesFit, LeastAllocated), else to the fullest. One that goes leaves the node with the most replicas (Kubernetes
    1.34, pkg/controller/replicaset, getPodsRankedByRelatedPodsOnSameNode). A node goes `kept_steps` after its last replica.
    Where an autoscaler of nodes `moves` replicas, the node with the fewest on which none came or went for `kept_steps` is
    emptied if the others have room for them, one node at a time (kubernetes-sigs/karpenter v1.9, disruption/consolidation).
    """
    most = nodes_for(held.max(), per_node) + 1
    replicas, changed, up = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.bool_)
    total = 0
    for step in range(len(held)):
        leaving = -1
        for node in range(most):
            if up[node] and step - changed[node] >= kept_steps:
                if not replicas[node]:
                    up[node] = False
                elif leaving < 0 or replicas[node] < replicas[leaving]:
                    leaving = node
        if moves and leaving >= 0 and _room_beside(replicas, up, per_node, leaving) >= replicas[leaving]:
            for _ in range(replicas[leaving]):
                target = _node_of(replicas, up, 1, per_node - 1, leaving, spreads)
                replicas[target], changed[target] = replicas[target] + 1, step
            replicas[leaving], changed[leaving] = 0, step
        while total > held[step]:
            fullest = _node_of(replicas, up, 1, per_node, -1, False)
            replicas[fullest], changed[fullest], total = replicas[fullest] - 1, step, total - 1
        while total < held[step]:
            target = _node_of(replicas, up, 0, per_node - 1, -1, spreads)
            if target < 0:
                target = int(np.argmin(up))
                up[target] = True
            replicas[target], changed[target], total = replicas[target] + 1, step, total + 1
        for node in range(most):
            if up[node] and (replicas[node] or step - changed[node] < kept_steps):
                node_seconds[step // STEPS_PER_HR] += SYNC_S


@compiled
def _node_of(replicas: IntArray, up: Flags, least: int, most: int, beside: int, emptiest: bool) -> int:
    """Return the fullest node that is up with `least` to `most` replicas, or the emptiest; -1 where there is none."""
    found = -1
    for node in range(len(replicas)):
        if not up[node] or node == beside or replicas[node] < least or replicas[node] > most:
            continue
        if found < 0 or (replicas[node] < replicas[found] if emptiest else replicas[node] > replicas[found]):
            found = node
    return found


@compiled
def _room_beside(replicas: IntArray, up: Flags, per_node: int, leaving: int) -> int:
    """Return how many replicas have room on the other nodes that hold any."""
    room = 0
    for node in range(len(replicas)):
        if up[node] and node != leaving and replicas[node]:
            room += per_node - replicas[node]
    return room

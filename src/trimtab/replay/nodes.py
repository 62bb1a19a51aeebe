"""Which nodes are up while replicas come and go: those that hold any, and empty ones until they are given back.

`bill_each_node`: the nodes one by one, as a scheduler fills them and an autoscaler of nodes drains them or lets them be.
`CountRuns.node_seconds`: by the counts alone, as if replicas were packed at all times. An empty node is given back once it has
been empty for a while, so as many are up as were needed at most within that while. It is exact where no two replicas share a
node; without any while it is a bound from below where they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRuns:
    """Replicas at each decision, kept as runs of equal counts: `levels` and `lengths` `(n_runs,)`.

    Replicas change far less often than every 15 s: what is worked out run by run takes a hundredth of the steps.
    """

    levels: CountArray
    lengths: CountArray

    @classmethod
    def of(cls, counts: CountArray) -> CountRuns:
        """Return the runs of counts (n_decisions,)."""
        starts = _starts_of_runs(counts)
        return cls(levels=counts[starts], lengths=np.diff(starts, append=len(counts)).astype(np.int32))

    @classmethod
    def constant(cls, count: int, decisions: int) -> CountRuns:
        """Return the same count at all decisions."""
        return cls(levels=np.array([count], dtype=np.int32), lengths=np.array([decisions], dtype=np.int32))

    @property
    def decisions(self) -> int:
        """Return how many decisions there are."""
        return int(self.lengths.sum())

    def counts(self) -> CountArray:
        """Return the counts (n_decisions,)."""
        return np.repeat(self.levels, self.lengths)

    def every(self, decisions: int) -> CountArray:
        """Return the count at the last decision of each step of so many (n_steps,)."""
        ends = np.cumsum(self.lengths)
        lasts = np.arange(decisions - 1, int(ends[-1]) if len(ends) else 0, decisions)
        return self.levels[np.searchsorted(ends, lasts, side="right")]

    def replica_seconds(self) -> IntArray:
        """Return the seconds of replicas in each hour (n_hours,)."""
        seconds = np.zeros(math.ceil(self.decisions / STEPS_PER_HR), dtype=np.int64)
        _bill_replicas(self.levels, self.lengths, seconds)
        return seconds

    def node_seconds(self, replicas_per_node: float, kept_steps: int) -> IntArray:
        """Return the seconds of nodes that are up while these replicas are ready or starting, in each hour (n_hours,)."""
        seconds = np.zeros(math.ceil(self.decisions / STEPS_PER_HR), dtype=np.int64)
        _bill_nodes(self.levels, self.lengths, replicas_per_node, kept_steps, seconds)
        return seconds


@compiled
def _starts_of_runs(counts: CountArray) -> IntArray:
    """Return where runs of equal counts begin."""
    runs = 0
    for step in range(len(counts)):
        if step == 0 or counts[step] != counts[step - 1]:
            runs += 1
    starts = np.empty(runs, dtype=np.int64)
    run = 0
    for step in range(len(counts)):
        if step == 0 or counts[step] != counts[step - 1]:
            starts[run] = step
            run += 1
    return starts


@inlined
def _add_steps(by_hour: IntArray, begin: int, end: int, count: int) -> None:
    """Add the seconds of so many to their hours, from one step to before another."""
    step = begin
    while step < end:
        hour = step // STEPS_PER_HR
        until = min(end, (hour + 1) * STEPS_PER_HR)
        by_hour[hour] += count * (until - step) * SYNC_S
        step = until


@compiled
def _bill_replicas(levels: CountArray, lengths: CountArray, replica_seconds: IntArray) -> None:
    """Add the replicas of each run to their hours."""
    begin = 0
    for run in range(len(levels)):
        end = begin + lengths[run]
        _add_steps(replica_seconds, begin, end, levels[run])
        begin = end


@compiled
def _bill_nodes(
    levels: CountArray, lengths: CountArray, replicas_per_node: float, kept_steps: int, node_seconds: IntArray
) -> None:
    """Add the nodes that are up while the replicas of each run are ready or starting to their hours."""
    # runs within the while that no later one is as high as, and their last steps
    highest, lasts = np.zeros(len(levels), dtype=np.int64), np.zeros(len(levels), dtype=np.int64)
    # A queue with falling counts, in places [first, after): its first run holds the highest count of the while, and
    # each run enters and leaves once.
    first, after = 0, 0
    begin = 0
    for run in range(len(levels)):
        end = begin + lengths[run]
        # a later count as high outlasts these
        while after > first and highest[after - 1] <= levels[run]:
            after -= 1
        highest[after], lasts[after] = levels[run], end - 1
        after += 1
        step = begin
        while step < end:
            # the run that goes on now never leaves
            while lasts[first] < step - kept_steps:
                first += 1
            # so many are up until the highest count leaves the while, or the run ends
            until = min(end, lasts[first] + kept_steps + 1)
            _add_steps(node_seconds, step, until, nodes_for(highest[first], replicas_per_node))
            step = until
        begin = end


class Placed(NamedTuple):
    """Replicas one by one, and the nodes under them; every member is an array, by replica or by node.

    A replica that is not there has node -1. `born` and `ready` are the steps in which it was placed and gets ready. A node has
    `booted` by that step; nothing came to it or went since `changed`.
    """

    node_of: IntArray
    born: IntArray
    ready: IntArray
    replicas: IntArray
    booted: IntArray
    changed: IntArray
    up: Flags


@compiled
def bill_each_node(
    held: CountArray,
    per_node: int,
    kept_steps: int,
    start_steps: tuple[int, int],
    spreads: bool,
    moves: bool,
    node_seconds: IntArray,
) -> None:
    """Add the nodes that are up while `held` `(n_steps,)` replicas are ready or starting to their hours, node by node.

    A new replica goes to the emptiest node with room where the scheduler `spreads`, as kube-scheduler does by default
    (NodeResourcesFit, LeastAllocated), else to the fullest. It is ready after `start_steps`: on a new node, and on one that is
    up. Those that go first are not ready, then share their node with most others, then are the youngest (Kubernetes 1.34,
    pkg/controller/controller_utils.go, ActivePodsWithRanks; of two ages within a factor of two it chooses at random). A node
    goes `kept_steps` after its last replica. Where an autoscaler of nodes `moves` replicas, the node with the fewest on which
    none came or went for `kept_steps` is drained if the others have room for them, one node at a time. It goes at once: it is
    tainted first, so that nothing new comes to it (kubernetes-sigs/karpenter v1.9.1, pkg/controllers/disruption/queue.go).
    """
    most = nodes_for(held.max(), per_node) + 1
    placed = _nothing_placed(most, per_node)
    node_of, _, _, count, booted, changed, up = placed
    total, step, run_end = 0, 0, 0
    while step < len(held):
        while total > held[step]:
            replica = _first_to_go(placed, step)
            _take_away(placed, replica, step)
            total -= 1
        while total < held[step]:
            node = _with_room(count, up, per_node, -1, spreads)
            if node < 0:
                node = int(np.argmin(up))
                # what stands at the start is ready
                up[node], booted[node] = True, step + start_steps[0] - start_steps[1] if step else 0
            replica = _place(placed, node, step, start_steps[1] if step else 0)
            total += 1
        leaving = _drainable(count, changed, up, per_node, step - kept_steps) if moves else -1
        if leaving >= 0:
            for replica in range(len(node_of)):
                if node_of[replica] == leaving:
                    _take_away(placed, replica, step)
                    _place(placed, _with_room(count, up, per_node, leaving, spreads), step, start_steps[1])
            up[leaving] = False
        if step == run_end:
            while run_end < len(held) and held[run_end] == held[step]:
                run_end += 1
        # nothing happens until the count changes, a node has been left alone for long enough, or the next one is drained
        until, standing = run_end if leaving < 0 else step + 1, 0
        for node in range(most):
            if up[node]:
                due = changed[node] + kept_steps
                up[node] = count[node] > 0 or step < due
                standing += up[node]
                if step < due < until:
                    until = due
        while step < until:
            hour = step // STEPS_PER_HR
            steps = min(until, (hour + 1) * STEPS_PER_HR) - step
            node_seconds[hour] += standing * steps * SYNC_S
            step += steps


@inlined
def _nothing_placed(nodes: int, per_node: int) -> Placed:
    places = nodes * per_node
    return Placed(
        node_of=np.full(places, -1),
        born=np.zeros(places, np.int64),
        ready=np.zeros(places, np.int64),
        replicas=np.zeros(nodes, np.int64),
        booted=np.zeros(nodes, np.int64),
        changed=np.zeros(nodes, np.int64),
        up=np.zeros(nodes, np.bool_),
    )


@compiled
def _place(placed: Placed, node: int, step: int, load_steps: int) -> int:
    """Put a replica on a node, which loads once that has booted; return its place."""
    replica = 0
    while placed.node_of[replica] >= 0:
        replica += 1
    placed.node_of[replica], placed.born[replica] = node, step
    placed.ready[replica] = max(step, placed.booted[node]) + load_steps
    placed.replicas[node] += 1
    placed.changed[node] = step
    return replica


@compiled
def _take_away(placed: Placed, replica: int, step: int) -> None:
    node = placed.node_of[replica]
    placed.replicas[node] -= 1
    placed.changed[node] = step
    placed.node_of[replica] = -1


@compiled
def _first_to_go(placed: Placed, step: int) -> int:
    """Return the replica that a ReplicaSet takes away first."""
    first, first_rank = -1, (False, 0, 0)
    for replica in range(len(placed.node_of)):
        if placed.node_of[replica] >= 0:
            starts, siblings = placed.ready[replica] > step, placed.replicas[placed.node_of[replica]]
            rank = (starts, siblings, placed.born[replica])
            if first < 0 or rank > first_rank:
                first, first_rank = replica, rank
    return first


@compiled
def _with_room(count: IntArray, up: Flags, per_node: int, beside: int, emptiest: bool) -> int:
    """Return the fullest node that is up and has room, or the emptiest; -1 where there is none."""
    found = -1
    for node in range(len(count)):
        if not up[node] or node == beside or count[node] >= per_node:
            continue
        if found < 0 or (count[node] < count[found] if emptiest else count[node] > count[found]):
            found = node
    return found


@compiled
def _drainable(count: IntArray, changed: IntArray, up: Flags, per_node: int, unchanged_since: int) -> int:
    """Return the node with the fewest replicas of those long unchanged, if the others that hold any have room; else -1."""
    leaving, room = -1, 0
    for node in range(len(count)):
        if up[node] and count[node]:
            room += per_node - count[node]
            if changed[node] <= unchanged_since and (leaving < 0 or count[node] < count[leaving]):
                leaving = node
    if leaving >= 0 and room - (per_node - count[leaving]) < count[leaving]:
        leaving = -1
    return leaving

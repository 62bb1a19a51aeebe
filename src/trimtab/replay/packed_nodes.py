"""Nodes that several pods of runs share: where each pod goes, how long a node stays, what is billed.

A pod takes the emptiest node with room, as kube-scheduler does by default (NodeResourcesFit, `LeastAllocated`; see
kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing), and Karpenter starts nodes only for pods that fit on none
(karpenter.sh/docs/concepts). Pods that came late to a node keep it up: packing is never better here than in a cluster.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from trimtab.replay.droughts import opens_s

_ROUNDING = 1e-9
"""Of a GPU: what pods ask for are floats."""


@dataclass(slots=True, eq=False)
class SharedNode:
    """One node's life; it ends `kept_s` after its last pod left."""

    begins_s: float
    ready_s: float
    free: float
    pods: int = 0
    empty_s: float = 0.0


@dataclass(slots=True)
class PackedNodes:
    """Nodes that are up, and those that have gone."""

    gpus_per_node: float
    startup_s: float
    kept_s: float
    max_nodes: int | None
    closed_s: tuple[float, float] = (0.0, 0.0)
    """From the first second to the second no new node can be had."""
    up: list[SharedNode] = field(default_factory=list)
    lives: list[tuple[float, float]] = field(default_factory=list)
    """When each node that has gone began and ended."""
    _ends: list[tuple[float, int, SharedNode, float]] = field(default_factory=list)
    _count: int = 0
    _now_s: float = 0.0

    def place(self, pods: int, gpus: float, submit_s: float) -> tuple[float, float, list[SharedNode]] | None:
        """Return when a run gets its nodes, when the last of them is ready, and each pod's node; None if it never does.

        First come, first served: within a quota it waits for those before it, and while no node can be had for room.
        """
        # how many of its pods an empty node holds
        beside = int(self.gpus_per_node / gpus + _ROUNDING)
        if beside < 1 or (self.max_nodes is not None and -(-pods // beside) > self.max_nodes):
            return None
        self._now_s = max(self._now_s, submit_s)
        self._pass(self._now_s)
        # room comes only when a pod leaves, a node goes or nodes can be had again
        while (taken := self._fit(pods, gpus, beside)) is None:
            self._now_s = self._next_change_s()
            self._pass(self._now_s)
        for node in taken:
            node.free -= gpus
            node.pods += 1
        return self._now_s, max([self._now_s, *(node.ready_s for node in taken)]), taken

    def hold(self, nodes: list[SharedNode], gpus: float, until_s: float) -> None:
        """Let a run's pods leave their nodes at a time to come."""
        for node in nodes:
            # the number breaks ties, because nodes have no order
            self._count += 1
            heapq.heappush(self._ends, (until_s, self._count, node, gpus))

    def close(self) -> list[tuple[float, float]]:
        """Return when each node began and ended, once all pods have left."""
        self._pass(float("inf"))
        return self.lives

    def _fit(self, pods: int, gpus: float, beside: int) -> list[SharedNode] | None:
        """Return a node for each pod, new ones where there is no room; None where the quota allows none."""
        # a trial on copies: either all pods find a place or nothing is taken
        free = {id(node): node.free for node in self.up}
        taken: list[SharedNode] = []
        for _ in range(pods):
            room = [node for node in self.up if free[id(node)] >= gpus - _ROUNDING]
            if not room:
                break
            # the emptiest with room, as LeastAllocated scores it
            node = max(room, key=lambda node: free[id(node)])
            free[id(node)] -= gpus
            taken.append(node)
        missing = pods - len(taken)
        # rounded up
        new = -(-missing // beside)
        if self.max_nodes is not None and len(self.up) + new > self.max_nodes:
            return None
        if new and opens_s(self.closed_s, self._now_s) > self._now_s:
            return None
        fresh = [
            SharedNode(begins_s=self._now_s, ready_s=self._now_s + self.startup_s, free=self.gpus_per_node)
            for _ in range(new)
        ]
        self.up += fresh
        # new nodes are filled one after another
        return taken + [fresh[pod // beside] for pod in range(missing)]

    def _next_change_s(self) -> float:
        """Return when a pod leaves, an empty node goes or nodes can be had again next."""
        changes = [node.empty_s + self.kept_s for node in self.up if not node.pods]
        changes += [end_s for end_s, *_ in self._ends[:1]]
        opens = opens_s(self.closed_s, self._now_s)
        return min([*changes, opens] if opens > self._now_s else changes)

    def _pass(self, now_s: float) -> None:
        """Let pods leave and empty nodes go up to a moment; a node that would go at that very moment goes."""
        # pods leave before nodes go, because a node's empty time begins then
        while self._ends and self._ends[0][0] <= now_s:
            end_s, _, node, gpus = heapq.heappop(self._ends)
            node.free += gpus
            node.pods -= 1
            node.empty_s = end_s
        stay = []
        for node in self.up:
            ends_s = node.empty_s + self.kept_s
            if node.pods or ends_s > now_s:
                stay.append(node)
            else:
                self.lives.append((node.begins_s, ends_s))
        self.up = stay

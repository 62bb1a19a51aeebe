"""Runs laid on nodes in the order in which they started: best fit, whole nodes for runs larger than one.

A trace says how many GPUs a run held and when, not where. The fleet is as many nodes as were ever needed at once: the fewest
that best fit gets along with.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a run holds of one node."""

    run: int
    node: int
    gpus: float


def pack(runs: Sequence[tuple[float, float, float]], gpus_per_node: int) -> tuple[list[Piece], int]:
    """Place runs `(start_s, end_s, gpus)` and return their pieces and the number of nodes.

    A run goes to the node with the least free GPUs that still hold it; ties go to the lowest number. One larger than a node
    takes whole free nodes, and the rest of it goes as a smaller run would.
    """
    size = gpus_per_node * _MILLI
    free: list[tuple[int, int]] = []
    held: list[tuple[float, list[tuple[int, int]]]] = []
    room: list[int] = []
    pieces: list[Piece] = []

    def take(node: int, milli: int) -> None:
        free.pop(bisect_left(free, (room[node], node)))
        room[node] -= milli
        insort(free, (room[node], node))

    def place(milli: int) -> tuple[int, int]:
        at = bisect_left(free, (milli, -1))
        if at == len(free):
            room.append(size)
            insort(free, (size, len(room) - 1))
            at = bisect_left(free, (milli, -1))
        node = free[at][1]
        take(node, milli)
        return node, milli

    for run in sorted(range(len(runs)), key=lambda index: (runs[index][0], index)):
        start_s, end_s, gpus = runs[run]
        while held and held[0][0] <= start_s:
            for node, milli in heapq.heappop(held)[1]:
                take(node, -milli)
        wanted = round(gpus * _MILLI)
        parts = [size] * (wanted // size) + ([wanted % size] if wanted % size else [])
        mine = [place(part) for part in parts]
        pieces += [Piece(run=run, node=node, gpus=milli / _MILLI) for node, milli in mine]
        heapq.heappush(held, (end_s, mine))
    return pieces, len(room)

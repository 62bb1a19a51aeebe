"""How the GPUs of a node are cut into slots that workloads share: slots of one kind, or MIG slices of several side by side."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from trimtab.catalog.mig import Counts, boards_for, cut_boards
from trimtab.catalog.pools import SharedPool

_HASH_LENGTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The slots on each GPU of a node (by kind, in the order of `kinds`), and how many such nodes there are at most.

    `nodes` is None where whoever runs there says how many.
    """

    kinds: tuple[SharedPool, ...]
    gpus: tuple[Counts, ...]
    nodes: int | None = None

    @property
    def isolated(self) -> bool:
        """Tell whether hardware keeps the slots of a GPU apart."""
        return all(kind.is_isolated for kind in self.kinds)

    @property
    def slots(self) -> Mapping[SharedPool, int]:
        """Return how many slots of each kind a node has."""
        return {kind: sum(gpu[at] for gpu in self.gpus) for at, kind in enumerate(self.kinds)}

    @property
    def per_gpu(self) -> int:
        """Return how many slots one GPU has, where there is one kind of them."""
        return self.gpus[0][0]

    @property
    def name(self) -> str:
        """Return the layout's name; one profile on every GPU is named as in NVIDIA's own table (`all-1g.10gb`)."""
        different = sorted(set(self.gpus), reverse=True)
        texts = [_text(self.kinds, layout) for layout in different]
        if len(different) == 1:
            return f"all-{texts[0]}"
        counted = [f"{self.gpus.count(layout)}:{text}" for layout, text in zip(different, texts, strict=True)]
        return f"mixed-{hashlib.sha256(' '.join(counted).encode()).hexdigest()[:_HASH_LENGTH]}"

    def devices(self) -> list[tuple[list[int], dict[str, int]]]:
        """Return the GPUs of a node by index, and how many instances of each profile they are cut into."""
        indexed = groupby(enumerate(self.gpus), key=lambda indexed_gpu: indexed_gpu[1])
        return [
            (
                [index for index, _ in members],
                {kind.profile: count for kind, count in zip(self.kinds, layout, strict=True) if count},
            )
            for layout, members in indexed
        ]


def _text(kinds: Sequence[SharedPool], layout: Counts) -> str:
    held = [(count, kind.profile) for kind, count in zip(kinds, layout, strict=True) if count]
    return held[0][1] if len(held) == 1 else "-".join(f"{count}x{profile}" for count, profile in held)


def alike(shared: SharedPool, gpus_per_node: int) -> Cut:
    """Return nodes cut into slots of one kind."""
    return Cut(kinds=(shared,), gpus=((shared.slots_per_node // gpus_per_node,),) * gpus_per_node)


def side_by_side(wanted: Mapping[SharedPool, int], gpus_per_node: int) -> tuple[Cut, ...]:
    """Return the fewest nodes that hold so many slices of several profiles, alike ones as one cut; what is left over is cut
    into more of the same."""
    kinds = tuple(sorted(wanted, key=lambda kind: (-max(kind.takes), kind.profile)))
    takes, room = [kind.takes for kind in kinds], tuple(most // gpus_per_node for most in kinds[0].room)
    boards = [_filled(board, takes, room) for board in cut_boards(tuple(wanted[kind] for kind in kinds), takes, room)]
    boards += [boards[-1]] * (-len(boards) % gpus_per_node)
    nodes = Counter(tuple(boards[at : at + gpus_per_node]) for at in range(0, len(boards), gpus_per_node))
    return tuple(Cut(kinds=kinds, gpus=gpus, nodes=count) for gpus, count in sorted(nodes.items(), reverse=True))


def _filled(layout: Counts, takes: Sequence[tuple[int, ...]], room: tuple[int, ...]) -> Counts:
    """Return a layout with as many more slices as fit, the largest first."""
    for at in range(len(takes)):
        more = tuple(count + (place == at) for place, count in enumerate(layout))
        while boards_for(more, takes, room) == 1:
            layout, more = more, tuple(count + (place == at) for place, count in enumerate(more))
    return layout

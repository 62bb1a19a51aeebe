"""How many boards hold so many MIG instances of each profile, mixed as the geometry allows, and how each is cut.

Every legal layout of a board keeps within a few *measures*, each a sum over its instances:

- memory slices, of which the board has 8 (4 on some);
- for each profile R whose placements do not overlap, R's placements that an instance covers whole, wherever it stands: an
  instance of 3g covers one of 2g's three, 4g two of them, 1g none. No two instances cover the same one.

So `max over measures of ceil(sum / room)` boards are needed at least. On every board of the catalog so many are also enough,
which no proof says but a search through all demands up to about two boards' worth (`tests/catalog/test_mig_packing.py`). It
makes counting boards a matter of sums. The least of the measures that say this are kept: memory, compute, and where they differ
2g's placements and those of 4g.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

from trimtab.catalog.mig import MigProfile

Counts = tuple[int, ...]
"""Instances of each profile, in a fixed order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What one instance of each profile takes by each measure (profile -> n_measures), and what a board holds."""

    takes: Mapping[str, tuple[int, ...]]
    room: tuple[int, ...]


def measures_of(profiles: Sequence[MigProfile]) -> Measures:
    """Return the measures of a board's profiles: memory slices first; one that another implies is left out."""
    memory = (*(profile.memory_slices for profile in profiles), profiles[0].total_memory_slices)
    found = [memory]
    found += [
        (*(_covered(profile, reference) for profile in profiles), len(reference.starts))
        for reference in sorted(
            profiles, key=lambda profile: (profile.memory_slices, profile.compute_slices, profile.name)
        )
        if not _overlaps(reference)
    ]
    kept: list[tuple[int, ...]] = []
    for measure in found:
        if not any(_implies(other, measure) for other in kept):
            kept = [*(other for other in kept if not _implies(measure, other)), measure]
    return Measures(
        takes={profile.name: tuple(measure[at] for measure in kept) for at, profile in enumerate(profiles)},
        room=tuple(measure[-1] for measure in kept),
    )


def _overlaps(profile: MigProfile) -> bool:
    starts = sorted(profile.starts)
    return any(late - early < profile.memory_slices for early, late in pairwise(starts))


def _covered(profile: MigProfile, reference: MigProfile) -> int:
    """Return the reference's placements that an instance covers whole, at the start where these are fewest."""
    return min(
        sum(reference.slices_at(start) <= profile.slices_at(at) for start in reference.starts) for at in profile.starts
    )


def _implies(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Tell whether whatever keeps within one measure keeps within the other; the last entry is the room."""
    return all(a * other[-1] >= b * one[-1] for a, b in zip(one[:-1], other[:-1], strict=True))


def boards_for(counts: Counts, takes: Sequence[tuple[int, ...]], room: tuple[int, ...]) -> int:
    """Return the fewest boards that hold so many instances; `takes` is by profile, in the order of the counts."""
    needed = (sum(count * take[at] for count, take in zip(counts, takes, strict=True)) for at in range(len(room)))
    return max((-(-total // most) for total, most in zip(needed, room, strict=True)), default=0)


def cut_boards(counts: Counts, takes: Sequence[tuple[int, ...]], room: tuple[int, ...]) -> tuple[Counts, ...]:
    """Return a layout for each of the fewest boards that hold so many instances; as many alike as can be, the fullest first."""
    left, boards = counts, []
    while any(left):
        wanted = boards_for(left, takes, room) - 1
        fitting = (
            layout for layout in _layouts(tuple(takes), room) if all(a <= b for a, b in zip(layout, left, strict=True))
        )
        best = next(layout for layout in fitting if boards_for(_less(left, layout), takes, room) <= wanted)
        while all(a <= b for a, b in zip(best, left, strict=True)) and any(left):
            after = _less(left, best)
            if boards_for(after, takes, room) >= boards_for(left, takes, room):
                break
            left = after
            boards.append(best)
    return tuple(boards)


def _less(counts: Counts, layout: Counts) -> Counts:
    return tuple(a - b for a, b in zip(counts, layout, strict=True))


@lru_cache(maxsize=64)
def _layouts(takes: tuple[tuple[int, ...], ...], room: tuple[int, ...]) -> tuple[Counts, ...]:
    """Return everything that fits one board, the fullest first."""

    def fullness(layout: Counts) -> tuple[float, Counts]:
        by_measure = [
            sum(count * take[at] for count, take in zip(layout, takes, strict=True)) for at in range(len(room))
        ]
        return sum(held / most for held, most in zip(by_measure, room, strict=True)), layout

    return tuple(sorted(_fitting(takes, room), key=fullness, reverse=True))


def _fitting(takes: tuple[tuple[int, ...], ...], room: tuple[int, ...]) -> Iterator[Counts]:
    most = [min(most // take for take, most in zip(measure, room, strict=True) if take) for measure in takes]
    for layout in product(*(range(count + 1) for count in most)):
        if any(layout) and boards_for(layout, takes, room) == 1:
            yield layout

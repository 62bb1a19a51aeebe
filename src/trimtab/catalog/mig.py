"""MIG: profiles and their placements, how few boards hold a set of instances, and what a slice is to a program.

A layout is legal if and only if every instance finds a placement of its own, as `nvidia-smi mig -lgipp` lists them.
Sums of slices do not decide it: a board has 8 memory slices but 7 compute slices, and instances start at fixed slices.

**How many boards** hold so many instances of each profile, mixed as the geometry allows: every legal layout of a board keeps
within a few *measures*, each a sum over its instances:

- memory slices, of which the board has 8 (4 on some);
- for each profile R whose placements do not overlap, R's placements that an instance covers whole, wherever it stands: an
  instance of 3g covers one of 2g's three, 4g two of them, 1g none. No two instances cover the same one.

So `max over measures of ceil(sum / room)` boards are needed at least. On every board of the catalog so many are also enough,
which no proof says but a search through all demands up to about two boards' worth (`tests/catalog/test_mig_packing.py`). It
makes counting boards a matter of sums. The least of the measures that say this are kept: memory, compute, and where they differ
2g's placements and those of 4g.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product

from trimtab.catalog.gpus import Gpu
from trimtab.catalog.rows import CatalogRow, number, packaged_rows, whole
from trimtab.units import MIB_PER_GIB

_UNMEASURED_SHARE_FRAC = 0.95
"""What an instance shows of its share of the board's visible memory: 0.95 (A30) to 0.99 where measured; the least is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One way to cut an instance out of a board."""

    board: str
    name: str
    compute_slices: int
    memory_slices: int
    total_memory_slices: int
    memory_gb: float
    """The figure in the profile's name."""
    measured_memory_gib: float | None
    sm_count: int | None
    max_instances: int
    starts: tuple[int, ...]
    """Memory slices at which an instance may begin; it takes `memory_slices` from there."""
    sources: tuple[str, ...]
    notes: str = ""

    @property
    def mem_bw_frac(self) -> float:
        """Return the share of the board's bandwidth: it follows memory slices (H200 3g.71gb: 2,407 of 4,800 GB/s)."""
        return self.memory_slices / self.total_memory_slices

    @property
    def holds_media_engines(self) -> bool:
        """Return whether the instance takes the board's media engines, of which there is one set."""
        return "+me" in self.name

    def memory_gib(self, board_memory_gib: float) -> float:
        """Return the memory a program sees: measured where known, else a careful share of the board's visible memory."""
        if self.measured_memory_gib is not None:
            return self.measured_memory_gib
        return board_memory_gib * self.mem_bw_frac * _UNMEASURED_SHARE_FRAC

    def slices_at(self, start: int) -> frozenset[int]:
        """Return the memory slices taken by an instance that begins at `start`."""
        return frozenset(range(start, start + self.memory_slices))


@dataclass(frozen=True, eq=False)
class MigTable:
    """The profiles of every board."""

    profiles: tuple[MigProfile, ...]

    @cached_property
    def _by_board(self) -> Mapping[str, dict[str, MigProfile]]:
        boards: dict[str, dict[str, MigProfile]] = {}
        for profile in self.profiles:
            boards.setdefault(profile.board, {})[profile.name] = profile
        return boards

    @property
    def boards(self) -> tuple[str, ...]:
        """Return the names of the families."""
        return tuple(self._by_board)

    def of_board(self, board: str) -> tuple[MigProfile, ...]:
        """Return a board's profiles; none where it cannot be partitioned."""
        return tuple(self._by_board.get(board, {}).values())


def place(profiles: Sequence[MigProfile]) -> tuple[int, ...] | None:
    """Return the start slice of each profile in a legal layout of one board, or None where there is none.

    Largest instances are tried first, at their lowest start first, so that equal layouts get equal answers.
    """
    if not _counts_allow(profiles):
        return None
    order = sorted(range(len(profiles)), key=lambda i: (-profiles[i].memory_slices, profiles[i].name, i))
    starts: dict[int, int] = {}
    if not _place_rest(profiles, order, frozenset(), starts):
        return None
    return tuple(starts[i] for i in range(len(profiles)))


def _counts_allow(profiles: Sequence[MigProfile]) -> bool:
    if sum(profile.holds_media_engines for profile in profiles) > 1:
        return False
    counts = Counter(profile.name for profile in profiles)
    return all(counts[profile.name] <= profile.max_instances for profile in profiles)


def _place_rest(
    profiles: Sequence[MigProfile], order: Sequence[int], taken: frozenset[int], starts: dict[int, int]
) -> bool:
    """Place the profiles of `order` on the slices not taken, writing their starts; backtracks where one does not fit."""
    if not order:
        return True
    first, rest = order[0], order[1:]
    for start in profiles[first].starts:
        slices = profiles[first].slices_at(start)
        if slices & taken:
            continue
        starts[first] = start
        if _place_rest(profiles, rest, taken | slices, starts):
            return True
    return False


def load_mig() -> MigTable:
    """Read the packaged MIG profiles."""
    return MigTable(tuple(_profile(row) for row in packaged_rows("mig_profiles.csv")))


def _profile(row: CatalogRow) -> MigProfile:
    mib = number(row["memory_mib"])
    return MigProfile(
        board=row["board"],
        name=row["profile"],
        compute_slices=int(row["compute_slices"]),
        memory_slices=int(row["memory_slices"]),
        total_memory_slices=int(row["total_memory_slices"]),
        memory_gb=float(row["memory_gb"]),
        measured_memory_gib=None if mib is None else mib / MIB_PER_GIB,
        sm_count=whole(row["sm_count"]),
        max_instances=int(row["max_instances"]),
        starts=tuple(int(start) for start in row["starts"].split()),
        sources=tuple(row["sources"].split(";")),
        notes=row["notes"],
    )


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
    """Return whether whatever keeps within one measure keeps within the other; the last entry is the room."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """A MIG profile that a board can be cut into `per_gpu` times, and one slice of it as a GPU.

    A slice `takes` some of the board's `room` by each measure; slices of several profiles fit where the sums do.
    """

    profile: MigProfile
    per_gpu: int
    slice: Gpu
    takes: tuple[int, ...]
    room: tuple[int, ...]


def slices_of(gpu: Gpu, mig: MigTable) -> tuple[Slices, ...]:
    """Return every profile that leaves room for another slice beside it, smallest first; none where a board cannot be cut.

    Profiles that differ in media or graphics engines alone are left out.
    """
    if not gpu.mig_capable:
        return ()
    plain = [profile for profile in mig.of_board(gpu.mig_board) if profile.name.replace(".", "").isalnum()]
    most = max((profile.compute_slices for profile in plain), default=1)
    profiles = [profile for profile in plain if profile.compute_slices < most]
    if not profiles:
        return ()
    measures = measures_of(profiles)
    found = [
        Slices(
            profile=profile,
            per_gpu=profile.max_instances,
            slice=_slice(gpu, profile, most),
            takes=measures.takes[profile.name],
            room=measures.room,
        )
        for profile in profiles
    ]
    return tuple(sorted(found, key=lambda slot: (-slot.per_gpu, slot.profile.name)))


def _slice(gpu: Gpu, profile: MigProfile, compute_slices: int) -> Gpu:
    """Return a slice as a board: its visible memory, its share of bandwidth, and its share of the processors' rates."""
    compute = profile.compute_slices / compute_slices
    if profile.sm_count is not None and gpu.sm_count is not None:
        compute = profile.sm_count / gpu.sm_count
    return replace(
        gpu,
        name=f"{gpu.name} {profile.name}",
        memory_gb=profile.memory_gb,
        memory_gib=profile.memory_gib(gpu.memory_gib),
        mem_bw_gb_s=gpu.mem_bw_gb_s * profile.mem_bw_frac,
        rates_tflops={precision: rate * compute for precision, rate in gpu.rates_tflops.items()},
        sm_count=profile.sm_count,
        nvlink_gb_s=0.0,
    )

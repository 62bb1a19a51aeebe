"""MIG profiles and their placements: which sets of instances a board can hold at once.

A layout is legal if and only if every instance finds a placement of its own, as `nvidia-smi mig -lgipp` lists them.
Sums of slices do not decide it: a board has 8 memory slices but 7 compute slices, and instances start at fixed slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trimtab.catalog.rows import Row, number, packaged_rows, whole
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
        """Tell whether the instance takes the board's media engines, of which there is one set."""
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


def load_mig(rows: Iterable[Row] | None = None) -> MigTable:
    """Read the packaged MIG profiles."""
    return MigTable(tuple(_profile(row) for row in (packaged_rows("mig_profiles.csv") if rows is None else rows)))


def _profile(row: Row) -> MigProfile:
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

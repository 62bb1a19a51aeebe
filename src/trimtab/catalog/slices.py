"""A GPU cut into MIG slices: what one of them is to the program that runs on it, and what room it takes of the board."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog.gpus import Gpu
from trimtab.catalog.mig import MigProfile, MigTable
from trimtab.catalog.mig_packing import measures_of


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

"""A GPU cut into equal slices: what one of them is to the program that runs on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog.gpus import Gpu
from trimtab.catalog.mig import MigProfile, MigTable, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """A MIG profile that a board can be cut into `per_gpu` times, and one slice of it as a GPU."""

    profile: MigProfile
    per_gpu: int
    slice: Gpu


def equal_slices(gpu: Gpu, mig: MigTable) -> tuple[Slices, ...]:
    """Return every way to cut a board into two or more equal slices, smallest first; none where it cannot be cut.

    Profiles that differ in media or graphics engines alone are left out.
    """
    if not gpu.mig_capable:
        return ()
    profiles = mig.of_board(gpu.mig_board)
    most = max((profile.compute_slices for profile in profiles), default=1)
    found = [
        Slices(profile=profile, per_gpu=profile.max_instances, slice=_slice(gpu, profile, most))
        for profile in profiles
        if profile.name.replace(".", "").isalnum() and profile.max_instances > 1
    ]
    legal = [one for one in found if place([one.profile] * one.per_gpu) is not None]
    return tuple(sorted(legal, key=lambda one: (-one.per_gpu, one.profile.name)))


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

"""All levers, in the order in which options of a workload are composed.

A third party adds one by an entry point of the group `trimtab.levers` that names a `Lever` (or a function that returns one); it
proposes effects of the closed set, and its ways compose with the others of its stage.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from trimtab.errors import InputError
from trimtab.fleet.settings import Effort, Settings
from trimtab.levers import (
    autoscaling,
    batching,
    capacity_blocks,
    closed_hours,
    commitments,
    disaggregation,
    faster_start,
    gpu_count,
    idle_release,
    overflow,
    quantization,
    relocation,
    replica_count,
    replica_gpus,
    right_size,
    scale_to_zero,
    schedule,
    sharing,
    spot,
    training_memory,
)
from trimtab.levers.lever import CompositionStage, Lever
from trimtab.tables.workloads import WorkloadKind

ENTRY_POINTS = "trimtab.levers"
BUILT_IN: tuple[Lever, ...] = (
    right_size.LEVER,
    replica_gpus.LEVER,
    relocation.LEVER,
    sharing.LEVER,
    gpu_count.LEVER,
    training_memory.LEVER,
    quantization.LEVER,
    overflow.LEVER,
    autoscaling.LEVER,
    scale_to_zero.LEVER,
    replica_count.LEVER,
    idle_release.LEVER,
    schedule.LEVER,
    closed_hours.LEVER,
    batching.LEVER,
    disaggregation.LEVER,
    faster_start.LEVER,
    spot.LEVER,
    capacity_blocks.LEVER,
    commitments.LEVER,
)
"""The built-in levers."""


@cache
def levers() -> tuple[Lever, ...]:
    """Return every lever: the built-in ones, then those that installed packages register, by name.

    Raises InputError for an entry point that is not a lever, or takes another's name.
    """
    found = {lever.name: lever for lever in BUILT_IN}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        lever = _loaded(point)
        if lever.name in found:
            raise InputError(f"entry point {point.name} of {ENTRY_POINTS}: there is a lever {lever.name!r} already")
        found[lever.name] = lever
    return tuple(found.values())


def _loaded(point: EntryPoint) -> Lever:
    try:
        found = point.load()
        lever = found if isinstance(found, Lever) else found()
    except (ImportError, AttributeError, TypeError) as error:
        raise InputError(
            f"entry point {point.name} of {ENTRY_POINTS} ({point.value}) cannot be loaded: {error}"
        ) from error
    if not isinstance(lever, Lever):
        raise InputError(
            f"entry point {point.name} of {ENTRY_POINTS} ({point.value}) is a {type(lever).__name__}, no Lever"
        )
    return lever


def lever_named(name: str) -> Lever:
    """Return a lever. Raises InputError for a name that no installed package registers."""
    for lever in levers():
        if lever.name == name:
            return lever
    raise InputError(f"no lever is named {name!r}; a package that registered it may not be installed any more")


def title_of(name: str) -> str:
    """Return a lever's title; its name where the package that registered it is gone, so that kept audits stay readable."""
    return next((lever.title for lever in levers() if lever.name == name), name)


def serving(kind: WorkloadKind, *stages: CompositionStage) -> tuple[Lever, ...]:
    """Return the levers that serve a kind of workload, of some stages (none named: of all), in order of composition."""
    return tuple(lever for lever in levers() if kind in lever.kinds and (not stages or lever.stage in stages))


def effort_of_lever(name: str, settings: Settings) -> Effort:
    """Return a lever's effort: the team's own where it is set, else the lever's default."""
    return settings.efforts.get(name) or lever_named(name).effort


def with_all_efforts(settings: Settings) -> Settings:
    """Return settings that state the effort of every lever, as users read and set them."""
    table = {lever.name: effort_of_lever(lever.name, settings) for lever in levers()}
    return replace(settings, efforts=table)

"""What a plan does to one workload: at most one effect per dimension, each with the lever that proposed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from types import NoneType
from typing import get_args, get_type_hints

from trimtab.deployment.effects import (
    Buying,
    Holding,
    OverflowTo,
    Relocate,
    Scaling,
    SetBatchPolicy,
    SetGpuCount,
    SetPrecision,
    SetReplicaGpus,
    SetTrainingMemory,
    ShortenStart,
    SplitServing,
    UseOffering,
    UseSlots,
    WorkloadEffect,
)

_OWED_TO = "owed_to"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """At most one effect a dimension; None: as history had it. In which order they were stated plays no part.

    `owed_to` names, by dimension, the lever that proposed the effect. Savings are attributed to it.
    """

    offering: UseOffering | None = None
    relocation: Relocate | None = None
    overflow: OverflowTo | None = None
    sharing: UseSlots | None = None
    gpu_count: SetGpuCount | None = None
    replica_gpus: SetReplicaGpus | None = None
    memory: SetTrainingMemory | None = None
    precision: SetPrecision | None = None
    split: SplitServing | None = None
    batching: SetBatchPolicy | None = None
    start: ShortenStart | None = None
    scaling: Scaling | None = None
    holding: Holding | None = None
    buying: Buying | None = None
    owed_to: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, *changes: tuple[str, WorkloadEffect]) -> Deployment:
        """Return the deployment of some effects, each with its lever. Raises ValueError for two of one dimension."""
        return AS_IT_IS.plus(*changes)

    def plus(self, *changes: tuple[str, WorkloadEffect]) -> Deployment:
        """Return the deployment with more effects, each with its lever. Raises ValueError if a dimension is taken."""
        values: dict[str, WorkloadEffect] = {}
        owed_to = dict(self.owed_to)
        for lever, effect in changes:
            dimension = dimension_of(effect)
            if dimension in owed_to:
                raise ValueError(
                    f"{owed_to[dimension]} and {lever} both change a workload's {dimension.replace('_', ' ')}"
                )
            values[dimension], owed_to[dimension] = effect, lever
        ordered = tuple((name, owed_to[name]) for name in _DIMENSIONS if name in owed_to)
        # plans make them by the million: this takes half the time of `dataclasses.replace`
        stated = dict(zip(_DIMENSIONS, _effects(self), strict=True)) | values
        return Deployment(**stated, owed_to=ordered)

    def alike_but_scaling(self, other: Deployment) -> bool:
        """Return whether both are the same but for how replicas are scaled, whoever proposed what."""
        return bool(_effects_but_scaling(self) == _effects_but_scaling(other))

    @property
    def changes(self) -> tuple[tuple[str, WorkloadEffect], ...]:
        """Return each effect with its lever, in the order of the dimensions; empty if nothing changes."""
        return tuple((lever, getattr(self, dimension)) for dimension, lever in self.owed_to)

    @property
    def levers(self) -> frozenset[str]:
        """Return the levers that proposed any of its effects."""
        return frozenset(lever for _, lever in self.owed_to)

    def of_lever(self, lever: str) -> Iterator[WorkloadEffect]:
        """Yield the effects that a lever proposed."""
        return (effect for name, effect in self.changes if name == lever)

    def restricted(self, levers: Iterable[str]) -> Deployment:
        """Return the deployment restricted to the effects of some levers."""
        kept = frozenset(levers)
        return Deployment.of(*((lever, effect) for lever, effect in self.changes if lever in kept))

    def only(self, *dimensions: str) -> Deployment:
        """Return the deployment restricted to some dimensions; the others stay as in history."""
        return Deployment.of(*((lever, getattr(self, name)) for name, lever in self.owed_to if name in dimensions))

    def without(self, *dimensions: str) -> Deployment:
        """Return the deployment without some dimensions, which stay as in history."""
        return Deployment.of(*((lever, getattr(self, name)) for name, lever in self.owed_to if name not in dimensions))


_DIMENSIONS = tuple(field.name for field in fields(Deployment) if field.name != _OWED_TO)
_effects = attrgetter(*_DIMENSIONS)
_effects_but_scaling = attrgetter(*(name for name in _DIMENSIONS if name != "scaling"))
AS_IT_IS = Deployment()
"""The deployment without any change."""


def _dimensions_by_effect() -> dict[type, str]:
    """Return the field that each kind of effect sets, as the fields' types say."""
    hints = get_type_hints(Deployment)
    return {kind: name for name in _DIMENSIONS for kind in get_args(hints[name]) if kind is not NoneType}


_DIMENSION_OF = _dimensions_by_effect()


def dimension_of(effect: WorkloadEffect) -> str:
    """Return the field of a deployment that an effect sets."""
    return _DIMENSION_OF[type(effect)]

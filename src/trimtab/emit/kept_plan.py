"""Reads and writes a plan and its cluster facts as JSON, without loss. `trimtab audit` keeps it for `emit` and `verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trimtab.catalog.kinds import BuyingOption
from trimtab.deployment.effects import BatchForm
from trimtab.deployment.kept_form import TYPE
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts, NodeMaker
from trimtab.errors import InputError
from trimtab.inputs.documents import load_json
from trimtab.levers.lever import Risk
from trimtab.physics.formats import WeightFormat
from trimtab.physics.training import Optimizer, Recompute, Sharding
from trimtab.plan.model import AlternativeKind, Plan
from trimtab.plan.verify.baseline import Baseline
from trimtab.policies.scaling import Metric
from trimtab.provenance import Basis
from trimtab.tables.workloads import TargetMetric

FORMAT = 4
_VERSION = "format"
_KEPT = "kept"
_AGAIN = "run `trimtab audit` again"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """A plan that can be enacted later: the fleet's name, the plan, and the known facts about the cluster."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    fleet: str
    plan: Plan
    facts: EmitFacts
    baseline: Baseline | None = None
    """How the fleet ran in the fit window; None in plans saved before this was recorded."""


def render_kept_plan(kept: KeptPlan) -> str:
    """Return a plan and its facts as JSON on one line. Raises ValueError for NaN and infinity, which JSON lacks."""
    plain = _adapter().dump_python(kept, mode="json")
    return json.dumps({_VERSION: FORMAT, _KEPT: plain}, ensure_ascii=False, allow_nan=False)


def parse_kept_plan(text: str | bytes, *, where: str) -> KeptPlan:
    """Read a saved plan. Raises InputError, with the first mismatch, if it has an unsupported format."""
    plain = load_json(text, where)
    version = plain.get(_VERSION) if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(version, int) or not 1 <= version <= FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        cure = f"this trimtab reads up to format {FORMAT}: update trimtab, or {_AGAIN}" if newer else _AGAIN
        raise InputError(f"{where} is not a plan that this version of trimtab can read (format {version!r}); {cure}")
    kept = plain.get(_KEPT)
    try:
        return _adapter().validate_python(_with_alternatives(kept if version >= 3 else _migrated(kept)))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or _KEPT
        raise InputError(
            f"{where} is damaged: {place}: {fault['msg']}, saw {fault['input']!r:.120}; {_AGAIN}"
        ) from error


@cache
def _adapter() -> TypeAdapter[KeptPlan]:
    """Return the adapter that reads and writes saved plans. Built on first use, because building it costs more than reading
    a plan."""
    return TypeAdapter(KeptPlan)


def _with_alternatives(kept: object) -> object:
    """Name a plan's alternatives as they are named now: until format 3 they were `ventures`."""
    match kept:
        case {"plan": {"ventures": alternatives, **plan}, **rest}:
            return {**rest, "plan": {**plan, "alternatives": alternatives}}
    return kept


# Formats 1 and 2 stored the class name of every object under `type`, and enums by member name: `RESERVED_1Y`. Format 1, of
# 0.1.0, stored levers that way too: `RIGHT_SIZE`.

_ENUMS: Mapping[str, tuple[type[Enum], ...]] = {
    "autoscaler": (Autoscaler,),
    "basis": (Basis,),
    "form": (BatchForm,),
    "kind": (AlternativeKind,),
    "metric": (Metric, TargetMetric),
    "node_maker": (NodeMaker,),
    "option": (BuyingOption,),
    "optimizer": (Optimizer,),
    "recompute": (Recompute,),
    "risk": (Risk,),
    "sharding": (Sharding,),
    **dict.fromkeys(("before", "after"), (WeightFormat,)),
}
"""Fields of former formats -> the enums whose member names they hold."""


def _migrated(plain: object, field: str = "") -> object:
    """Convert a value of a former format to the present one."""
    match plain:
        case dict():
            return {key: _migrated(part, key) for key, part in plain.items() if key != TYPE or field == "effect"}
        case list():
            return [_migrated(part) for part in plain]
        case str() if field == "lever":
            return plain.lower().replace("_", "-")
        case str():
            members = (kind.__members__.get(plain) for kind in _ENUMS.get(field, ()))
            return next((member.value for member in members if member is not None), plain)
    return plain

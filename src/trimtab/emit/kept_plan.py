"""A plan and the facts around it as JSON text, and back without loss: what `trimtab audit` keeps for `emit` and `verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.plain import Plain, from_plain, to_plain
from trimtab.errors import InputError
from trimtab.inputs.json_text import load_json
from trimtab.plan.model import Plan
from trimtab.plan.verify.baseline import Baseline

FORMAT = 2
_LEVERS_BY_ENUM = 1
"""The format of 0.1.0, which named levers by the members of an enum: `RIGHT_SIZE`."""
_VERSION = "format"
_KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """A plan that can be enacted later: of which fleet, the plan, and what was known of the cluster."""

    fleet: str
    plan: Plan
    facts: EmitFacts
    baseline: Baseline | None = None
    """How the fleet ran in the fit window; None in plans kept before this was known."""


def render_kept_plan(kept: KeptPlan) -> str:
    """Return the JSON text of a plan and its facts."""
    return json.dumps({_VERSION: FORMAT, _KEPT: to_plain(kept)}, indent=1, ensure_ascii=False) + "\n"


def parse_kept_plan(text: str, *, where: str) -> KeptPlan:
    """Read a kept plan back; raises InputError where it is none of this version."""
    plain = load_json(text, where)
    if not isinstance(plain, dict) or plain.get(_VERSION) not in (_LEVERS_BY_ENUM, FORMAT):
        raise InputError(f"{where} is not a plan of this version of trimtab; run `trimtab audit` again")
    kept = plain.get(_KEPT)
    return from_plain(KeptPlan, _renamed(kept) if plain[_VERSION] == _LEVERS_BY_ENUM else kept, where=where)


def _renamed(plain: Plain) -> Plain:
    """Return a plan of 0.1.0 with its levers named as they are now."""
    if isinstance(plain, Mapping):
        return {
            key: value.lower().replace("_", "-") if key == "lever" and isinstance(value, str) else _renamed(value)
            for key, value in plain.items()
        }
    return [_renamed(item) for item in plain] if isinstance(plain, list) else plain

"""Effects as plain JSON values, and back without loss: what a stored audit carries, so that it can be enacted later."""

from __future__ import annotations

from typing import cast

from trimtab.emit.plain import Plain, from_plain, to_plain
from trimtab.fleet.effects import Effect


def effect_plain(effect: Effect) -> Plain:
    """Return an effect as an object whose `type` names its class."""
    return to_plain(effect)


def parse_effect(plain: Plain, *, where: str = "effect") -> Effect:
    """Read an effect back; raises InputError, with the place, where it is none of the closed set."""
    return from_plain(cast("type[Effect]", Effect), plain, where=where)

"""Outcomes by content: what a replay gave is looked up by everything that it depends on, prices not among it.

A changed price, quota or budget finds every outcome; a changed history, target or assumption finds none. Nor does a changed
program: who keeps outcomes keeps them by program (`OutcomeStore`), since no list of what a replay runs stays whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum

import numpy as np
from pydantic import BaseModel

from trimtab.deployment.placement import Placement
from trimtab.replay.outcomes.outcome import Case


def case_digest(case: Case) -> str:
    """Return a digest of all that a replay of a case depends on, besides the placement and the program itself."""
    digest = hashlib.sha256()
    settings = case.settings
    _feed(digest, (case.workload, case.window, case.targets, case.law, case.seed, case.stress))
    _feed(digest, (settings.assumptions, settings.bands, settings.planning.demand_headroom_frac))
    return digest.hexdigest()


def outcome_key(case_digest_hex: str, seen: Placement, margin_frac: float | None = None) -> str:
    """Return the key of one outcome: its case, and the placement as the replay saw it (`Placement.as_replayed`).

    `margin_frac` is the margin out of which a replay that stopped early was.
    """
    digest = hashlib.sha256(case_digest_hex.encode())
    _feed(digest, seen)
    _feed(digest, margin_frac)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, value: object) -> None:
    """Feed a value of the model, part by part; raises TypeError for what has no stable form."""
    digest.update(type(value).__name__.encode())
    match value:
        case np.ndarray():
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        case BaseModel():
            digest.update(value.model_dump_json().encode())
        case Enum():
            digest.update(value.name.encode())
        case bool() | int() | float() | str() | date() | None:
            digest.update(repr(value).encode())
        case Mapping():
            for key in sorted(value, key=repr):
                _feed(digest, key)
                _feed(digest, value[key])
        case tuple() | list() | frozenset():
            digest.update(f"{len(value)}".encode())
            for part in sorted(value, key=repr) if isinstance(value, frozenset) else value:
                _feed(digest, part)
        case _ if is_dataclass(value):
            for field in fields(value):
                digest.update(field.name.encode())
                _feed(digest, getattr(value, field.name))
        case _:
            raise TypeError(f"no stable form of a {type(value).__name__}")

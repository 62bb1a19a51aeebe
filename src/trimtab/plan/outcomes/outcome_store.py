"""Outcomes by content: what a replay gave is looked up by everything that it depends on, prices not among it.

A changed price, quota or budget finds every outcome; a changed history, target, assumption or program finds none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from trimtab._version import __version__
from trimtab.plan.outcomes.outcome import Case

_REPLAYED_BY = ("policies", "fleet", "levers", "plan", "replay")
"""Packages whose change makes kept outcomes stale."""


def case_digest(case: Case) -> str:
    """Return a digest of all that a replay of a case depends on, besides the effects."""
    digest = hashlib.sha256(_program().encode())
    settings = case.settings
    _feed(digest, (case.workload, case.window, case.targets, case.law, case.seed, case.stress))
    _feed(digest, (settings.assumptions, settings.bands, settings.planning.demand_headroom_frac))
    return digest.hexdigest()


def outcome_key(case_digest_hex: str, key: tuple[object, ...]) -> str:
    """Return the key of one outcome: its case and what of the effects the replay sees."""
    return hashlib.sha256(f"{case_digest_hex}|{key!r}".encode()).hexdigest()


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
            for part in sorted(value, key=repr) if isinstance(value, frozenset) else value:
                _feed(digest, part)
        case _ if is_dataclass(value):
            for field in fields(value):
                digest.update(field.name.encode())
                _feed(digest, getattr(value, field.name))
        case _:
            raise TypeError(f"no stable form of a {type(value).__name__}")


@cache
def _program() -> str:
    """Return what tells one version of the replaying code from another: the version, and the files as they lie on disk."""
    root = Path(__file__).parents[1]
    files = sorted(file for package in _REPLAYED_BY for file in (root / package).rglob("*.py"))
    return "|".join([__version__, *(f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files)])

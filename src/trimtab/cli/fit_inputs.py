"""What `trimtab fit` is told: the model, amounts such as 7B or 1M/day, limits such as 300ms."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.inputs.json_text import read_json_object
from trimtab.physics.hf_config import architecture_from_config
from trimtab.physics.models import Architecture, generic_model, known_models, model_named
from trimtab.units import MS_PER_S, S_PER_DAY, S_PER_HR, parse_span

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_PERIODS = {"s": 1, "sec": 1, "h": S_PER_HR, "hour": S_PER_HR, "d": S_PER_DAY, "day": S_PER_DAY}


def amount(text: str) -> float:
    """Read a count such as 500, 20K, 2B; raises UsageError."""
    found = re.fullmatch(r"\s*([\d.,_]+)\s*([KMBTkmbt]?)\s*", text)
    try:
        value = float(found[1].replace(",", "").replace("_", "")) * _SCALES[found[2].upper()] if found else -1.0
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UsageError(f"{text!r} is not an amount; write 500, 20K, 2B")
    return value


def amount_per_second(text: str) -> float:
    """Read a rate such as 20, 1M/day, 500K/h in events a second; raises UsageError."""
    count, _, period = text.partition("/")
    if period and period not in _PERIODS:
        raise UsageError(f"{text!r} is not a rate; write 20/s, 500K/h or 1M/day")
    return amount(count) / _PERIODS[period or "s"]


def seconds(text: str | None) -> float | None:
    """Read a limit such as 300ms, 2s, 4h, 14d; a bare number means milliseconds. Raises UsageError."""
    if text is None:
        return None
    bare = text.strip()
    try:
        if bare.endswith("ms") or bare.replace(".", "", 1).isdigit():
            return amount(bare.removesuffix("ms")) / MS_PER_S
        return parse_span(bare).total_seconds()
    except ValueError as error:
        raise UsageError(f"{text!r} is not a length of time; write 300ms, 2s, 4h or 14d") from error


def model_of(name: str | None, params: str | None, active: str | None = None) -> Architecture:
    """Return the architecture of a config.json, of the local hub cache, of the built-in table, or of a size.

    Raises UnknownName with near matches, UsageError where neither a name nor a size is given.
    """
    if name is not None:
        if (path := _config_path(name)) is not None:
            return architecture_from_config(read_json_object(path), name=name)
        if params is None:
            return _named(name)
    if params is None:
        raise UsageError("name a model, give the path of its config.json, or its size with --params 7B")
    size = amount(params) / _SCALES["B"] if params[-1:].isalpha() else amount(params)
    return generic_model(size, active_b=amount(active) / _SCALES["B"] if active else None, name=name or "")


def _named(name: str) -> Architecture:
    try:
        return model_named(name)
    except UnknownName as error:
        raise InputError(f"{error}; or give its config.json, or --params such as 7B") from UnknownName(
            "model", name, known_models()
        )


def _config_path(name: str) -> Path | None:
    """Return the config.json that a name means: a file, a folder that holds one, a snapshot in the local hub cache."""
    given = Path(name)
    if given.suffix == ".json":
        if not given.is_file():
            raise InputError(f"there is no file {name}")
        return given
    if (given / "config.json").is_file():
        return given / "config.json"
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    snapshots = home / "hub" / f"models--{name.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json")) if "/" in name and snapshots.is_dir() else []
    return found[-1] if found else None

"""Reads settings: flags override the environment, which overrides `trimtab.toml`, which overrides defaults. Origins are kept.

A setting's key is its path in `fleet.settings.Settings`: `planning.proof_frac`, `efforts.autoscaling.weeks`. In the environment
it is `TRIMTAB_PLANNING_PROOF_FRAC`; in the file, `proof_frac` under `[planning]`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar

from trimtab.cli.output import Sheet, SheetColumn
from trimtab.errors import Fault, InputError, SettingsError, near_matches
from trimtab.fleet.reach import isolation_of, listed, named_regions, quotas_of
from trimtab.fleet.settings import Settings
from trimtab.inputs.documents import check_depth
from trimtab.inputs.files import read_text
from trimtab.levers.registry import with_all_efforts

SETTINGS_FILE = "trimtab.toml"
ENV_PREFIX = "TRIMTAB_"
DEFAULT = "default"
QUOTAS = "limits.quotas"
_NAMES = ("limits.regions", "limits.providers")
"""Settings with several values, which a file may give as a list."""
_READERS: Mapping[str, Callable[[str], object]] = {
    QUOTAS: quotas_of,
    "limits.isolation": isolation_of,
    "limits.regions": lambda text: named_regions(listed(text)),
}
"""Settings with their own parser, which reports what is wrong with them."""
_LISTED = (QUOTAS,)
"""Settings that a file may give as a table, one line per entry."""
_FORMER = {"ventures": "alternatives"}
"""Former names of groups of settings -> their names now. A value under a former name is refused, never skipped."""
EFFORT_PER = ("fleet", "class", "action")

Value = bool | int | float | str
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSettings:
    """The current settings, and where each came from: `default`, a file, an environment variable, or `--set`."""

    settings: Settings
    values: Mapping[str, Value]
    origins: Mapping[str, str]

    def sheet(self) -> Sheet:
        """Return one row per setting, for `--show-settings`."""
        return Sheet(
            columns=[
                SheetColumn(key="setting", title="setting", whole=True),
                SheetColumn(key="value", title="value", right=True),
                SheetColumn(key="from", title="from"),
            ],
            rows=[{"setting": key, "value": value, "from": self.origins[key]} for key, value in self.values.items()],
        )


def resolve(*, file: Path | None, environ: Mapping[str, str], flags: Sequence[str]) -> ResolvedSettings:
    """Return the current settings. Raises SettingsError with all errors at once.

    `file` is an explicit file, or None for `trimtab.toml` in the working folder if it exists. `flags` are `key=value` texts.
    """
    values = dict(defaults())
    origins = dict.fromkeys(values, DEFAULT)
    faults: list[Fault] = []
    for origin, key, raw in (
        *_from_file(file),
        *_from_environment(environ, values, faults),
        *_from_flags(flags, faults),
    ):
        if key not in values:
            faults.append(_unknown(key, origin, values))
            continue
        try:
            values[key] = _coerced(key, raw, values[key])
            origins[key] = origin
        except ValueError as error:
            faults.append(Fault(what=f"{key}: {error}", where=origin, value=str(raw)))
    if faults:
        raise SettingsError(faults)
    return ResolvedSettings(settings=_rebuilt(with_all_efforts(Settings()), values), values=values, origins=origins)


def defaults() -> dict[str, Value]:
    """Return every setting's default by key, in the order of the table."""
    return dict(_leaves(with_all_efforts(Settings()), ""))


def env_name(key: str) -> str:
    """Return the environment variable of a key."""
    return ENV_PREFIX + key.upper().replace(".", "_").replace("-", "_")


def _leaves(value: object, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, part in _parts(value):
        key = f"{prefix}{name}"
        if isinstance(part, bool | int | float | str):
            yield key, part
        else:
            yield from _leaves(part, f"{key}.")


def _parts(value: object) -> list[tuple[str, object]]:
    """Return the named parts of a dataclass or mapping."""
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    raise TypeError(f"a setting holds a {type(value).__name__}, which cannot be set from text")


def _rebuilt(value: _T, values: Mapping[str, Value], prefix: str = "") -> _T:
    """Return the settings with these values replaced."""
    if isinstance(value, bool | int | float | str):
        found = values[prefix.removesuffix(".")]
        assert isinstance(found, type(value))
        return found
    if is_dataclass(value) and not isinstance(value, type):
        named = {name: _rebuilt(part, values, f"{prefix}{name}.") for name, part in _parts(value)}
        return replace(value, **named)
    assert isinstance(value, dict)
    return type(value)((key, _rebuilt(part, values, f"{prefix}{key}.")) for key, part in value.items())


def _from_file(file: Path | None) -> list[tuple[str, str, object]]:
    path = file or Path(SETTINGS_FILE)
    if file is None and not path.is_file():
        return []
    try:
        raw = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"cannot read the settings file {path}: {error}; correct its syntax") from error
    check_depth(raw, f"the settings file {path}")
    return [(str(path), key, value) for key, value in _flat(raw, "")]


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if f"{prefix}{name}" in _LISTED and isinstance(value, Mapping):
            yield f"{prefix}{name}", ", ".join(f"{key}={number}" for key, number in value.items())
        elif f"{prefix}{name}" in _NAMES and isinstance(value, list):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _from_environment(
    environ: Mapping[str, str], known: Mapping[str, Value], faults: list[Fault]
) -> list[tuple[str, str, object]]:
    """Return the settings in the environment. A variable that starts like a group of settings but names none is an error."""
    by_env = {env_name(key): key for key in (*known, *_former_names(known))}
    groups = tuple({env_name(f"{key.split('.')[0]}.") for key in by_env.values()})
    found: list[tuple[str, str, object]] = []
    for name, raw in sorted(environ.items()):
        if name in by_env:
            found.append((name, by_env[name], raw))
        elif name.startswith(groups):
            near = near_matches(name, by_env)
            cure = f"did you mean {', '.join(near)}?" if near else "`--show-settings` lists all"
            faults.append(Fault(what="no such setting", where=name, cure=cure))
    return found


def _from_flags(flags: Sequence[str], faults: list[Fault]) -> list[tuple[str, str, object]]:
    found: list[tuple[str, str, object]] = []
    for flag in flags:
        key, equals, raw = flag.partition("=")
        if equals:
            found.append(("--set", key.strip(), raw.strip()))
        else:
            faults.append(
                Fault(what="no value", where="--set", value=flag, cure="write --set planning.proof_frac=0.25")
            )
    return found


def _unknown(key: str, origin: str, known: Mapping[str, Value]) -> Fault:
    if key in (former := _former_names(known)):
        new = former[key]
        cure = f"it is now called {env_name(new) if origin.startswith(ENV_PREFIX) else new}"
        return Fault(what=f"unknown setting {key!r}", where=origin, cure=cure)
    near = near_matches(key, known) or [name for name in known if name.rpartition(".")[2] == key]
    cure = f"did you mean {', '.join(near)}?" if near else "`--show-settings` lists all"
    return Fault(what=f"unknown setting {key!r}", where=origin, cure=cure)


def _former_names(known: Iterable[str]) -> dict[str, str]:
    """Return the settings that had another name, by that name -> their name now."""
    new_groups = {new: old for old, new in _FORMER.items()}
    parted = ((key, *key.partition(".")) for key in known)
    return {f"{new_groups[group]}.{rest}": key for key, group, _, rest in parted if group in new_groups}


def _coerced(key: str, raw: object, default: Value) -> Value:
    """Return a value in the type of its default. Raises ValueError with an explanation."""
    if isinstance(default, bool):
        return _boolean(raw)
    if isinstance(default, str):
        return _word(key, str(raw))
    number = _number(raw, whole=isinstance(default, int))
    top = 1.0 if key.endswith("_frac") else math.inf
    if not 0 <= number <= top:
        raise ValueError("a share lies between 0 and 1" if top == 1.0 else "must not be negative")
    return number


def _boolean(raw: object) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return words[str(raw).lower()]
    except KeyError:
        raise ValueError("write true or false") from None


def _word(key: str, raw: str) -> str:
    if key in _READERS:
        try:
            _READERS[key](raw)
        except InputError as error:
            raise ValueError(str(error)) from error
    if key.endswith(".per") and raw not in EFFORT_PER:
        raise ValueError(f"write one of {', '.join(EFFORT_PER)}")
    return raw


def _number(raw: object, *, whole: bool) -> int | float:
    text = str(raw).strip()
    try:
        if isinstance(raw, bool):
            raise ValueError
        number = int(text) if whole else float(text)
    except ValueError:
        raise ValueError("write a whole number" if whole else "write a number") from None
    if not math.isfinite(number):
        raise ValueError("write a finite number")
    return number

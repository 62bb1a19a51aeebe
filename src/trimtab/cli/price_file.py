"""The file of a refresh: a price file that `--prices` takes, in which people's own rates stay as they wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trimtab.catalog import Catalog, Price
from trimtab.catalog.overrides import read_overrides
from trimtab.errors import UsageError
from trimtab.inputs.csv_rows import csv_rows
from trimtab.inputs.files import read_text
from trimtab.inputs.yaml_text import load_yaml
from trimtab.safe_text import csv_text

_COLUMNS = (
    "provider", "instance_type", "region", "option", "usd_hr", "as_of", "source", "basis", "purchasable", "interruption",
    "note",
)  # fmt: skip
_YAML = {".yaml", ".yml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFile:
    """What a price file held before a refresh."""

    listed: tuple[Price, ...] = ()
    """Rates that a refresh wrote."""
    own: tuple[Price, ...] = ()
    """Rates that a person wrote."""
    own_rows: tuple[Mapping[str, object], ...] = ()
    owned_rows: tuple[Mapping[str, object], ...] = ()


def read_price_file(path: Path, catalog: Catalog, refreshed: Sequence[str]) -> PriceFile:
    """Read the file of an earlier refresh, or of a person; empty where there is none. Raises InputError.

    `refreshed` are the beginnings of the sources of rates that a refresh wrote.
    """
    if not path.exists():
        return PriceFile()
    prices = read_overrides(path, catalog.gpu_table, catalog.instance_table).prices
    rows, owned = _rows(path)
    marks = tuple(refreshed)
    return PriceFile(
        listed=tuple(price for price in prices if price.source.startswith(marks)),
        own=tuple(price for price in prices if not price.source.startswith(marks)),
        own_rows=tuple(row for row in rows if not str(row.get("source") or "").startswith(marks)),
        owned_rows=tuple(owned),
    )


def write_price_file(path: Path, former: PriceFile, prices: Iterable[Price]) -> None:
    """Write rates beside a person's own rows, whole or not at all. Raises UsageError."""
    rows: list[Mapping[str, object]] = [*former.own_rows, *(_row(price) for price in prices)]
    text = _yaml_text(rows, former.owned_rows) if path.suffix in _YAML else _csv_text(rows)
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def _rows(path: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of a file that was read before, as they stand: rates and owned nodes."""
    text = read_text(path)
    if path.suffix not in _YAML:
        return [dict(row) for row in csv_rows(text, str(path))], []
    parsed = load_yaml(text, str(path))
    assert isinstance(parsed, dict)
    return list(parsed.get("prices") or []), list(parsed.get("owned") or [])


def _row(price: Price) -> dict[str, object]:
    return {
        "provider": price.provider,
        "instance_type": price.instance_type,
        "region": price.region,
        "option": price.option.value,
        "usd_hr": price.usd_hr,
        "as_of": price.as_of.isoformat(),
        "source": price.source,
        "basis": price.basis.value,
        "purchasable": "yes" if price.purchasable else "no",
        "interruption": price.interruption.value if price.interruption else "",
        "note": price.note,
    }


def _csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    more = sorted({key for row in rows for key in row} - set(_COLUMNS))
    return csv_text([*_COLUMNS, *more], ([row.get(name, "") for name in (*_COLUMNS, *more)] for row in rows))


def _yaml_text(rows: Sequence[Mapping[str, object]], owned: Sequence[Mapping[str, object]]) -> str:
    kept = [{key: value for key, value in row.items() if value not in ("", None)} for row in rows]
    document = {"prices": kept, **({"owned": [dict(row) for row in owned]} if owned else {})}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)

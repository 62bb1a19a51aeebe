"""What a refresh finds and writes: the price file, in which people's own rates stay as written, and what changed in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from trimtab.catalog import Catalog, Price
from trimtab.catalog.overrides import read_overrides
from trimtab.catalog.price_diff import ChangeKind, OfferingChange, buyable_as_before, changes, newest, without_own
from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed
from trimtab.errors import SourceError, UsageError
from trimtab.inputs.csv_rows import csv_rows
from trimtab.inputs.files import read_text
from trimtab.inputs.yaml_text import load_yaml
from trimtab.safe_text import csv_text
from trimtab.sources.price_lists import PriceReading

_COLUMNS = (
    "provider", "instance_type", "region", "option", "usd_hr", "as_of", "source", "basis", "purchasable", "interruption",
    "note",
)  # fmt: skip
_YAML = {".yaml", ".yml"}

_MOST_VANISHED_FRAC = 0.5
_FEW = 10
_SHOWN = 40
_ORDER = (ChangeKind.CHANGED, ChangeKind.VANISHED, ChangeKind.NEW, ChangeKind.CONFIRMED)


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
    rows: list[Mapping[str, object]] = [*former.own_rows, *(_file_row(price) for price in prices)]
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


def _file_row(price: Price) -> dict[str, object]:
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


def found_changes(reading: PriceReading, former: PriceFile, packaged: Catalog) -> list[OfferingChange]:
    """Return what the lists change against the packaged rates with the former file over them."""
    listed = without_own(reading.prices, former.own)
    reading.skip("rate of the list where yours stands in the file", len(reading.prices) - len(listed))
    book = packaged.prices.overridden(former.listed)
    return changes(buyable_as_before(listed, packaged.prices), former.listed, book, reading.scopes)


def refresh_sheet(found: Sequence[OfferingChange], *, for_people: bool) -> Sheet:
    """Return one row a rate that is not as it was, the largest change first; people see the first of them."""
    shown = [change for change in found if change.kind is not ChangeKind.CONFIRMED]
    shown.sort(key=lambda change: (_ORDER.index(change.kind), -abs(change.change_frac or 0.0), change.price.key[:3]))
    rows = [_row(change) for change in (shown[:_SHOWN] if for_people else shown)]
    columns = [
        SheetColumn(key="change", title="change", whole=True),
        SheetColumn(key="provider", title="cloud"),
        SheetColumn(key="instance_type", title="instance type", whole=True),
        SheetColumn(key="region", title="region", whole=True),
        SheetColumn(key="option", title="option", whole=True),
        SheetColumn(key="before_usd_hr", title="before", right=True, show=fixed(4)),
        SheetColumn(key="after_usd_hr", title="now", right=True, show=fixed(4)),
        SheetColumn(key="change_frac", title="by", right=True, show=_percent),
    ]
    if not for_people:
        columns.append(SheetColumn(key="before_as_of", title="before: as of"))
    notes = ["USD an hour of the whole instance."]
    if len(rows) < len(shown):
        notes.append(f"{len(rows)} of {len(shown)} shown; -o csv has all.")
    return Sheet(columns=columns, rows=rows, notes=notes)


def _row(change: OfferingChange) -> dict[str, Cell]:
    price, before, after = change.price, change.before, change.after
    rise = change.change_frac
    return {
        "change": change.kind.value,
        "provider": price.provider,
        "instance_type": price.instance_type,
        "region": price.region,
        "option": price.option.value,
        "before_usd_hr": before.usd_hr if before else None,
        "after_usd_hr": after.usd_hr if after else None,
        "change_frac": None if rise is None else round(rise, 6),
        "before_as_of": before.as_of.isoformat() if before else None,
    }


def _percent(cell: Cell) -> str:
    return f"{cell:+.1%}" if isinstance(cell, int | float) else str(cell)


def summary(found: Sequence[OfferingChange], reading: PriceReading) -> Iterator[str]:
    """Yield how many rates stand how, and how many rows of the lists were left out for which reason."""
    kinds = Counter(change.kind for change in found)
    yield f"{len(reading.prices):,} rates read: " + ", ".join(f"{kinds[kind]:,} {kind.value}" for kind in _ORDER)
    for reason, number in reading.skipped.most_common():
        if number:
            yield f"  {number:,} x {reason}"


def refuse_a_broken_list(found: Sequence[OfferingChange], former: PriceFile) -> None:
    """Raise SourceError where most of a file's rates vanished: lists do not do that, broken answers do."""
    gone = sum(change.kind is ChangeKind.VANISHED for change in found)
    had = sum(price.purchasable for price in newest(former.listed))
    if gone >= _FEW and gone > had * _MOST_VANISHED_FRAC:
        raise SourceError(
            f"{gone} of {had} rates of the file are in no list any more, so the answer looks broken; the file stays as it "
            "was (--accept-vanished writes all the same)"
        )

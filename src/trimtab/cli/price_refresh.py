"""What a refresh found, as a sheet and a few sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trimtab.catalog import Catalog
from trimtab.catalog.price_diff import Change, ChangeKind, buyable_as_before, changes, newest, without_own
from trimtab.cli.output import Cell, Column, Sheet, fixed
from trimtab.cli.price_file import PriceFile
from trimtab.errors import SourceError
from trimtab.sources.price_lists import PriceReading

_MOST_VANISHED_FRAC = 0.5
_FEW = 10
_SHOWN = 40
_ORDER = (ChangeKind.CHANGED, ChangeKind.VANISHED, ChangeKind.NEW, ChangeKind.CONFIRMED)


def found_changes(reading: PriceReading, former: PriceFile, packaged: Catalog) -> list[Change]:
    """Return what the lists change against the packaged rates with the former file over them."""
    listed = without_own(reading.prices, former.own)
    reading.skip("rate of the list where yours stands in the file", len(reading.prices) - len(listed))
    book = packaged.prices.overridden(former.listed)
    return changes(buyable_as_before(listed, packaged.prices), former.listed, book, reading.scopes)


def refresh_sheet(found: Sequence[Change], *, for_people: bool) -> Sheet:
    """Return one row a rate that is not as it was, the largest change first; people see the first of them."""
    shown = [change for change in found if change.kind is not ChangeKind.CONFIRMED]
    shown.sort(key=lambda one: (_ORDER.index(one.kind), -abs(one.change_frac or 0.0), one.price.key[:3]))
    rows = [_row(change) for change in (shown[:_SHOWN] if for_people else shown)]
    columns = [
        Column(key="change", title="change", whole=True),
        Column(key="provider", title="cloud"),
        Column(key="instance_type", title="instance type", whole=True),
        Column(key="region", title="region", whole=True),
        Column(key="option", title="option", whole=True),
        Column(key="before_usd_hr", title="before", right=True, show=fixed(4)),
        Column(key="after_usd_hr", title="now", right=True, show=fixed(4)),
        Column(key="change_frac", title="by", right=True, show=_percent),
    ]
    if not for_people:
        columns.append(Column(key="before_as_of", title="before: as of"))
    notes = ["USD an hour of the whole instance."]
    if len(rows) < len(shown):
        notes.append(f"{len(rows)} of {len(shown)} shown; -o csv has all.")
    return Sheet(columns=columns, rows=rows, notes=notes)


def _row(change: Change) -> dict[str, Cell]:
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


def summary(found: Sequence[Change], reading: PriceReading) -> Iterator[str]:
    """Yield how many rates stand how, and how many rows of the lists were left out for which reason."""
    kinds = Counter(change.kind for change in found)
    yield f"{len(reading.prices):,} rates read: " + ", ".join(f"{kinds[kind]:,} {kind.value}" for kind in _ORDER)
    for reason, number in reading.skipped.most_common():
        if number:
            yield f"  {number:,} x {reason}"


def refuse_a_broken_list(found: Sequence[Change], former: PriceFile) -> None:
    """Raise SourceError where most of a file's rates vanished: lists do not do that, broken answers do."""
    gone = sum(change.kind is ChangeKind.VANISHED for change in found)
    had = sum(price.purchasable for price in newest(former.listed))
    if gone >= _FEW and gone > had * _MOST_VANISHED_FRAC:
        raise SourceError(
            f"{gone} of {had} rates of the file are in no list any more, so the answer looks broken; the file stays as it "
            "was (--accept-vanished writes all the same)"
        )

"""`trimtab prices refresh`: reads the clouds' price lists into a file for `--prices`, and shows what was added, changed or
removed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from trimtab.catalog import Catalog, Price, load_catalog
from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.own_rates import read_overrides
from trimtab.catalog.prices import ANY_REGION, PriceBook, PriceKey
from trimtab.catalog.providers import PRICE_LISTED
from trimtab.cli import ExitCode, say
from trimtab.cli.options import NEW_FILE, AnswerOptions, answer_options, option, options_from
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, fixed, percent, write_answer
from trimtab.errors import SourceError, UsageError
from trimtab.inputs.documents import load_yaml
from trimtab.inputs.files import csv_rows, read_text
from trimtab.safe_text import csv_text
from trimtab.sources.price_lists import PriceReading

SAME_FRAC = 1e-4
"""Rates this close are considered equal: the packaged list rounds some to four digits."""


class ChangeKind(Enum):
    """How a rate compares with the previous one."""

    NEW = "new"
    CHANGED = "changed"
    VANISHED = "vanished"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingChange:
    """One offering before and after."""

    kind: ChangeKind
    before: Price | None
    after: Price | None

    @property
    def price(self) -> Price:
        """Return the newer of the two."""
        found = self.after or self.before
        if found is None:
            raise ValueError("a change has at least one side")
        return found

    @property
    def change_frac(self) -> float | None:
        """Return the relative change against the previous rate."""
        if self.before is None or self.after is None:
            return None
        return self.after.usd_hr / self.before.usd_hr - 1


def buyable_as_before(listed: Iterable[Price], packaged: PriceBook) -> list[Price]:
    """Return list rates, with those that cannot be bought marked as the packaged price book does."""
    known: dict[tuple[str, str, BuyingOption], bool] = {}
    for price in packaged.offerings(purchasable_only=False):
        key = (price.provider, price.instance_type, price.option)
        known[key] = known.get(key, False) or price.purchasable
    return [
        replace(price, purchasable=known.get((price.provider, price.instance_type, price.option), True))
        for price in listed
    ]


def changes(
    listed: Sequence[Price],
    former: Sequence[Price],
    book: PriceBook,
    scopes: Collection[tuple[str, str, BuyingOption]],
) -> list[OfferingChange]:
    """Return how listed rates differ from the current rates of a book, and which current ones are no longer listed.

    `scopes` are (provider, region, option) that the list covers completely; only there can a rate have vanished.
    """
    found = [_against(price, book) for price in listed]
    keys = {price.key for price in listed}
    gone = [
        OfferingChange(kind=ChangeKind.VANISHED, before=price, after=None)
        for price in newest(former)
        if price.purchasable and price.key not in keys and (price.provider, price.region, price.option) in scopes
    ]
    return [*found, *gone]


def _against(price: Price, book: PriceBook) -> OfferingChange:
    held = [recorded for recorded in book.history(*price.key) if recorded.as_of <= price.as_of]
    before = held[-1] if held else None
    if before is None:
        return OfferingChange(kind=ChangeKind.NEW, before=None, after=price)
    same = abs(price.usd_hr / before.usd_hr - 1) <= SAME_FRAC and price.purchasable == before.purchasable
    return OfferingChange(kind=ChangeKind.CONFIRMED if same else ChangeKind.CHANGED, before=before, after=price)


def newest(prices: Iterable[Price]) -> list[Price]:
    """Return the newest rate of each offering, in the order of their first rows."""
    last: dict[PriceKey, Price] = {}
    for price in prices:
        held = last.get(price.key)
        last[price.key] = price if held is None or price.as_of >= held.as_of else held
    return list(last.values())


def without_own(listed: Iterable[Price], own: Iterable[Price]) -> list[Price]:
    """Return list rates without those overridden by a person's own rate, in that region or in any."""
    mine = {price.key for price in own}
    return [
        price
        for price in listed
        if price.key not in mine and (price.provider, price.instance_type, ANY_REGION, price.option) not in mine
    ]


def merged_history(former: Iterable[Price], found: Iterable[OfferingChange], today: date) -> list[Price]:
    """Return all rows after a refresh: a confirmed rate extends its period, a vanished one ends."""
    rows: dict[PriceKey, list[Price]] = {}
    for price in sorted(former, key=lambda price: price.as_of):
        rows.setdefault(price.key, []).append(price)
    for change in found:
        after = change.after or replace(change.price, as_of=today, purchasable=False, note="no longer in the list")
        history = [price for price in rows.get(after.key, []) if price.as_of < after.as_of]
        if len(history) > 1 and _alike(history[-1], after) and _alike(history[-2], after):
            history.pop()
        rows[after.key] = [*history, after]
    return [price for history in rows.values() for price in history]


def _alike(one: Price, other: Price) -> bool:
    return one.usd_hr == other.usd_hr and one.purchasable == other.purchasable and one.basis == other.basis


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
    """Read the file of an earlier refresh, or of a person; empty if it does not exist. Raises InputError.

    `refreshed` are the source prefixes of rates that a refresh wrote.
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
    """Write rates together with a person's own rows, atomically. Raises UsageError."""
    rows: list[Mapping[str, object]] = [*former.own_rows, *(_file_row(price) for price in prices)]
    text = _yaml_text(rows, former.owned_rows) if path.suffix in _YAML else _csv_text(rows)
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def _rows(path: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the previous file unchanged: rates and owned nodes."""
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
    """Return the changes of the lists against the packaged rates overridden by the previous file."""
    listed = without_own(reading.prices, former.own)
    reading.skip("list rate replaced by your own", len(reading.prices) - len(listed))
    book = packaged.prices.overridden(former.listed)
    return changes(buyable_as_before(listed, packaged.prices), former.listed, book, reading.scopes)


def refresh_sheet(found: Sequence[OfferingChange], *, for_people: bool) -> Sheet:
    """Return one row per changed rate, largest change first; people see the first of them."""
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
        SheetColumn(key="change_frac", title="by", right=True, show=percent(1, signed=True)),
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


def summary(found: Sequence[OfferingChange], reading: PriceReading) -> Iterator[str]:
    """Yield counts of rates by status, and counts of list rows left out by reason."""
    kinds = Counter(change.kind for change in found)
    yield f"{len(reading.prices):,} rates read: " + ", ".join(f"{kinds[kind]:,} {kind.value}" for kind in _ORDER)
    for reason, number in reading.skipped.most_common():
        if number:
            yield f"  {number:,} x {reason}"


def refuse_a_broken_list(found: Sequence[OfferingChange], former: PriceFile) -> None:
    """Raise SourceError if most of a file's rates vanished: that suggests a broken answer, not a changed list."""
    gone = sum(change.kind is ChangeKind.VANISHED for change in found)
    had = sum(price.purchasable for price in newest(former.listed))
    if gone >= _FEW and gone > had * _MOST_VANISHED_FRAC:
        raise SourceError(
            f"{gone} of {had} rates of the file are no longer listed, so the answer looks broken; the file stays "
            "unchanged (--accept-vanished writes it anyway)"
        )


if TYPE_CHECKING:
    from trimtab.sources.price_lists.refresh import RefreshRequest

_KEY, _TOKEN = "TRIMTAB_GCP_API_KEY", "TRIMTAB_GCP_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesRefreshOptions:
    """Arguments of `trimtab prices refresh`."""

    path: Path = option(
        "--to", type=NEW_FILE, default=Path("prices.csv"), show_default=True,
        help="The price file to update, .csv or .yaml; your own rates in it stay.",
    )  # fmt: skip
    providers: tuple[str, ...] = option(
        "--provider", type=click.Choice(PRICE_LISTED), show_default="aws, azure, and gcp if its key or token is set",
        help="Read this list; repeatable.",
    )  # fmt: skip
    regions: tuple[str, ...] = option(
        "--region", help="Only this region; repeatable. AWS default: the regions of the price book."
    )
    dry_run: bool = option("--dry-run", help="Show what would change, and write nothing.")
    aws_via: str = option(
        "--aws", type=click.Choice(["bulk", "query"]), default="bulk", show_default=True,
        help="AWS's public offer files, or its Query API (needs credentials, reads much less).",
    )  # fmt: skip
    spot_via: str = option(
        "--aws-spot", type=click.Choice(["advisor", "history", "none"]), default="advisor", show_default=True,
        help="Derived from the Spot Advisor, or observed (needs credentials).",
    )  # fmt: skip
    endpoints: tuple[str, ...] = option(
        "--endpoint", metavar="NAME=URL", envvar="TRIMTAB_PRICE_ENDPOINTS",
        help="Another address: aws-bulk, aws-advisor, aws-pricing, aws-ec2, gcp or azure.",
    )  # fmt: skip
    keep_going: bool = option("--keep-going", help="If one provider's list fails, write the others anyway.")
    accept_vanished: bool = option(
        "--accept-vanished", help="Write even if most rates of the file are no longer listed."
    )
    answer: AnswerOptions = answer_options()


@click.command("refresh")
@options_from(PricesRefreshOptions)
def command(options: PricesRefreshOptions) -> None:
    """Read the price lists of AWS, Google and Azure into a price file, and say what changed.

    Pass the file with --prices or TRIMTAB_PRICES to override the packaged list; each rate names its list and its day. If a
    list fails the file stays unchanged. Google's list needs an API key in TRIMTAB_GCP_API_KEY or a token in TRIMTAB_GCP_TOKEN.

    \b
    Examples:
      trimtab prices refresh --dry-run
      trimtab prices refresh --provider azure --region eastus --to prices.csv
      trimtab prices refresh --aws query --aws-spot history --region us-east-1
      TRIMTAB_GCP_TOKEN=$(gcloud auth print-access-token) trimtab prices refresh --provider gcp
      trimtab audit fleet/ --prices prices.csv
    """
    from trimtab.cli.prices.refresh import (
        found_changes,
        merged_history,
        read_price_file,
        refresh_sheet,
        refuse_a_broken_list,
        summary,
        write_price_file,
    )
    from trimtab.sources.price_lists.refresh import REFRESHED, read_lists

    asked = _request(options)
    packaged = load_catalog()
    former = read_price_file(options.path, packaged, REFRESHED)
    reading, failed = read_lists(asked, packaged)
    for provider, error in failed.items():
        say(f"{provider}: {error}", err=True)
    if failed and not (options.keep_going and reading.prices):
        raise SourceError(
            f"{options.path} stays unchanged: {', '.join(failed)} failed; --keep-going writes the other lists"
        )
    found = found_changes(reading, former, packaged)
    people = options.answer.output_format in (Format.TABLE, Format.MARKDOWN)
    write_answer(refresh_sheet(found, for_people=people), options.answer)
    for line in summary(found, reading):
        say(line, err=True)
    if not options.accept_vanished:
        refuse_a_broken_list(found, former)
    if not options.dry_run:
        write_price_file(options.path, former, merged_history(former.listed, found, asked.now.date()))
        say(f"{options.path}: written; use it with --prices {options.path} or TRIMTAB_PRICES={options.path}", err=True)
    if failed:
        raise click.exceptions.Exit(ExitCode.ERROR)


def _request(options: PricesRefreshOptions) -> RefreshRequest:
    from trimtab.sources.price_lists.refresh import ENDPOINTS, AwsListSource, RefreshRequest, SpotRateSource

    headers = _gcp_headers()
    chosen = options.providers or tuple(name for name in PRICE_LISTED if name != "gcp" or headers)
    pairs = dict(_pair(text) for text in options.endpoints)
    for name in pairs:
        if name not in ENDPOINTS:
            raise UsageError(f"--endpoint {name}: the lists are {', '.join(ENDPOINTS)}")
    if "gcp" in chosen and not headers and "gcp" not in pairs:
        raise UsageError(f"Google's price list needs an API key in {_KEY} or a token in {_TOKEN}")
    return RefreshRequest(
        providers=chosen,
        regions=options.regions,
        now=datetime.now(UTC),
        endpoints=pairs,
        aws_via=AwsListSource(options.aws_via),
        spot_via=SpotRateSource(options.spot_via),
        gcp_headers=headers,
    )


def _gcp_headers() -> dict[str, str]:
    """Return the credentials for Google's list, from the environment."""
    if os.environ.get(_TOKEN):
        return {"Authorization": f"Bearer {os.environ[_TOKEN]}"}
    return {"X-Goog-Api-Key": os.environ[_KEY]} if os.environ.get(_KEY) else {}


def _pair(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise UsageError(f"--endpoint {text!r}: write NAME=URL, as azure=http://localhost:8080")
    return name, url

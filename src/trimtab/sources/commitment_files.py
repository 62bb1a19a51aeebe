"""Commitments a person states: those held already, from a CSV file, and offers that no price list has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from trimtab.catalog.pools import Pool
from trimtab.errors import Fault, InputError, PriceFileError
from trimtab.inputs.csv_rows import read_csv_rows
from trimtab.levers.commit_table import CommitmentPrice
from trimtab.plan.commitments.inventory import Owned, OwnedNodes

COLUMNS = (
    "name",
    "provider",
    "instance_type",
    "region",
    "count",
    "term_years",
    "upfront_usd",
    "usd_hr",
    "start",
    "end",
)
OWNED, QUOTED = "the file of commitments", "your quote"
TERMS = {"1y": 1, "3y": 3}


def read_owned(path: Path) -> tuple[Owned, ...]:
    """Read commitments that are held: one a row, `upfront_usd` and `usd_hr` per node; raises PriceFileError with all faults."""
    rows = read_csv_rows(path)
    owned, faults = [], []
    for number, row in enumerate(rows, start=2):
        try:
            owned.append(_owned(row))
        except KeyError as error:
            faults.append(Fault(what=f"no column {error}", where=f"row {number}", cure=f"give {', '.join(COLUMNS)}"))
        except (TypeError, ValueError) as error:
            faults.append(Fault(what=str(error), where=f"row {number} ({row.get('name')})"))
    if faults:
        raise PriceFileError(str(path), faults)
    return tuple(owned)


def quoted_offer(text: str, pools: Mapping[str, Pool]) -> CommitmentPrice:
    """Read `TYPE:TERM:UPFRONT_USD:USD_HR`, as in `p5.48xlarge:1y:241000:0`; `pools` holds the fleet's pools by type.

    Raises InputError.
    """
    parts = text.split(":")
    if len(parts) != 4 or parts[1] not in TERMS:
        raise InputError(f"{text!r} is no offer; write TYPE:TERM:UPFRONT_USD:USD_HR, as p5.48xlarge:1y:241000:0")
    if parts[0] not in pools:
        raise InputError(
            f"{text!r}: the fleet has no on-demand {parts[0]}; it has {', '.join(sorted(pools)) or 'none'}"
        )
    try:
        return CommitmentPrice(
            pool=pools[parts[0]],
            term_years=TERMS[parts[1]],
            upfront_usd=float(parts[2]),
            usd_hr=float(parts[3]),
            source=QUOTED,
        )
    except ValueError as error:
        raise InputError(f"{text!r}: {error}") from error


def _owned(row: Mapping[str, str]) -> Owned:
    start, end = _day(row, "start"), _day(row, "end")
    count, term_years = _whole(row, "count"), _whole(row, "term_years")
    if count < 1 or end <= start:
        raise ValueError("count must be at least 1, and end after start")
    if term_years not in TERMS.values():
        raise ValueError(f"term_years must be 1 or 3, not {term_years}")
    offer = CommitmentPrice(
        pool=Pool(row["provider"], row["instance_type"], row["region"]),
        term_years=term_years,
        upfront_usd=float(row["upfront_usd"] or 0),
        usd_hr=float(row["usd_hr"]),
        source=OWNED,
    )
    return Owned(name=row["name"], scope=OwnedNodes(offer=offer, count=count), start=start, end=end)


def _day(row: Mapping[str, str], column: str) -> date:
    try:
        return date.fromisoformat(row[column])
    except ValueError as error:
        raise ValueError(f"{column} {row[column]!r} is no day; write it as 2026-01-31") from error


def _whole(row: Mapping[str, str], column: str) -> int:
    try:
        return int(row[column])
    except ValueError as error:
        raise ValueError(f"{column} {row[column]!r} is no whole number") from error

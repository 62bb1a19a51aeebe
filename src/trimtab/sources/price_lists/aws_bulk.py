"""AWS's public offer files: EC2 prices of a region as CSV, read line by line (one has hundreds of megabytes).

No credentials are needed. Source: AWS Price List Bulk API, offers/v1.0/aws/AmazonEC2/current/region_index.json.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from pydantic import BaseModel, Field, ValidationError

from trimtab.errors import SourceError
from trimtab.sources.price_lists.aws_terms import TermLine, term_rates
from trimtab.sources.price_lists.reading import Reading
from trimtab.sources.web_server import WebServer

DEFAULT_URL = "https://pricing.us-east-1.amazonaws.com"
_INDEX = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"
_FIRST_COLUMN = "sku"
_FIELDS = {
    "sku": "SKU", "code": "OfferTermCode", "kind": "TermType", "unit": "Unit", "amount": "PricePerUnit",
    "currency": "Currency", "lease": "LeaseContractLength", "purchase": "PurchaseOption", "class": "OfferingClass",
    "type": "Instance Type", "tenancy": "Tenancy", "os": "Operating System", "software": "Pre Installed S/W",
    "capacity": "CapacityStatus", "market": "MarketOption",
}  # fmt: skip
_OPTIONAL = frozenset({"market", "capacity"})


class _Region(BaseModel):
    version_url: str = Field(alias="currentVersionUrl")


class _Index(BaseModel):
    regions: dict[str, _Region]


def read_bulk(server: WebServer, types: frozenset[str], regions: Sequence[str], today: date) -> Reading:
    """Read on-demand and reserved rates of regions from the offer files. Raises SourceError."""
    try:
        index = _Index.model_validate_json(server.get(_INDEX))
    except ValidationError as error:
        raise SourceError(f"{server.url}{_INDEX}: no index of regions: {error.errors()[0]['msg']}") from error
    reading = Reading()
    for region in regions:
        if region not in index.regions:
            raise SourceError(f"{server.url}{_INDEX} has no region {region}; it has {', '.join(sorted(index.regions))}")
        path = server.path_of(index.regions[region].version_url).replace("index.json", "index.csv")
        with server.lines(path) as lines:
            term_rates(csv_lines(lines, region, types, f"{server.url}{path}", reading), types, today, reading)
    return reading


def csv_lines(
    lines: Iterable[str], region: str, types: frozenset[str], where: str, reading: Reading
) -> Iterator[TermLine]:
    """Yield the prices of instances of a CSV offer file: some lines about it stand above its header."""
    rows = csv.reader(lines)
    places = _places(rows, where)
    most = max(places.values())
    for row in rows:
        if len(row) <= most:
            reading.skip("aws: row cut short", int(bool(row)))
            continue
        if row[places["type"]] not in types:
            reading.skip("aws: type that the catalog does not know")
            continue
        line = _line(row, places, region)
        if line is None:
            reading.skip(f"aws: price {row[places['amount']]!r} is no number")
        else:
            yield line


def _places(rows: Iterable[Sequence[str]], where: str) -> Mapping[str, int]:
    """Return where each field stands; raises SourceError where the file has no such header."""
    for row in rows:
        names = [name.strip().lower() for name in row]
        if names[:1] != [_FIRST_COLUMN]:
            continue
        places = {field: names.index(title.lower()) for field, title in _FIELDS.items() if title.lower() in names}
        lacking = sorted(_FIELDS[field] for field in _FIELDS.keys() - places.keys() - _OPTIONAL)
        if lacking:
            raise SourceError(f"{where}: the offer file lacks the columns {', '.join(lacking)}")
        return places
    raise SourceError(f"{where}: no offer file: it has no line that begins with SKU")


def _line(row: Sequence[str], places: Mapping[str, int], region: str) -> TermLine | None:
    def cell(field: str) -> str:
        return row[places[field]] if field in places else ""

    try:
        amount = float(cell("amount"))
    except ValueError:
        return None
    return TermLine(
        instance_type=cell("type"),
        region=region,
        term=f"{cell('sku')}.{cell('code')}",
        reserved=cell("kind") == "Reserved",
        lease=cell("lease"),
        purchase=cell("purchase"),
        offering_class=cell("class"),
        unit=cell("unit"),
        amount=amount,
        currency=cell("currency"),
        operating_system=cell("os"),
        tenancy=cell("tenancy"),
        pre_installed=cell("software"),
        capacity=cell("capacity"),
        market=cell("market"),
    )

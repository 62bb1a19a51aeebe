"""AWS's price lists as hourly rates: public offer files, the Query API, spot prices observed or derived from the Spot Advisor.

A reserved term is an hourly rate, an upfront fee, or both: its rate is hourly + upfront / hours of the term. Of the offers of
one term the standard class without upfront is taken, else the one with the smallest upfront part.

No credentials are needed. Source: AWS Price List Bulk API, offers/v1.0/aws/AmazonEC2/current/region_index.json.

`PriceList` holds JSON in strings; on-demand and reserved terms nest by offer term code, then by rate code.

The Advisor states an average saving over a month, not a price: rates made of it are derived, and say so. A saving may be
negative; then the rate lies above on demand and is kept as such. Its `r` is a place in its own list of bands.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from statistics import fmean

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimtab.catalog import BuyingOption, InterruptionBucket, Price, PriceBasis
from trimtab.catalog.prices import is_rate
from trimtab.errors import InputError, SourceError
from trimtab.inputs.documents import load_json
from trimtab.sources.clouds.clients import aws_client, aws_items
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.units import HR_PER_YEAR

SOURCE = "aws-price-list"
_LEASES = {"1yr": BuyingOption.RESERVED_1Y, "3yr": BuyingOption.RESERVED_3Y}
_UPFRONT = ("No Upfront", "Partial Upfront", "All Upfront")
_WANTED = {
    "operating_system": ("Linux",),
    "tenancy": ("Shared",),
    "pre_installed": ("NA", ""),
    "capacity": ("Used", ""),
    "market": ("OnDemand", ""),
}
_REASONS = {
    "operating_system": "another operating system",
    "tenancy": "dedicated tenancy",
    "pre_installed": "software included",
    "capacity": "capacity reservation, not an instance hour",
    "market": "capacity block",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLine:
    """One price dimension of one term of one product."""

    instance_type: str
    region: str
    term: str
    """What tells terms apart: SKU and offer term code."""
    reserved: bool
    lease: str
    purchase: str
    offering_class: str
    unit: str
    amount: float
    currency: str
    operating_system: str
    tenancy: str
    pre_installed: str
    capacity: str
    market: str


@dataclass(slots=True, kw_only=True)
class _ReservedOffer:
    line: TermLine
    hourly_usd: float = 0.0
    upfront_usd: float = 0.0

    def usd_hr(self, option: BuyingOption) -> float:
        return self.hourly_usd + (self.upfront_usd / (HR_PER_YEAR * option.term_years) if self.upfront_usd else 0.0)


def term_rates(lines: Iterable[TermLine], types: frozenset[str], today: date, reading: PriceReading) -> None:
    """Add the rates of the lines of a list; what is left out is counted."""
    offers: dict[tuple[str, str, BuyingOption], dict[str, _ReservedOffer]] = {}
    for line in lines:
        option = _option(line, types, reading)
        if option is None:
            continue
        found = offers.setdefault((line.instance_type, line.region, option), {})
        offer = found.setdefault(line.term, _ReservedOffer(line=line))
        if line.unit == "Hrs":
            offer.hourly_usd += line.amount
        else:
            offer.upfront_usd += line.amount
    for (name, region, option), found in offers.items():
        offer = min(
            found.values(),
            key=lambda offered: (
                _UPFRONT.index(offered.line.purchase) if offered.line.reserved else 0,
                offered.line.term,
            ),
        )
        if not is_rate(offer.usd_hr(option)):
            reading.skip("aws: price of 0, or no number")
            continue
        reading.prices.append(
            Price(
                provider="aws",
                instance_type=name,
                region=region,
                option=option,
                usd_hr=round(offer.usd_hr(option), 6),
                as_of=today,
                source=SOURCE,
                note=f"standard RI, {offer.line.purchase.lower()}" if offer.line.reserved else "",
            )
        )


def _option(line: TermLine, types: frozenset[str], reading: PriceReading) -> BuyingOption | None:
    """Return what a line is a price of; None, counted, where it is none of ours."""
    reason = _why_not(line, types)
    if reason:
        reading.skip(f"aws: {reason}")
        return None
    return _LEASES[_lease(line)] if line.reserved else BuyingOption.ON_DEMAND


def _why_not(line: TermLine, types: frozenset[str]) -> str | None:
    if line.instance_type not in types:
        return "type that the catalog does not know"
    for field, allowed in _WANTED.items():
        if getattr(line, field) not in allowed:
            return _REASONS[field]
    if line.currency != "USD":
        return f"currency {line.currency}"
    if line.unit not in ("Hrs", "Quantity"):
        return f"unit {line.unit!r}"
    if not line.reserved:
        return "upfront fee without a term" if line.unit == "Quantity" else None
    if line.offering_class != "standard":
        return "convertible reservation"
    if _lease(line) not in _LEASES or line.purchase not in _UPFRONT:
        return "reservation of another term"
    return None


def _lease(line: TermLine) -> str:
    return line.lease.replace(" ", "")


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


class _OfferRegion(BaseModel):
    version_url: str = Field(alias="currentVersionUrl")


class _RegionIndex(BaseModel):
    regions: dict[str, _OfferRegion]


def read_bulk(server: WebServer, types: frozenset[str], regions: Sequence[str], today: date) -> PriceReading:
    """Read on-demand and reserved rates of regions from the offer files. Raises SourceError."""
    try:
        index = _RegionIndex.model_validate_json(server.get(_INDEX))
    except ValidationError as error:
        raise SourceError(f"{server.url}{_INDEX}: no index of regions: {error.errors()[0]['msg']}") from error
    reading = PriceReading()
    for region in regions:
        if region not in index.regions:
            raise SourceError(f"{server.url}{_INDEX} has no region {region}; it has {', '.join(sorted(index.regions))}")
        path = server.path_of(index.regions[region].version_url).replace("index.json", "index.csv")
        with server.lines(path) as lines:
            term_rates(csv_lines(lines, region, types, f"{server.url}{path}", reading), types, today, reading)
    return reading


def csv_lines(
    lines: Iterable[str], region: str, types: frozenset[str], where: str, reading: PriceReading
) -> Iterator[TermLine]:
    """Yield the prices of instances of a CSV offer file: some lines about it stand above its header."""
    rows = _rows(lines, where)
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
            reading.skip(f"aws: price {row[places['amount']]!r} is not a number")
        else:
            yield line


def _rows(lines: Iterable[str], where: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise SourceError(f"{where}: no offer file: {error}") from error


def _places(rows: Iterable[Sequence[str]], where: str) -> Mapping[str, int]:
    """Return where each field stands. Raises SourceError if the file has no such header."""
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


class _PriceDimension(BaseModel):
    unit: str = "Quantity"
    price: dict[str, float] = Field(alias="pricePerUnit")


class _PriceTerms(BaseModel):
    lease: str = Field("", alias="LeaseContractLength")
    purchase: str = Field("", alias="PurchaseOption")
    offering_class: str = Field("", alias="OfferingClass")


class _PriceTerm(BaseModel):
    dimensions: dict[str, _PriceDimension] = Field(default_factory=dict, alias="priceDimensions")
    attributes: _PriceTerms = Field(default_factory=lambda: _PriceTerms.model_validate({}), alias="termAttributes")


class _Product(BaseModel):
    sku: str = ""
    attributes: dict[str, str] = Field(default_factory=dict)


class _PriceItem(BaseModel):
    product: _Product
    terms: dict[str, dict[str, _PriceTerm]] = Field(default_factory=dict)


def read_query(endpoint: str | None, types: frozenset[str], regions: Sequence[str], today: date) -> PriceReading:
    """Read on-demand and reserved rates with GetProducts, one type and region at a time. Raises SourceError."""
    client = aws_client("pricing", "us-east-1", endpoint)
    reading = PriceReading()
    for region in regions:
        for name in sorted(types):
            wanted = {
                "instanceType": name, "regionCode": region, "operatingSystem": "Linux", "tenancy": "Shared",
                "preInstalledSw": "NA", "capacitystatus": "Used",
            }  # fmt: skip
            filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
            items = aws_items(client, "get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters)
            term_rates(item_lines(items, region, reading), types, today, reading)
    return reading


def item_lines(items: Iterable[object], region: str, reading: PriceReading) -> Iterator[TermLine]:
    """Yield the prices of GetProducts' items, each a JSON string (or, from some mirrors, the object itself)."""
    for raw in items:
        try:
            item = _PriceItem.model_validate(load_json(raw, "an item") if isinstance(raw, str) else raw)
        except (InputError, ValidationError):
            reading.skip("aws: item that is not a product with terms")
            continue
        for kind, terms in item.terms.items():
            for code, term in terms.items():
                yield from _term_lines(item.product, kind, code, term, region)


def _term_lines(product: _Product, kind: str, code: str, term: _PriceTerm, region: str) -> Iterator[TermLine]:
    about: Mapping[str, str] = product.attributes
    for dimension in term.dimensions.values():
        currency = "USD" if "USD" in dimension.price else next(iter(dimension.price), "")
        yield TermLine(
            instance_type=about.get("instanceType", ""),
            region=about.get("regionCode", region),
            term=code,
            reserved=kind == "Reserved",
            lease=term.attributes.lease,
            purchase=term.attributes.purchase,
            offering_class=term.attributes.offering_class,
            unit=dimension.unit,
            amount=dimension.price.get(currency, 0.0),
            currency=currency,
            operating_system=about.get("operatingSystem", ""),
            tenancy=about.get("tenancy", ""),
            pre_installed=about.get("preInstalledSw", ""),
            capacity=about.get("capacitystatus", ""),
            market=about.get("marketoption", ""),
        )


ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com"
ADVISOR = "aws-spot-advisor"
HISTORY = "aws-spot-history"
WINDOW_DAYS = 7
_ADVISOR_PATH = "/spot-advisor-data.json"
_LINUX = "Linux/UNIX"
_BUCKETS = {bucket.value: bucket for bucket in InterruptionBucket}


class _Band(BaseModel):
    index: int
    label: str


class _SpotAdvice(BaseModel):
    saving_pct: int = Field(alias="s", ge=-(10**6), le=10**6)
    band: int = Field(alias="r")


class _Advisor(BaseModel):
    ranges: list[_Band]
    advice: dict[str, dict[str, dict[str, _SpotAdvice]]] = Field(alias="spot_advisor")


class _SpotPrice(BaseModel):
    zone: str = Field(alias="AvailabilityZone")
    name: str = Field(alias="InstanceType")
    product: str = Field(alias="ProductDescription")
    price: float = Field(alias="SpotPrice", gt=0, allow_inf_nan=False)
    since: AwareDatetime = Field(alias="Timestamp")


Advice = Mapping[tuple[str, str], tuple[int, InterruptionBucket | None]]
"""(instance type, region) -> (average saving in percent, band of interruptions)."""


def read_advisor(server: WebServer) -> Advice:
    """Read the Spot Advisor. Raises SourceError."""
    try:
        return advice_of(server.get(_ADVISOR_PATH))
    except ValidationError as error:
        raise SourceError(f"{server.url}{_ADVISOR_PATH}: no Spot Advisor data: {error.errors()[0]['msg']}") from error


def advice_of(body: bytes) -> Advice:
    """Return the advice on Linux instances of the Advisor's file."""
    advisor = _Advisor.model_validate_json(body)
    bands = {band.index: _BUCKETS.get(band.label) for band in advisor.ranges}
    return {
        (name, region): (advice.saving_pct, bands.get(advice.band))
        for region, systems in advisor.advice.items()
        for name, advice in systems.get("Linux", {}).items()
    }


def derived_spot(advice: Advice, on_demand: Iterable[Price], today: date, reading: PriceReading) -> None:
    """Add spot rates derived from on-demand rates and average savings."""
    for price in on_demand:
        told = advice.get((price.instance_type, price.region))
        if told is None:
            reading.skip("aws: no advice on spot of this type and region")
            continue
        saving_pct, bucket = told
        usd_hr = price.usd_hr * (1 - saving_pct / 100)
        if not is_rate(usd_hr):
            reading.skip(
                "aws: advised saving of 100 % or more" if saving_pct >= 100 else "aws: advised saving that is none"
            )
            continue
        reading.prices.append(
            replace(
                price,
                option=BuyingOption.SPOT,
                usd_hr=round(usd_hr, 6),
                as_of=today,
                source=f"{price.source}+{ADVISOR}",
                basis=PriceBasis.DERIVED,
                interruption=bucket,
                note=f"on-demand x (1 - Spot Advisor savings {saving_pct}%)",
            )
        )


def read_history(endpoint: str | None, types: frozenset[str], regions: Sequence[str], now: datetime) -> PriceReading:
    """Read observed spot prices of the last days, region by region. Raises SourceError."""
    reading = PriceReading()
    since = now - timedelta(days=WINDOW_DAYS)
    for region in regions:
        entries = aws_items(
            aws_client("ec2", region, endpoint),
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=sorted(types),
            ProductDescriptions=[_LINUX],
            StartTime=since,
            EndTime=now,
        )
        observed_spot(entries, region, types, since, now, reading)
    return reading


def observed_spot(
    entries: Iterable[object], region: str, types: frozenset[str], since: datetime, now: datetime, reading: PriceReading
) -> None:
    """Add, for each type, the mean over the zones of each zone's time-weighted mean over the window."""
    by_type: dict[str, dict[str, list[tuple[datetime, float]]]] = defaultdict(lambda: defaultdict(list))
    for raw in entries:
        try:
            entry = _SpotPrice.model_validate(raw)
        except ValidationError:
            reading.skip("aws: spot entry that is not a price")
            continue
        if entry.product != _LINUX or entry.name not in types:
            reading.skip("aws: spot price of another system or type")
            continue
        by_type[entry.name][entry.zone].append((entry.since.astimezone(UTC), entry.price))
    for name, zones in sorted(by_type.items()):
        means = [_weighted(points, since, now) for points in zones.values()]
        if not is_rate(fmean(means)):
            reading.skip("aws: spot price that is not a rate")
            continue
        reading.prices.append(
            Price(
                provider="aws",
                instance_type=name,
                region=region,
                option=BuyingOption.SPOT,
                usd_hr=round(fmean(means), 6),
                as_of=now.date(),
                source=HISTORY,
                note=f"observed mean of {WINDOW_DAYS} days in {len(means)} zones: {min(means):.4f} to {max(means):.4f}",
            )
        )


def _weighted(points: Iterable[tuple[datetime, float]], since: datetime, now: datetime) -> float:
    """Return the mean of a price that holds from each point to the next; the first may hold from before the window."""
    ordered = sorted(points)
    starts = [max(moment, since) for moment, _ in ordered]
    ends = [*starts[1:], max(now, starts[-1])]
    spans = [(end - start).total_seconds() for start, end in zip(starts, ends, strict=True)]
    total = sum(spans)
    if total <= 0:
        return ordered[-1][1]
    return sum(span * price for span, (_, price) in zip(spans, ordered, strict=True)) / total


def with_interruptions(prices: Iterable[Price], advice: Advice) -> list[Price]:
    """Return observed spot prices with the Advisor's band of interruptions."""
    return [
        replace(price, interruption=advice.get((price.instance_type, price.region), (0, None))[1]) for price in prices
    ]

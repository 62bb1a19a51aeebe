"""Azure Retail Prices: hourly rates, spot, reservations and savings plans of virtual machines.

The list is public and paged (`NextPageLink`). Spot and Low Priority are meters of their own; a reservation's price is the
total of its term although its unit says "1 Hour"; a savings plan's price, inside the item of the on-demand rate, is an
hour's. Source: Microsoft's Retail Prices REST API, api-version 2023-01-01-preview.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from trimtab.catalog import BuyingOption, Catalog, Price
from trimtab.catalog.prices import is_rate
from trimtab.errors import SourceError
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.units import HR_PER_YEAR

DEFAULT_URL = "https://prices.azure.com"
SOURCE = "azure-retail-prices"
_PATH = "/api/retail/prices"
_VERSION = "2023-01-01-preview"
_HOUR = "1 Hour"
_MOST_PAGES = 1000
_LEAST_COMMITTED_FRAC = 0.05
"""A reservation below this share of the on-demand rate was no total of a term."""
_TERMS = {"1 Year": BuyingOption.RESERVED_1Y, "3 Years": BuyingOption.RESERVED_3Y}
_PLAN_TERMS = {"1 Year": BuyingOption.SAVINGS_PLAN_1Y, "3 Years": BuyingOption.SAVINGS_PLAN_3Y}


class _SavingsPlan(BaseModel):
    term: str
    price: float = Field(alias="retailPrice", allow_inf_nan=False)


class _RetailItem(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    instance_type: str = Field("", alias="armSkuName")
    region: str = Field("", alias="armRegionName")
    product: str = Field("", alias="productName")
    meter: str = Field("", alias="meterName")
    kind: str = Field("", alias="type")
    price: float = Field(alias="retailPrice", allow_inf_nan=False)
    currency: str = Field("USD", alias="currencyCode")
    unit: str = Field(_HOUR, alias="unitOfMeasure")
    term: str | None = Field(None, alias="reservationTerm")
    tier: float = Field(0.0, alias="tierMinimumUnits")
    primary: bool = Field(True, alias="isPrimaryMeterRegion")
    since: AwareDatetime | None = Field(None, alias="effectiveStartDate")
    savings_plan: list[object] = Field(default_factory=list, alias="savingsPlan")


class _RetailPage(BaseModel):
    items: list[dict[str, object]] = Field(alias="Items")
    next_link: str | None = Field(None, alias="NextPageLink")


def read_azure(server: WebServer, catalog: Catalog, regions: Sequence[str], today: date) -> PriceReading:
    """Read the rates of every Azure type of the catalog; no regions means all. Raises SourceError."""
    types = [machine.name for machine in catalog.instance_types if machine.provider == "azure"]
    reading = PriceReading()
    items = [item for name in types for item in _items(server, name, regions)]
    azure_rates(items, frozenset(types), regions, today, reading)
    seen = {price.region for price in reading.prices}
    options = (BuyingOption.ON_DEMAND, BuyingOption.SPOT, *_TERMS.values(), *_PLAN_TERMS.values())
    reading.cover("azure", regions or seen, *options)
    return reading


def azure_rates(
    items: Iterable[dict[str, object]],
    types: frozenset[str],
    regions: Sequence[str],
    today: date,
    reading: PriceReading,
) -> None:
    """Add the rates of the list's items, as the server sends them."""
    best: dict[tuple[str, str, BuyingOption], _RetailItem] = {}
    for raw in items:
        item = _checked(raw, reading)
        option = _option(item, types, regions, today, reading) if item else None
        if item is None or option is None:
            continue
        key = (item.instance_type, item.region, option)
        best[key] = max(best.get(key, item), item, key=_standing)
    for (name, region, option), item in best.items():
        usd_hr = item.price / (HR_PER_YEAR * option.term_years) if option.term_years else item.price
        listed = best.get((name, region, BuyingOption.ON_DEMAND))
        if listed and option.term_years and usd_hr < listed.price * _LEAST_COMMITTED_FRAC:
            reading.skip("azure: reservation whose price is not a total of its term")
            continue
        if not is_rate(usd_hr):
            reading.skip("azure: price that is not a rate")
            continue
        reading.prices.append(_price(item, option, usd_hr, today))
        if option is BuyingOption.ON_DEMAND:
            reading.prices.extend(_plan_prices(item, today, reading))


def _plan_prices(item: _RetailItem, today: date, reading: PriceReading) -> Iterator[Price]:
    """Yield what an hour takes of a savings plan, by its term; left out, counted, where it is not a rate below on demand."""
    for raw in item.savings_plan:
        try:
            plan = _SavingsPlan.model_validate(raw)
        except ValidationError:
            reading.skip("azure: savings plan without a term and a price")
            continue
        if plan.term in _PLAN_TERMS and is_rate(plan.price) and plan.price < item.price:
            yield Price(
                provider="azure",
                instance_type=item.instance_type,
                region=item.region,
                option=_PLAN_TERMS[plan.term],
                usd_hr=round(plan.price, 6),
                as_of=today,
                source=SOURCE,
            )
        else:
            reading.skip("azure: savings plan of another term, or not below on demand")


def _price(item: _RetailItem, option: BuyingOption, usd_hr: float, today: date) -> Price:
    total = f"reservation of {item.price:.2f} USD over {option.term_years} x {HR_PER_YEAR} hours"
    return Price(
        provider="azure",
        instance_type=item.instance_type,
        region=item.region,
        option=option,
        usd_hr=round(usd_hr, 6),
        as_of=today,
        source=SOURCE,
        note=total if option.term_years else "",
    )


def _items(server: WebServer, name: str, regions: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield every item of a type, page by page; a link that comes twice ends in SourceError rather than in a ring."""
    question = f"serviceName eq 'Virtual Machines' and armSkuName eq '{name}'"
    if len(regions) == 1:
        question += f" and armRegionName eq '{regions[0]}'"
    page = _page(server.get(_PATH, {"api-version": _VERSION, "currencyCode": "USD", "$filter": question}), server)
    followed: set[str] = set()
    while True:
        yield from page.items
        if not page.next_link:
            return
        path = server.path_of(page.next_link)
        if path in followed or len(followed) >= _MOST_PAGES:
            raise SourceError(f"{server.url}: pages of {name} do not end ({path} again)")
        followed.add(path)
        page = _page(server.get(path), server)


def _page(body: bytes, server: WebServer) -> _RetailPage:
    try:
        return _RetailPage.model_validate_json(body)
    except ValidationError as error:
        raise SourceError(f"{server.url}: no page of retail prices: {error.errors()[0]['msg']}") from error


def _checked(raw: dict[str, object], reading: PriceReading) -> _RetailItem | None:
    try:
        return _RetailItem.model_validate(raw)
    except ValidationError as error:
        reading.skip(f"azure: item with a bad {'.'.join(str(part) for part in error.errors()[0]['loc'])}")
        return None


def _option(
    item: _RetailItem, types: frozenset[str], regions: Sequence[str], today: date, reading: PriceReading
) -> BuyingOption | None:
    """Return what an item is the rate of; None, counted, where it is none of ours."""
    reason = _why_not(item, types, regions, today)
    if reason:
        reading.skip(f"azure: {reason}")
        return None
    if item.kind == "Reservation":
        return _TERMS[item.term or ""]
    return BuyingOption.SPOT if item.meter.endswith(" Spot") else BuyingOption.ON_DEMAND


def _why_not(item: _RetailItem, types: frozenset[str], regions: Sequence[str], today: date) -> str | None:
    reasons = {
        "another type": item.instance_type not in types,
        "another region": not item.region or bool(regions and item.region not in regions),
        "Windows": "Windows" in item.product,
        "a dedicated host or cloud service": "Dedicated" in item.product or "CloudServices" in item.product,
        "Low Priority meter": item.meter.endswith("Low Priority"),
        f"{item.kind or 'no kind'} rate": item.kind not in ("Consumption", "Reservation"),
        f"unit {item.unit!r}, not an hour": item.unit != _HOUR,
        f"currency {item.currency}": item.currency != "USD",
        "price of 0 or less": not item.price > 0,
        "tier above the first": item.tier > 0,
        f"term {item.term!r}": item.kind == "Reservation" and item.term not in _TERMS,
        "rate that starts later": item.since is not None and item.since.date() > today,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _standing(item: _RetailItem) -> tuple[bool, str]:
    """Order items of one offering: the meter's own region first, then the newest."""
    return (item.primary, item.since.isoformat() if item.since else "")

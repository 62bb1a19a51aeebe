"""Google's Billing Catalog: machines as sums of their parts: cores, memory, boards and the disks that come with them.

GPU and machine are separate SKUs, so a machine's rate is a sum; where one part has no SKU in a region there is no rate
there, because the sum without it would be several times too low. A price is `units` + `nanos` x 1e-9; in another currency it is
divided by the list's own `currencyConversionRate`. Source: Cloud Billing API v1, services.skus.list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from pydantic import AliasChoices, AwareDatetime, BaseModel, Field, ValidationError

from trimtab.catalog import BuyingOption, Catalog, InstanceType, Price
from trimtab.catalog.prices import is_rate
from trimtab.catalog.rows import packaged_rows
from trimtab.sources.clouds.clients import GooglePage, google_pages
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.units import HR_PER_MO, NANO_PER_USD

DEFAULT_URL = "https://cloudbilling.googleapis.com"
_COMPUTE_ENGINE = "6F81-5844-456A"
_PATH = f"/v1/services/{_COMPUTE_ENGINE}/skus"
_PAGE = "5000"
LOCAL_SSD = "SSD backed Local Storage"
_OPTIONS = {
    "OnDemand": BuyingOption.ON_DEMAND,
    "Preemptible": BuyingOption.SPOT,
    "Commit1Yr": BuyingOption.RESERVED_1Y,
    "Commit3Yr": BuyingOption.RESERVED_3Y,
}
_UNITS = {"h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1.0 / HR_PER_MO}
"""Usage unit -> what one hour of one core, board or GiB is of it."""
_COMMITMENT = re.compile(r"^Commitment v\d+: ")
_SPOT = re.compile(r"^Spot Preemptible | attached to Spot Preemptible VMs")
_PLACE = re.compile(r" (?:running in|in) .*$| for [13] years?.*$", re.IGNORECASE)
_COMMITTED_NAMES = ((re.compile(r"^(\w+) Cpu$"), r"\1 Instance Core"), (re.compile(r"^(\w+) Ram$"), r"\1 Instance Ram"),
                    (re.compile(r"^Local SSD$"), LOCAL_SSD))  # fmt: skip
"""Commitments call the same parts otherwise."""


class _Money(BaseModel):
    currency: str = Field("USD", alias="currencyCode")
    units: int = Field(0, ge=-(2**63), lt=2**63)
    nanos: int = Field(0, gt=-NANO_PER_USD, lt=NANO_PER_USD)


class _Tier(BaseModel):
    start: float = Field(0.0, alias="startUsageAmount")
    unit_price: _Money = Field(alias="unitPrice")


class _Expression(BaseModel):
    unit: str = Field(alias="usageUnit")
    tiers: list[_Tier] = Field(alias="tieredRates", min_length=1)


class _Pricing(BaseModel):
    expression: _Expression = Field(alias="pricingExpression")
    conversion_rate: float = Field(1.0, alias="currencyConversionRate", gt=0, allow_inf_nan=False)
    since: AwareDatetime = Field(
        datetime(1970, 1, 1, tzinfo=UTC), validation_alias=AliasChoices("effectiveTime", "EffectiveTime")
    )


class _Category(BaseModel):
    usage: str = Field("", alias="usageType")


class _BillingSku(BaseModel):
    description: str
    category: _Category
    regions: list[str] = Field(alias="serviceRegions")
    pricing: list[_Pricing] = Field(alias="pricingInfo", min_length=1)


class _SkuPage(GooglePage):
    skus: list[dict[str, object]] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePart:
    """What one core, GiB or board is called in the list, whatever the region and the way of buying."""

    name: str
    option: BuyingOption
    region: str


PartPrices = Mapping[MachinePart, float]
"""USD an hour of one core, GiB or board."""


def skus(server: WebServer) -> Iterator[dict[str, object]]:
    """Yield every SKU of Compute Engine, page by page. Raises SourceError."""
    for page in google_pages(server, _PATH, {"currencyCode": "USD", "pageSize": _PAGE}, _SkuPage, "SKUs"):
        yield from page.skus


def part_prices(
    raw: Iterable[dict[str, object]], wanted: frozenset[str], regions: Sequence[str], today: date, reading: PriceReading
) -> PartPrices:
    """Return the hourly price of every wanted part by region and way of buying; what is left out is counted."""
    prices: dict[MachinePart, float] = {}
    for entry in raw:
        try:
            sku = _BillingSku.model_validate(entry)
        except ValidationError as error:
            reading.skip(f"gcp: SKU with a bad {'.'.join(str(part) for part in error.errors()[0]['loc'])}")
            continue
        name = part_name(sku.description)
        option = _OPTIONS.get(sku.category.usage)
        usd_hr = _usd_hr(sku, today, reading) if name in wanted and option else None
        if usd_hr is None or option is None:
            reading.skip("gcp: SKU that is no part of a GPU machine", int(name not in wanted))
            continue
        for region in sku.regions:
            part = MachinePart(name=name, option=option, region=region)
            if not regions or region in regions:
                reading.skip("gcp: second price of one part (the higher stands)", int(part in prices))
                prices[part] = max(usd_hr, prices.get(part, 0.0))
    return prices


def part_name(description: str) -> str:
    """Return what a SKU is of, without place, term and way of buying.

    >>> part_name("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas")
    'Nvidia Tesla A100 GPU'
    """
    bare = _PLACE.sub("", _SPOT.sub("", _COMMITMENT.sub("", description))).strip()
    for committed, name in _COMMITTED_NAMES if _COMMITMENT.match(description) else ():
        bare = committed.sub(name, bare)
    return bare


def _usd_hr(sku: _BillingSku, today: date, reading: PriceReading) -> float | None:
    """Return the price in force, in USD an hour; None, counted, where it cannot be told."""
    held = [pricing for pricing in sku.pricing if pricing.since.date() <= today]
    if not held:
        reading.skip("gcp: SKU whose price starts later")
        return None
    pricing = max(held, key=lambda price: price.since)
    per_hour = _UNITS.get(pricing.expression.unit)
    if per_hour is None:
        reading.skip(f"gcp: SKU in the unit {pricing.expression.unit!r}")
        return None
    money = max(pricing.expression.tiers, key=lambda tier: tier.start).unit_price
    amount = money.units + money.nanos / NANO_PER_USD
    if money.currency != "USD" and pricing.conversion_rate == 1.0:
        reading.skip(f"gcp: SKU in {money.currency} without a rate of conversion")
        return None
    if not amount > 0:
        reading.skip("gcp: SKU with a price of 0")
        return None
    return amount / pricing.conversion_rate * per_hour


SOURCE = "gcp-billing-catalog"
_OFFERED = (BuyingOption.ON_DEMAND, BuyingOption.SPOT, BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    core: str
    ram: str
    gpu: str
    local_ssd_gib_per_gpu: float


def read_gcp(server: WebServer, catalog: Catalog, regions: Sequence[str], today: date) -> PriceReading:
    """Read the rates of Google's GPU machines; no regions means all. Raises SourceError, CredentialsError."""
    reading = PriceReading()
    families = _families()
    wanted = frozenset(name for family in families.values() for name in (family.core, family.ram, family.gpu)) | {
        LOCAL_SSD
    }
    parts = part_prices(skus(server), wanted, regions, today, reading)
    places = sorted({part.region for part in parts})
    for machine in catalog.instance_types:
        if machine.provider != "gcp":
            continue
        family = families.get(machine.name.rpartition("-")[0])
        if family is None or machine.vcpus is None or machine.memory_gib is None:
            reading.skip("gcp: machine whose parts the catalog does not know")
            continue
        reading.prices.extend(_machine_prices(machine, _amounts(machine, family), parts, places, today, reading))
    reading.cover("gcp", places, *_OFFERED)
    return reading


def _families() -> dict[str, _Family]:
    """Read which parts each family of machines is billed by."""
    return {
        row["family"]: _Family(
            core=row["core"],
            ram=row["ram"],
            gpu=row["gpu"],
            local_ssd_gib_per_gpu=float(row["local_ssd_gib_per_gpu"]),
        )
        for row in packaged_rows("gcp_machine_parts.csv")
    }


def _amounts(machine: InstanceType, family: _Family) -> dict[str, float]:
    """Return how much of each part a machine holds."""
    amounts = {
        family.core: float(machine.vcpus or 0),
        family.ram: machine.memory_gib or 0.0,
        family.gpu: machine.board_count,
        LOCAL_SSD: family.local_ssd_gib_per_gpu * machine.gpu_count,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _machine_prices(
    machine: InstanceType,
    amounts: dict[str, float],
    parts: PartPrices,
    places: Sequence[str],
    today: date,
    reading: PriceReading,
) -> Iterator[Price]:
    for region in places:
        for option in _OFFERED:
            found = {name: parts.get(MachinePart(name=name, option=option, region=region)) for name in amounts}
            usd_hr = _sum(amounts, found)
            if usd_hr is not None and not is_rate(usd_hr):
                reading.skip("gcp: machine whose parts add up to no rate")
                continue
            if usd_hr is None:
                lacking = [name for name, price in found.items() if price is None]
                if len(lacking) < len(amounts) and lacking != [LOCAL_SSD]:
                    reading.skip("gcp: machine of which only some parts are sold there that way")
                elif lacking == [LOCAL_SSD]:
                    reading.skip("gcp: machine whose bundled disks have no price there that way")
                continue
            yield Price(
                provider="gcp",
                instance_type=machine.name,
                region=region,
                option=option,
                usd_hr=round(usd_hr, 6),
                as_of=today,
                source=SOURCE,
                note="resource CUD over all parts; gives no capacity" if option.term_years else "",
            )


def _sum(amounts: dict[str, float], found: dict[str, float | None]) -> float | None:
    """Return the sum of the parts; None if one has no price."""
    total = 0.0
    for name, amount in amounts.items():
        price = found[name]
        if price is None:
            return None
        total += amount * price
    return total

"""AWS spot: observed prices (DescribeSpotPriceHistory, with credentials) and the public Spot Advisor.

The Advisor states an average saving over a month, not a price: rates made of it are derived, and say so. A saving may be
negative; then the rate lies above on demand and is kept as such. Its `r` is a place in its own list of bands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from statistics import fmean

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import BuyingOption, InterruptionBucket, Price, PriceBasis
from trimtab.errors import SourceError
from trimtab.sources.clouds.clients import aws_client, aws_items
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import Reading

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


class _Advice(BaseModel):
    saving_pct: int = Field(alias="s")
    band: int = Field(alias="r")


class _Advisor(BaseModel):
    ranges: list[_Band]
    advice: dict[str, dict[str, dict[str, _Advice]]] = Field(alias="spot_advisor")


class _Observed(BaseModel):
    zone: str = Field(alias="AvailabilityZone")
    name: str = Field(alias="InstanceType")
    product: str = Field(alias="ProductDescription")
    price: float = Field(alias="SpotPrice", gt=0, allow_inf_nan=False)
    since: datetime = Field(alias="Timestamp")


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


def derived_spot(advice: Advice, on_demand: Iterable[Price], today: date, reading: Reading) -> None:
    """Add spot rates derived from on-demand rates and average savings."""
    for price in on_demand:
        told = advice.get((price.instance_type, price.region))
        if told is None:
            reading.skip("aws: no advice on spot of this type and region")
            continue
        saving_pct, bucket = told
        if saving_pct >= 100:
            reading.skip("aws: advised saving of 100 % or more")
            continue
        reading.prices.append(
            replace(
                price,
                option=BuyingOption.SPOT,
                usd_hr=round(price.usd_hr * (1 - saving_pct / 100), 6),
                as_of=today,
                source=f"{price.source}+{ADVISOR}",
                basis=PriceBasis.DERIVED,
                interruption=bucket,
                note=f"on-demand x (1 - Spot Advisor savings {saving_pct}%)",
            )
        )


def read_history(endpoint: str | None, types: frozenset[str], regions: Sequence[str], now: datetime) -> Reading:
    """Read observed spot prices of the last days, region by region. Raises SourceError."""
    reading = Reading()
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
    entries: Iterable[object], region: str, types: frozenset[str], since: datetime, now: datetime, reading: Reading
) -> None:
    """Add, for each type, the mean over the zones of each zone's time-weighted mean over the window."""
    by_type: dict[str, dict[str, list[tuple[datetime, float]]]] = defaultdict(lambda: defaultdict(list))
    for raw in entries:
        try:
            entry = _Observed.model_validate(raw)
        except ValidationError:
            reading.skip("aws: spot entry that is no price")
            continue
        if entry.product != _LINUX or entry.name not in types:
            reading.skip("aws: spot price of another system or type")
            continue
        by_type[entry.name][entry.zone].append((entry.since.astimezone(UTC), entry.price))
    for name, zones in sorted(by_type.items()):
        means = [_weighted(points, since, now) for points in zones.values()]
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

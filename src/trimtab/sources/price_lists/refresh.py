"""Read the price lists that were requested, each from its own address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import assert_never

from trimtab.catalog import BuyingOption, Catalog
from trimtab.catalog.providers import is_region
from trimtab.errors import SourceError, UsageError
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading, aws, aws_savings_plans, azure, gcp
from trimtab.sources.price_lists.azure import read_azure
from trimtab.sources.price_lists.gcp import read_gcp

REFRESHED = ("aws-", "gcp-billing", "azure-retail")
"""How the sources of rates begin that a refresh wrote, and that the next may replace."""
ENDPOINTS = {
    "aws-bulk": aws.DEFAULT_URL,
    "aws-advisor": aws.ADVISOR_URL,
    "aws-pricing": "AWS's own",
    "aws-ec2": "AWS's own",
    "gcp": gcp.DEFAULT_URL,
    "azure": azure.DEFAULT_URL,
}
"""Addresses by name; those of AWS's signed services are boto3's own until replaced."""


class AwsListSource(Enum):
    """How AWS's list is read."""

    BULK = "bulk"
    QUERY = "query"


class SpotRateSource(Enum):
    """Where AWS's spot rates come from."""

    ADVISOR = "advisor"
    HISTORY = "history"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """What to read, and how to be let in."""

    providers: tuple[str, ...]
    regions: tuple[str, ...]
    now: datetime
    endpoints: Mapping[str, str] = field(default_factory=dict)
    aws_via: AwsListSource = AwsListSource.BULK
    spot_via: SpotRateSource = SpotRateSource.ADVISOR
    gcp_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def of(self, provider: str) -> tuple[str, ...]:
        """Return the regions requested that are spelled as a provider spells them."""
        return tuple(region for region in self.regions if is_region(provider, region))

    def server(self, name: str, headers: Mapping[str, str] | None = None) -> WebServer:
        """Return the server of a list."""
        return WebServer(self.endpoints.get(name, ENDPOINTS[name]), headers=headers)


def read_lists(asked: RefreshRequest, catalog: Catalog) -> tuple[PriceReading, dict[str, SourceError]]:
    """Read each provider's list; returns what was read, and the error of each provider that failed."""
    readers: dict[str, Callable[[RefreshRequest, Catalog], PriceReading]] = {"aws": _aws, "gcp": _gcp, "azure": _azure}
    whole = PriceReading()
    failed: dict[str, SourceError] = {}
    for provider in asked.providers:
        if asked.regions and not asked.of(provider):
            continue
        try:
            whole.take(readers[provider](asked, catalog))
        except SourceError as error:
            failed[provider] = error
    if not whole.prices and not failed:
        raise UsageError(f"no provider asked for has a region {', '.join(asked.regions)}")
    return whole, failed


def known_regions(catalog: Catalog, provider: str) -> tuple[str, ...]:
    """Return the regions of which the price book has rates of a provider."""
    return tuple(sorted({key[2] for key in catalog.prices.keys if key[0] == provider and is_region(provider, key[2])}))


def _aws(asked: RefreshRequest, catalog: Catalog) -> PriceReading:
    types = frozenset(machine.name for machine in catalog.instance_types if machine.provider == "aws")
    regions = asked.of("aws") or known_regions(catalog, "aws")
    today = asked.now.date()
    options = [BuyingOption.ON_DEMAND, BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y]
    if asked.aws_via is AwsListSource.BULK:
        with asked.server("aws-bulk") as server:
            reading = aws.read_bulk(server, types, regions, today)
            aws_savings_plans.read_savings_plans(server, types, regions, today, reading)
        options += [BuyingOption.SAVINGS_PLAN_1Y, BuyingOption.SAVINGS_PLAN_3Y]
    else:
        reading = aws.read_query(asked.endpoints.get("aws-pricing"), types, regions, today)
    if asked.spot_via is not SpotRateSource.NONE:
        _aws_spot(asked, types, regions, reading)
        options.append(BuyingOption.SPOT)
    reading.cover("aws", regions, *options)
    return reading


def _aws_spot(asked: RefreshRequest, types: frozenset[str], regions: Sequence[str], reading: PriceReading) -> None:
    with asked.server("aws-advisor") as server:
        advice = aws.read_advisor(server)
    match asked.spot_via:
        case SpotRateSource.ADVISOR:
            listed = [price for price in reading.prices if price.option is BuyingOption.ON_DEMAND]
            aws.derived_spot(advice, listed, asked.now.date(), reading)
        case SpotRateSource.HISTORY:
            seen = aws.read_history(asked.endpoints.get("aws-ec2"), types, regions, asked.now)
            seen.prices = aws.with_interruptions(seen.prices, advice)
            reading.take(seen)
        case SpotRateSource.NONE:
            return
        case _:
            assert_never(asked.spot_via)


def _gcp(asked: RefreshRequest, catalog: Catalog) -> PriceReading:
    with asked.server("gcp", asked.gcp_headers) as server:
        return read_gcp(server, catalog, asked.of("gcp"), asked.now.date())


def _azure(asked: RefreshRequest, catalog: Catalog) -> PriceReading:
    with asked.server("azure") as server:
        return read_azure(server, catalog, asked.of("azure"), asked.now.date())

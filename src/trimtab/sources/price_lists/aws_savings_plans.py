"""AWS's Savings Plans as hourly rates: what an hour of an instance takes of a Compute Savings Plan, by term, without upfront.

Source: savingsPlan/v1.0/aws/AWSComputeSavingsPlan/current/region_index.json (docs.aws.amazon.com, "Reading the service price
list file for a Savings Plan"): five lines about the file, then a header. The file of a region holds both kinds of plans. Those
of one instance family (EC2 Instance Savings Plans) are left out: a rate here is one that any instance may be charged against.
Linux on shared hardware is the operation `RunInstances` and the usage type `BoxUsage`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import BuyingOption, Price
from trimtab.catalog.prices import is_rate
from trimtab.errors import SourceError
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading

SOURCE = "aws-savings-plans"
_INDEX = "/savingsPlan/v1.0/aws/AWSComputeSavingsPlan/current/region_index.json"
_FIRST_COLUMN = "SKU"
_TERMS = {"1": BuyingOption.SAVINGS_PLAN_1Y, "3": BuyingOption.SAVINGS_PLAN_3Y}
_WANTED = {
    "Product Family": ("ComputeSavingsPlans", "a plan of one instance family"),
    "DiscountedServiceCode": ("AmazonEC2", "of another service"),
    "DiscountedOperation": ("RunInstances", "another operating system"),
    "PurchaseOption": ("No Upfront", "paid upfront"),
    "LeaseContractLengthUnit": ("year", "of another term"),
    "Unit": ("Hrs", "of another unit"),
    "Currency": ("USD", "in another currency"),
}
"""Column -> what it must say, and why else a row is left out."""
_NEEDED = frozenset(
    {
        *_WANTED,
        "DiscountedRate",
        "DiscountedUsageType",
        "LeaseContractLength",
        "DiscountedRegionCode",
        "DiscountedInstanceType",
    }
)


class _PlanRegion(BaseModel):
    code: str = Field(alias="regionCode")
    url: str = Field(alias="versionUrl")


class _PlanIndex(BaseModel):
    regions: list[_PlanRegion]


def read_savings_plans(
    server: WebServer, types: frozenset[str], regions: Sequence[str], today: date, reading: PriceReading
) -> None:
    """Add the rates of regions; one without a file is counted. Raises SourceError."""
    try:
        index = _PlanIndex.model_validate_json(server.get(_INDEX))
    except ValidationError as error:
        raise SourceError(f"{server.url}{_INDEX}: no index of regions: {error.errors()[0]['msg']}") from error
    urls = {region.code: region.url for region in index.regions}
    for region in regions:
        if region not in urls:
            reading.skip("aws: no savings plans in a region")
            continue
        path = server.path_of(urls[region]).replace("index.json", "index.csv")
        with server.lines(path) as lines:
            reading.prices += plan_rates(lines, region, types, today, f"{server.url}{path}", reading)


def plan_rates(
    lines: Iterable[str], region: str, types: frozenset[str], today: date, where: str, reading: PriceReading
) -> Iterator[Price]:
    """Yield the rates of a region's file; what is left out is counted. Raises SourceError for something else."""
    for row in _rows(lines, where):
        why = _why_not(row, region, types)
        if why is not None:
            reading.skip(f"aws savings plan: {why}")
            continue
        yield Price(
            provider="aws",
            instance_type=row["DiscountedInstanceType"],
            region=region,
            option=_TERMS[row["LeaseContractLength"]],
            usd_hr=round(float(row["DiscountedRate"]), 6),
            as_of=today,
            source=SOURCE,
            note="Compute Savings Plan, no upfront",
        )


def _why_not(row: Mapping[str, str], region: str, types: frozenset[str]) -> str | None:
    if row["DiscountedInstanceType"] not in types:
        return "type that the catalog does not know"
    for column, (wanted, why) in _WANTED.items():
        if row[column] != wanted:
            return why
    if row["DiscountedRegionCode"] != region:
        return "of another region"
    # EUW1-BoxUsage:p5.48xlarge; dedicated hosts and what is reserved but unused have words of their own
    if row["DiscountedUsageType"].partition(":")[0].rpartition("-")[2] != "BoxUsage":
        return "not an hour on shared hardware"
    if row["LeaseContractLength"] not in _TERMS:
        return "of another term"
    try:
        usd_hr = float(row["DiscountedRate"])
    except ValueError:
        return "price that is not a number"
    return None if is_rate(usd_hr) else "price of 0, or no number"


def _rows(lines: Iterable[str], where: str) -> Iterator[dict[str, str]]:
    try:
        rows = csv.reader(lines)
        header = next((row for row in rows if row[:1] == [_FIRST_COLUMN]), None)
        if header is None:
            raise SourceError(
                f"{where}: no price list of savings plans: it has no line that begins with {_FIRST_COLUMN}"
            )
        if lacking := sorted(_NEEDED - set(header)):
            raise SourceError(f"{where}: the price list of savings plans lacks the columns {', '.join(lacking)}")
        # a row that was cut short has empty cells, for which it is left out
        yield from (dict(zip(header, [*row, *[""] * (len(header) - len(row))], strict=False)) for row in rows if row)
    except csv.Error as error:
        raise SourceError(f"{where}: no price list of savings plans: {error}") from error

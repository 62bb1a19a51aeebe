"""AWS's Query API (GetProducts): prices of the types of the catalog only, with credentials, through boto3.

`PriceList` holds JSON in strings; on-demand and reserved terms nest by offer term code, then by rate code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from pydantic import BaseModel, Field, ValidationError

from trimtab.sources.clouds.clients import aws_client, aws_items
from trimtab.sources.price_lists.aws_terms import TermLine, term_rates
from trimtab.sources.price_lists.reading import Reading


class _Dimension(BaseModel):
    unit: str = "Quantity"
    price: dict[str, float] = Field(alias="pricePerUnit")


class _Terms(BaseModel):
    lease: str = Field("", alias="LeaseContractLength")
    purchase: str = Field("", alias="PurchaseOption")
    offering_class: str = Field("", alias="OfferingClass")


class _Term(BaseModel):
    dimensions: dict[str, _Dimension] = Field(default_factory=dict, alias="priceDimensions")
    attributes: _Terms = Field(default_factory=lambda: _Terms.model_validate({}), alias="termAttributes")


class _Product(BaseModel):
    sku: str = ""
    attributes: dict[str, str] = Field(default_factory=dict)


class _Item(BaseModel):
    product: _Product
    terms: dict[str, dict[str, _Term]] = Field(default_factory=dict)


def read_query(endpoint: str | None, types: frozenset[str], regions: Sequence[str], today: date) -> Reading:
    """Read on-demand and reserved rates with GetProducts, one type and region at a time. Raises SourceError."""
    client = aws_client("pricing", "us-east-1", endpoint)
    reading = Reading()
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


def item_lines(items: Iterable[object], region: str, reading: Reading) -> Iterator[TermLine]:
    """Yield the prices of GetProducts' items, each a JSON string (or, from some mirrors, the object itself)."""
    for raw in items:
        try:
            item = _Item.model_validate(json.loads(raw) if isinstance(raw, str) else raw)
        except (ValidationError, json.JSONDecodeError):
            reading.skip("aws: item that is no product with terms")
            continue
        for kind, terms in item.terms.items():
            for code, term in terms.items():
                yield from _term_lines(item.product, kind, code, term, region)


def _term_lines(product: _Product, kind: str, code: str, term: _Term, region: str) -> Iterator[TermLine]:
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

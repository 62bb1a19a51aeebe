"""The packaged price list: every row dated and sourced, known prices exact, peers' errors absent."""

from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from trimtab.catalog import BuyingOption, Lifecycle, PriceBasis

ON_DEMAND, SPOT = BuyingOption.ON_DEMAND, BuyingOption.SPOT
ONE_YEAR, THREE_YEARS = BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y
BLOCK = BuyingOption.CAPACITY_BLOCK
DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "catalog.md"


def test_every_price_carries_a_date_and_a_source_that_the_docs_explain(catalog):
    explained = DOCS.read_text(encoding="utf-8")
    sources = {part for price in catalog.prices.prices for part in price.source.split("+")}

    assert all(price.as_of <= date(2026, 11, 20) for price in catalog.prices.prices)
    assert {source for source in sources if f"`{source}`" not in explained} == set()


def test_no_offering_has_two_rates_of_one_day(catalog):
    counts = Counter((price.key, price.as_of) for price in catalog.prices.prices)

    assert [key for key, count in counts.items() if count > 1] == []


def test_aws_spot_says_that_it_is_derived(catalog):
    spot = catalog.prices.offerings(provider="aws", option=SPOT)

    assert len(spot) > 200
    assert all(price.basis is PriceBasis.DERIVED and "savings" in price.note and price.interruption for price in spot)


def test_gcp_spot_is_listed(catalog):
    assert all(price.basis is PriceBasis.LISTED for price in catalog.prices.offerings(provider="gcp", option=SPOT))


@pytest.mark.parametrize(
    ("provider", "instance_type", "region", "option", "usd_hr"),
    [
        ("aws", "g4dn.xlarge", "us-east-1", ON_DEMAND, 0.526),
        ("aws", "g5.xlarge", "us-east-1", ON_DEMAND, 1.006),
        ("aws", "g6.xlarge", "us-east-1", ON_DEMAND, 0.8048),
        ("aws", "g6e.xlarge", "us-east-1", ON_DEMAND, 1.861),
        ("aws", "g7e.2xlarge", "us-east-1", ON_DEMAND, 3.36312),
        ("aws", "p4d.24xlarge", "us-east-1", ON_DEMAND, 21.957642),
        ("aws", "p4d.24xlarge", "us-east-1", ONE_YEAR, 13.921094),
        ("aws", "p4de.24xlarge", "us-east-1", ON_DEMAND, 27.44705),
        ("aws", "p5.48xlarge", "us-east-1", ON_DEMAND, 55.04),
        ("aws", "p5.48xlarge", "us-east-1", BLOCK, 39.33),
        ("aws", "p5.4xlarge", "us-east-1", ON_DEMAND, 6.88),
        ("aws", "p5en.48xlarge", "us-east-1", ON_DEMAND, 63.296),
        ("aws", "p6-b200.48xlarge", "us-east-1", ON_DEMAND, 113.9328),
        ("aws", "p6-b300.48xlarge", "us-east-1", ON_DEMAND, 142.416),
        ("gcp", "a2-highgpu-1g", "us-central1", ON_DEMAND, 3.673385),
        ("gcp", "a2-highgpu-1g", "us-central1", SPOT, 1.92802),
        ("gcp", "a2-highgpu-1g", "us-central1", THREE_YEARS, 1.2857),
        ("gcp", "a3-highgpu-8g", "us-central1", ON_DEMAND, 88.49),
        ("gcp", "g2-standard-4", "us-central1", SPOT, 0.3973),
        ("azure", "Standard_ND96isr_H200_v5", "eastus2", ON_DEMAND, 84.80),
        ("azure", "Standard_ND96isr_H100_v5", "eastus2", ON_DEMAND, 98.32),
        ("azure", "Standard_NC40ads_H100_v5", "eastus2", ON_DEMAND, 6.98),
        ("oci", "BM.GPU.H100.8", "us-ashburn-1", ON_DEMAND, 80.0),
        ("nebius", "gpu-h100-sxm_1gpu-16vcpu-200gb", "eu-north1", SPOT, 1.25),
        ("lambda", "h100-sxm", "us-west-1", ON_DEMAND, 4.29),
    ],
)
def test_known_price_is_within_a_thousandth(catalog, provider, instance_type, region, option, usd_hr):
    assert catalog.prices.price(provider, instance_type, region, option).usd_hr == pytest.approx(usd_hr, rel=1e-3)


@pytest.mark.parametrize(
    ("instance_type", "before", "after"),
    [
        ("p4d.24xlarge", 32.7726, 21.957642),
        ("p4de.24xlarge", 40.96575, 27.44705),
        ("p5.48xlarge", 98.32, 55.04),
        ("p5en.48xlarge", 84.80, 63.296),
    ],
)
def test_the_cut_of_june_2025_stands_in_the_history(catalog, instance_type, before, after):
    def at(day):
        return catalog.prices.price("aws", instance_type, "us-east-1", ON_DEMAND, at=day).usd_hr

    assert at(date(2025, 6, 4)) == pytest.approx(before)
    assert at(date(2025, 6, 5)) == pytest.approx(after)


def test_spot_that_rose_is_priced_at_what_it_was(catalog):
    """GCP A2 in us-central1: 1.293 in March 2025, 1.928 in August 2026."""

    def at(day):
        return catalog.prices.price("gcp", "a2-highgpu-1g", "us-central1", SPOT, at=day).usd_hr

    assert at(date(2025, 3, 6)) == pytest.approx(1.293)
    assert at(date(2026, 8, 3)) / at(date(2025, 3, 6)) == pytest.approx(1.49, abs=0.005)


@pytest.mark.parametrize("family", ["p3.", "p5.", "p5en.", "p6-"])
def test_no_discount_where_none_is_sold(catalog, family):
    """AWS lists no reserved instances for P3, P5, P5en and P6."""
    committed = [
        price
        for price in catalog.prices.prices
        if price.provider == "aws"
        and price.instance_type.startswith(family)
        and price.option in (ONE_YEAR, THREE_YEARS)
    ]

    assert committed == []


def test_one_year_discounts_differ_by_type(catalog):
    """63.0 % of on demand for g5, 65.1 % for g6, 63.4 % for p4d: one flat percentage is wrong."""

    def frac(instance_type):
        prices = {price.option: price.usd_hr for price in catalog.prices.options("aws", instance_type, "us-east-1")}
        return prices[ONE_YEAR] / prices[ON_DEMAND]

    assert [frac(name) for name in ("g5.xlarge", "g6.xlarge", "p4d.24xlarge")] == pytest.approx(
        [0.630, 0.651, 0.634], abs=5e-4
    )


@pytest.mark.parametrize("instance_type", ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"])
def test_small_a3_shapes_can_be_bought_as_spot_only(catalog, instance_type):
    options = catalog.prices.options("gcp", instance_type, "us-central1")

    assert [price.option for price in options] == [SPOT]


def test_whole_a3_node_is_sold_on_demand(catalog):
    options = catalog.prices.options("gcp", "a3-highgpu-8g", "us-central1")

    assert ON_DEMAND in {price.option for price in options}


def test_a_retired_series_prices_the_past_but_is_not_offered(catalog):
    past = catalog.prices.price("azure", "Standard_NC6s_v3", "eastus", ON_DEMAND)

    assert past.usd_hr == pytest.approx(3.06)
    assert catalog.instance_type("azure", "Standard_NC6s_v3").lifecycle is Lifecycle.RETIRED
    assert catalog.prices.options("azure", "Standard_NC6s_v3", "eastus") == ()


def test_current_types_that_older_lists_lack_are_there(catalog):
    names = {instance.name for instance in catalog.instance_types if instance.provider == "aws"}

    assert {
        "p5.4xlarge",
        "p5en.48xlarge",
        "p6-b200.48xlarge",
        "p6-b300.48xlarge",
        "g7.2xlarge",
        "g7e.48xlarge",
    } <= names


def test_spot_above_on_demand_would_survive(catalog):
    """The saving of spot can be negative (p5.48xlarge in ca-central-1, July 2025: -62 %): nothing may assume otherwise."""
    listed = catalog.prices.price("aws", "p5.48xlarge", "us-east-1", ON_DEMAND)
    dear = replace(listed, option=SPOT, usd_hr=listed.usd_hr * 1.62)

    book = catalog.prices.overridden([dear])

    assert book.price("aws", "p5.48xlarge", "us-east-1", SPOT).usd_hr > listed.usd_hr


@pytest.mark.parametrize(
    ("provider", "instance_type", "gpu", "count"),
    [
        ("aws", "p4d.24xlarge", "A100-SXM4-40GB", 8),
        ("aws", "p4de.24xlarge", "A100-SXM4-80GB", 8),
        ("aws", "p3.8xlarge", "V100-SXM2-16GB", 4),
        ("aws", "p3dn.24xlarge", "V100-SXM2-32GB", 8),
        ("aws", "g5.xlarge", "A10G", 1),
        ("aws", "p5.48xlarge", "H100-SXM5-80GB", 8),
        ("azure", "Standard_NC40ads_H100_v5", "H100-NVL-94GB", 1),
        ("azure", "Standard_NC24ads_A100_v4", "A100-PCIe-80GB", 1),
        ("azure", "Standard_ND96amsr_A100_v4", "A100-SXM4-80GB", 8),
        ("gcp", "a2-megagpu-16g", "A100-SXM4-40GB", 16),
        ("oci", "BM.GPU.MI300X.8", "MI300X", 8),
    ],
)
def test_instance_type_carries_the_board_of_its_form_factor(catalog, provider, instance_type, gpu, count):
    instance = catalog.instance_type(provider, instance_type)

    assert (instance.gpu, instance.gpu_count, instance.gpu_frac) == (gpu, count, 1.0)


def test_a_slice_of_a_board_counts_as_its_share(catalog):
    assert catalog.instance_type("aws", "g6f.xlarge").board_count == pytest.approx(0.125)
    assert catalog.instance_type("azure", "Standard_NV12ads_A10_v5").board_count == pytest.approx(1 / 3, rel=1e-5)

"""The packaged facts load whole, and every reference between tables resolves."""

import pytest

from trimtab.catalog import BuyingOption
from trimtab.errors import UnknownName


def test_catalog_holds_the_boards_and_offerings(catalog):
    assert len(catalog.gpus) >= 39
    assert {"aws", "gcp", "azure", "oci", "lambda", "nebius", "runpod", "coreweave"} <= set(catalog.providers)


def test_every_instance_type_carries_a_known_board(catalog):
    for instance in catalog.instance_types:
        assert catalog.gpu_of(instance).name == instance.gpu
        assert instance.gpu_count >= 1
        assert 0 < instance.gpu_frac <= 1


def test_every_price_is_of_a_known_instance_type(catalog):
    for price in catalog.prices.prices:
        assert catalog.instance_type(price.provider, price.instance_type).name == price.instance_type


def test_misspelt_instance_type_brings_near_matches(catalog):
    with pytest.raises(UnknownName) as caught:
        catalog.instance_type("aws", "p4d.24xlarg")

    assert caught.value.near[0] == "p4d.24xlarge"


def test_price_of_eight_a100_is_found(catalog):
    price = catalog.prices.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND)

    assert price.usd_hr == pytest.approx(21.957642)

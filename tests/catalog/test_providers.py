"""One row a provider: what nodes, bills and price lists call it."""

import pytest

from trimtab.catalog import load_catalog
from trimtab.catalog.providers import (
    PRICE_LISTED,
    PROVIDERS,
    continents,
    is_region,
    provider_of_bill,
    provider_of_node_id,
    provider_of_node_labels,
)


def test_no_spelling_stands_for_two_providers():
    for field in ("node_id_schemes", "node_label_prefixes", "bill_words"):
        spelled = [word for provider in PROVIDERS for word in getattr(provider, field)]
        assert len(spelled) == len(set(spelled)), field


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("AWS", "aws"), ("Amazon Web Services", "aws"), ("Microsoft", "azure"), ("Microsoft Azure", "azure"),
        ("Google Cloud", "gcp"), ("CoreWeave", "coreweave"),
    ],
)  # fmt: skip
def test_a_bill_names_its_provider_in_words_of_its_own(name, provider):
    assert provider_of_bill(name) == provider


def test_a_node_tells_its_provider_by_its_id_or_by_labels():
    assert provider_of_node_id("azure:///subscriptions/0/virtualMachines/a") == "azure"
    assert provider_of_node_labels(["team", "cloud.google.com/gke-nodepool"]) == "gcp"
    assert provider_of_node_labels(["node.kubernetes.io/instance-type"]) is None


def test_every_region_that_the_catalog_knows_is_spelled_as_its_provider_spells_regions():
    known = {(provider, region) for provider, region in continents() if provider in PRICE_LISTED}

    assert {provider for provider, _ in known} == set(PRICE_LISTED) <= {p for p, *_ in load_catalog().prices.keys}
    assert not [pair for pair in known if not is_region(*pair)]

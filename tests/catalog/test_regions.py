"""Regions and their continents."""

from trimtab.catalog import load_catalog
from trimtab.catalog.prices import ANY_REGION
from trimtab.catalog.providers import continent_of, continents


def test_every_region_of_the_price_book_has_a_continent():
    sold = {(provider, region) for provider, regions in load_catalog().regions.items() for region in regions}

    assert {place for place in sold if place[1] != ANY_REGION} <= continents().keys()


def test_continents_are_those_of_the_map():
    assert continent_of("aws", "ap-northeast-1") == continent_of("gcp", "asia-northeast1") == "asia"
    assert continent_of("azure", "brazilsouth") == "south-america"
    assert continent_of("aws", "ap-southeast-2") == "oceania"

import pytest

from trimtab.sources.kubernetes.nodes import region_of_zone, zone_of_provider_id


@pytest.mark.parametrize(
    ("provider_id", "zone"),
    [
        ("aws:///us-east-1a/i-0abc", "us-east-1a"),
        ("gce://project/us-central1-a/gke-node", "us-central1-a"),
        ("azure:///subscriptions/x/resourceGroups/y", ""),
        ("", ""),
    ],
)
def test_the_zone_is_in_the_provider_id_of_some_clouds(provider_id, zone):
    assert zone_of_provider_id(provider_id) == zone


@pytest.mark.parametrize(
    ("provider", "zone", "region"),
    [("aws", "us-east-1a", "us-east-1"), ("gcp", "us-central1-a", "us-central1"), ("azure", "1", "")],
)
def test_the_region_is_part_of_the_zones_name(provider, zone, region):
    assert region_of_zone(provider, zone) == region

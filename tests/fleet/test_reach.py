"""A workload runs where it runs now, and elsewhere only where somebody said so and said what that costs."""

from dataclasses import replace

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.errors import InputError, UnknownName
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.reach import (
    check_reach,
    kept_at_home,
    offerings_elsewhere,
    offerings_for,
    reach_of,
    with_other_regions,
)
from trimtab.fleet.settings import Limits, Settings

SETTINGS = Settings()
STATED = {"data_gib": 10.0, "traffic_gib_mo": 1.0}


def workload(**declared):
    return fleet_of(**declared).workload("prod/api")


def fleet_of(**declared):
    rows = FleetRows(7).node("n", "g5.xlarge", region="eu-central-1").hold("prod/api", "n", [0])
    rows.use("prod/api", "n", 0, range(7 * 24), sm=0.5)
    rows.workloads = {"prod/api": declared}
    return build_fleet(rows.bundle(), SETTINGS)


def market(**limits):
    return Market.of(load_catalog(), None, replace(SETTINGS, limits=Limits(**limits)))


def reached(declared, **limits):
    reach = reach_of(workload(**declared), market(**limits))
    return reach if isinstance(reach, str) else {str(region) for region in reach}


def test_nothing_moves_that_nobody_allowed():
    assert reached({}) == set()
    assert {one.pool.region for one in offerings_for(workload(), market())} == {"eu-central-1"}


def test_a_workload_may_move_where_its_rules_name_a_region():
    declared = {"regions": ["eu-west-1", "eu-central-1", "us-east-1"], **STATED}

    assert reached(declared) == {"aws/eu-west-1", "aws/us-east-1"}
    assert {one.pool.region for one in offerings_elsewhere(workload(**declared), market())} == {
        "eu-west-1",
        "us-east-1",
    }


@pytest.mark.parametrize("missing", ["data_gib", "traffic_gib_mo"])
def test_nothing_moves_whose_data_or_traffic_is_unknown(missing):
    stated = {key: value for key, value in STATED.items() if key != missing}

    assert missing in reached({"regions": ["eu-west-1"], **stated})


def test_limits_on_regions_narrow_what_a_workload_may_do_and_open_nothing():
    declared = {"regions": ["eu-west-1", "us-east-1"], **STATED}

    assert reached(declared, regions="eu-west-1, us-west-2") == {"aws/eu-west-1"}
    assert "limits.regions" in reached(declared, regions="us-west-2")
    assert reached(STATED, regions="us-west-2") == set()


def test_another_cloud_needs_to_be_asked_for():
    declared = {"regions": ["gcp/europe-west4"], **STATED}

    assert "limits.providers" in reached(declared)
    assert reached(declared, providers="gcp") == {"gcp/europe-west4"}


def test_a_workload_that_names_its_regions_stays_in_them_whatever_clouds_are_asked_for():
    assert reached({"regions": ["eu-central-1"], **STATED}, providers="gcp") == set()


def test_regions_of_a_scenario_open_what_nobody_named_and_say_what_still_keeps_work_at_home():
    def opened(declared):
        return with_other_regions(fleet_of(**declared), ["eu-west-1"]).workloads, market()

    stated, unstated = opened(STATED), opened({})

    assert {str(region) for region in reach_of(stated[0][0], stated[1])} == {"aws/eu-west-1"}
    assert kept_at_home(*stated) == ()
    (said,) = kept_at_home(*unstated)
    assert said.startswith("1 of 1 workloads stay where they are: what a move costs is unknown")


def test_of_another_cloud_the_regions_of_the_same_continent_are_near():
    reach = reached(STATED, providers="gcp")

    assert "gcp/europe-west4" in reach
    assert all(region.startswith("gcp/europe-") for region in reach)
    assert reached(STATED, providers="gcp", regions="gcp/us-central1") == {"gcp/us-central1"}


def test_of_several_near_regions_each_type_is_taken_in_the_cheapest():
    found = offerings_elsewhere(workload(**STATED), market(providers="gcp"))

    types = [one.pool.instance_type for one in found]
    assert len(set(types)) == len(types)
    for one in found:
        rates = [
            other.rate_micro_usd_hr
            for region in market().regions("gcp")
            if region.startswith("europe-")
            for other in market().offerings("gcp", region)
            if other.pool.instance_type == one.pool.instance_type
        ]
        assert one.rate_micro_usd_hr == min(rates)


def test_a_cloud_that_names_no_regions_is_one_place():
    assert reached(STATED, providers="coreweave") == {"coreweave/any"}


def test_a_cloud_with_no_region_near_asks_for_one():
    far = replace(workload(**STATED), pool=replace(workload().pool, region="moon-1"))

    with pytest.raises(InputError, match=r"name them in limits\.regions.*gcp/us-central1"):
        reach_of(far, market(providers="gcp"))


@pytest.mark.parametrize(
    ("declared", "limits", "near"),
    [
        ({"regions": ["us-esat-1"]}, {}, "us-east-1"),
        ({"regions": ["gpc/us-central1"]}, {}, "gcp"),
        ({}, {"regions": "us-wset-2"}, "us-west-2"),
        ({}, {"providers": "azrue"}, "azure"),
    ],
)
def test_misspelt_names_are_refused_with_near_matches(declared, limits, near):
    with pytest.raises(UnknownName, match=f"did you mean .*{near}"):
        check_reach([workload(**declared)], market(**limits))


def test_a_region_needs_a_name():
    with pytest.raises(InputError, match="write REGION or PROVIDER/REGION"):
        reach_of(workload(regions=["aws/"], **STATED), market())

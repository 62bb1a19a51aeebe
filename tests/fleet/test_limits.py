import pytest

from trimtab.catalog.kinds import CapacityType, Isolation
from trimtab.catalog.pools import Pool
from trimtab.errors import InputError
from trimtab.fleet.reach import asked_isolation, isolation_of, quota_of_pools, quotas_of
from trimtab.tables.workloads import WorkloadSpec

EAST, WEST = Pool("aws", "p5.48xlarge", "us-east-1"), Pool("aws", "p5.48xlarge", "us-west-2")


def test_a_quota_without_a_region_limits_each_regions_own_on_demand_nodes():
    quotas = quotas_of("p5.48xlarge=16")

    assert quota_of_pools(quotas, [EAST, WEST, EAST.held_as(CapacityType.SPOT)]) == {EAST: 16, WEST: 16}


def test_the_tightest_of_several_quotas_holds():
    assert quota_of_pools(quotas_of("p5.48xlarge=16, p5.48xlarge@us-east-1=4"), [EAST, WEST]) == {EAST: 4, WEST: 16}


def test_spot_has_a_quota_of_its_own():
    spot = EAST.held_as(CapacityType.SPOT)

    assert quota_of_pools(quotas_of("p5.48xlarge@us-east-1:spot=40"), [EAST, spot]) == {spot: 40}


@pytest.mark.parametrize("text", ["p5.48xlarge", "p5.48xlarge=many", "p5.48xlarge:reserved=4", "=4"])
def test_what_is_no_quota_is_refused_with_the_form_that_is_understood(text):
    with pytest.raises(InputError, match=r"not a quota|no capacity type"):
        quotas_of(text)


def test_what_a_workload_declares_of_its_isolation_goes_over_what_is_stated_for_the_fleet():
    assert asked_isolation(WorkloadSpec(), "mps") is Isolation.MPS
    assert asked_isolation(WorkloadSpec(isolation="hardware"), "none") is Isolation.HARDWARE


def test_an_unknown_isolation_is_refused_with_what_is_known():
    with pytest.raises(
        InputError, match=r"did you mean time-slicing\?; write one of hardware, mps, time-slicing, none"
    ):
        isolation_of("time-slice")


@pytest.mark.parametrize("asked", list(Isolation))
def test_hardware_isolation_is_good_enough_for_everybody(asked):
    assert asked.admits(Isolation.HARDWARE)
    assert asked.admits(Isolation.MPS) is (asked in (Isolation.MPS, Isolation.NONE))

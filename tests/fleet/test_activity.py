"""What a GPU does while it works, told apart from how often it works."""

import math

import pytest
from tests.fleets import FleetRows

from trimtab.fleet.activity import activity_in_work, working_frac
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings


def service(*, sm, running, util=None):
    rows = FleetRows(7).node("n", "p4d.24xlarge").hold("web/api", "n", [0], owner_kind="Deployment")
    rows.use("web/api", "n", 0, range(168), sm=sm, util=util, dram=sm / 2)
    rows.demand("web/api", lambda hour: 40.0, 1, running=lambda hour: running)
    return build_fleet(rows.bundle(), Settings()).workload("web/api")


def test_a_replica_with_a_tenth_of_a_request_in_work_works_a_tenth_of_the_time():
    workload = service(sm=0.05, running=0.1)

    assert working_frac(workload) == pytest.approx(1 - math.exp(-0.1))
    assert activity_in_work(workload).sm_frac == pytest.approx(0.05 / (1 - math.exp(-0.1)))


def test_gpu_util_counts_where_it_saw_less_work():
    assert working_frac(service(sm=0.01, running=2.0, util=0.3)) == pytest.approx(0.3)


def test_a_gpu_is_never_more_than_full():
    assert activity_in_work(service(sm=0.4, running=0.1)).sm_frac == 1.0

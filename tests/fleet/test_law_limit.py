"""What a plan takes a replica to serve is what history shows, whatever its GPU could do."""

from dataclasses import replace

import numpy as np
import pytest
from tests.limited_servers import SERVICE, Limited, daily_arrivals, fleet_of, simulate

from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.placement import resolve
from trimtab.fleet import law_limit
from trimtab.fleet.build import build_fleet
from trimtab.fleet.law_evidence import BackTest, BackTestedMeasure, Bound
from trimtab.fleet.service_law import UNTOLD_ROOM
from trimtab.fleet.settings import Settings
from trimtab.policies.scaling import SYNC_S
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.replica_law import replica_law
from trimtab.units import S_PER_DAY

DAYS, REPLICAS, HEALTHY = 3, 3, 0.8
TWICE_AS_FAST = Estimate(value=2.0, low=2.0, high=2.0, basis=Basis.MODELLED)


def law_of(server, peak_frac, replicas=REPLICAS, limit_s=1000.0):
    arrivals = daily_arrivals(DAYS, peak_frac * replicas * server.capacity_req_s, seed=3)
    seen = simulate(server, arrivals, np.full(DAYS * S_PER_DAY // SYNC_S, replicas), DAYS, seed=5)
    rows = fleet_of(server, seen, replicas, DAYS, limit_s)
    return law_limit.tested_law(build_fleet(rows.bundle(), Settings()).workload(SERVICE), HEALTHY)


def test_what_was_served_while_all_places_were_taken_is_the_capacity():
    server = Limited(at_once=4, service_s=60.0)

    law = law_of(server, peak_frac=1.15)

    assert law.tested.bound is Bound.PLACES
    assert law.capacity_req_s == pytest.approx(server.capacity_req_s, rel=0.03)


@pytest.mark.parametrize("peak_frac", [0.4, 0.7])
def test_places_that_were_never_all_taken_leave_the_plan_at_the_highest_load_seen(peak_frac):
    server = Limited(at_once=8, service_s=60.0)

    law = law_of(server, peak_frac)

    assert law.tested.bound is Bound.UNTOLD
    assert law.tested.activity_req_s > 2 * server.capacity_req_s
    assert law.tested.shown_req_s == pytest.approx(peak_frac * server.capacity_req_s, rel=0.3)
    assert HEALTHY * law.capacity_req_s <= 1.001 * law.tested.shown_req_s


@pytest.mark.parametrize(("measured", "bound"), [(1.1, Bound.UNTOLD), (1.3, Bound.BESIDE_GPU)])
def test_requests_that_crowd_one_another_end_the_allowance_though_none_is_late_yet(monkeypatch, measured, bound):
    found = BackTest(
        fitted_req_s=1.0,
        tested_req_s=1.2,
        limit_s=None,
        in_time=None,
        running=BackTestedMeasure(foretold=3.0, measured=3.0 * measured),
        waiting=None,
        gpu_s=None,
        late_frac=0.0,
    )
    monkeypatch.setattr(law_limit, "back_test", lambda *_: found)

    law = law_of(Limited(at_once=8, service_s=60.0), peak_frac=0.7)

    assert law.tested.bound is bound
    shown = law.tested.shown_req_s
    assert law.capacity_req_s <= (shown if bound is Bound.BESIDE_GPU else shown / HEALTHY) * 1.001


def test_requests_are_taken_to_wait_beyond_a_careful_capacity_and_at_one_that_was_seen_full():
    careful = law_of(Limited(at_once=8, service_s=60.0), 0.7)
    full = law_of(Limited(at_once=4, service_s=60.0), peak_frac=1.15)

    assert careful.full_req_s == pytest.approx(UNTOLD_ROOM * careful.capacity_req_s)
    assert full.full_req_s == full.capacity_req_s
    nearly = replace(careful, tested=replace(careful.tested, activity_req_s=1.01 * careful.capacity_req_s))
    assert nearly.full_req_s == pytest.approx(1.01 * careful.capacity_req_s)


def test_latency_that_rises_while_the_gpu_is_hardly_busy_tells_of_something_beside_it():
    server = Limited(at_once=1, service_s=6.0, cores=True)

    law = law_of(server, peak_frac=0.9, replicas=1)

    assert law.tested.bound is Bound.BESIDE_GPU
    assert law.capacity_req_s < 1.1 * server.capacity_req_s
    assert law.tested.activity_req_s > 1.5 * server.capacity_req_s


def test_a_gpu_that_was_seen_near_its_end_is_what_is_full_first():
    server = Limited(at_once=8, service_s=60.0, full_sm=1.0)

    law = law_of(server, peak_frac=0.85)

    assert law.tested.bound is Bound.GPU
    assert law.capacity_req_s == pytest.approx(server.capacity_req_s, rel=0.03)


def test_a_server_seen_with_little_load_serves_one_request_after_the_other():
    server = Limited(at_once=2, service_s=60.0)

    law = law_of(server, peak_frac=0.1)

    assert law.capacity_req_s >= 1 / 65


def test_a_faster_gpu_adds_nothing_where_something_else_may_be_full_first():
    law = law_of(Limited(at_once=8, service_s=60.0), 0.4)
    workload = build_fleet(
        fleet_of(Limited(), simulate(Limited(), np.array([1.0]), [1], DAYS, 1), 1, DAYS, 1.0).bundle(), Settings()
    ).workload(SERVICE)
    place = replace(resolve(workload, AS_IT_IS), speed=TWICE_AS_FAST)

    assert replica_law(law, place)[1] == 1
    assert place.replica_req_s(law.capacity_req_s, faster_counts=law.faster_counts) == law.capacity_req_s
    told = replace(law, tested=replace(law.tested, bound=Bound.GPU))
    assert replica_law(told, place)[1] == 2


@pytest.mark.parametrize(("late_frac", "factor"), [(0.0, 1.25), (0.5, 1.125), (1.0, 1.0)])
def test_what_lies_beyond_the_highest_load_shrinks_with_what_the_back_test_got_wrong(late_frac, factor):
    found = BackTest(
        fitted_req_s=1.0,
        tested_req_s=2.0,
        limit_s=1.0,
        in_time=BackTestedMeasure(foretold=1.0, measured=1.0),
        running=None,
        waiting=None,
        gpu_s=BackTestedMeasure(foretold=1.0, measured=1.0),
        late_frac=late_frac,
    )

    assert law_limit.allowance(law_limit.trust_of(found), HEALTHY) == pytest.approx(factor)


def test_a_law_that_could_not_be_tested_is_taken_to_the_highest_load_and_no_further():
    untested = law_limit.trust_of("load hardly changes")

    assert HEALTHY * law_limit.allowance(untested, HEALTHY) == pytest.approx(1.0)

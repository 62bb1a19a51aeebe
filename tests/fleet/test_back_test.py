"""A law is tested on loads above those that it was fitted on, served by the replicas that history had."""

from dataclasses import replace

import numpy as np
import pytest
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.law_evidence import BackTest
from trimtab.fleet.law_limit import back_test, fluid_queue
from trimtab.fleet.model import ServiceObservation
from trimtab.fleet.settings import Settings
from trimtab.policies.scaling import StaticReplicas
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

LE_S = (0.1, 0.2, 0.5, float("inf"))
GPU_S = 0.05
LIMIT_S = 0.2


def requests(hour):
    return 3600 * (1 + hour % 24 / 2)


def service(slow_frac, requests_of_hour=requests, running=None):
    """Two replicas whose requests take 0.05 GPU-s each; `slow_frac(hour)` of them take longer than 0.2 s."""
    rows = FleetRows(7).node("a", "g5.xlarge").node("b", "g5.xlarge")
    for node in ("a", "b"):
        rows.hold("prod/api", node, [0])
        rows.use("prod/api", node, 0, range(168), sm=lambda hour: requests_of_hour(hour) / 3600 / 2 * GPU_S)

    def counts(hour):
        slow = slow_frac(hour)
        return [requests_of_hour(hour) * (1 - slow), 0.0, requests_of_hour(hour) * slow, 0.0]

    rows.demand("prod/api", requests_of_hour, 2, LE_S, counts, running=running)
    rows.workloads["prod/api"] = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": LIMIT_S}]}
    return build_fleet(rows.bundle(), Settings()).workload("prod/api")


def test_a_law_that_holds_on_busier_hours_is_not_late():
    found = back_test(service(lambda _hour: 0.01), 0.8)

    assert isinstance(found, BackTest)
    assert found.tested_req_s > 1.1 * found.fitted_req_s
    assert found.in_time.measured == pytest.approx(0.99)
    assert found.late_frac == 0
    assert found.gpu_s.measured == pytest.approx(GPU_S)


def test_a_law_that_only_interpolates_is_found_out_by_the_hours_held_out():
    # requests are slow in the last four hours of a day only, which are the busiest: none of them is fitted
    found = back_test(service(lambda hour: 0.3 if hour % 24 >= 20 else 0.0), 0.8)

    assert found.in_time.foretold > 0.95
    assert found.in_time.measured == pytest.approx(0.7)
    assert found.late_frac == 1
    assert found.error_frac == pytest.approx(found.in_time.foretold - 0.7)


def test_requests_in_work_are_foretold_by_their_time_in_work():
    found = back_test(service(lambda _hour: 0.01, running=lambda hour: requests(hour) / 3600 * 0.15), 0.8)

    assert found.running.foretold >= found.running.measured
    assert found.running.measured == pytest.approx((1 + 21 / 2) / 2 * 0.15, rel=0.05)


def test_a_load_that_hardly_changes_is_not_tested_and_says_so():
    assert "hardly changes" in back_test(service(lambda _hour: 0.01, lambda _hour: 3600.0), 0.8)


def test_replicas_of_history_queue_as_in_a_replay_with_a_fixed_number():
    rng = np.random.default_rng(1)
    arrivals = rng.poisson(20.0, 400).astype(float)
    arrivals[100:120] *= 3
    observed = ServiceObservation(
        step_s=15.0,
        arrivals=arrivals,
        replicas=np.full(400, 2.0),
        running=np.full(400, np.nan),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((400, 0)),
    )
    model = ServiceModel(
        capacity_req_s=1.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([1e9]),
        cold_start_s=0.0,
        queue_limit_s=1e9,
    )

    ours = fluid_queue(observed, 1.0)
    replayed = replay_service(
        ServiceHistory(arrivals=arrivals, step_s=15.0), model, StaticReplicas(2), initial_replicas=2, by_step=True
    )

    assert ours.wait_s == pytest.approx(replayed.queued_s)


def test_requests_nobody_knows_of_are_no_requests_in_the_queue():
    observed = ServiceObservation(
        step_s=15.0,
        arrivals=np.array([60.0, np.nan, 0.0]),
        replicas=np.full(3, 1.0),
        running=np.full(3, np.nan),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((3, 0)),
    )

    ours = fluid_queue(replace(observed), 2.0)

    assert ours.wait_s.tolist() == [15.0, 15.0, 0.0]

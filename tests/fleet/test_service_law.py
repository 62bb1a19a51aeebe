"""A service's law says what was measured, and promises nothing beyond it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.law_evidence import Bound, LawEvidence
from trimtab.fleet.model import ServiceObservation
from trimtab.fleet.service_law import activity_as_demand, as_seen_in, service_law
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import bucket_quantile, share_within
from trimtab.tables.workloads import TargetMetric

LE_S = (0.1, 0.2, 0.5, float("inf"))


def requests(hour):
    return 3600 * (1 + hour % 24 / 4)


def service(sm_per_request_s=0.05, counts=None, **demand):
    """Two replicas; activity is `sm_per_request_s` GPU-seconds a request."""
    rows = FleetRows(7).node("a", "g5.xlarge").node("b", "g5.xlarge")
    for node in ("a", "b"):
        rows.hold("prod/api", node, [0])
        rows.use("prod/api", node, 0, range(168), sm=lambda hour: requests(hour) / 3600 / 2 * sm_per_request_s)
    rows.demand("prod/api", requests, 2, LE_S, counts, **demand)
    return build_fleet(rows.bundle(), Settings()).workload("prod/api")


def slower_with_load(hour):
    slow = hour % 24 / 24
    return [requests(hour) * (1 - slow), requests(hour) * slow * 0.8, requests(hour) * slow * 0.2, 0]


def test_capacity_is_requests_per_second_at_full_activity():
    law = service_law(service(sm_per_request_s=0.05), 0.8)

    assert law.capacity_req_s == pytest.approx(20)


def test_replicas_that_take_one_request_at_a_time_are_busy_while_they_have_one():
    law = service_law(service(running=lambda hour: requests(hour) / 3600 * 0.25), 0.8)

    assert law.capacity_req_s == pytest.approx(4)
    assert "one request at a time" in law.because


def test_more_load_is_never_faster():
    law = service_law(service(counts=slower_with_load), 0.8)

    assert (np.diff(law.ok_frac(0.2)) <= 1e-12).all()


def test_nothing_is_promised_beyond_the_healthy_band():
    law = service_law(service(counts=slower_with_load), 0.8)

    assert law.ok_frac(100.0)[law.grid() > 0.8].max() == 0


def test_a_gpu_twice_as_fast_meets_half_the_limit():
    law = service_law(service(counts=slower_with_load), 0.8)

    assert law.ok_frac(0.1, speed=2.0) == pytest.approx(law.ok_frac(0.2))


def first_at_once(hour):
    slow = hour % 24 / 24
    return [requests(hour) * (1 - slow / 10), requests(hour) * slow / 10, 0, 0]


def test_a_first_token_is_judged_by_its_own_histogram_and_the_whole_request_by_its():
    law = service_law(service(counts=slower_with_load, first_tokens=first_at_once), 0.8)
    without = service_law(service(counts=slower_with_load), 0.8)

    first = law.ok_frac(0.1, metric=TargetMetric.TTFT)

    busiest = np.flatnonzero(first)[-1]
    assert law.grid()[busiest] == pytest.approx(0.8)
    assert first[np.searchsorted(law.grid(), law.seen_load) - 1] == pytest.approx(1 - 23 / 240, abs=0.01)
    assert law.ok_frac(0.1).tolist() == without.ok_frac(0.1).tolist()
    assert (first >= law.ok_frac(0.1)).all()
    assert (np.diff(first) <= 1e-12).all()


def test_a_first_token_that_was_not_measured_is_judged_by_the_whole_request():
    law = service_law(service(counts=slower_with_load), 0.8)

    assert law.ok_frac(0.2, metric=TargetMetric.TTFT).tolist() == law.ok_frac(0.2).tolist()


def test_a_first_token_is_judged_where_no_whole_request_was_measured():
    law = service_law(service(first_tokens=first_at_once), 0.8)

    assert law.ok_frac(0.1, metric=TargetMetric.TTFT)[1] < 1
    assert law.ok_frac(0.1)[1] == 1
    assert "no latency was measured" in law.because


def test_beyond_the_load_seen_a_first_token_is_stretched_as_a_wait_is_and_a_whole_request_less():
    law = service_law(service(counts=slower_with_load, first_tokens=slower_with_load), 0.8)
    beyond = (law.grid() > law.seen_load) & (law.grid() <= 0.8)
    load = law.grid()[beyond]
    stretch = (1 - load) / (1 - law.seen_load) * law.seen_load / load

    first = law.ok_frac(0.2, metric=TargetMetric.TTFT)[beyond]

    seen = law.first_token
    by_hand = [float(share_within(seen.le_s, seen.share[-1:], 0.2 * shorter)[0]) for shorter in stretch]
    assert len(load) > 3
    assert first == pytest.approx(np.minimum(by_hand, share_within(seen.le_s, seen.share[-1:], 0.2)[0]))
    assert (first < law.ok_frac(0.2)[beyond]).all()


def slower_by(factor, quiet=False):
    """Requests of another week: so many times as many are slow, on half the load where it was `quiet`."""

    def counts(hour):
        at_load = hour % 24 / (2 if quiet else 1)
        slow = min(1.0, at_load / 24 * factor)
        return [requests(hour) * (1 - slow), requests(hour) * slow * 0.8, requests(hour) * slow * 0.2, 0]

    rows = FleetRows(7).node("a", "g5.xlarge").hold("prod/api", "a", [0])
    rows.demand("prod/api", lambda hour: requests(hour) / (2 if quiet else 1), 2, LE_S, counts)
    return build_fleet(rows.bundle(), Settings()).workload("prod/api").service


def test_the_latencies_of_another_window_are_those_that_it_measured():
    law = service_law(service(counts=slower_with_load), 0.8)
    again, longer = as_seen_in(law, slower_by(1.0)), as_seen_in(law, slower_by(1.5))

    assert again.ok_frac(0.1) == pytest.approx(law.ok_frac(0.1))
    assert again.capacity_req_s == longer.capacity_req_s == law.capacity_req_s
    middle = np.searchsorted(law.grid(), law.seen_load / 2)
    assert 1 - longer.ok_frac(0.1)[middle] == pytest.approx(1.5 * (1 - law.ok_frac(0.1)[middle]), rel=0.05)


def test_beyond_the_loads_of_another_window_nothing_is_faster_than_within():
    law = service_law(service(counts=slower_with_load), 0.8)
    quiet = as_seen_in(law, slower_by(3.0, quiet=True))

    assert quiet.seen_load == law.seen_load
    assert (np.diff(quiet.ok_frac(0.1)) <= 1e-12).all()
    assert (quiet.ok_frac(0.1) <= law.ok_frac(0.1) + 1e-12).all()


def answered_in_turn(takes_s):
    """Four replicas that answer one request at a time, of so many seconds, 8 of them in each minute."""
    steps = 24 * 60
    return ServiceObservation(
        step_s=60.0,
        arrivals=np.full(steps, 8.0),
        replicas=np.full(steps, 4.0),
        running=np.full(steps, 8.0 * takes_s / 60.0),
        waiting=np.full(steps, 0.1),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((steps, 0)),
    )


def test_replicas_that_answer_one_request_at_a_time_serve_fewer_of_a_windows_longer_ones_and_rules_count_as_before():
    evidence = LawEvidence(bound=Bound.ONE_BY_ONE, activity_req_s=0.2, shown_req_s=0.15, back_test="not made")
    learnt = service_law(service(counts=slower_with_load), 0.8)
    law = replace(learnt, capacity_req_s=0.2, tested=evidence)

    longer = as_seen_in(law, answered_in_turn(10.0))
    assert longer.capacity_req_s == longer.full_req_s == pytest.approx(0.1)
    assert longer.rule_req_s == law.rule_req_s == 0.2
    assert longer.load == pytest.approx(2 * law.load)

    several = replace(law, tested=replace(evidence, bound=Bound.GPU))
    assert as_seen_in(several, answered_in_turn(10.0)).capacity_req_s == several.capacity_req_s


def test_a_window_without_latencies_leaves_a_law_as_it_is():
    law = service_law(service(counts=slower_with_load), 0.8)
    rows = FleetRows(7).node("a", "g5.xlarge").hold("prod/api", "a", [0]).demand("prod/api", requests, 2)
    unmeasured = build_fleet(rows.bundle(), Settings()).workload("prod/api").service

    assert as_seen_in(law, unmeasured).ok_frac(0.1).tolist() == law.ok_frac(0.1).tolist()


def test_a_service_without_activity_says_why_it_cannot_be_judged():
    rows = FleetRows(7).node("a", "g5.xlarge").hold("prod/api", "a", [0]).demand("prod/api", requests, 1)
    workload = build_fleet(rows.bundle(), Settings()).workload("prod/api")

    assert "no GPU activity was measured" in service_law(workload, 0.8)


@given(
    st.lists(st.floats(0, 100), min_size=4, max_size=4).filter(lambda counts: sum(counts[:3]) > 1),
    st.floats(0.01, 0.99),
)
def test_the_share_within_a_quantile_is_the_quantile(counts, quantile):
    le_s, counts = np.array(LE_S), np.array(counts)
    limit = bucket_quantile(le_s, counts, quantile)

    if limit < 0.5:
        assert share_within(le_s, counts, limit) == pytest.approx(quantile, abs=1e-6)


def test_a_service_without_a_request_is_not_judged_but_asked_after():
    rows = FleetRows(7).node("a", "g5.xlarge").hold("prod/api", "a", [0])
    rows.use("prod/api", "a", 0, range(168), sm=0.0)
    rows.demand("prod/api", lambda _hour: 0.0, 1, (), None)

    workload = build_fleet(rows.bundle(), Settings()).workload("prod/api")

    assert "still needed" in service_law(workload, 0.8)


def bursty(p95):
    """Two GPUs that work for six minutes of every hour, without request metrics."""
    rows = FleetRows(2).node("n", "g5.12xlarge").hold("prod/render", "n", [0, 1], owner_kind="Deployment")
    for device in (0, 1):
        rows.use("prod/render", "n", device, range(48), sm=0.1)
    for row in rows.rows["gpu_usage"]:
        row |= {"sm_active_p50": 0.0, "sm_active_p95": p95, "sm_active_max": 0.97}
    (workload,) = build_fleet(rows.bundle(), Settings()).workloads
    return activity_as_demand(workload)


def test_a_burst_inside_an_hour_is_demand_at_its_height_and_the_mean_is_kept():
    demand = bursty(p95=0.95)

    assert demand.arrivals.max() / demand.step_s == pytest.approx(2 * 0.95)
    hourly = demand.arrivals.reshape(48, -1).sum(axis=1)
    assert hourly == pytest.approx(np.full(48, 2 * 0.1 * 3600))
    assert (demand.arrivals.reshape(48, -1) > 180).sum(axis=1).max() == 2


def test_without_percentiles_an_hour_is_as_even_as_its_mean():
    demand = bursty(p95=None)

    assert demand.arrivals / demand.step_s == pytest.approx(np.full(48 * 20, 0.2))


def test_a_service_on_two_gpu_types_has_the_capacity_of_the_type_that_carries_most_of_it():
    """Requests go evenly to three replicas: an A100 is a quarter as busy with its share as each of two A10Gs."""
    rows = FleetRows(7).node("big", "p4d.24xlarge").node("a", "g5.xlarge").node("b", "g5.xlarge")
    for node, busy_s in (("big", 0.0125), ("a", 0.05), ("b", 0.05)):
        rows.hold("prod/api", node, [0])
        rows.use("prod/api", node, 0, range(168), sm=lambda hour, s=busy_s: requests(hour) / 3600 / 3 * s)
    rows.demand("prod/api", requests, 3, LE_S)
    workload = build_fleet(rows.bundle(), Settings()).workload("prod/api")

    typed = {"g5.xlarge": 0.05, "p4d.24xlarge": 0.0125}[workload.pool.instance_type]
    assert service_law(workload, 0.8).capacity_req_s == pytest.approx(1 / typed)

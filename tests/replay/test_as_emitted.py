"""A rule as emitted divides by the capacity that the plan wrote down, whatever a replica turns out to serve."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.policies.scaling import HpaPolicy, Metric, StaticReplicas
from trimtab.replay.outcomes.service_model import as_emitted
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

PLANNED_REQ_S = 2.0
HPA = HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=60, tolerance_up_frac=0.0, tolerance_down_frac=0.0)


def replicas_of(policy, capacity_req_s, asked_req_s):
    """Return the replicas that a steady demand comes to."""
    model = ServiceModel(
        capacity_req_s=capacity_req_s,
        load_grid=np.linspace(0, 1, 11),
        ok_frac=np.ones((1, 11)),
        wait_limit_s=np.array([60.0]),
        cold_start_s=15.0,
    )
    history = ServiceHistory(arrivals=np.full(480, asked_req_s * 15.0), step_s=15.0)
    return int(replay_service(history, model, policy, initial_replicas=60).held[-1])


@given(st.sampled_from([0.6, 0.8, 0.95, 1.0, 1.3]), st.floats(2.0, 30.0))
def test_slower_replicas_get_as_many_requests_each_as_the_plan_wrote_down(speed, asked_req_s):
    planned = replicas_of(HPA, PLANNED_REQ_S, asked_req_s)
    slower = replicas_of(as_emitted(HPA, 1 / speed), PLANNED_REQ_S * speed, asked_req_s)

    assert slower == pytest.approx(planned, abs=0)


def test_a_rule_that_divided_by_what_replicas_turn_out_to_serve_would_add_some():
    assert replicas_of(HPA, PLANNED_REQ_S * 0.6, 12.0) > replicas_of(HPA, PLANNED_REQ_S, 12.0)


def test_what_reads_how_busy_replicas_are_needs_no_number_from_the_plan():
    busy = HPA._replace(metric=Metric.DUTY_CYCLE)

    assert as_emitted(busy, 1.5) == busy
    assert as_emitted(StaticReplicas(3), 1.5) == StaticReplicas(3)
    assert as_emitted(HPA, 1.0) == HPA

"""When a plan counts on room beside ready replicas on a node that is up."""

import numpy as np
import pytest

from trimtab.policies.scaling import StaticReplicas
from trimtab.replay.outcomes.service_outcome import stressed_replay
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.replay.services import ServiceHistory, ServiceModel

TWO_AT_ONCE = ServiceHistory(arrivals=np.full(240, 60.0), step_s=15)
"""An hour of twice what one replica serves: the second is there after 195 s on its node (all in time), else 495 s (6 %)."""


def judged(required_frac, **changes):
    facts = {"gpus_per_node": 2, "cold_start_s": 480.0, "warm_start_s": 180.0, **changes}
    model = ServiceModel(
        capacity_req_s=2.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.array([[1.0, 1.0]]),
        wait_limit_s=np.array([200.0]),
        queue_limit_s=1e4,
        **facts,
    )
    safe = np.array([required_frac])
    return stressed_replay(ServiceReplays(), TWO_AT_ONCE, model, StaticReplicas(2), 1, safe, may_stop=False)


def test_room_is_left_out_where_the_target_is_safe_without_it():
    _, beside = judged(0.05)

    assert not beside


def test_room_counts_where_the_target_needs_it():
    stressed, beside = judged(1.0)

    assert beside
    assert stressed.attained_frac[0] == 1.0


@pytest.mark.parametrize("changes", [{"gpus_per_node": 1}, {"warm_start_s": None}])
def test_there_is_none_on_nodes_of_one_replica_or_where_every_start_takes_a_node(changes):
    stressed, beside = judged(1.0, **changes)

    assert not beside
    assert stressed.attained_frac[0] < 1.0


def test_room_that_does_not_help_is_left_out():
    stressed, beside = judged(1.0, warm_start_s=470.0)

    assert not beside
    assert stressed.attained_frac[0] < 1.0

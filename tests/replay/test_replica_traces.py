"""A course billed on other nodes is the replay on those nodes."""

from dataclasses import fields, replace

import numpy as np
import pytest
from tests.replay.test_services import POLICIES, history, model, noisy

from trimtab.replay.services import replay_service


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("step_s", [15, 60])
def test_a_course_on_other_nodes_is_the_replay_on_them(policy, step_s):
    demand, small = history(noisy(700), step_s=step_s), model()
    course = replay_service(demand, small, policy, initial_replicas=3)

    for gpus_per_replica, gpus_per_node in ((1.0, 1), (1.0, 8), (2.0, 8), (3.0, 8), (16.0, 8), (0.5, 4)):
        nodes = {"gpus_per_replica": gpus_per_replica, "gpus_per_node": gpus_per_node, "empty_node_kept_s": 600.0}
        there = replace(small, **nodes)
        billed, replayed = course.on_nodes(there), replay_service(demand, there, policy, initial_replicas=3)
        assert np.array_equal(billed.held, replayed.held)
        for field in fields(replayed):
            if field.name != "runs":
                assert np.array_equal(getattr(billed, field.name), getattr(replayed, field.name)), field.name

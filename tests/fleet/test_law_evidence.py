"""What history shows that a replica serves: gaps in its readings are no requests."""

import numpy as np
import pytest

from trimtab.fleet.law_evidence import served_req
from trimtab.fleet.model import ServiceObservation


def service(running, waiting=()):
    steps = len(running)
    return ServiceObservation(
        step_s=60.0,
        arrivals=np.full(steps, 100.0),
        replicas=np.ones(steps),
        running=np.array(running, dtype=float),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((steps, 0)),
        waiting=np.array(waiting, dtype=float),
    )


def test_what_more_wait_or_are_in_work_was_not_served():
    assert served_req(service([5, 5, 8], [0, 10, 10])) == pytest.approx([100, 90, 97])


def test_a_gap_in_readings_says_nothing_of_what_was_served():
    gap = float("nan")
    assert served_req(service([50, gap, 50])) == pytest.approx([100, 100, 100])
    assert served_req(service([50, 50, 50], [20, gap, 20])) == pytest.approx([100, 100, 100])

"""What a replica serves with all the places that its owner declares, from how times rose with the requests in work."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.fleet.law_limit import REACH, served_with_places, time_in_work
from trimtab.fleet.model import ServiceObservation

HOURS, REPLICAS = 7 * 24, 4
STEP_S = 60.0


def seen(alone_s=10.0, each_s=0.5, low=1.0, high=5.0, waiting=0.0, knee=np.inf):
    """Return a week in which a replica had `low` to `high` requests in work, each hour steady, and what that served."""
    each = np.repeat(np.linspace(low, high, HOURS), 60)
    times = np.maximum(alone_s + each_s * each, each / knee)
    return ServiceObservation(
        step_s=STEP_S,
        arrivals=each * REPLICAS / times * STEP_S,
        replicas=np.full(len(each), float(REPLICAS)),
        running=each * REPLICAS,
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((len(each), 0)),
        waiting=np.full(len(each), waiting),
    )


@given(st.floats(1.0, 50.0), st.floats(0.0, 2.0), st.integers(6, 12))
def test_a_line_that_times_follow_tells_what_full_places_serve(alone_s, each_s, places):
    service = seen(alone_s, each_s)

    found = served_with_places(service, places, shown_req_s=1e9)

    assert found == pytest.approx(places / (alone_s + each_s * places), rel=0.02)


@given(st.floats(0.01, 0.2), st.floats(0.0, 1.0))
def test_no_more_than_the_reach_beyond_what_was_shown_and_less_where_the_back_test_was_wrong(shown, trust):
    found = served_with_places(seen(each_s=0.0), 1000, shown, trust)

    assert found <= (1 + (REACH - 1) * trust) * shown + 1e-12
    assert found >= shown * (1 - 1e-9) or trust < 1


def test_more_in_work_than_the_places_declared_is_a_wrong_declaration():
    assert "max_concurrency is 4" in served_with_places(seen(high=5.0), 4, 1.0)


def test_requests_that_wait_while_places_are_free_wait_for_something_else():
    assert "while places were free" in served_with_places(seen(waiting=2.0), 16, 1.0)


def test_work_that_never_changed_has_no_slope():
    assert time_in_work(seen(low=3.0, high=3.1)) == "the same number of requests was running at all times"


def test_times_that_bend_upwards_in_the_busiest_hours_are_not_foretold_by_a_line():
    assert "longer than predicted" in served_with_places(seen(each_s=0.0, knee=0.4), 16, 1.0)


def test_too_few_hours_say_nothing():
    service = seen()
    short = ServiceObservation(
        step_s=STEP_S,
        arrivals=service.arrivals[:600],
        replicas=service.replicas[:600],
        running=service.running[:600],
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((600, 0)),
    )

    assert time_in_work(short) == "too few hours with running requests"

"""Whether a replica has one place or several shows in whether requests wait, long before it is full."""

import heapq
from dataclasses import replace

import numpy as np
import pytest

from trimtab.fleet.law_evidence import expected_one_by_one_s, has_several_places
from trimtab.fleet.model import ServiceObservation
from trimtab.fleet.service_law import seconds_one_by_one

REPLICAS = 4
WORK_S = 5.0
LOW, HIGH = 0.4, 0.8


def served(places, load_frac, hours=48, seed=1):
    """Four replicas at a share of what their places serve: each request takes any free place, first come first served."""
    rng = np.random.default_rng(seed)
    servers, steps = REPLICAS * places, hours * 60
    came = np.cumsum(rng.exponential(WORK_S / servers / load_frac, int(hours * 3600 * servers * load_frac / WORK_S)))
    work = rng.lognormal(np.log(WORK_S) - 0.02, 0.2, len(came))
    free, began = [0.0] * servers, np.zeros(len(came))
    for at, (when, takes) in enumerate(zip(came, work, strict=True)):
        began[at] = max(when, heapq.heappop(free))
        heapq.heappush(free, began[at] + takes)
    return ServiceObservation(
        step_s=60.0,
        arrivals=np.bincount((came // 60).astype(int), minlength=steps)[:steps].astype(float),
        replicas=np.full(steps, float(REPLICAS)),
        running=by_minute(began, began + work, steps),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((steps, 0)),
        waiting=by_minute(came, began, steps),
    )


def by_minute(start, end, steps):
    """Mean number of intervals that hold, by minute: the difference of their integral at minutes' ends."""
    edges = np.arange(steps + 1) * 60.0
    start, end = np.sort(start), np.sort(end)
    sums_start, sums_end = np.append(0.0, np.cumsum(start)), np.append(0.0, np.cumsum(end))
    began, ended = np.searchsorted(start, edges), np.searchsorted(end, edges)
    held = (began * edges - sums_start[began]) - (ended * edges - sums_end[ended])
    return np.diff(held) / 60.0


@pytest.mark.parametrize("load_frac", [LOW, HIGH])
def test_one_place_is_told_from_several_by_who_waits(load_frac):
    assert seconds_one_by_one(served(1, load_frac)) == pytest.approx(WORK_S, rel=0.05)


@pytest.mark.parametrize("places", [2, 4])
@pytest.mark.parametrize("load_frac", [LOW, HIGH])
def test_several_places_are_never_taken_for_one(places, load_frac):
    assert seconds_one_by_one(served(places, load_frac)) is None


def test_nothing_is_told_where_nobody_measured_who_waits():
    assert not has_several_places(replace(served(2, LOW), waiting=np.zeros(0)))


def test_at_hardly_any_load_one_place_stays_possible():
    assert not has_several_places(served(2, 0.01))


def test_what_waits_by_chance_is_what_the_formula_of_one_server_says():
    """With one server Erlang C is the load itself: a mean of load^2 / (1 - load) requests wait (M/M/1)."""
    hours = 3
    service = ServiceObservation(
        step_s=60.0,
        arrivals=np.full(hours * 60, 6.0),
        replicas=np.ones(hours * 60),
        running=np.full(hours * 60, 0.5),
        latency_le_s=np.zeros(0),
        latency_count=np.zeros((hours * 60, 0)),
        waiting=np.zeros(hours * 60),
    )

    assert expected_one_by_one_s(service) == pytest.approx(0.5 * hours * 3600)


def test_one_place_stays_one_through_hours_that_fill_it():
    """Work piles up while replicas are full, and an hour with as many in work as replicas proves no second place."""
    calm, full = served(1, LOW, hours=24), served(1, 1.1, hours=4)
    joined = replace(
        calm,
        **{
            name: np.concatenate([getattr(calm, name), getattr(full, name)])
            for name in ("arrivals", "replicas", "running", "waiting")
        },
        latency_count=np.zeros((28 * 60, 0)),
    )

    assert seconds_one_by_one(joined) == pytest.approx(WORK_S, rel=0.05)

"""Rules for a deadline job: what each does at the moments that matter."""

import pytest
from benchmarks.reference.fallback import Mode, View, greedy, keeps_deadline, safe, uniform_progress


def view(elapsed=10, done=5, mode=Mode.IDLE, spot_up=True, work=100, deadline=150):
    return View(elapsed, done, mode, spot_up, 1, work, deadline)


def test_greedy_waits_for_spot_and_takes_it():
    assert greedy(view(spot_up=False)) is Mode.IDLE
    assert greedy(view(spot_up=True)) is Mode.SPOT


def test_greedy_goes_on_demand_when_the_deadline_forces_it():
    assert greedy(view(elapsed=53, done=5)) is Mode.ON_DEMAND


def test_uniform_progress_pays_when_behind_the_line():
    assert uniform_progress(view(elapsed=30, done=19, spot_up=False)) is Mode.ON_DEMAND
    assert uniform_progress(view(elapsed=30, done=21, spot_up=False)) is Mode.IDLE


def test_uniform_progress_leaves_on_demand_two_launches_ahead():
    assert uniform_progress(view(elapsed=30, done=21, mode=Mode.ON_DEMAND, spot_up=False)) is Mode.ON_DEMAND
    assert uniform_progress(view(elapsed=30, done=22, mode=Mode.ON_DEMAND, spot_up=False)) is Mode.IDLE


def test_spot_that_is_down_is_no_spot():
    assert safe(Mode.SPOT, view(spot_up=False)) is Mode.IDLE


@pytest.mark.parametrize(
    ("elapsed", "mode", "wanted", "keeps"),
    [
        (53, Mode.IDLE, Mode.IDLE, True),  # 96 steps left after this one, 95 + a launch needed
        (54, Mode.IDLE, Mode.IDLE, False),
        (54, Mode.IDLE, Mode.ON_DEMAND, True),
        (54, Mode.SPOT, Mode.SPOT, True),  # progress now, then 94 + a launch in 95
        (55, Mode.SPOT, Mode.SPOT, False),
        (54, Mode.ON_DEMAND, Mode.ON_DEMAND, True),
    ],
)
def test_a_step_keeps_the_deadline_if_on_demand_can_finish_after_it(elapsed, mode, wanted, keeps):
    assert keeps_deadline(wanted, view(elapsed=elapsed, done=5, mode=mode)) is keeps

"""How many of its GPUs a pod used: what was measured, and what a gap in the readings says."""

import pytest
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings

RUNS = "lab/runs"
HOURS = range(2, 12)


def used_gpus(measured):
    """Return the GPUs that a pod of two used, of which the first works; `measured(device)`: the hours in which one was read."""
    rows = FleetRows(1).node("n", "p3.8xlarge")
    rows.hold(RUNS, "n", range(2), HOURS.start, HOURS.stop, pod="run", owner_kind="Job")
    rows.job(RUNS, HOURS.start, HOURS.start, HOURS.stop, 2)
    for device, level in enumerate((0.8, 0.0)):
        rows.use(RUNS, "n", device, measured(device), sm=level, util=level)
    (size,) = build_fleet(rows.bundle(), Settings()).workload(RUNS).pod_sizes
    return size.used_gpus


def test_a_gpu_that_never_worked_is_not_counted():
    assert used_gpus(lambda device: HOURS) == 1.0


@pytest.mark.parametrize("gap", [range(2, 3), range(5, 9)])
def test_a_gap_in_the_readings_of_a_gpu_that_never_worked_beside_it_is_no_use_of_it(gap):
    assert used_gpus(lambda device: HOURS if device == 0 else [hour for hour in HOURS if hour not in gap]) == 1.0


def test_a_gpu_that_nobody_measured_counts_as_at_work():
    assert used_gpus(lambda device: HOURS if device == 0 else []) == 2.0


def test_readings_of_hours_in_which_no_gpu_worked_say_nothing_of_the_others():
    assert used_gpus(lambda device: range(5, 12) if device == 0 else range(2, 4)) == 2.0

"""Runs as a window has them."""

from hypothesis import given, settings, strategies as st
from tests.fleets import MONDAY, FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Settings
from trimtab.units import S_PER_HR

RUNS = "lab/runs"


def lengths_hr(spans):
    """Return how long each run lasts in the second day of two, in the order in which the fleet has them."""
    rows = FleetRows(2).node("n", "p3.8xlarge")
    rows.hold(RUNS, "n", range(4), 0, 48, pod="run", owner_kind="Job")
    for number, (start, end) in enumerate(spans):
        rows.job(RUNS, start, start, end, 1, name=f"run-{number}")
    window = Window(start=MONDAY.replace(day=MONDAY.day + 1), hours=24)
    jobs = build_fleet(rows.bundle(), Settings(), window).workload(RUNS).jobs
    return ((jobs.end_s - jobs.start_s) / S_PER_HR).tolist()


@settings(max_examples=30)  # of 120 orders; each builds a fleet
@given(st.permutations([(1, 30), (5, 26), (9, 40), (12, 28), (30, 33)]))
def test_runs_in_progress_are_in_the_order_in_which_they_began_whatever_the_tables(spans):
    assert lengths_hr(spans) == [6, 2, 16, 4, 3]

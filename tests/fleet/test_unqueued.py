"""Runs that waited for nodes, as if none had: what a plan that starts nodes for each has to pay for."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.fleets import MONDAY, FleetRows

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import ReleaseIdle
from trimtab.fleet.arrivals import run_lengths
from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Settings
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.units import S_PER_HR

RUNS = "lab/runs"
SETTINGS = Settings()
DAY_HR = 24


def case_of(spans):
    """Return the runs of the second day of two: (submitted, started, ended), in hours; None: not yet."""
    rows = FleetRows(2).node("n", "p3.8xlarge")
    rows.hold(RUNS, "n", range(4), 0, 48, pod="run", owner_kind="Job")
    for number, (submit, start, end) in enumerate(spans):
        rows.job(RUNS, submit, start, end, 1, name=f"run-{number}")
    for device in range(4):
        rows.use(RUNS, "n", device, range(48), sm=0.8, util=1.0)
    rows.workloads = {RUNS: {"kind": "training"}}
    window = Window(start=MONDAY.replace(day=MONDAY.day + 1), hours=DAY_HR)
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS, window), SETTINGS, seed=7).values()
    return case


def jobs_of(spans):
    return case_of(spans).workload.jobs


def spans_hr(jobs):
    return sorted(zip((jobs.start_s / S_PER_HR).tolist(), (jobs.end_s / S_PER_HR).tolist(), strict=True))


def test_what_nobody_waited_for_is_as_it_came():
    assert jobs_of([(1, 1, 30), (26, 26, 31)]).unqueued is None


def test_a_run_that_ended_does_what_it_did_when_it_was_submitted():
    # submitted a day before the window, where a plan takes over: it begins with it
    unqueued = jobs_of([(20, 30, 34), (26, 31, 33), (40, 40, 41)]).unqueued

    assert spans_hr(unqueued) == [(0, 4), (2, 4), (16, 17)]


def test_a_run_that_the_window_cut_goes_on_as_long_as_others_did_at_its_age():
    """Two runs lasted 2 h and two 10 h: of those that are 4 h old all last 6 h more, of which 3 h had been waited for."""
    done = [(0, 0, 2), (0, 0, 10), (2, 2, 4), (2, 2, 12)]
    unqueued = jobs_of([*done, (25, 25, 26), (41, 44, None)]).unqueued

    assert spans_hr(unqueued)[-1] == (17, 24)


def test_a_run_that_had_not_started_lasts_as_long_as_runs_do():
    """Half of all runs last 1 h and half 3 h, and two hours are left."""
    spans = [(26, 26, 27), (28, 28, 31), (46, None, None)]

    assert spans_hr(jobs_of(spans).unqueued)[-1] == (22, pytest.approx(23.5))
    # one that started after the window is as little known in it; one that was withdrawn asks for nothing
    assert spans_hr(jobs_of([*spans[:2], (46, 49, 50)]).unqueued)[-1] == (22, pytest.approx(23.5))
    assert jobs_of([*spans[:2], (46, None, 47)]).unqueued is None


def test_what_comes_after_the_window_changes_nothing_in_it():
    known = [(26, 26, 29), (30, 30, 36), (40, 43, 60), (45, None, None)]
    later = [(26, 26, 29), (30, 30, 36), (40, 43, 50), (45, 52, 90)]

    assert spans_hr(jobs_of(known).unqueued) == spans_hr(jobs_of(later).unqueued)


HOURS = st.integers(0, 47)
SPANS = st.lists(
    st.tuples(HOURS, st.integers(0, 12), st.integers(1, 30)).map(lambda run: (run[0], run[0] + run[1], sum(run))),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(SPANS)
def test_nobody_does_less_work_for_not_waiting_or_runs_before_it_came(spans):
    jobs = jobs_of([(24, 24, 25), *spans])
    unqueued = jobs.unqueued or jobs

    assert (unqueued.start_s == unqueued.submit_s).all()
    assert (unqueued.start_s >= 0).all()
    assert (unqueued.end_s <= DAY_HR * S_PER_HR + 1e-6).all()
    assert unqueued.count == sum(submit < 48 and end > 24 for submit, _, end in [(24, 24, 25), *spans])
    assert (unqueued.end_s - unqueued.start_s).sum() >= (jobs.end_s - jobs.start_s).sum() - 1e-6


@settings(max_examples=20, deadline=None)
@given(SPANS)
def test_nodes_that_start_for_each_run_are_paid_for_all_that_would_have_run(spans):
    case = case_of([(24, 24, 25), *spans])
    evaluator, jobs = Evaluator(case=case), case.workload.jobs
    released = evaluator.outcome(Deployment.of(("idle-release", ReleaseIdle(startup_s=300.0))))
    unqueued = jobs.unqueued or jobs

    gpus = evaluator.place(AS_IT_IS).gpus_per_node
    assert released.on_demand.sum() * gpus >= (unqueued.end_s - unqueued.start_s).sum() * 1 - unqueued.count


@settings(max_examples=60, deadline=None)
@given(
    ran_s=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    cut=st.lists(st.booleans(), min_size=40, max_size=40),
    age_s=st.integers(0, 900),
    within_s=st.lists(st.integers(0, 2000), min_size=2, max_size=2).map(sorted),
)
def test_runs_last_longer_the_longer_one_looks_and_never_longer_than_that(ran_s, cut, age_s, within_s):
    ended = ~np.array(cut[: len(ran_s)])
    lengths = run_lengths(np.array(ran_s, dtype=float), ended)
    # some run was seen at that age
    age = np.full(2, float(min(age_s, max(ran_s))))
    less, more = lengths.expected_s(age, np.array(within_s, dtype=float)).tolist()

    assert -1e-9 <= less <= more + 1e-9
    assert less <= within_s[0] + 1e-6
    assert more <= within_s[1] + 1e-6
    if ended.all():
        whole = lengths.expected_s(np.zeros(1), np.array([1e6]))
        assert whole[0] == pytest.approx(np.mean(ran_s))

"""When to save: the interval follows the danger, and a notice is used to its last safe second, never beyond it."""

from math import inf, sqrt

import pytest
from hypothesis import given, strategies as st

from trimtab_runtime.policies.checkpointing import (
    NOTHING_ANSWERED,
    NOTICE_ANSWERED,
    RISK_ANSWERED,
    CheckpointRule,
    CheckpointState,
    Observation,
    StepDecision,
    constant_hazard,
    decide,
    expected_interruptions,
    hazard_from_lifetimes,
    interval_s,
    losing_frac,
    young_daly_interval_s,
)

RULE = CheckpointRule(
    hazard=constant_hazard(6 * 3600.0),
    notice_s=120.0,
    notice_missing_frac=1.0,
    min_interval_s=1.0,
    max_interval_s=1e6,
    save_slack=1.5,
    margin_s=2.0,
)


def seen(**changes):
    calm = {"now_s": 1000.0, "age_s": 1000.0, "step_s": 0.5, "stall_s": 0.2, "save_s": 4.0}
    calm |= {"saving": False, "risk_raised": False, "notice_left_s": inf}
    return Observation(**(calm | changes))


def saved_at(moment_s, answered=NOTHING_ANSWERED):
    return CheckpointState(moment_s, answered)


def test_under_a_constant_danger_the_interval_is_youngs():
    assert interval_s(RULE, 0.0, 8.0, 1.0, 0.1) == pytest.approx(young_daly_interval_s(8.0, 6 * 3600.0))
    assert young_daly_interval_s(8.0, 3600.0) == pytest.approx(240.0)


def test_a_notice_that_saves_the_work_makes_saving_rarer():
    rule = RULE._replace(notice_missing_frac=0.04)

    assert losing_frac(rule, 4.0, 0.5) == 0.04
    assert interval_s(rule, 0.0, 8.0, 4.0, 0.5) == pytest.approx(5 * young_daly_interval_s(8.0, 6 * 3600.0))


def test_a_save_that_does_not_fit_into_the_notice_is_not_counted_on():
    rule = RULE._replace(notice_missing_frac=0.04)

    assert losing_frac(rule, 80.0, 0.5) == 1.0
    assert losing_frac(rule, 4.0, 119.0) == 1.0


def test_machines_that_die_young_are_saved_more_often_while_young():
    hazard = hazard_from_lifetimes([60.0] * 50 + [36000.0] * 50)
    rule = RULE._replace(hazard=hazard)

    assert interval_s(rule, 0.0, 1.0, 1.0, 0.1) < interval_s(rule, 100.0, 1.0, 1.0, 0.1) / 5


def test_the_rate_of_each_age_is_interruptions_over_machine_seconds():
    hazard = hazard_from_lifetimes([10.0, 20.0, 30.0, 40.0], bins=2)

    assert hazard.edges_s == (0.0, 20.0)
    assert hazard.rate_per_s[0] == pytest.approx(2 / (10 + 20 + 20 + 20))
    assert hazard.rate_per_s[1] == pytest.approx(2 / (10 + 20))


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40))
def test_the_hazard_explains_all_the_interruptions_it_was_made_from(lifetimes_s):
    hazard = hazard_from_lifetimes(lifetimes_s)

    explained = sum(expected_interruptions(hazard, 0.0, life_s) for life_s in lifetimes_s)

    assert explained == pytest.approx(len(lifetimes_s), rel=1e-6)


def test_no_life_times_is_an_error_not_an_eternal_life():
    with pytest.raises(ValueError, match="mean life time"):
        hazard_from_lifetimes([])


@given(
    st.floats(0, 1e6), st.floats(1e-3, 1e3), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 1e7), st.floats(0, 1)
)
def test_the_interval_stays_within_its_bounds_and_never_below_a_save(age_s, stall_s, save_s, step_s, life_s, missing):
    rule = RULE._replace(
        hazard=constant_hazard(life_s), notice_missing_frac=missing, min_interval_s=5.0, max_interval_s=3600.0
    )

    span_s = interval_s(rule, age_s, stall_s, save_s, step_s)

    assert max(5.0, save_s) <= span_s <= max(3600.0, save_s)


def test_equal_bounds_fix_the_interval():
    assert interval_s(RULE._replace(min_interval_s=3.0, max_interval_s=3.0), 0.0, 1.0, 60.0, 1.0) == 3.0


def test_it_saves_when_the_interval_is_over_and_not_before():
    span_s = interval_s(RULE, 1000.0, 0.2, 4.0, 0.5)

    assert decide(RULE, saved_at(1000.0 - span_s), seen()) == (saved_at(1000.0), StepDecision.SAVE)
    assert decide(RULE, saved_at(1000.1 - span_s), seen())[1] is StepDecision.TRAIN


def test_one_save_at_a_time():
    assert decide(RULE, saved_at(0.0), seen(saving=True))[1] is StepDecision.TRAIN


def test_a_raised_risk_is_answered_by_one_save():
    state, decision = decide(RULE, saved_at(999.0), seen(risk_raised=True))

    assert (decision, state.answered) == (StepDecision.SAVE, RISK_ANSWERED)
    assert decide(RULE, state, seen(risk_raised=True, now_s=1001.0))[1] is StepDecision.TRAIN


def test_a_notice_is_answered_at_once_then_trained_on_until_the_last_safe_moment():
    state, first = decide(RULE, saved_at(999.0), seen(notice_left_s=120.0))
    assert (first, state.answered) == (StepDecision.SAVE, NOTICE_ANSWERED)

    left_s, decision = 120.0, first
    while decision in (StepDecision.SAVE, StepDecision.TRAIN):
        left_s -= 0.5
        state, decision = decide(RULE, state, seen(notice_left_s=left_s))

    assert decision is StepDecision.SAVE_AND_STOP
    assert 4.0 * 1.5 + 2.0 < left_s < 4.0 * 1.5 + 2.0 + 1.5


def test_a_save_that_does_not_fit_is_not_begun():
    assert decide(RULE, saved_at(999.0), seen(notice_left_s=3.9))[1] is StepDecision.STOP
    assert decide(RULE, saved_at(999.0), seen(notice_left_s=7.0, saving=True))[1] is StepDecision.STOP


@given(st.floats(0, 200), st.floats(0, 100), st.floats(0, 60), st.booleans(), st.sampled_from([0, 1, 2]))
def test_a_save_is_promised_only_if_the_measured_time_fits(left_s, save_s, step_s, saving, answered):
    _, decision = decide(
        RULE,
        saved_at(0.0, answered),
        seen(notice_left_s=left_s, save_s=save_s, step_s=step_s, saving=saving),
    )

    if decision in (StepDecision.SAVE, StepDecision.SAVE_AND_STOP):
        assert save_s * (2 if saving else 1) <= left_s
    if decision is StepDecision.TRAIN:
        assert left_s >= save_s + step_s


def test_young_is_the_least_loss_among_fixed_intervals():
    cost_s, life_s = 5.0, 3600.0
    best_s = young_daly_interval_s(cost_s, life_s)

    def loss(span_s):
        return cost_s / span_s + span_s / (2 * life_s)

    assert loss(best_s) == pytest.approx(sqrt(2 * cost_s / life_s))
    assert all(loss(best_s) <= loss(best_s * factor) for factor in (0.5, 0.9, 1.1, 2.0))

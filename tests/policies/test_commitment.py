import itertools
import math

import pytest
from hypothesis import given, strategies as st

from trimtab.policies.commitment import (
    EarningsBySlice,
    LayerRule,
    backed_units,
    evidence_limit_hr,
    next_earned_hr,
    no_evidence,
    observe,
    released_frac,
    used_frac,
    wanted_units,
)

TERM_HR = 1000
demands = st.lists(st.floats(0, 50), min_size=1, max_size=60)
discounts = st.floats(0.05, 0.95)


def evidence_of(demand, *, discount=0.4, limit_hr=10.0, width=1.0):
    evidence = EarningsBySlice(width, ())
    for units in demand:
        evidence = observe(evidence, units, discount, limit_hr)
    return evidence


def test_an_hour_in_use_earns_the_discount_and_an_idle_hour_loses_the_committed_rate():
    used = next_earned_hr(5.0, 1.0, 0.4, 10.0)
    idle = next_earned_hr(5.0, 0.0, 0.4, 10.0)

    assert used == pytest.approx(5.4)
    assert idle == pytest.approx(4.4)


def test_evidence_stays_between_nothing_and_the_limit():
    assert next_earned_hr(0.2, 0.0, 0.4, 10.0) == 0.0
    assert next_earned_hr(9.9, 1.0, 0.4, 10.0) == 10.0


def test_a_slice_is_used_in_part_where_demand_ends_inside_it():
    assert used_frac(7.5, 7.0, 2.0) == pytest.approx(0.25)
    assert used_frac(7.5, 8.0, 2.0) == 0.0
    assert used_frac(7.5, 2.0, 2.0) == 1.0


def test_units_are_backed_in_proportion_to_their_evidence():
    evidence = evidence_of([3.0] * 10)  # three slices that earned 10 x 0.4 h each of the 10 h that back one wholly

    assert evidence.earned_hr == pytest.approx((4.0, 4.0, 4.0))
    assert backed_units(evidence, 10.0) == pytest.approx(1.2)


def test_use_that_never_pays_for_itself_backs_nothing():
    half_the_time = [4.0, 0.0] * 50  # in use in 50 % of the hours; at 40 % off it would have to be in use in 60 %

    assert backed_units(evidence_of(half_the_time, limit_hr=10.0), 10.0) < 0.05 * 4


def test_growth_beyond_what_was_ever_seen_adds_slices():
    evidence = observe(no_evidence(100.0), 250.0, 0.4, 10.0)

    assert evidence.width_units == 1.0
    assert len(evidence.earned_hr) == 250


def test_growth_without_end_is_followed_in_wider_slices_that_keep_what_is_backed():
    before = evidence_of([3.0] * 10, width=1.0)
    after = observe(before, 700.0, 0.4, 10.0)

    assert after.width_units == 2.0
    assert len(after.earned_hr) == 350
    assert backed_units(after, 10.0) > backed_units(before, 10.0)


def test_a_long_term_asks_for_no_more_than_the_stated_evidence():
    rule = LayerRule(evidence_frac=0.1, evidence_most_hr=200.0)

    assert evidence_limit_hr(rule, 1000) == pytest.approx(100.0)
    assert evidence_limit_hr(rule, 8760) == 200.0


def test_two_thirds_are_released_at_once_and_all_after_the_layers():
    rule = LayerRule(at_once_frac=2 / 3, layers_frac=0.3)

    assert released_frac(rule, 0, TERM_HR) == pytest.approx(2 / 3)
    assert released_frac(rule, 150, TERM_HR) == pytest.approx(5 / 6)
    assert released_frac(rule, 300, TERM_HR) == pytest.approx(1.0)
    assert released_frac(rule, 900, TERM_HR) == pytest.approx(1.0)


def test_what_is_held_is_never_given_back():
    assert wanted_units(LayerRule(), EarningsBySlice(1.0, (0.0, 0.0)), 7.0, 500, TERM_HR) == 7.0


@given(demand=demands, discount=discounts)
def test_no_unit_is_backed_that_was_never_in_use(demand, discount):
    evidence = evidence_of(demand, discount=discount)

    assert backed_units(evidence, 10.0) <= math.ceil(max(demand)) + 1e-9


@given(demand=demands, discount=discounts, more=st.floats(0, 10))
def test_more_demand_never_backs_fewer_units(demand, discount, more):
    less = backed_units(evidence_of(demand, discount=discount), 10.0)

    assert backed_units(evidence_of([units + more for units in demand], discount=discount), 10.0) >= less - 1e-9


@given(demand=demands, discount=st.floats(0.05, 0.9))
def test_a_deeper_discount_never_backs_fewer_units(demand, discount):
    less = backed_units(evidence_of(demand, discount=discount), 10.0)

    assert backed_units(evidence_of(demand, discount=discount + 0.05), 10.0) >= less - 1e-9


@given(demand=demands, discount=discounts)
def test_lower_slices_have_at_least_the_evidence_of_higher_ones(demand, discount):
    earned = evidence_of(demand, discount=discount).earned_hr

    assert all(low >= high - 1e-9 for low, high in itertools.pairwise(earned))

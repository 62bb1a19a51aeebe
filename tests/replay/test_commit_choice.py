import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.policies.commitment import backed_units, no_evidence, observe
from trimtab.replay.commitments import (
    CANDIDATES,
    SIMPLE,
    STATED_REGRET_FRAC,
    Level,
    backed_by_hour,
    choose,
    held_by_candidate,
    supported_units,
)

DISCOUNT = 0.4
series = st.lists(st.floats(0, 20), min_size=30, max_size=80).map(np.array)
discounts = st.sampled_from([0.2, 0.3, 0.4, 0.6])


def at_once_frac(history):
    return sum(weight * one.pace.at_once_frac for one, weight in choose(history, DISCOUNT).weights.items())


def test_a_fleet_whose_history_fell_buys_slower_than_a_steady_one():
    steady = np.full(672, 10.0)
    fell = np.concatenate([np.full(400, 10.0), np.full(272, 4.0)])

    assert at_once_frac(fell) < at_once_frac(steady) - 0.05


def test_a_surge_of_days_is_not_bought_for_the_term():
    surge = np.concatenate([np.full(600, 5.0), np.full(72, 20.0)])
    choice = choose(surge, DISCOUNT)
    supported = {level: supported_units(level, surge, DISCOUNT, 8760) for level in Level}

    assert supported[Level.LEAST_QUANTILE] == 5.0
    assert choice.wanted_units(supported, 0, 8760) < 10.0


def test_a_history_too_short_to_test_gives_every_candidate_the_same_share():
    choice = choose(np.array([3.0]), DISCOUNT)

    assert choice.back_tests == 0
    assert list(choice.weights.values()) == [pytest.approx(1 / len(CANDIDATES))] * len(CANDIDATES)


@settings(max_examples=25, deadline=None)
@given(history=series, discount=discounts)
def test_shares_sum_to_one_and_the_regret_stays_in_its_bound(history, discount):
    choice = choose(history, discount)

    assert sum(choice.weights.values()) == pytest.approx(1.0)
    assert choice.over_hindsight <= choice.simple_over_hindsight * (1 + STATED_REGRET_FRAC) + 1e-9
    assert choice.over_hindsight <= (1 + STATED_REGRET_FRAC) * choice.simple_over_hindsight + 1e-9


@settings(max_examples=25, deadline=None)
@given(history=series, test=series, discount=discounts)
def test_no_candidate_ever_gives_a_unit_back_or_exceeds_what_was_ever_in_use(history, test, discount):
    most = max(history.max(), test.max())
    for one, held in held_by_candidate(history, test, discount):
        assert (np.diff(held) >= -1e-9).all(), one
        assert held.max(initial=0.0) <= np.ceil(most) + 0.1, one


def test_the_simple_rules_are_bought_whole_and_have_no_weight_of_their_own():
    choice = choose(np.full(672, 10.0), DISCOUNT)

    assert not set(choice.weights) & set(SIMPLE)


@settings(max_examples=25, deadline=None)
@given(history=series, test=series, discount=discounts, scale=st.sampled_from([0.1, 1.0, 40.0]))
def test_evidence_on_all_slices_at_once_is_the_policys_own(history, test, discount, scale):
    use = np.concatenate([history, scale * test])
    evidence, expected = no_evidence(float(history.max())), [0.0]
    for units in use.tolist():
        evidence = observe(evidence, units, discount, 10.0)
        expected.append(backed_units(evidence, 10.0))

    assert backed_by_hour(use, len(history), discount, 10.0) == pytest.approx(np.array(expected), abs=1e-9)

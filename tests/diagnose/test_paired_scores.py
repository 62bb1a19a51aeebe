"""Limits of a loss in pairs: exact sizes, figures worked by hand, and what must hold whatever the scores."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.diagnose.quality import loss_interval, mean_upper_limit, pairs_needed, share_upper_limit, t_quantile

binomial = pytest.importorskip("scipy.stats").binom


def false_accept(pairs, gained_frac, margin, alpha):
    """Return the exact probability that a candidate that loses exactly the margin is accepted."""
    lost_frac = gained_frac + margin
    total = 0.0
    for lost in range(int(binomial.ppf(1e-9, pairs, lost_frac)), int(binomial.ppf(1 - 1e-9, pairs, lost_frac)) + 1):
        left = pairs - lost
        share = gained_frac / (1 - lost_frac)
        first, last = int(max(0, binomial.ppf(1e-9, left, share))), int(binomial.ppf(1 - 1e-9, left, share))
        # a gain more never raises the limit, so all from some number of gains on are accepted
        while first <= last:
            middle = (first + last) // 2
            accepted = share_upper_limit(lost, middle, pairs, alpha) < margin
            first, last = (first, middle - 1) if accepted else (middle + 1, last)
        total += binomial.pmf(lost, pairs, lost_frac) * binomial.sf(first - 1, left, share)
    return total


@pytest.mark.parametrize("margin", [0.005, 0.01, 0.03])
@pytest.mark.parametrize("gained_frac", [0.0, 0.005, 0.05, 0.3])
@pytest.mark.parametrize("pairs", [40, 300, 1319])
def test_a_candidate_that_loses_the_margin_is_accepted_no_more_often_than_promised(pairs, gained_frac, margin):
    assert false_accept(pairs, gained_frac, margin, 0.05) <= 0.05


def test_without_any_difference_the_limit_is_near_three_over_the_pairs():
    # the rule of three (0.95^n) for half a further loss: 3.64 / 364
    assert share_upper_limit(0, 0, 364, 0.05) == pytest.approx(0.01, rel=0.01)


def test_many_pairs_agree_with_the_normal_approximation():
    # b - c = 100 of 20,000, variance 20,000 (0.1 - 0.005^2) ~ 44.7^2: 0.005 + 1.645 x 44.7 / 20,000
    assert share_upper_limit(1_050, 950, 20_000, 0.05) == pytest.approx(0.005 + 1.645 * 44.7 / 20_000, rel=0.01)


@given(st.integers(2, 60), st.data())
def test_an_interval_holds_the_loss_and_mirrors(pairs, data):
    draw = st.lists(st.sampled_from([0.0, 1.0]), min_size=pairs, max_size=pairs)
    one, other = (np.array(data.draw(draw)) for _ in range(2))

    there, back = loss_interval(one, other, 0.05), loss_interval(other, one, 0.05)

    assert there.low_frac <= there.loss_frac <= there.high_frac
    assert there.high_frac == pytest.approx(-back.low_frac, abs=1e-9)


@given(st.integers(10, 400), st.integers(0, 30), st.integers(0, 30))
def test_a_further_lost_question_never_lowers_the_limit(pairs, lost, gained):
    lost, gained = min(lost, pairs // 2 - 1), min(gained, pairs // 2 - 1)

    assert share_upper_limit(lost + 1, gained, pairs, 0.05) >= share_upper_limit(lost, gained, pairs, 0.05) - 1e-12


def test_scores_that_never_differ_are_no_proof_of_equality():
    alike = np.full(150, 0.5)

    assert loss_interval(alike, alike, 0.05).high_frac > 0.01


def test_rare_whole_losses_among_other_scores_are_not_accepted_too_often():
    rng = np.random.default_rng(3)
    draws = 4_000
    # one answer in a hundred fails wholly, half of the others change by nothing: a mean loss of 0.01
    losses = (rng.random((draws, 300)) < 0.01).astype(float)

    accepted = np.mean([mean_upper_limit(loss, 0.05) < 0.01 for loss in losses])

    # plain t accepts 20 %
    assert accepted <= 0.05


@pytest.mark.parametrize(
    ("probability", "freedom", "value"), [(0.95, 10, 1.8125), (0.95, 30, 1.6973), (0.975, 100, 1.9840)]
)
def test_the_expansion_gives_the_quantiles_of_tables(probability, freedom, value):
    assert t_quantile(probability, freedom) == pytest.approx(value, abs=1e-3)


def test_pairs_needed_follow_the_textbook_and_end_somewhere():
    # ((1.645 + 0.842) x 0.3 / 0.01)^2
    assert pairs_needed(0.3, 0.01, 0.05, 0.8) == pytest.approx(5_566, abs=10)
    assert pairs_needed(0.3, 0.0, 0.05, 0.8) is None
    assert pairs_needed(0.3, 1e-6, 0.05, 0.8) is None


def test_few_scores_other_than_right_and_wrong_have_no_limit():
    few = np.linspace(0, 1, 5)

    assert math.isinf(loss_interval(few, few, 0.05).high_frac)

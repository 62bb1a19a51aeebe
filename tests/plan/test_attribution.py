"""Shares sum to the joint saving exactly, equal an average over every order, and say how sure they are where sampled."""

from itertools import permutations

import numpy as np
import pytest
from benchmarks.attribution import airport, exact_shapley, random_game, referee_error_frac
from hypothesis import given, settings, strategies as st

from trimtab.plan.actions.attribution import EXACT_PLAYERS, attribute, components


def shares_of(value, players, groups=None):
    return attribute(value, groups or [list(range(players))], players, seed=3)


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(0, 10_000))
def test_shares_sum_to_the_joint_saving_and_equal_enumeration(players, seed):
    value = random_game(players, seed)

    shares = shares_of(value, players)

    assert sum(shares.shapley) == value(frozenset(range(players)))
    for share, exact in zip(shares.shapley, exact_shapley(value, players), strict=True):
        assert abs(share - exact) <= players


def test_shares_equal_the_mean_gain_over_all_orders():
    value = random_game(4, 11)
    orders = list(permutations(range(4)))
    gains = np.zeros(4)
    for order in orders:
        for place, player in enumerate(order):
            gains[player] += value(frozenset(order[: place + 1])) - value(frozenset(order[:place]))

    shares = shares_of(value, 4)

    assert np.allclose(shares.shapley, gains / len(orders), atol=4)


def test_an_action_that_adds_nothing_earns_nothing_and_equal_actions_earn_the_same():
    def value(some):
        return 10 * len(some & {0, 1}) ** 2

    shares = shares_of(value, 3)

    assert shares.shapley == (20, 20, 0)
    assert shares.standalone == (10, 10, 0)
    assert shares.last_in == (30, 30, 0)


@settings(max_examples=30)
@given(st.integers(2, 5), st.integers(2, 5), st.integers(0, 1000))
def test_parts_that_touch_nothing_in_common_may_be_attributed_apart(first, second, seed):
    one, other = random_game(first, seed), random_game(second, seed + 1)

    def value(some):
        return one(frozenset(p for p in some if p < first)) + other(frozenset(p - first for p in some if p >= first))

    apart = shares_of(value, first + second, [list(range(first)), list(range(first, first + second))])
    together = shares_of(value, first + second)

    assert np.allclose(apart.shapley, together.shapley, atol=first + second)
    assert sum(apart.shapley) == sum(together.shapley)


def test_actions_that_touch_the_same_thing_through_others_are_one_game():
    assert components(5, [{"a"}, {"a", "b"}, {"c"}, {"b"}, set()]) == [[0, 1, 3], [2], [4]]


def test_an_enumerated_share_has_no_interval():
    shares = shares_of(random_game(5, 1), 5)

    assert shares.shapley_low == shares.shapley == shares.shapley_high
    assert not shares.sampled


def test_a_large_game_is_sampled_with_an_interval_that_holds_the_closed_form():
    players = EXACT_PLAYERS + 6
    inside = 0
    for seed in range(12):
        value, exact = airport(np.random.default_rng(seed).integers(10**6, 10**9, players).tolist())

        shares = attribute(value, [list(range(players))], players, seed=seed)

        assert shares.sampled
        assert sum(shares.shapley) == value(frozenset(range(players)))
        inside += sum(
            low <= share <= high
            for low, share, high in zip(shares.shapley_low, exact, shares.shapley_high, strict=True)
        )
    assert 0.90 <= inside / (12 * players) <= 0.99


def test_the_same_seed_gives_the_same_sample():
    value = random_game(EXACT_PLAYERS + 1, 5)

    assert shares_of(value, EXACT_PLAYERS + 1) == shares_of(value, EXACT_PLAYERS + 1)


@pytest.mark.shared
def test_the_referees_four_levers_get_the_shares_that_they_published(shared_dir):
    error = referee_error_frac(shared_dir / "referees", shared_dir / "data" / "traces")

    assert error is not None
    assert error <= 1e-5

"""Shares sum to the joint saving, exactly, and equal the definition."""

from itertools import permutations
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.plan.attribution import attribute, components


@st.composite
def games(draw):
    players = draw(st.integers(1, 5))
    table = {}

    def value(some):
        if some not in table:
            table[some] = draw(st.integers(-(10**9), 10**9)) if some else 0
        return table[some]

    everyone = frozenset(range(players))
    for number in range(2**players):
        value(frozenset(player for player in everyone if number >> player & 1))
    return players, value


@given(games())
def test_shares_sum_to_the_joint_saving_exactly(drawn):
    players, value = drawn

    shares = attribute(value, [list(range(players))], players, seed=1)

    assert sum(shares.shapley) == value(frozenset(range(players)))


@given(games())
def test_shares_are_the_mean_over_all_orders(drawn):
    players, value = drawn
    total = [0] * players
    for order in permutations(range(players)):
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            total[player] += value(before | {player}) - value(before)

    shares = attribute(value, [list(range(players))], players, seed=1)

    for share, mean in zip(shares.shapley, total, strict=True):
        assert share == pytest.approx(mean / factorial(players), abs=players + 1)


def test_an_action_that_changes_nothing_earns_nothing():
    shares = attribute(lambda some: 100 if 0 in some else 0, [[0, 1]], 2, seed=1)

    assert shares.shapley == (100, 0)


def test_stand_alone_and_last_in_frame_the_share():
    worth = {frozenset(): 0, frozenset({0}): 60, frozenset({1}): 50, frozenset({0, 1}): 80}

    shares = attribute(worth.__getitem__, [[0, 1]], 2, seed=1)

    assert (shares.standalone, shares.shapley, shares.last_in) == ((60, 50), (45, 35), (30, 20))


def test_what_touches_nothing_in_common_is_a_game_of_its_own():
    assert sorted(map(sorted, components(4, [{"a"}, {"b"}, {"a", "c"}, {"c"}]))) == [[0, 2, 3], [1]]


def test_a_large_game_is_sampled_and_still_sums():
    def value(some):
        return len(some) ** 2 * 1000

    shares = attribute(value, [list(range(14))], 14, seed=1)

    assert shares.sampled
    assert sum(shares.shapley) == value(frozenset(range(14)))

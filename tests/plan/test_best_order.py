"""The order in which a year costs least: against every order; and how far taking the best per week first is from it."""

from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.levers import commitments, right_size, schedule, spot
from trimtab.plan.actions.roadmap_planner import EXACT_ACTIONS, Work, best_order, better_order, year_of

LEVERS = (spot.NAME, schedule.NAME, right_size.NAME, commitments.NAME)


def work(months, levers=None, before=None, apart_mo=0.0):
    return Work(
        months=months,
        levers=levers or [spot.NAME] * len(months),
        before={number: frozenset((before or {}).get(number, ())) for number in range(len(months))},
        apart_mo=apart_mo,
    )


def allowed(given_work):
    count = len(given_work.months)
    for order in permutations(range(count)):
        if all(given_work.before[number] <= set(order[:at]) for at, number in enumerate(order)):
            yield order


def test_an_action_that_pays_only_after_another_is_weighed_with_it():
    # alone 0 saves 10 and 1 saves nothing; after 1, which takes a month, 2 saves 100
    def bill(done):
        return 200.0 - 10 * (0 in done) - 100 * ({1, 2} <= done)

    works = work([1.0, 1.0, 1.0])
    assert best_order([0, 1, 2], works, bill) in {(1, 2, 0), (2, 1, 0)}
    assert year_of([0, 1, 2], works, bill) == pytest.approx(12 * 200 - 11 * 10 - 9 * 100)
    assert year_of([1, 2, 0], works, bill) == pytest.approx(12 * 200 - 10 * 100 - 9 * 10)


def test_the_first_order_stays_where_nothing_beats_it():
    assert best_order([1, 0, 2], work([1.0] * 3), lambda done: 100.0 - len(done)) == (1, 0, 2)


def test_what_ends_after_the_year_saves_nothing_in_it():
    assert year_of([0], work([13.0]), lambda done: 50.0 * (not done)) == 600.0


def test_too_many_actions_are_refused():
    count = EXACT_ACTIONS + 1
    with pytest.raises(ValueError, match="in order exactly"):
        best_order(range(count), work([1.0] * count), lambda done: 0.0)


@st.composite
def cases(draw, most=5):
    """Works with levers a month apart and what must come first, and bills that any set may have."""
    count = draw(st.integers(1, most))
    months = draw(st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0, 7.0]), min_size=count, max_size=count))
    levers = draw(st.lists(st.sampled_from(LEVERS), min_size=count, max_size=count))
    before = {number: draw(st.sets(st.integers(0, number - 1), max_size=1)) for number in range(1, count)}
    bills = draw(st.lists(st.integers(0, 100), min_size=2**count, max_size=2**count))
    if draw(st.booleans()):  # more done never costs more
        for number in range(2**count):
            for at in range(count):
                if number >> at & 1:
                    bills[number] = min(bills[number], bills[number & ~(1 << at)])
    return (
        work(months, levers, before, draw(st.sampled_from([0.0, 1.0]))),
        lambda done: float(bills[sum(1 << number for number in done)]),
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_no_order_costs_less(case):
    works, bill = case
    least = min(year_of(order, works, bill) for order in allowed(works))

    first = next(allowed(works))
    found = best_order(first, works, bill)
    swapped = better_order(first, lambda order: year_of(order, works, bill), works.before)

    assert found in set(allowed(works))
    assert year_of(found, works, bill) == pytest.approx(least, abs=0.011)
    assert swapped in set(allowed(works))
    assert least - 1e-9 <= year_of(swapped, works, bill) <= year_of(first, works, bill)
    assert best_order(first, works, bill) == found

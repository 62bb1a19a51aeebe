"""Figures of two scenarios side by side: dollars that stand together add up as they are shown."""

import pytest
from hypothesis import given, strategies as st

from trimtab.emit.comparison import (
    BILL_TODAY,
    BILL_UNDER_PLAN,
    PLAN,
    SAVING,
    ComparedFigure,
    FigureUnit,
    values_shown,
)

CENTS = st.integers(0, 10**8).map(lambda cents: cents / 100)


def figures(base, scenario):
    """The bill today, under the plan, and the saving, of a scenario that may have no plan."""

    def row(what, at):
        sides = [
            None if side is None else (side[0], side[1], round(side[0] - side[1], 2))[at] for side in (base, scenario)
        ]
        return ComparedFigure(section=PLAN, what=what, unit=FigureUnit.USD_MO, base=sides[0], scenario=sides[1])

    return [row(what, at) for at, what in enumerate((BILL_TODAY, BILL_UNDER_PLAN, SAVING))]


def number(text):
    return int(text.replace("$", "").replace(",", "").replace("+", "") or 0)


@given(CENTS, CENTS, CENTS, CENTS)
def test_the_bill_under_the_plan_is_todays_less_the_saving_as_they_are_shown(today, then, other_today, other_then):
    bill, left, saving = values_shown(figures((today, then), (other_today, other_then)))

    assert number(bill.base) - number(saving.base) == number(left.base)
    assert number(bill.scenario) - number(saving.scenario) == number(left.scenario)
    assert number(left.base) + number(left.change) == number(left.scenario)
    assert number(left.base) == pytest.approx(then, abs=1.5)


def test_a_scenario_without_a_plan_has_no_values():
    assert [value.scenario for value in values_shown(figures((200121.81, 66324.42), None))] == ["–", "–", "–"]
    assert [value.base for value in values_shown(figures((200121.81, 66324.42), None))] == [
        "$200,122",
        "$66,325",
        "$133,797",
    ]

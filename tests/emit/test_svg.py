import doctest

import pytest
from hypothesis import given, strategies as st

import trimtab.emit.html.markup
from trimtab.emit.html.markup import Frame, Html, number, runs, step_area, step_line, tag, ticks

FRAME = Frame(left=0, right=40, upper=0, lower=100, count=4, top=10)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(trimtab.emit.html.markup).failed == 0


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "a < b & c", tag("b", "d")) == "<p>a &lt; b &amp; c<b>d</b></p>"
    assert tag("p", title='"x"') == '<p title="&quot;x&quot;"></p>'
    assert tag("p", Html("<i>")) == "<p><i></p>"


def test_an_absent_attribute_is_left_out():
    assert tag("td", "1", class_=None, colspan=2) == '<td colspan="2">1</td>'


@pytest.mark.parametrize(("value", "shown"), [(1.0, "1"), (-0.01, "0"), (2.25, "2.2"), (10.06, "10.1")])
def test_coordinates_have_at_most_one_digit(value, shown):
    assert number(value) == shown


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_within_the_top(top):
    marks = ticks(top)

    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert marks[-1] <= top * (1 + 1e-6)


def test_a_missing_value_breaks_the_line():
    assert list(runs([1, 2, None, 3])) == [(0, [1, 2]), (3, [3])]
    assert step_line(FRAME, [5, None, 10, 10], "x").count("M") == 2


def test_an_area_stands_on_the_base_line():
    assert 'd="M0 100V50H10V100Z"' in step_area(FRAME, [5, None, None, None], "x")

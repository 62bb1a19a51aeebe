"""An answer of a tool fits its limit, whatever it holds, and its pages together hold every row and line."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.cli.mcp.tools import MOST_BYTES, Answer, answer_text, lines_text, short_words

HOSTILE = "\x1b[31m=cmd|' /C calc'!A0\u202e<script>"
TEXT = st.one_of(st.text(max_size=40), st.sampled_from([HOSTILE, "ü" * 300, "x" * 10_000, '"' * 500]))
CELL = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.lists(TEXT, max_size=3))
FACTS = st.dictionaries(st.sampled_from(["audit", "headline", "notes", "paste"]), st.one_of(CELL, st.lists(CELL)))


def pages(answer):
    start, found = 0, []
    while True:
        page = json.loads(answer_text(answer, start))
        found.append(page)
        if "rest" not in page:
            return found
        following = int(page["rest"].partition("start=")[2])
        assert following > start
        start = following


@given(facts=FACTS, rows=st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=60))
@settings(max_examples=60)
def test_every_page_fits_and_together_they_hold_every_row(facts, rows):
    answer = Answer(facts=facts, columns=("a", "b", "c"), rows=rows, advice="ask on")

    found = pages(answer)

    assert all(len(answer_text(answer, start).encode()) <= MOST_BYTES for start in range(len(rows) + 2))
    assert sum(len(page["rows"]) for page in found) == len(rows)
    assert all(len(row) == 3 for page in found for row in page["rows"])


@given(lines=st.lists(TEXT.map(lambda text: text.replace("\n", " ")), min_size=1, max_size=200))
@settings(max_examples=40)
def test_the_pages_of_a_text_hold_every_line(lines):
    text, start, seen = "\n".join(lines), 0, 0
    while True:
        page = lines_text(text, start)
        assert len(page.encode()) <= MOST_BYTES
        last = page.rpartition("\n")[2]
        if "start=" not in last:
            break
        seen = int(last.partition("start=")[2].split()[0])
        assert seen > start
        start = seen

    assert seen < len(lines)


def test_nothing_that_is_shown_can_harm_a_terminal_or_read_as_another():
    text = answer_text(Answer(facts={"name": HOSTILE}, columns=("a",), rows=[[HOSTILE]]))

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\u001b" not in text
    assert "\x1b" not in lines_text(HOSTILE) + short_words(HOSTILE)


def test_a_row_too_large_for_a_page_is_shortened_and_says_so():
    (page,) = pages(Answer(facts={}, columns=("name", "why"), rows=[["w" * 9000, "because"]]))

    assert page["rows"][0][0].endswith("…")
    assert page["rows"][0][1] == "because"


def test_a_page_beyond_the_last_row_says_how_many_there_are():
    page = json.loads(answer_text(Answer(facts={}, columns=("a",), rows=[[1], [2]]), 7))

    assert page["rows"] == []
    assert page["shown"] == "no row: there are 2"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_does_not_have_is_null(value):
    assert json.loads(answer_text(Answer(facts={}, columns=("a",), rows=[[value]])))["rows"] == [[None]]

"""Comments of pull requests: a hidden first line, whole markup, and never more than GitHub takes."""

import re
from datetime import UTC, datetime

from hypothesis import given, settings, strategies as st
from tests.emit.example import example_audit

from trimtab.cli.audit.run import render_github_comment
from trimtab.cli.review.tables import review_comment
from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import Folded, Paragraph, bullets, table
from trimtab.emit.writers.comment import MOST_CHARACTERS, lines_in, marker, write_comment
from trimtab.fleet.model import Window
from trimtab.review import Review
from trimtab.review.manifests import Unread


def shown_lines(text):
    rows = [line for line in text.splitlines() if re.match(r"\| row", line)]
    return len(rows) + len(re.findall(r"(?m)^- item", text)) + len(re.findall(r"(?m)^paragraph", text))


def left_out(text):
    found = re.search(r"\*(\d+) more lines are left out", text)
    return int(found[1]) if found else 0


ROWS = st.integers(0, 1500).map(
    lambda count: table(["what", "#$"], [(f"row {at} {'x' * 60}", "1") for at in range(count)])
)
ITEMS = st.integers(0, 1500).map(lambda count: bullets([f"item {at} {'y_' * 20}" for at in range(count)]))
WORDS = st.integers(1, 30_000).map(lambda size: Paragraph(words=f"paragraph {'z' * size}"))
BLOCK = st.one_of(ROWS, ITEMS, WORDS)
BLOCKS = st.lists(
    st.one_of(BLOCK, st.lists(BLOCK, max_size=2).map(lambda inner: Folded(title="more", blocks=tuple(inner)))),
    max_size=4,
)


@settings(max_examples=60)
@given(BLOCKS)
def test_a_comment_is_no_longer_than_github_takes_and_counts_what_it_leaves_out(blocks):
    text = write_comment("audit", "A heading", blocks, headline="what it says", foot="the foot")

    assert len(text) <= MOST_CHARACTERS
    assert text.splitlines()[0] == "<!-- trimtab audit -->"
    assert text.rstrip().endswith("<sub>the foot</sub>")
    assert text.count("<details>") == text.count("</details>")
    assert shown_lines(text) + left_out(text) == sum(map(lines_in, blocks))


def test_a_table_that_is_too_long_shows_the_first_rows():
    text = write_comment("diff", "Long", [table(["what"], [(f"row {at} {'x' * 100}",) for at in range(2000)])])

    assert "row 0 " in text
    assert 400 < shown_lines(text) < 2000


def test_the_first_line_names_the_command_so_that_each_finds_its_own():
    assert len({marker(command) for command in ("audit", "review", "verify", "diff", "emit diff")}) == 5


def test_a_review_that_reads_little_lists_twenty_lines_and_counts_the_others():
    unread = tuple(Unread(what=f"kind_{at}", file="all.yaml", why="not modelled") for at in range(50))
    found = Review(
        window=Window(start=datetime(2026, 9, 7, tzinfo=UTC), hours=730),
        against="history",
        before_micro_usd=5_000_000,
        after_micro_usd=7_000_000,
        workloads=(),
        findings=(),
        unread=unread,
    )

    text = review_comment(found)

    assert text.startswith("<!-- trimtab review -->\n\n### This change adds $2 a month")
    assert "No workload of this history is changed." in text
    assert text.count("- not read: kind\\_") == 20
    assert "- and 30 more" in text


def test_an_audit_with_names_as_long_as_may_be_stays_a_comment():
    document = audit_document(example_audit())
    actions = tuple(action.model_copy(update={"effect": "w" * 60_000}) for action in document.plan.actions)
    document = document.model_copy(update={"plan": document.plan.model_copy(update={"actions": actions})})

    assert len(render_github_comment(document)) <= MOST_CHARACTERS

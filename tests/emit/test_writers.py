"""Writers of pages: every form shows the same text, none lets a name of others do harm."""

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given, strategies as st
from tests.emit.example import example_audit

from trimtab.diagnose.long_tail import TailCost, TailKind
from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import (
    Amount,
    Bullets,
    Chart,
    Code,
    DetailLevel,
    Drawing,
    Folded,
    ListItem,
    Noted,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    brief_cell,
    brief_table,
    strong,
)
from trimtab.emit.html.markup import Html, tag
from trimtab.emit.html.style import SCRIPT
from trimtab.emit.money import whole_dollars
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import html, markdown, terminal
from trimtab.emit.writers.terminal import wrap

NARROW = 60


def page_of(*blocks, **fields):
    section = Section(name="one", title="A section", gloss="what it shows", blocks=blocks)
    return Page(brand="trimtab", title="Title", subject="subject", sections=(section,), **fields)


def on_screen(*blocks, width=80, colour=False):
    return terminal.write_page(page_of(*blocks), width=width, colour=colour)


def table(*rows, **fields):
    columns = (TableColumn(title="name"), TableColumn(title="usd", right=True))
    return Table(columns=columns, rows=tuple(TableRow(cells=cells) for cells in rows), **fields)


TEXTS = st.lists(st.text("ab -_/é漢", min_size=1, max_size=50), min_size=1, max_size=4)


@given(TEXTS, st.integers(4, 60), st.integers(0, 3))
def test_broken_text_fits_and_loses_nothing_but_spaces(texts, width, hang):
    lines = wrap([StyledText(text) for text in texts], width, hang=hang)

    joined = "".join("".join(span.text for span in line) for line in lines)
    assert joined.replace(" ", "") == "".join(texts).replace(" ", "")
    assert all(sum(terminal._width(span.text) for span in line) <= width for line in lines)


def test_a_style_goes_on_over_the_end_of_a_line():
    assert wrap([strong("one two"), StyledText(" three")], 7) == [(strong("one two"),), (StyledText("three"),)]
    assert wrap([strong("one two")], 4) == [(strong("one"),), (strong("two"),)]


def test_names_are_broken_at_their_marks():
    lines = wrap([StyledText("namespace-of-a-team/workload")], 20)

    assert ["".join(span.text for span in line) for line in lines] == ["namespace-of-a-team/", "workload"]


def test_columns_that_may_be_left_out_go_first_where_the_screen_is_narrow():
    columns = (
        TableColumn(title="name"),
        TableColumn(title="first to go", right=True, optional=2),
        TableColumn(title="second", right=True, optional=1),
        TableColumn(title="stays", right=True),
    )
    wide = Table(columns=columns, rows=(TableRow(cells=("x" * 30, "1" * 12, "2" * 12, "3" * 12)),))

    assert "1" * 12 in on_screen(wide, width=90)
    narrower = on_screen(wide, width=58)
    assert "1" * 12 not in narrower
    assert "2" * 12 in narrower
    assert "3" * 12 in on_screen(wide, width=40)


def test_the_brief_level_shows_some_rows_and_what_stands_for_the_others():
    rows = [(f"row {at}", Amount(1.0)) for at in range(10)]
    cut = table(*rows, brief_rows=2, rest=TableRow(cells=("8 more", Amount(8.0))))

    text = on_screen(cut)

    assert "row 1" in text
    assert "row 2" not in text
    assert "8 more" in text
    assert "row 9" in markdown.write_page(page_of(cut))
    assert "8 more" not in markdown.write_page(page_of(cut))


def test_what_is_deeper_than_a_form_shows_is_left_out():
    deep = (Paragraph(words="full", level=DetailLevel.FULL), Paragraph(words="paged", level=DetailLevel.PAGE))

    assert "full" not in on_screen(*deep)
    assert "full" in markdown.write_page(page_of(*deep))
    assert "paged" not in markdown.write_page(page_of(*deep))
    assert "paged" in html.write_page(page_of(*deep))


def test_cents_stand_in_documents_and_whole_dollars_on_a_screen():
    money = table(("a", Amount(1234.56)))

    assert "1,235" in on_screen(money)
    assert "1,234.56" in markdown.write_page(page_of(money))
    assert "1,234.56" in html.write_page(page_of(money))


@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=1, max_size=12), st.integers(1, 12))
def test_dollars_on_a_screen_sum_to_the_total_shown_wherever_the_cents_do(in_cents, most):
    columns = (TableColumn(title="what"), TableColumn(title="$/month", right=True))
    rows = tuple(TableRow(cells=(f"row {place}", Amount(part / 100))) for place, part in enumerate(in_cents))
    rest = TableRow(cells=("the others", Amount(sum(in_cents[most:]) / 100)))
    total = TableRow(cells=("all", Amount(sum(in_cents) / 100)))

    whole = brief_table(Table(columns=columns, rows=rows, total=total, rest=rest, brief_rows=most))

    shown = [int(brief_cell(row.cells[1])[0].text.replace(",", "")) for row in whole.rows]
    assert sum(shown) == int(brief_cell(total.cells[1])[0].text.replace(",", ""))
    everywhere = whole_dollars([part / 100 for part in in_cents])
    assert shown == [*everywhere[:most], *([sum(everywhere[most:])] if len(in_cents) > most else [])]


def test_figures_that_overlap_are_rounded_each_for_itself():
    columns = (TableColumn(title="what"), TableColumn(title="alone", right=True))
    rows = (TableRow(cells=("a", Amount(10.6))), TableRow(cells=("b", Amount(10.6))))

    whole = brief_table(Table(columns=columns, rows=rows, total=TableRow(cells=("together", Amount(15.0)))))

    assert [brief_cell(row.cells[1])[0].text for row in whole.rows] == ["11", "11"]


def test_lines_to_copy_are_kept_as_they_are():
    lines = "a:\n  - " + "x" * 100
    block = Bullets(items=(ListItem(words="paste", code=lines),))

    assert "x" * 100 in on_screen(block)
    assert "    - " + "x" * 100 in markdown.write_page(page_of(block))
    assert lines in html.write_page(page_of(block))
    assert f"\n  {'y' * 100}\n" in on_screen(Code(text="y" * 100))


@pytest.mark.parametrize("evil", ["\x1b[2Jgone", "\u202eleft", "a\x07b", "a\r\nb"])
def test_no_form_lets_through_what_rewrites_a_screen_or_reads_as_another_text(evil):
    blocks = (
        Paragraph(words=evil, title=evil),
        Bullets(items=(ListItem(words=(strong(evil), evil), beneath=evil, code=evil),), title=evil),
        table((Noted(words=evil, beneath=evil), StyledText(evil, Tone.BAD)), title=evil),
        Folded(title=evil, blocks=(Paragraph(words=evil),)),
        Code(text=evil, gloss=evil),
    )
    page = page_of(*blocks, warnings=(evil,), notes=(evil,), headline=evil, foot=evil)

    forms = (
        terminal.write_page(page, width=80, colour=False),
        markdown.write_page(page),
        html.write_page(page),
        terminal.write_table(table((evil, evil)), [evil, f"{evil}\n{evil}"], width=80, colour=False),
    )
    for text in forms:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '" onload="x'])
def test_no_text_becomes_markup(evil):
    blocks = (
        Paragraph(words=evil, title=evil),
        Bullets(items=(ListItem(words=(strong(evil),), beneath=evil, code=evil),), title=evil),
        table((Noted(words=evil, beneath=evil), evil), title=evil),
        Folded(title=evil, blocks=(Code(text=evil, gloss=evil),)),
    )
    page = html.write_page(page_of(*blocks, warnings=(evil,), notes=(evil,), foot=evil)).replace(SCRIPT, "")

    assert page.count("<script") == page.count("<script></script>") == 1, "the page's own"
    assert '" onload="x' not in re.sub(r">[^<]*<", "><", page)
    assert unescape(page).count(evil) >= 14


def test_a_picture_is_in_the_page_alone():
    drawn = Chart(title="A picture", draw=lambda: tag("svg", Html("<path/>")))
    page = page_of(drawn, Paragraph(words="its figures"))

    assert "<svg>" in html.write_page(page)
    assert "A picture" not in markdown.write_page(page)
    assert "A picture" not in terminal.write_page(page, width=80, colour=False)


def test_every_form_has_the_sections_of_an_audit_in_the_same_order():
    page = audit_page(audit_document(example_audit()))
    titles = [section.title for section in page.sections]
    text = terminal.write_page(page, width=80, colour=False)
    on_terminal = [head for line in text.splitlines() if (head := line.split("  ")[0]) in titles]
    in_markdown = re.findall(r"(?m)^## (.*)$", markdown.write_page(page))

    on_page = [unescape(head) for head in re.findall(r"<h2[^>]*>([^<]*)</h2>", html.write_page(page))]

    assert on_page == titles
    assert on_terminal == [title for title in titles if title in on_terminal]
    assert in_markdown == on_terminal
    pictures = {"From today's bill to the plan's", "How the GPUs are used", "How this was worked out"}
    assert set(titles) - set(on_terminal) == pictures


def test_a_section_of_pictures_alone_is_left_out_where_there_are_none():
    drawn = Chart(draw=lambda: tag("svg", Html("<path/>")))

    assert "A section" not in on_screen(drawn)
    assert "A section" not in markdown.write_page(page_of(drawn))


def test_the_terminal_names_what_readings_say_of_a_workload_as_the_page_does():
    document = audit_document(example_audit())
    page = audit_page(document)
    text = " ".join(terminal.write_page(page, width=120, colour=False).split())

    for verdict in document.verdicts:
        assert verdict.headline in text
        assert verdict.headline in unescape(html.write_page(page))


@pytest.mark.parametrize("width", [NARROW, 80, 120])
def test_an_audit_fits_the_screen(width):
    text = terminal.write_page(audit_page(audit_document(example_audit())), width=width, colour=False)

    assert max(map(len, text.splitlines())) <= width


def test_a_drawing_is_as_wide_as_the_form():
    drawn = Drawing(title="Load", draw=lambda width: f"{'█' * width}\nthe key")

    shown = on_screen(drawn, width=NARROW)
    assert max(map(len, shown.splitlines())) == NARROW
    assert "the key" in shown
    assert f"```\n{'█' * 80}\nthe key\n```" in markdown.write_page(page_of(drawn))
    assert f">{'█' * 80}\nthe key</pre>" in html.write_page(page_of(drawn))


def test_a_table_with_columns_that_repeat_is_cut_into_parts_where_the_screen_is_narrow():
    heads = (TableColumn(title="offer", repeat=True), *(TableColumn(title=f"column {n}", right=True) for n in range(9)))
    wide = Table(columns=heads, rows=(TableRow(cells=("1 y", *map(str, range(9)))),))

    shown = on_screen(wide, width=NARROW)

    assert max(map(len, shown.splitlines())) <= NARROW
    assert shown.count("offer") == shown.count("1 y") > 1
    assert all(f"column {n}" in shown for n in range(9))


def test_costs_beside_the_gpus_are_shown_a_month_with_what_reduces_them():
    nat = TailCost(kind=TailKind.NAT, subject="us-east-1", micro_usd=28_000_000, tied=False, evidence="by 3 lines")
    idle = TailCost(kind=TailKind.IDLE_VOLUMES, subject="prod", micro_usd=None, tied=True, evidence="2 claims")
    audit = replace(example_audit(), long_tail=(nat, idle))
    document = audit_document(audit)

    text = terminal.write_page(audit_page(document), width=120, colour=False)

    hours = audit.plan.window.hours
    assert [row.usd_mo for row in document.long_tail] == [round(28 * 730 / hours, 2), None]
    part = text.partition("Beside the GPUs")[2].partition("The plan")[0]
    assert "everything in us-east-1" in part
    assert "which need no NAT" in " ".join(part.split())
    assert "–" in next(line for line in part.splitlines() if "2 claims" in line)
    assert "Beside the GPUs" not in terminal.write_page(
        audit_page(audit_document(example_audit())), width=120, colour=False
    )

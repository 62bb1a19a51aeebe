"""Messages to Slack and Teams, and mails: within the limits of whoever takes them, and nothing in them is more than text."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings, strategies as st
from tests.emit.example import example_audit

from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import (
    Amount,
    Bullets,
    Code,
    DetailLevel,
    Figure,
    Folded,
    ListItem,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    strong,
)
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import mail, slack, teams

EVIL = "<!channel> <@U1> *bold* _it_ `c` [a](https://evil.example) <script>alert(1)</script> & \x1b[2J \u202e"


def page_of(*blocks, sections=1, **fields):
    made = tuple(Section(name=f"s{at}", title=f"Section {at}", gloss="what", blocks=blocks) for at in range(sections))
    return Page(brand="trimtab", title="Title", subject="subject", sections=made, **fields)


def rows(count, name="row"):
    columns = (TableColumn(title="name"), TableColumn(title="usd", right=True), TableColumn(title="x", optional=1))
    return Table(
        columns=columns, rows=tuple(TableRow(cells=(f"{name} {at}", Amount(at), "seldom")) for at in range(count))
    )


def items(count, size=20):
    return Bullets(numbered=True, items=tuple(ListItem(words=f"item {at} {'x' * size}") for at in range(count)))


def message(page):
    return json.loads(slack.write_page(page))


def card(page):
    (attachment,) = json.loads(teams.write_page(page))["attachments"]
    return attachment["content"]


def strings(value):
    """All texts that a message shows."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in ("type", "style"):
                yield from strings(part)


def assert_slack_takes(blocks):
    """Hold blocks against the limits on docs.slack.dev/reference/block-kit/blocks, written down here once more."""
    assert 1 <= len(blocks) <= 50
    for block in blocks:
        match block["type"]:
            case "header":
                assert block["text"]["type"] == "plain_text"
                assert 1 <= len(block["text"]["text"]) <= 150
            case "section":
                assert 1 <= len(block["fields"]) <= 10
                assert all(1 <= len(field["text"]) <= 2000 for field in block["fields"])
            case "context":
                assert 1 <= len(block["elements"]) <= 10
            case "rich_text":
                (element,) = block["elements"]
                assert element["type"] in ("rich_text_section", "rich_text_list", "rich_text_preformatted")
                runs = element["elements"][0]["elements"] if "list" in element["type"] else element["elements"]
                assert 1 <= sum(len(run["text"]) for run in runs) <= 3000
                assert all(run["type"] == "text" and run["text"] for run in runs)
            case other:
                raise AssertionError(other)
    assert len(json.dumps(blocks, separators=(",", ":"), ensure_ascii=False)) <= 15_500


BLOCK = st.one_of(
    st.integers(0, 120).map(rows),
    st.builds(items, st.integers(0, 70), st.integers(0, 4000)),
    st.integers(0, 9000).map(lambda size: Paragraph(words=("w" * size, strong("s" * (size // 2))), title="t")),
    st.integers(1, 5000).map(lambda size: Code(text="c" * size, gloss="g")),
)
BLOCKS = st.lists(BLOCK, max_size=5)


@settings(max_examples=25)
@given(BLOCKS, st.integers(1, 12), st.integers(0, 300))
def test_slack_takes_every_message_and_what_is_left_out_is_counted(blocks, sections, length):
    figures = tuple(Figure(name="f", value="v" * length * 9, note="n") for _ in range(length % 13))
    page = page_of(*blocks, sections=sections, headline="h" * length * 30, figures=figures, notes=("n" * length,))
    page = Page(**{name: getattr(page, name) for name in page.__slots__} | {"title": "t" * (length + 1)})

    found = message(page)

    assert_slack_takes(found["blocks"])
    assert len(found["text"]) <= 3000
    assert bool(re.search(r"\d lines? (is|are) left out", str(found["blocks"][-1]))) == (
        found["blocks"][-1]["type"] == "context"
    )


@settings(max_examples=25)
@given(BLOCKS, st.integers(1, 12), st.sampled_from("aé漢😀"))
def test_teams_takes_every_message_however_it_counts_its_bytes(blocks, sections, letter):
    text = teams.write_page(page_of(*blocks, sections=sections, headline=letter * 9000))

    assert len(text.encode("utf-8")) <= 28_000
    assert len(text.encode("utf-16-le")) <= 28_000
    assert json.loads(text)["attachments"][0]["content"]["version"] == "1.5"


def test_a_message_that_fits_leaves_nothing_out():
    page = page_of(rows(5), items(3))

    for text in (slack.write_page(page), teams.write_page(page)):
        assert "left out" not in text
        assert "row 4" in text
        assert "item 2" in text


@pytest.mark.parametrize("write", [slack.write_page, teams.write_page])
def test_what_is_left_out_and_what_is_shown_are_all_there_is(write):
    text = write(page_of(items(400, size=80)))

    shown = max(int(number) for number in re.findall(r"item (\d+) x", text)) + 1
    assert int(re.search(r"(\d+) lines are left out", text)[1]) == 400 - shown
    assert 0 < shown < 400


def test_a_title_is_not_left_alone_at_the_end():
    sections = (Section(name="a", title="Kept", blocks=(Paragraph(words="x"),)),)
    sections += (Section(name="b", title="Lonely", blocks=(rows(3000),)),)
    found = message(Page(brand="trimtab", title="Title", sections=sections))

    assert found["blocks"][-1]["type"] == "context"
    assert "preformatted" in str(found["blocks"][-2]) or "Lonely" not in str(found["blocks"][-2])


def test_tables_stand_in_columns_on_slack_and_as_tables_on_teams():
    (pre,) = [block for block in message(page_of(rows(3)))["blocks"] if "preformatted" in str(block)]
    (table,) = [part for part in card(page_of(rows(3)))["body"] if part["type"] == "Table"]

    assert pre["elements"][0]["elements"][0]["text"].splitlines()[1].split() == ["row", "0", "0", "seldom"]
    assert [list(strings(cell)) for cell in table["rows"][1]["cells"]] == [["row 0"], ["0"]]
    assert len(table["columns"]) == len(table["rows"][0]["cells"]) == 2


def test_a_chat_has_the_rows_of_a_screen_and_what_stands_for_the_rest():
    brief = Table(columns=rows(0).columns, rows=rows(30).rows, brief_rows=4, rest=TableRow(cells=("26 more", "", "")))

    for text in (slack.write_page(page_of(brief)), teams.write_page(page_of(brief))):
        assert "row 3" in text
        assert "row 4" not in text
        assert "26 more" in text


def test_what_is_for_documents_is_not_in_a_chat_but_in_a_mail():
    page = page_of(Paragraph(words="deep", level=DetailLevel.FULL), Paragraph(words="seen"))

    assert "deep" not in slack.write_page(page) + teams.write_page(page)
    assert "deep" in mail.write_page(page)


def evil_page():
    blocks = (
        Paragraph(words=(EVIL, strong(EVIL)), title=EVIL),
        Bullets(items=(ListItem(words=EVIL, beneath=EVIL, code=EVIL),), title=EVIL),
        Table(columns=(TableColumn(title=EVIL),), rows=(TableRow(cells=(StyledText(EVIL, Tone.BAD),)),), title=EVIL),
        Folded(title=EVIL, blocks=(Code(text=EVIL, gloss=EVIL),), level=DetailLevel.BRIEF),
    )
    figures = (Figure(name="f", value=EVIL, note=EVIL),)
    return page_of(*blocks, headline=EVIL, warnings=(EVIL,), notes=(EVIL,), foot=EVIL, figures=figures)


def test_no_name_becomes_a_mention_a_link_or_a_style_on_slack():
    found = message(evil_page())

    assert "<!channel>" not in found["text"]
    parsed = [text["text"] for block in found["blocks"] for text in block.get("fields", [])]
    assert not any("<" in text or ">" in text for text in parsed)
    assert all(block["type"] in ("rich_text", "header", "section", "context") for block in found["blocks"])
    assert "mrkdwn" not in str([block for block in found["blocks"] if block["type"] != "section"])


def test_no_name_becomes_markdown_on_teams():
    found = card(evil_page())

    assert "TextBlock" not in {part["type"] for part in found["body"]}
    assert not re.search(r'"type": "(TextBlock|FactSet|Action)', json.dumps(found))


@pytest.mark.parametrize("write", [slack.write_page, teams.write_page, mail.write_page])
def test_no_text_rewrites_a_screen_or_reads_as_another(write):
    text = write(evil_page())

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\u001b" not in text


class Elements(HTMLParser):
    """Collects elements and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


@pytest.mark.parametrize("page", [evil_page(), audit_page(audit_document(example_audit()))], ids=["evil", "audit"])
def test_a_mail_has_inline_styles_and_tables_and_fetches_and_runs_nothing(page):
    elements = Elements(mail.write_page(page)).found

    names = {name for name, _ in elements}
    assert names <= {
        *("html", "head", "meta", "title", "body", "table", "thead", "tbody", "tr", "th", "td"),
        *("div", "p", "h1", "h2", "h3", "ol", "ul", "li", "strong", "span", "code", "pre"),
        "style",  # one rule: what phones leave out
    }
    for _, attributes in elements:
        assert not attributes.keys() & {"src", "href", "id", "background", "onload"}
        assert attributes.get("class", "optional") == "optional"
        assert "url(" not in attributes.get("style", "")


def test_every_cell_of_a_mail_stands_on_its_columns_side():
    cells = [
        attributes["align"]
        for name, attributes in Elements(mail.write_page(page_of(rows(1)))).found
        if name == "td" and "align" in attributes
    ]

    assert cells[-3:] == ["left", "right", "left"]

import base64
import hashlib
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st
from tests.emit.example import example_audit

from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import Amount, Table, TableColumn, TableRow
from trimtab.emit.html.style import SCRIPT
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import html


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


@pytest.fixture(scope="module")
def page(document):
    return html.write_page(audit_page(document))


class Outline(HTMLParser):
    """Checks nesting, and keeps ids, references to them, and which pictures have a title."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labelled_by: list[str] = []
        self.links: list[str] = []
        self.svgs = 0
        self.titled = 0

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        fields = dict(attrs)
        self.ids += [fields["id"]] if "id" in fields else []
        self.labelled_by += (fields.get("aria-labelledby") or "").split()
        self.links += [fields["href"].removeprefix("#")] if fields.get("href", "").startswith("#") else []
        self.svgs += tag == "svg"
        self.titled += tag == "title" and self.open[-1:] == ["svg"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outline(page):
    parser = Outline()
    parser.feed(page)
    return parser


def test_elements_are_nested_rightly(outline):
    assert outline.open == []


def test_ids_are_unique_and_every_label_exists(outline):
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.labelled_by) <= set(outline.ids)


def test_contents_lead_to_every_section(outline, page):
    assert set(outline.links) <= set(outline.ids)
    assert len(outline.links) == page.count("<section")


def test_every_picture_has_a_title(outline):
    assert outline.svgs >= 6
    assert outline.titled == outline.svgs


def test_the_page_names_nothing_outside_itself(page):
    # its one script is the one that its policy names by hash, and nothing else may run
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;;" in page
    assert not re.search(
        r"https?:|//[a-z]|@import|url\(|<script|\ssrc=",
        page.replace(script, "").replace(digest, "").replace("<script>", ""),
    )
    assert {link for link in re.findall(r'href="([^"]*)"', page) if not link.startswith("#")} == {"data:,"}
    assert "default-src &#x27;none&#x27;" in page


@pytest.mark.parametrize(
    "words",
    [
        "$200,122",
        "$117,424",
        "59.8%",
        "5 of 6 targets kept",
        "From today's bill to the plan's",
        "Utilization through the week",
        "Demand against capacity",
        "Bill by hour",
        "Not worth doing",
        "Not judged",
        "How this was worked out",
        "delete the autoscaler and set replicas to 24, 8 and 8",
    ],
)
def test_what_a_reader_looks_for_is_there(page, words):
    assert words in page


def test_names_from_the_fleet_cannot_inject_markup(document):
    evil = '<script>alert(1)</script>" onload="x'
    action = document.plan.actions[0].model_copy(update={"subject": evil, "effect": evil, "rollback": evil})
    plan = document.plan.model_copy(update={"actions": (action,)})

    page = html.write_page(audit_page(document.model_copy(update={"fleet": evil, "plan": plan}))).replace(SCRIPT, "")

    assert page.count("<script") == page.count("<script></script>") == 1, "the page's own"
    assert '" onload="x' not in re.sub(r">[^<]*<", "><", page)


def test_what_stands_between_backticks_is_set_as_code_and_one_alone_stays():
    assert html.words_html("run `trimtab commit` & wait") == "run <code>trimtab commit</code> &amp; wait"
    assert html.words_html("5` long") == "5` long"


def test_a_phone_is_spared_the_columns_that_a_table_can_do_without():
    columns = (TableColumn(title="who"), TableColumn(title="share", right=True, optional=1))

    shown = html.block_html(Table(columns=columns, rows=(TableRow(cells=("web", "5%")),)))

    assert '<td class="num less">5%</td>' in shown
    assert '<table class="few">' in shown


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_whole_dollars_of_a_table_sum_to_their_total(cents):
    columns = (TableColumn(title="what"), TableColumn(title="$", right=True))
    rows = tuple(TableRow(cells=("part", Amount(part / 100))) for part in cents)
    total = TableRow(cells=("together", Amount(sum(cents) / 100)))

    shown = html.block_html(Table(columns=columns, rows=rows, total=total, whole_dollars=True))

    *parts, whole = (int(text.replace(",", "")) for text in re.findall(r'<td class="num">([\d,]+)</td>', shown))
    assert sum(parts) == whole


def test_the_same_audit_gives_the_same_page(document, page):
    assert html.write_page(audit_page(document)) == page


def test_a_fleet_with_nothing_to_do_has_a_page():
    audit = example_audit()
    bill = audit.bill_micro_usd
    bare = replace(
        audit,
        plan=replace(audit.plan, actions=(), not_worth_doing=(), after_micro_usd=bill, bound_micro_usd=bill),
        heat_map=replace(audit.heat_map, rows=(), activity_frac=audit.heat_map.activity_frac[:0]),
        capacity=(),
        unjudged=(),
        degraded=(),
        spend_by_workload=audit.spend_by_workload,
    )

    assert "Nothing worth doing was found" in html.write_page(audit_page(audit_document(bare)))


def browse(chromium_bin, tmp_path, text):
    """Open a page in a real browser; return its final document and what it logged on its console."""
    page = tmp_path / "report.html"
    page.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            chromium_bin,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.chromium
def test_a_browser_shows_the_page_without_a_complaint_or_a_request(chromium_bin, tmp_path, page):
    dom, console = browse(chromium_bin, tmp_path, page)

    # The page's policy refuses every request and logs it on the console: a silent console means that none was tried.
    assert console == []
    for picture in ("waterfall", "waste-bar", "heat-map", "bill-by-hour", "capacity-0", "capacity-1"):
        assert re.search(rf'<svg[^>]*class="chart {picture}"', dom)
    assert dom.count("<details") == page.count("<details")


@pytest.mark.chromium
def test_the_browser_check_would_see_a_request(chromium_bin, tmp_path, page):
    _, console = browse(chromium_bin, tmp_path, page.replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>'))

    assert any("Content Security Policy" in line for line in console)

"""The report as one file in a real Chromium: on a phone, its tables sorted and filtered, nothing refused by its policy."""

import pytest
from tests.emit.digest_example import fleet_digest, team_digest
from tests.emit.example import example_audit
from tests.web.browser import browser
from tests.web.test_in_a_browser import DESK, PHONE, WIDE

from trimtab.emit.audit_document import audit_document
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.sections.digest import digest_page
from trimtab.emit.sections.finance import finance_page
from trimtab.emit.writers import mail
from trimtab.emit.writers.html import write_page

pytestmark = pytest.mark.chromium
ACTIONS = """
[...document.querySelectorAll('table.plan > tbody')].filter((line) => !line.hidden).map((line) => line.textContent)
"""
SAVES = """
(() => {
  const table = document.querySelector('table.plan');
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.includes('aves'));
  const lines = [...table.tBodies].map((body) => body.rows[0]);
  return lines.map((line) => (line.classList.contains('total') ? 'total ' : '') + line.cells[column].textContent);
})()
"""
SCROLLED = """
[...document.querySelectorAll('.scroll')].filter((part) => part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.textContent.slice(0, 80))
"""
PAPER = (718, 1047)
"""A4 within Chromium's margins of 1 cm, in CSS pixels."""
WIDER_THAN_PAPER = """
[...document.querySelectorAll('table, svg')].filter((part) => part.getBoundingClientRect().right > innerWidth + 1)
  .map((part) => part.textContent.slice(0, 80))
"""
CLICK = """
[...document.querySelectorAll('table.plan th button')].find((button) => button.textContent.includes('aves')).click()
"""


@pytest.fixture(scope="module")
def chromium(chromium_bin, tmp_path_factory):
    with browser(chromium_bin, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def report(chromium, tmp_path):
    """The report, opened; nothing may have been refused or have failed."""
    file = tmp_path / "report.html"
    file.write_text(write_page(audit_page(audit_document(example_audit()))), encoding="utf-8")
    chromium.said.clear()
    chromium.screen(*DESK)
    chromium.open(file.as_uri())
    yield chromium
    assert chromium.said == []


def amounts(texts):
    return [float(text.replace("$", "").replace(",", "").replace("\N{MINUS SIGN}", "-")) for text in texts]


def test_no_picture_is_wider_than_a_phone(report):
    report.screen(*PHONE, phone=True)

    assert report.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    assert report.evaluate(WIDE) == []


def test_the_plan_and_tables_of_words_need_no_wider_screen_than_a_phone(report):
    report.screen(*PHONE, phone=True)

    wide = report.evaluate(
        "[...document.querySelectorAll('table.plan, table.stacked')]"
        ".filter((table) => table.scrollWidth > table.parentElement.clientWidth + 1)"
        ".map((table) => `${table.className} ${table.scrollWidth} ${table.parentElement.clientWidth} `"
        " + table.tBodies[0].textContent.slice(0, 90))"
    )

    assert report.evaluate("document.querySelectorAll('table.stacked').length") > 0
    assert wide == []


def test_a_table_is_sorted_by_a_column_and_its_total_stays_last(report):
    report.evaluate(CLICK)
    up = report.evaluate(SAVES)
    report.evaluate(CLICK)
    down = report.evaluate(SAVES)

    assert up[-1].startswith("total ")
    assert down[-1].startswith("total ")
    assert amounts(up[:-1]) == sorted(amounts(up[:-1]))
    assert amounts(down[:-1]) == sorted(amounts(up[:-1]), reverse=True)
    assert len(set(up)) > 3


def test_a_long_table_is_filtered_by_what_is_typed(report):
    every = report.evaluate(ACTIONS)
    report.evaluate(
        "(field => { field.value = 'SPOT'; field.dispatchEvent(new Event('input')) })"
        "(document.querySelector('table.plan').closest('section').querySelector('input[type=search]'))"
    )
    left = report.evaluate(ACTIONS)

    assert 1 < len(left) < len(every)
    assert all("spot" in text.lower() for text in left[:-1])


def test_paper_has_every_table_and_no_field_to_type_in(report):
    report.ask("Emulation.setEmulatedMedia", media="print")
    shown = report.evaluate(
        "[...document.querySelectorAll('input[type=search]')].filter((i) => i.checkVisibility()).length"
    )
    tables = report.evaluate(
        "[...document.querySelectorAll('main section > div > table')].every((t) => t.checkVisibility())"
    )
    report.screen(*PAPER)
    report.ask("Emulation.setEmulatedMedia", media="print")
    wide = report.evaluate(WIDER_THAN_PAPER)
    pages = report.ask("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
    report.ask("Emulation.setEmulatedMedia", media="")

    assert shown == 0
    assert tables
    assert wide == []
    assert len(pages) > 20_000


@pytest.mark.parametrize("digest", [fleet_digest(), team_digest()], ids=["fleet", "team"])
def test_a_digest_by_mail_is_no_wider_than_a_phone(chromium, tmp_path, digest):
    file = tmp_path / "mail.html"
    file.write_text(mail.write_page(digest_page(digest, "0.2.0")), encoding="utf-8")
    chromium.screen(*PHONE, phone=True)
    chromium.open(file.as_uri())

    assert chromium.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    assert chromium.evaluate(WIDE) == []


def test_the_page_for_finance_needs_no_wider_screen_than_a_phone(chromium, tmp_path):
    file = tmp_path / "finance.html"
    file.write_text(write_page(finance_page(audit_document(example_audit()))), encoding="utf-8")
    chromium.screen(*PHONE, phone=True)
    chromium.open(file.as_uri())

    assert chromium.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    assert chromium.evaluate(SCROLLED) == []

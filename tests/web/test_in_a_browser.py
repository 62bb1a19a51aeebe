"""The pages in a real Chromium, at a desk and on a phone: nothing cut off, nothing refused, switches by keyboard alone."""

import json
import os
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.emit.example import example_audit
from tests.web.browser import browser
from tests.web.conftest import serving
from tests.web.fleet import Shelf, whole
from tests.web.test_pages import HOSTILE, Held, renamed

from trimtab.emit.audit_document import audit_document
from trimtab.web import computations
from trimtab.web.library import Library

pytestmark = pytest.mark.chromium
DESK, PHONE = (1440, 900), (390, 844)
PAGES = (
    "/audits",
    "/audits/1",
    "/audits/1/spend",
    "/audits/1/spend?team=lab",
    "/audits/1/workload?name=lab/train",
    "/audits/1/plan",
    "/audits/1/plan?off=a4",
    "/audits/1/action?id=a1",
    "/audits/1/proof",
    "/audits/1/verify",
    "/audits/1/year",
    "/audits/1/year?order=a2,a1",
    "/audits/1/commitments",
    "/audits/1/limits",
    "/audits/1/replay",
    "/audits/1/replay?from=24&hours=48",
    "/audits/1/gpus?name=lab/train",
    "/audits/1/what-if",
    "/audits/1/what-if?no_spot=1",
    "/audits/1/allocation",
    "/audits/1/allocation?by=workload&team=lab",
    "/audits/1/finance",
    "/audits/1/use",
    "/audits/1/more",
    "/fit?model=llama-3-8b&rate=5",
    "/prices",
    "/reviews",
)
WIDE = """
[...document.querySelectorAll('svg, input, button, h1, h2, p, li')].filter((part) => part.checkVisibility()
  && !part.closest('.skip') && (part.getBoundingClientRect().right > innerWidth + 1 || part.getBoundingClientRect().left < -1)
  && !(part.closest('.scroll') && part.tagName !== 'svg')).map((part) => part.outerHTML.slice(0, 120))
"""
AXE = """
axe.run(document).then((found) => JSON.stringify(
  found.violations.map((rule) => [rule.id, rule.nodes.map((node) => node.target.join(' '))])))
"""


@pytest.fixture(scope="module")
def chromium(chromium_bin, tmp_path_factory):
    with browser(chromium_bin, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def quiet(chromium):
    """The browser, which must have had nothing to complain about."""
    chromium.said.clear()
    yield chromium
    assert chromium.said == []


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_is_wider_than_its_screen(quiet, address, path, size):
    quiet.screen(*size, phone=size == PHONE)
    quiet.open(f"{address}{path}")

    assert quiet.evaluate("document.documentElement.scrollWidth") == size[0]
    assert quiet.evaluate(WIDE) == []
    assert quiet.evaluate("document.fonts.size") == 0
    assert len(quiet.picture()) > 5_000


@pytest.fixture(scope="module")
def axe():
    """axe-core as one script; where CI=true its package must be there."""
    package = find_spec("axe_core_python")
    if package is None or package.origin is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("axe-core-python is missing: it is in requirements/dev.txt")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation(quiet, axe, address, path, size, dark):
    quiet.screen(*size, dark=dark, phone=size == PHONE)
    quiet.open(f"{address}{path}")
    quiet.evaluate(f"{axe};0")

    found = quiet.evaluate(AXE)

    assert json.loads(found) == []


def test_axe_does_find_what_is_there(quiet, axe, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits")
    quiet.evaluate("document.documentElement.removeAttribute('lang')")
    quiet.evaluate(f"{axe};0")

    assert json.loads(quiet.evaluate(AXE)) == [["html-has-lang", ["html"]]]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_name_breaks_no_page(quiet, kind):
    document = renamed(audit_document(example_audit()), HOSTILE[kind])
    with serving(Library(source=Shelf({"1": document}))) as address:
        for size in (DESK, PHONE):
            quiet.screen(*size, phone=size == PHONE)
            for path in ("", "/spend", "/plan", "/proof"):
                quiet.open(f"{address}/audits/1{path}")
                assert quiet.evaluate("document.documentElement.scrollWidth") == size[0], path
                assert quiet.evaluate(WIDE) == [], path


def test_an_action_is_switched_off_and_on_again_by_keyboard(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/plan")
    whole_bill = quiet.evaluate("document.querySelectorAll('.figure .value')[1].textContent")
    for _ in range(60):
        quiet.press("Tab")
        if quiet.evaluate("document.activeElement.id") == "switch-a4":
            break
    assert quiet.evaluate("document.activeElement.id") == "switch-a4"

    quiet.press(" ", "Space", " ")
    quiet.until("document.querySelectorAll('.is-off').length === 1")

    assert quiet.evaluate("location.search") == "?off=a4"
    assert quiet.evaluate("document.activeElement.id") == "switch-a4"
    assert quiet.evaluate("document.querySelectorAll('.figure .value')[1].textContent") != whole_bill

    quiet.press(" ", "Space", " ")
    quiet.until("document.querySelectorAll('.is-off').length === 0")
    assert quiet.evaluate("document.querySelectorAll('.figure .value')[1].textContent") == whole_bill
    assert quiet.evaluate("location.search") == ""


def test_what_takes_long_is_cancelled_and_begun_again_by_keyboard(quiet, axe, monkeypatch):
    monkeypatch.setattr(computations, "ANSWER_WAIT_S", 0.05)
    document, made = whole()
    source = Held({"1": document}, {"1": made})
    with serving(Library(source=source)) as address:
        for size in (DESK, PHONE):
            quiet.screen(*size, phone=size == PHONE)
            quiet.open(f"{address}/audits/1/allocation?by={'team' if size == DESK else 'kind'}")
            quiet.evaluate(f"{axe};0")
            assert json.loads(quiet.evaluate(AXE)) == []
            for _ in range(60):
                quiet.press("Tab")
                if quiet.evaluate("document.activeElement.id") == "steer":
                    break
            time.sleep(2.0)  # the page looks again meanwhile, and the focus stays
            assert quiet.evaluate("document.activeElement.textContent") == "Cancel"

            quiet.press("Enter", text="\r")
            quiet.until("document.activeElement.textContent === 'Begin again'")
            seen = len(source.stages)
            assert "was cancelled" in quiet.evaluate("document.querySelector('.notice').textContent")
            assert json.loads(quiet.evaluate(AXE)) == []
            assert quiet.evaluate("document.documentElement.scrollWidth") == size[0]
            time.sleep(0.2)
            assert len(source.stages) <= seen + 1

            quiet.press("Enter", text="\r")
            quiet.until("document.activeElement.textContent === 'Cancel'")
            source.let_go.set()
            quiet.until("!document.getElementById('waiting') && !!document.querySelector('main table')")
            source.let_go.clear()


def test_the_way_back_leads_through_the_switched_plans(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/plan")
    quiet.evaluate("document.getElementById('switch-a1').click()")
    quiet.until("location.search === '?off=a1' && !!document.querySelector('.is-off')")

    quiet.evaluate("history.back()")

    quiet.until("location.search === '' && !document.querySelector('.is-off')")


def test_an_action_is_moved_by_keyboard_and_keeps_the_focus(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/year")
    year = quiet.evaluate("document.querySelectorAll('.figure .value')[1].textContent")
    quiet.evaluate("document.getElementById('later-a1').focus()")

    quiet.press("Enter", text="\r")
    quiet.until("location.search.startsWith('?order=a2,a1')")
    quiet.until("document.querySelector('#order li').dataset.id === 'a2' && !!document.getElementById('later-a1')")

    assert quiet.evaluate("document.activeElement.id") == "later-a1"
    quiet.evaluate("history.back()")
    quiet.until("document.querySelector('#order li').dataset.id === 'a1'")
    assert quiet.evaluate("document.querySelectorAll('.figure .value')[1].textContent") == year


def test_an_action_is_dragged_to_another_place(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/year")
    quiet.evaluate("""
      (() => { const items = document.querySelectorAll('#order li'), data = new DataTransfer();
        const place = items[1].getBoundingClientRect();
        const fire = (target, type, y) => target.dispatchEvent(new DragEvent(type,
          { bubbles: true, cancelable: true, dataTransfer: data, clientY: y }));
        fire(items[0], 'dragstart', 0); fire(items[1], 'dragover', place.bottom - 1); fire(items[0], 'dragend', 0); })()
    """)

    quiet.until("location.search.startsWith('?order=a2,a1')")


def test_a_picture_is_zoomed_by_dragging_and_by_keyboard(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/replay")
    box = quiet.evaluate("""
      (() => { const place = document.querySelector('.zoom svg').getBoundingClientRect();
        return [place.left, place.top, place.width, place.height] })()
    """)
    left, top, width, height = box
    y = top + height / 2
    for kind, share in (("mousePressed", 0.3), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        quiet.ask(
            "Input.dispatchMouseEvent", type=kind, x=left + share * width, y=y, button="left", buttons=1, clickCount=1
        )

    quiet.until("new URLSearchParams(location.search).has('hours')")
    quiet.until("!document.getElementById('main').hasAttribute('aria-busy')")
    hours = int(quiet.evaluate("new URLSearchParams(location.search).get('hours')"))
    total = int(quiet.evaluate("document.querySelector('.zoom').dataset.total"))
    assert hours == pytest.approx(total * 0.3 * 960 / 904, abs=3)  # the frame begins 56 of 960 from the left
    assert quiet.evaluate("document.activeElement.id") == "zoom-bill"

    quiet.press("-", "Minus", "-")
    quiet.until(f"document.querySelector('.zoom').dataset.hours === '{min(2 * hours, total)}'")


def test_a_slider_says_what_its_limit_saves(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/limits")
    quiet.until("!document.getElementById('waiting')")

    for number in range(quiet.evaluate("document.querySelectorAll('.slider').length")):
        words = f"document.querySelectorAll('.slider output')[{number}].textContent"
        assert "saves $" in quiet.evaluate(words)


def test_actions_of_the_proof_have_room_for_two_words_a_line_on_a_phone(quiet, address):
    quiet.screen(*PHONE, phone=True)
    quiet.open(f"{address}/audits/1/proof")

    widths = quiet.evaluate("""
      [...document.querySelectorAll('main td')].filter((cell) => cell.textContent.startsWith('Release idle nodes:'))
        .map((cell) => cell.clientWidth)
    """)

    assert widths
    assert min(widths) > 140


def test_pages_are_dark_where_the_screen_is(quiet, address):
    quiet.screen(*DESK, dark=True)
    quiet.open(f"{address}/audits/1")
    dark = quiet.evaluate("getComputedStyle(document.body).backgroundColor")
    quiet.screen(*DESK)

    assert dark != quiet.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_filter_is_reached_by_a_key(quiet, address):
    quiet.screen(*DESK)
    quiet.open(f"{address}/audits/1/spend")
    quiet.press("/", "Slash", "/")

    assert quiet.evaluate("document.activeElement.name") == "q"


def test_a_plan_that_is_being_made_is_shown_once_it_is_ready(quiet):
    document, made = whole()
    with serving(Library(source=Shelf({"1": document}, {"1": made}))) as address:
        quiet.screen(*DESK)
        quiet.open(f"{address}/audits/1/plan")
        quiet.until(
            "!!document.querySelector('#switches input') && !document.querySelector('#switches input:disabled')"
        )

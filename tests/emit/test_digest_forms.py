"""Golden files of a digest's forms, and what holds for each of them."""

import json
import re
import subprocess

import pytest
from tests.emit.digest_example import fleet_digest, payer, team_digest, todo

from trimtab.emit.digest_document import CausePart
from trimtab.emit.sections.digest import digest_page
from trimtab.emit.writers import mail, markdown, slack, teams, terminal

VERSION = "0.1.0"


def pretty(text):
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("digest", [fleet_digest(), team_digest()], ids=["fleet", "team"])
@pytest.mark.parametrize(
    ("ending", "write"),
    [
        ("txt", lambda page: terminal.write_page(page, width=80, colour=False)),
        ("md", markdown.write_page),
        ("html", mail.write_page),
        ("slack.json", lambda page: pretty(slack.write_page(page))),
        ("teams.json", lambda page: pretty(teams.write_page(page))),
    ],
)
def test_a_form_is_as_its_golden_file(golden, digest, ending, write):
    name = "fleet" if digest.team is None else "team"

    golden(f"digest-{name}.{ending}", write(digest_page(digest, VERSION)))


def test_a_part_of_a_week_is_said_to_be_compared_by_the_hour():
    page = digest_page(fleet_digest(), VERSION)

    assert any(
        "Compared by cost per covered hour: 2026-W43 (96 of 168 h of it are known)" in note for note in page.notes
    )
    assert any(note.startswith("93% of the GPU-hours held have readings") for note in page.notes)


def test_without_a_former_week_no_form_shows_a_change():
    page = digest_page(team_digest(), VERSION)

    for text in (slack.write_page(page), teams.write_page(page), mail.write_page(page), markdown.write_page(page)):
        assert "no former week to compare with" in text
        assert "$0" not in text


@pytest.mark.chromium
def test_a_browser_draws_the_mail(chromium_bin, tmp_path):
    file, picture = tmp_path / "mail.html", tmp_path / "mail.png"
    file.write_text(mail.write_page(digest_page(fleet_digest(), VERSION)))

    subprocess.run(
        [chromium_bin, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={picture}", "--window-size=760,1500",
         f"--user-data-dir={tmp_path}", file.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip

    assert picture.stat().st_size > 20_000


def test_dollars_that_stand_together_add_up_where_cents_are_not_shown():
    """Three rows of 40 cents are $1, not $0, and all that names a change names the same dollars."""
    forty_cents = tuple(payer(name, 10.4, 10.0, whole=31.2) for name in ("a", "b", "c"))
    causes = tuple(CausePart(cause=name, usd=0.4, mostly=()) for name in ("hours", "price", "nodes"))
    steps = tuple(todo(name, name, "stop it", 10.5, 1, "low") for name in ("a1", "a2", "a3"))
    digest = fleet_digest().model_copy(
        update={
            "usd": 31.2,
            "former": fleet_digest().former.model_copy(update={"usd": 30.0}),
            "payers": forty_cents,
            "causes": causes,
            "todos": fleet_digest().todos.model_copy(update={"actions": steps, "left": 0, "saving_usd_mo": 31.5}),
        }
    )
    page = digest_page(digest.model_copy(update={"change_usd": 1.2}), VERSION)
    text = " ".join(terminal.write_page(page, width=100, colour=False).split())

    for name in ("What it costs", "What changed"):
        part = text.partition(name)[2]
        assert sum(int(found) for found in re.findall(r"[+-]\$(\d+)", part.partition("What")[0])) == 2, name
    assert "mostly hours (+$1)" in text
    saved = [int(found) for found in re.findall(r"Saves \$(\d+) a month", text)]
    assert sum(saved) == 32
    assert "Together $32 a month" in text

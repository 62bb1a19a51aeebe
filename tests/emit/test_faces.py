"""Golden files of the textual faces, and what holds for each of them."""

import csv
import io
import json

import pytest
import yaml
from tests.emit.example import example_audit

from trimtab.cli.audit.run import COLUMNS, render_csv, render_github_comment, render_markdown
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import render_json, render_yaml
from trimtab.emit.explain import action_lines, explain_action
from trimtab.emit.html.charts import phone_waterfall, waterfall
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.sections.finance import finance_page
from trimtab.emit.writers import html, terminal
from trimtab.emit.writers.comment import marker


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


def renamed(document, **fields):
    action = document.plan.actions[0].model_copy(update=fields)
    return document.model_copy(update={"plan": document.plan.model_copy(update={"actions": (action,)})})


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("audit.md", render_markdown),
        ("comment.md", render_github_comment),
        ("actions.csv", render_csv),
    ],
)
def test_a_face_is_as_its_golden_file(document, golden, name, render):
    golden(name, render(document))


@pytest.fixture(scope="module")
def with_cents(document):
    """A plan whose bill, saving and shares do not add up when each is rounded by itself."""
    plan = document.plan
    actions = [action.model_copy(update={"saving_usd_mo": 100.4}) for action in plan.actions]
    saved, before = round(100.4 * len(actions), 2), 200121.4
    update = {
        "actions": tuple(actions),
        "before_usd_mo": before,
        "joint_saving_usd_mo": saved,
        "objective_usd_mo": round(before - saved, 2),
    }
    return document.model_copy(update={"bill_usd_mo": before, "plan": plan.model_copy(update=update)})


def test_figures_that_stand_together_add_up_and_are_the_same_on_every_face(with_cents):
    plan = with_cents.plan
    today, saved, left = round(plan.before_usd_mo), round(plan.joint_saving_usd_mo), plan.shown_bill_usd_mo()
    assert today - saved == left != round(plan.objective_usd_mo)
    shares = plan.shown_savings_usd_mo()
    assert sum(shares.values()) == saved
    assert set(shares.values()) == {100, 101}

    pages = [audit_page(with_cents), finance_page(with_cents)]
    for face in [
        text for page in pages for text in (terminal.write_page(page, width=100, colour=False), html.write_page(page))
    ]:
        assert f"${today:,}" in face
        assert f"${left:,}" in face
        assert f"{saved:,}" in face
        assert f"{left + 1:,}" not in face
    for picture in (waterfall(with_cents), phone_waterfall(with_cents)):
        assert f">${left:,}<" in picture
    for action, usd_mo in shares.items():
        assert f"  {action:<4}{f'${usd_mo}':>9} a month" in action_lines(with_cents)


@pytest.mark.parametrize("name", ["a1", "a3", "a8"])
def test_an_explanation_is_as_its_golden_file(document, golden, name):
    golden(f"explain-{name}.txt", explain_action(document, document.action(name)))


def test_an_explanation_fits_80_columns(document):
    for action in document.plan.actions:
        assert max(len(line) for line in explain_action(document, action).splitlines()) <= 80


def test_an_explanation_has_evidence_sums_basis_targets_canary_and_rollback(document):
    text = explain_action(document, document.action("a8"))

    for section in ("evidence", "Arithmetic", "How sure", "must keep", "small part first", "Rollback"):
        assert section in text
    assert "$32,480.91" in text
    assert "prod/chat-api: 95% of requests answered within 4 s" in text


def test_yaml_holds_the_same_as_json(document):
    assert yaml.safe_load(render_yaml(document)) == json.loads(render_json(document))


def test_csv_savings_sum_to_the_joint_saving(document):
    rows = list(csv.DictReader(io.StringIO(render_csv(document))))

    assert list(rows[0]) == list(COLUMNS)
    assert round(sum(float(row["saving_usd_mo"]) for row in rows), 2) == document.plan.joint_saving_usd_mo


def test_csv_text_is_not_run_as_a_formula_by_a_spreadsheet(document):
    text = render_csv(renamed(document, subject="=cmd|' /C calc'!A1"))

    assert next(csv.DictReader(io.StringIO(text)))["subject"].startswith("'=")


def test_markdown_shows_names_as_they_are(document):
    text = render_markdown(renamed(document, subject="a|b_c*<script>"))

    assert r"a\|b\_c\*\<script\>" in text


def test_every_markdown_row_has_as_many_cells_as_its_head(document):
    blocks = render_markdown(document).split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]

    assert len(tables) == 11
    for rows in tables:
        assert {row.replace(r"\|", "").count("|") for row in rows} == {rows[0].count("|")}


def test_a_comment_begins_with_its_marker(document):
    assert render_github_comment(document).startswith(marker("audit"))


def test_a_comment_on_a_large_fleet_is_shorter_than_github_allows_and_names_what_was_missed(document):
    plan, proof = document.plan, document.proof
    large = document.model_copy(
        update={
            "plan": plan.model_copy(
                update={"actions": plan.actions * 30, "not_worth_doing": plan.not_worth_doing * 300}
            ),
            "proof": proof.model_copy(update={"targets": proof.targets[:4] * 500 + proof.targets[4:5]}),
            "unjudged": document.unjudged * 1000,
        }
    )

    text = render_github_comment(large)

    assert len(text) < 65_536
    assert "260 more actions" in text
    assert "| research/nlp-exp |" in text

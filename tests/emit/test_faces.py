"""Golden files of the textual faces, and what holds for each of them."""

import csv
import io
import json

import pytest
import yaml
from tests.emit.example import example_audit

from trimtab.cli.audit.run import COLUMNS, render_csv, render_github_comment, render_markdown
from trimtab.emit.audit_data import render_json, render_yaml
from trimtab.emit.audit_document import audit_document
from trimtab.emit.explain import explain_action
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

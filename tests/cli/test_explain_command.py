import json

import pytest
from click.testing import CliRunner
from tests.emit.example import example_audit
from tests.plan.test_verify import kept

from trimtab.cli import root
from trimtab.cli.kept_audits import keep, recall, state_folder
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import render_json
from trimtab.errors import InputError, UnknownName, UsageError


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


@pytest.fixture
def folder(tmp_path, monkeypatch, document):
    """A working folder in which an audit was made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)
    keep(document, kept())
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(root, ["explain", *arguments], catch_exceptions=True)


def test_an_action_of_the_last_audit_is_explained(folder):
    shown = run("a3")

    assert shown.exit_code == 0
    assert "Why: the evidence" in shown.output
    assert "$41,218.66" in shown.output


def test_without_an_id_the_actions_are_listed_in_80_columns(folder):
    shown = run()

    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:] if "a month" in line] == [
        f"a{n}" for n in range(1, 10)
    ]
    assert max(len(line) for line in shown.output.splitlines()) <= 80


def test_an_unknown_id_is_answered_with_near_matches(folder):
    shown = run("b3")

    assert isinstance(shown.exception, UnknownName)
    assert "a3" in str(shown.exception)


def test_an_action_comes_as_json_too(folder):
    assert json.loads(run("a8", "-o", "json").output)["id"] == "a8"


def test_an_audit_kept_in_a_file_is_explained(tmp_path, document):
    file = tmp_path / "monday.json"
    file.write_text(render_json(document), encoding="utf-8")

    assert "Rollback" in run("a1", "--audit", str(file)).output


def test_where_no_audit_was_made_the_cure_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)

    shown = run("a1")

    assert isinstance(shown.exception, InputError)
    assert "trimtab audit --demo" in str(shown.exception)


def test_the_last_audit_is_spoken_of_and_stays_out_of_version_control(folder, document):
    later = document.model_copy(update={"fleet": "another"})

    keep(later, kept())

    assert recall() == later
    assert (state_folder() / ".gitignore").read_text() == "*\n"


def test_the_state_folder_is_where_the_environment_says(tmp_path, monkeypatch, document):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "deep" / "state"))

    assert keep(document, kept()).is_relative_to(tmp_path / "deep" / "state")
    assert recall() == document


def test_a_workload_is_explained_by_its_verdict_and_why_not_more(folder, document):
    shown = run("prod/chat-api")

    words = " ".join(shown.output.split())
    (verdict,) = [verdict for verdict in document.verdicts if verdict.workload == "prod/chat-api"]
    (refused,) = [row for row in document.plan.not_worth_doing if row.subject == "prod/chat-api"]
    assert shown.exit_code == 0
    assert verdict.headline in words
    assert f"a8 {document.action('a8').subject}" in words
    assert refused.reason in words
    assert max(len(line) for line in shown.output.splitlines()) <= 80


def test_a_workload_that_was_not_judged_says_why(folder, document):
    assert document.unjudged[0].reason in " ".join(run("notebooks/chen").output.split())


def test_what_nobody_holds_is_no_workload(folder):
    assert isinstance(run("held by nobody").exception, UnknownName)


def test_a_workload_has_no_form_for_programs_of_its_own(folder):
    shown = run("prod/chat-api", "-o", "json")

    assert isinstance(shown.exception, UsageError)
    assert "trimtab audit -o json" in str(shown.exception)

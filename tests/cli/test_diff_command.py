import json

import pytest
from click.testing import CliRunner
from tests.emit.example import example_audit
from tests.plan.test_verify import kept

from trimtab.cli import root
from trimtab.cli.kept_audits import find, keep, kept_audits, number_of
from trimtab.emit.audit_document import audit_document
from trimtab.errors import UnknownName


@pytest.fixture
def document(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    return audit_document(example_audit())


def less(document):
    """The same audit without its first action, and with another saving of the second."""
    _, second, *others = document.plan.actions
    changed = second.model_copy(update={"saving_usd_mo": second.saving_usd_mo + 100})
    return document.model_copy(update={"plan": document.plan.model_copy(update={"actions": (changed, *others)})})


def test_the_last_two_audits_are_compared_action_by_action(document):
    keep(document, kept())
    keep(less(document), kept())

    shown = CliRunner().invoke(root, ["diff", "-o", "json"])

    rows = json.loads(shown.stdout)["rows"]
    first, second, third, *_ = document.plan.actions
    change = {(row["lever"], row["subject"]): row["change"] for row in rows}
    assert change[first.lever, first.subject] == "gone"
    assert change[second.lever, second.subject] == "changed"
    assert change[third.lever, third.subject] == "same"


def test_the_bill_and_the_saving_are_compared(document):
    keep(document, kept())
    keep(document, kept())

    shown = CliRunner().invoke(root, ["diff", "1", "2"])

    assert shown.exit_code == 0
    assert "(+0)" in shown.output


def test_a_comment_has_its_hidden_first_line_the_rows_and_the_bill(document):
    keep(document, kept())
    keep(less(document), kept())

    shown = CliRunner().invoke(root, ["diff", "-o", "github-comment"])

    assert shown.stdout.startswith("<!-- trimtab diff -->\n\n### What changed between two audits")
    assert "| gone |" in shown.stdout
    assert "saving" in shown.stdout


def test_an_audit_is_added_and_none_is_replaced(document):
    assert [number_of(keep(document, kept())) for _ in range(3)] == [1, 2, 3]
    assert number_of(find("-1")) == 3


def test_a_folder_that_a_crash_left_unfinished_is_no_audit(document):
    first = keep(document, kept())
    (first.parent / ".half").mkdir()

    assert list(map(number_of, kept_audits())) == [1]


def test_an_audit_that_is_not_there_is_named_with_those_that_are(document):
    keep(document, kept())

    with pytest.raises(UnknownName, match="7"):
        find("7")


def with_targets(document, *targets):
    return document.model_copy(update={"proof": document.proof.model_copy(update={"targets": targets})})


@pytest.mark.parametrize(
    ("update", "change"),
    [
        ({}, None),
        ({"limit_s": 8.0, "target": "95% of requests answered within 8 s"}, "target loosened"),
        ({"required_frac": 0.9}, "target loosened"),
        ({"limit_s": 2.0}, None),
        ({"declared": False}, "target dropped"),
    ],
)
def test_a_declared_target_that_is_gone_or_looser_is_listed(document, update, change):
    target = next(one for one in document.proof.targets if one.declared)
    keep(document, kept())
    keep(with_targets(document, target.model_copy(update=update)), kept())

    rows = json.loads(CliRunner().invoke(root, ["diff", "-o", "json"]).stdout)["rows"]

    assert [row["change"] for row in rows if row["subject"] == target.workload] == ([change] if change else [])


def test_two_quantiles_of_one_metric_are_each_held_against_their_own(document):
    target = next(one for one in document.proof.targets if one.declared and one.limit_s is not None)
    tail = target.model_copy(update={"required_frac": 0.99, "limit_s": 9.0, "target": "99% within 9 s"})
    slower = target.model_copy(update={"limit_s": 8.0, "target": "95% within 8 s"})
    keep(with_targets(document, target, tail), kept())
    keep(with_targets(document, slower, tail), kept())
    keep(with_targets(document, slower), kept())

    def rows(first, second):
        shown = CliRunner().invoke(root, ["diff", first, second, "-o", "json"])
        return [(row["change"], row["effect"]) for row in json.loads(shown.stdout)["rows"] if "target" in row["change"]]

    assert rows("1", "1") == []
    assert rows("1", "2") == [("target loosened", f"{target.target} -> 95% within 8 s")]
    assert rows("2", "3") == [("target dropped", "99% within 9 s -> nothing")]


def test_audits_that_another_user_kept_are_left_aside_unless_they_are_trusted(document, tmp_path, monkeypatch, caplog):
    keep(document, kept())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))

    assert kept_audits() == []
    assert "no seal of yours" in caplog.text
    assert number_of(keep(document, kept())) == 2

    monkeypatch.setenv("TRIMTAB_TRUST_STATE", "1")
    assert list(map(number_of, kept_audits())) == [1, 2]


def test_a_kept_audit_that_was_changed_is_left_aside(document):
    one = keep(document, kept())
    file = one / "kept.jsonl"
    file.write_text(file.read_text().replace('"saving', '"Saving', 1))

    assert kept_audits() == []

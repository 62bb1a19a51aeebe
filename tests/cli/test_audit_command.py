"""`trimtab audit` from its arguments to its exit code, on the smallest demonstration fleet."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
from openpyxl import load_workbook

from trimtab.cli import main
from trimtab.cli.kept_audits import recall, recall_fleet
from trimtab.emit.document import published_schema


def run(capsys, *arguments):
    """Run the program; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """One audit, as JSON into a file, in a folder of its own, with a limit that its savings are above."""
    folder = tmp_path_factory.mktemp("audit")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["audit", "--demo", "finetune-7b", "-o", "json", "--out", "audit.json", "--fail-over", "1000"])
    finally:
        os.chdir(before)
    return folder, ended.value.code, json.loads((folder / "audit.json").read_text(encoding="utf-8"))


def test_savings_above_the_limit_end_with_exit_code_10(audited):
    assert audited[1] == 10


def test_the_json_of_a_real_audit_satisfies_the_published_schema(audited):
    jsonschema.Draft202012Validator(json.loads(published_schema())).validate(audited[2])


def test_the_money_of_a_real_audit_adds_up_to_the_cent(audited):
    document = audited[2]

    def cents(rows, key):
        return sum(round(row[key] * 100) for row in rows)

    assert cents(document["waste"], "usd_mo") == round(document["bill_usd_mo"] * 100)
    assert cents(document["plan"]["actions"], "saving_usd_mo") == round(document["plan"]["joint_saving_usd_mo"] * 100)
    for table in document["spend"].values():
        assert cents(table, "usd_mo") == round(document["bill_usd_mo"] * 100)


def test_a_demonstration_leaves_a_report_and_an_audit_to_explain(audited, monkeypatch, capsys):
    folder = audited[0]
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)

    code, out, _ = run(capsys, "explain", audited[2]["plan"]["actions"][0]["id"])

    assert code == 0
    assert "Rollback" in out
    assert recall_fleet() == recall().fleet == "demo finetune-7b"
    assert (folder / "trimtab-report" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    finance = (folder / "trimtab-report" / "finance.html").read_text(encoding="utf-8")
    assert f"${audited[2]['plan']['joint_saving_usd_mo']:,.0f}" in finance
    assert "What is committed" in finance


def test_a_workbook_has_the_tables_of_the_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    code, out, _ = run(capsys, "audit", "--demo", "finetune-7b", "-q", "-o", "xlsx", "--out", "audit.xlsx")

    book = load_workbook(tmp_path / "audit.xlsx")
    assert (code, out) == (0, "")
    assert book.sheetnames[:2] == ["Summary", "Workloads"]
    figures = {row[0].value: row[1] for row in book["Summary"].iter_rows(min_row=2)}
    assert figures["bill today, $ a month"].value == pytest.approx(recall().bill_usd_mo)
    assert figures["bill today, $ a month"].number_format == "[$$-409]#,##0.00"


def test_where_nothing_can_be_written_the_answer_is_still_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)
    for name in (".trimtab", "trimtab-report"):
        (tmp_path / name).write_text("a file in the way")

    code, out, err = run(capsys, "audit", "--demo", "finetune-7b")

    assert code == 0
    assert "The bill is" in out
    assert "the audit was not kept" in err
    assert "cannot write trimtab-report" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "give the folder of a bundle (trimtab audit fleet/)"),
        (
            ("--demo", "finetune-7b", "--from", "14d"),
            2,
            "--from and --to choose the window of a server; --demo is read whole",
        ),
        (("--demo", "finetune-7b", "."), 2, "BUNDLE and --demo name different histories"),
        (("--demo", "finetune-8b"), 1, "did you mean finetune-7b"),
        (("--demo", "--fields", "plan"), 2, "--fields goes with -o json, yaml or csv"),
        (("--demo", "-o", "json", "--fields", "plans"), 1, "did you mean plan"),
        (("--demo", "-o", "csv", "--fields", "saving"), 1, "saving_basis"),
        (("--demo", "-o", "xlsx"), 2, "needs a file"),
        (("--demo", "--out", "nowhere/x.json"), 2, "there is no folder nowhere"),
        (("--demo", "--set", "planning.proof=0.2"), 1, "planning.proof_frac"),
        (("--demo", "--at", "yesterday"), 2, "is not a date"),
        (("no-such-bundle",), 2, "does not exist"),
        (("--fail-over", "-5", "--demo"), 2, "-5"),
    ],
)
def test_a_fault_in_the_arguments_is_told_before_any_work(tmp_path, monkeypatch, capsys, arguments, code, said):
    monkeypatch.chdir(tmp_path)

    ended, out, err = run(capsys, "audit", *arguments)

    assert (ended, out) == (code, "")
    assert said in err


def test_an_empty_folder_is_no_bundle(tmp_path, capsys):
    code, _, err = run(capsys, "audit", str(tmp_path))

    assert code == 1
    assert "bundle.yaml" in err


def test_settings_are_shown_with_their_origin_without_an_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_PLANNING_ENGINEERS", "2")

    code, out, _ = run(capsys, "audit", "--show-settings", "--set", "planning.proof_frac=0.5", "-o", "json")

    rows = {row["setting"]: row for row in json.loads(out)["rows"]}
    assert code == 0
    assert rows["planning.engineers"]["from"] == "TRIMTAB_PLANNING_ENGINEERS"
    assert rows["planning.proof_frac"] == {"setting": "planning.proof_frac", "value": 0.5, "from": "--set"}

import json

import pytest
from click.testing import CliRunner
from openpyxl import load_workbook
from tests.emit.example import example_audit
from tests.plan.test_verify import SERVICES, after, kept

from trimtab.cli import root
from trimtab.cli.kept_audits import keep
from trimtab.emit.audit_document import audit_document
from trimtab.tables.bundle import write_bundle


@pytest.fixture
def later(tmp_path, monkeypatch):
    """A kept plan in the state folder, and a later bundle on disk in which half of one action was enacted."""
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    keep(audit_document(example_audit()), kept())
    bundle = after(SERVICES[:1])
    write_bundle(tmp_path / "later", bundle.tables, bundle.meta, bundle.workloads)
    return tmp_path / "later"


def test_the_table_says_how_each_action_did_and_what_became_of_the_bill(later):
    result = CliRunner().invoke(root, ["verify", str(later), "-q"])

    assert result.exit_code == 0
    assert "short" in result.output
    assert "on track" in result.output
    assert "the bill then" in result.output


def test_json_carries_every_figure_with_its_unit(later):
    result = CliRunner().invoke(root, ["verify", str(later), "-q", "-o", "json"])

    rows = json.loads(result.stdout)["rows"]
    assert [row["status"] for row in rows] == ["short", "on track"]
    assert rows[0]["realised_usd_mo"] == pytest.approx(rows[0]["predicted_usd_mo"] / 2, rel=1e-4)
    assert "web/b" in rows[0]["cause"]


def test_a_workbook_carries_the_named_columns_of_the_actions(later, tmp_path):
    asked = ["-o", "xlsx", "--out", str(tmp_path / "v.xlsx"), "--fields", "status,realised_usd_mo"]

    result = CliRunner().invoke(root, ["verify", str(later), "-q", *asked])

    rows = list(load_workbook(tmp_path / "v.xlsx")["actions"].iter_rows(values_only=True))
    assert result.exit_code == 0
    assert rows[0] == ("status", "realised_usd_mo")
    assert [status for status, _ in rows[1:]] == ["short", "on track"]


def test_a_comment_shows_the_actions_and_folds_the_rest_away(later):
    result = CliRunner().invoke(root, ["verify", str(later), "-q", "-o", "github-comment"])

    first, *_ = result.stdout.splitlines()
    shown, folded = result.stdout.split("<details>", 1)
    assert first == "<!-- trimtab verify -->"
    assert "on track" in shown
    assert "How it is bought" in folded


def test_without_a_kept_plan_the_cure_is_named(later, monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "empty"))

    result = CliRunner().invoke(root, ["verify", str(later), "-q"])

    assert result.exit_code != 0
    assert "trimtab audit" in str(result.exception)

import json

from tests.tables.bundles import META, tables

from trimtab.catalog import load_catalog
from trimtab.cli.held import held_machines
from trimtab.tables.bundle import memory_bundle


def test_what_an_audit_does_not_take_of_a_list_is_said(tmp_path, capsys):
    plan = {"savingsPlanId": "sp-1", "savingsPlanType": "Compute", "commitment": "12.5", "state": "active"}
    path = tmp_path / "held.json"
    path.write_text(
        json.dumps({"savingsPlans": [{**plan, "start": "2026-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z"}]})
    )

    assert held_machines(path, load_catalog(), memory_bundle(tables(), META)) == ()

    assert "sp-1 (Compute): a commitment to spend" in capsys.readouterr().err


def test_no_file_holds_nothing():
    assert held_machines(None, load_catalog(), memory_bundle(tables(), META)) == ()

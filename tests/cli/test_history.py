import json
from pathlib import Path

from tests.tables.bundles import META, tables

from trimtab.catalog import load_catalog
from trimtab.cli.history import HistoryChoice, held_commitments
from trimtab.cli.options import parsed
from trimtab.cli.server_options import ServerOptions
from trimtab.tables.bundle import memory_bundle


def test_commitments_to_spend_are_held_beside_those_to_machines(tmp_path, capsys):
    plan = {"savingsPlanId": "sp-1", "savingsPlanType": "Compute", "commitment": "12.5", "state": "active"}
    path = tmp_path / "held.json"
    path.write_text(
        json.dumps({"savingsPlans": [{**plan, "start": "2026-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z"}]})
    )

    (held,) = held_commitments(path, load_catalog(), memory_bundle(tables(), META))

    assert (held.name, held.scope.provider, held.scope.usd_hr) == ("sp-1 (Compute)", "aws", 12.5)
    assert capsys.readouterr().err == ""


def test_no_file_holds_nothing():
    assert held_commitments(None, load_catalog(), memory_bundle(tables(), META)) == ()


def test_a_history_is_chosen_where_no_command_line_runs():
    HistoryChoice(bundle=Path("fleet"), demo=None, demo_trace=None, source=parsed(ServerOptions, [])).check()

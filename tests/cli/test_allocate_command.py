import json
from datetime import date

import pytest
from tests.tables.bundles import META, allocation, device, node, tables

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.cli import COMMANDS, main
from trimtab.tables.bundle import write_bundle


@pytest.fixture
def fleet(tmp_path):
    held = [
        allocation(gpus=gpus, pod=f"p{n}", workload=f"ns/{n}", device=None) for n, gpus in enumerate((1.0, 2.0, 0.7))
    ]
    rows = {"nodes": [node()], "devices": [device()], "allocations": held, "gpu_usage": []}
    write_bundle(tmp_path / "fleet", tables(**rows), META)
    return str(tmp_path / "fleet")


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["allocate", *arguments])
    return exit_.value.code


def test_its_help_has_the_line_of_the_list_and_examples(capsys):
    assert run("--help") == 0

    out = capsys.readouterr().out
    assert COMMANDS["allocate"][1] in " ".join(out.split())
    assert "trimtab allocate --demo" in out


@pytest.mark.parametrize("rule", ["show", "spread"])
def test_the_cents_of_the_rows_sum_to_the_bill(fleet, capsys, rule):
    assert run(fleet, "-q", "--by", "workload", "--idle", rule, "-o", "json") == 0

    rows = json.loads(capsys.readouterr().out)["rows"]
    rate = load_catalog().prices.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND, at=date(2026, 9, 3))
    assert sum(round(row["usd"] * 100) for row in rows) == round(48 * rate.usd_hr * 100)
    assert len(rows) == (4 if rule == "show" else 3)


def test_a_table_states_the_sum_and_the_window(fleet, capsys):
    assert run(fleet, "-q") == 0

    out = capsys.readouterr().out
    assert "the bill of 1 Sep 2026 to 3 Sep 2026" in out
    assert max(len(line) for line in out.splitlines()) <= 80

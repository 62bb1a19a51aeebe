"""What to buy: audit, explain, emitted order, commit and verify give one answer for one fleet and one day."""

import json
from datetime import date, timedelta

import pytest
from tests.fleets import MONDAY, FleetRows

from trimtab.tables.bundle import write_bundle

DAYS, NODES = 42, 5
LAST = (MONDAY + timedelta(days=DAYS)).date()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Five nodes in use at all hours, and one of the same type that nobody holds."""
    rows = FleetRows(DAYS).node("idle", "p4d.24xlarge")
    for n in range(NODES):
        rows.node(f"n{n}", "p4d.24xlarge").hold("web/api", f"n{n}", range(8), owner_kind="Deployment")
        for device in range(8):
            rows.use("web/api", f"n{n}", device, range(DAYS * 24), sm=0.8, memory_gib=39.0)
    bundle = rows.bundle()
    write_bundle(tmp_path / "fleet", {name: bundle.table(name) for name in bundle.tables}, bundle.meta)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_PRICES", raising=False)
    return tmp_path


def order_rows(text):
    """Return (day, nodes) of the tranches of an order."""
    rows = [line.split("|") for line in text.splitlines() if line.endswith(("node |", "nodes |"))]
    return [(date.fromisoformat(row[1].strip()), int(row[2].split()[0])) for row in rows]


def test_every_command_says_the_same_tranches_and_nothing_is_bought_for_an_idle_node(folder, program):
    code, out, err = program("audit", "fleet", "-q", "-o", "json")
    assert code == 0, err
    document = json.loads(out)
    (buy,) = [action for action in document["plan"]["actions"] if action["lever"] == "commitment"]
    assert buy["subject"] == f"{NODES} x p4d.24xlarge"
    assert buy["quarter"] == 1

    code, _, err = program("emit", "--out", "manifests")
    assert code == 0, err
    (order,) = (folder / "manifests" / "orders").glob("*buy*.md")
    tranches = order_rows(order.read_text(encoding="utf-8"))
    assert tranches[0][0] >= LAST
    assert sum(nodes for _, nodes in tranches) == NODES
    said = f"commit to {NODES} x p4d.24xlarge for 1 year: " + ", ".join(f"{nodes} on {day}" for day, nodes in tranches)
    assert buy["effect"] == said
    assert order.name in (folder / "manifests" / "APPLY.md").read_text(encoding="utf-8")

    _, out, _ = program("explain", buy["id"])
    assert said in " ".join(out.split())

    code, out, err = program("commit", "fleet", "-q", "-o", "json")
    assert code == 0, err
    steps = json.loads(out)["steps"]
    assert [(LAST + timedelta(days=row["day"]), row["buy_nodes"]) for row in steps] == tranches

    code, out, err = program("verify", "fleet", "-q", "-o", "json")
    assert code == 0, err
    (bought,) = [row for row in json.loads(out)["purchases"] if row["instance_type"] == "p4d.24xlarge"]
    assert said in bought["advice"]


def test_the_record_and_order_say_that_it_binds_and_what_it_costs_if_the_use_halves(folder, program):
    program("audit", "fleet", "-q", "-o", "json")
    program("emit", "--out", "manifests")
    (record,) = (folder / "manifests" / "decisions").glob("commitment-*.md")
    (order,) = (folder / "manifests" / "orders").glob("*buy*.md")

    text = record.read_text(encoding="utf-8")
    assert "cannot be undone" in text
    assert "it can be undone" not in text
    for page in (text, order.read_text(encoding="utf-8")):
        assert "if the use halves after the purchase: -$" in page


def test_on_less_than_four_weeks_commit_buys_nothing_as_the_audit_does_and_says_why(folder, program):
    rows = FleetRows(21).node("n", "p4d.24xlarge").hold("web/a", "n", range(8), owner_kind="Deployment")
    for device in range(8):
        rows.use("web/a", "n", device, range(21 * 24), sm=0.8, memory_gib=39.0)
    bundle = rows.bundle()
    write_bundle(folder / "short", {name: bundle.table(name) for name in bundle.tables}, bundle.meta)

    _, out, _ = program("commit", "short", "-q", "-o", "json")

    document = json.loads(out)
    assert document["steps"] == []
    assert any("a purchase needs 28" in line for line in document["held_beside"])

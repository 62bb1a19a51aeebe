"""Nodes without a price and GPUs that nobody knows are carried, unjudged, and never keep the rest from an answer."""

import math

import pytest
from click.testing import CliRunner
from tests.fleets import SHAPES, FleetRows

from trimtab.cli import root
from trimtab.errors import MissingPrice
from trimtab.pipeline import audit, priced_history
from trimtab.tables.bundle import write_bundle

SHAPES["mystery.8x"] = ("Riva X900", 8, 64.0)


def service(rows, name, node, instance_type, gpus=1):
    rows.node(node, instance_type).hold(name, node, range(gpus), pod=f"{name}-0")
    for device in range(gpus):
        rows.use(name, node, device, range(rows.days * 24), sm=lambda hour: 0.2 + 0.1 * math.sin(hour / 4))
    return rows


def mixed(**changes):
    """A service and an idle node that are priced, and a service on a type of GPUs that no list knows."""
    rows = service(FleetRows(4), "a/known", "n", "g5.xlarge")
    service(rows, "a/mystery", "m", "mystery.8x", gpus=8).node("spare", "g5.xlarge").node("idle", "mystery.8x")
    for row in rows.rows["nodes"]:
        if row["instance_type"] == "mystery.8x":
            row.update(changes)
    return rows.bundle()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"provider": "unknown", "instance_type": "unknown", "region": "unknown"},
        {"provider": "owned", "region": "on-prem", "capacity_type": "owned"},
        {"instance_type": "g5.xlarge", "region": "atlantis-1"},
    ],
)
def test_nodes_without_a_price_are_carried_and_the_rest_is_audited(changes):
    found = audit(mixed(**changes))

    assert [(row.workload, row.micro_usd) for row in found.unjudged] == [("a/mystery", 0)]
    assert "no price is known for its nodes" in found.unjudged[0].reason
    assert any(
        "2 node(s) of" in line and "carried at $0" in line and "--prices FILE" in line for line in found.degraded
    )
    assert found.bill_micro_usd > 0
    released = {
        name
        for action in found.plan.actions
        for change in action.changes
        for name in getattr(change.effect, "nodes", ())
    }
    assert released == {"spare"}


def test_gpus_that_nobody_knows_on_nodes_with_a_price_are_billed():
    rows = service(FleetRows(4), "a/known", "n", "g5.xlarge")
    service(rows, "b/odd", "m", "g5.12xlarge", gpus=4)
    for row in (*rows.rows["nodes"][1:], *rows.rows["devices"][1:]):
        row["gpu"] = "Riva X900"

    found = audit(rows.bundle())

    bill_usd_hr = found.bill_micro_usd / 1e6 / found.plan.window.hours
    assert bill_usd_hr == pytest.approx(1.006 + 5.672, rel=1e-3)


def test_the_bill_of_the_others_is_split_without_them():
    fleet, allocation = priced_history(mixed())

    costs = dict(zip([one.name for one in fleet.workloads], allocation.by_owner(2), strict=True))
    assert costs["a/mystery"] == 0
    assert costs["a/known"] > 0


def test_commit_and_allocate_answer_for_the_others_and_say_what_has_no_price(tmp_path):
    bundle = mixed()
    write_bundle(tmp_path / "fleet", bundle.tables, bundle.meta)

    for command in ("allocate", "commit"):
        shown = CliRunner().invoke(root, [command, str(tmp_path / "fleet")])
        assert shown.exit_code == 0, shown.output
        assert "node(s) of mystery.8x on-demand in" in " ".join(shown.output.split())


def test_a_fleet_of_which_nothing_has_a_price_is_refused_by_name():
    rows = service(FleetRows(4), "a/mystery", "m", "mystery.8x", gpus=8)

    with pytest.raises(MissingPrice, match=r"no node of the fleet has a price.*\n.*mystery\.8x"):
        audit(rows.bundle())

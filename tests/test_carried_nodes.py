"""Nodes without a price and GPUs that nobody knows are carried, unjudged, and never keep the rest from an answer."""

import math
from datetime import date

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from tests.fleets import SHAPES, FleetRows, at

from trimtab.catalog import load_catalog
from trimtab.cli import root
from trimtab.deployment.effects import BuyCommitment
from trimtab.errors import MissingPrice
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
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
    assert released_nodes(found) == {"spare"}


def with_unknown_gpus(*names, rows=None):
    """A service on a known GPU; one on a priced type whose nodes name a GPU that no catalog has, and such a node idle."""
    rows = rows or service(FleetRows(4), "a/known", "n", "g5.xlarge")
    service(rows, "b/odd", "m", "g5.12xlarge", gpus=4).node("spare", "g5.12xlarge")
    for row in (*rows.rows["nodes"], *rows.rows["devices"]):
        if row["node"] in ("m", "spare", *names):
            row["gpu"] = "Riva X900"
    return rows


def released_nodes(found):
    effects = [change.effect for action in found.plan.actions for change in action.changes]
    return {name for effect in effects for name in getattr(effect, "nodes", ())}


def test_gpus_that_nobody_knows_on_nodes_with_a_price_are_billed_and_left_unjudged():
    found = audit(with_unknown_gpus().bundle())

    hours = found.plan.window.hours
    assert found.bill_micro_usd / 1e6 / hours == pytest.approx(1.006 + 2 * 5.672, rel=1e-6)
    (row,) = found.unjudged
    assert (row.workload, row.micro_usd) == ("b/odd", hours * 5_672_000)
    assert "GPU model Riva X900 is not in the catalog" in row.reason
    assert not released_nodes(found)
    assert "b/odd" not in {change.subject for action in found.plan.actions for change in action.changes}
    assert {result.workload for result in found.proof.targets} <= {"a/known"}
    (line,) = (line for line in found.degraded if "Riva X900" in line)
    assert "2 node(s) of" in line
    assert "$5.67 an hour each" in line


def test_a_name_that_leaves_a_boards_memory_open_is_no_unknown_gpu():
    market = Market.of(load_catalog(), date(2026, 11, 1), Settings())

    named = ["A100", "nvidia-a100-80gb", "NVIDIA H100", "Riva X900", "H100 MEGA", None]

    assert market.unknown_gpus(named) == {"Riva X900", "H100 MEGA"}


def test_a_fleet_of_which_no_gpu_is_known_is_billed_and_keeps_its_plan_empty():
    found = audit(with_unknown_gpus("n").bundle())

    assert {row.workload for row in found.unjudged} == {"a/known", "b/odd"}
    assert found.plan.actions == ()
    assert found.bill_micro_usd == found.plan.before_micro_usd == found.plan.after_micro_usd


def test_a_workload_is_known_by_the_gpus_of_its_own_nodes_where_others_of_that_type_name_another():
    rows = service(FleetRows(4), "a/known", "n", "g5.12xlarge", gpus=4)

    found = audit(with_unknown_gpus(rows=rows).bundle())

    assert [row.workload for row in found.unjudged] == ["b/odd"]


def test_idle_nodes_of_unknown_gpus_back_no_commitment():
    rows = service(FleetRows(35), "a/known", "n", "g5.xlarge")

    found = audit(with_unknown_gpus(rows=rows.node("spare", "g5.12xlarge")).bundle())

    bought = [
        change.effect.count
        for action in found.plan.actions
        for change in action.changes
        if isinstance(change.effect, BuyCommitment) and change.effect.pool.instance_type == "g5.12xlarge"
    ]
    assert sum(bought) <= 1


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


def test_a_plan_beside_boards_that_no_list_prices_is_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "trn2.48xlarge", ("Trainium2", 16, 96.0))
    monkeypatch.chdir(tmp_path)
    rows = service(FleetRows(4), "a/known", "n", "g5.xlarge")
    service(rows, "ml/jax", "t", "trn2.48xlarge", gpus=16)
    bundle = rows.bundle()
    write_bundle(tmp_path / "fleet", {name: bundle.table(name) for name in bundle.tables}, bundle.meta)

    shown = CliRunner().invoke(root, ["audit", str(tmp_path / "fleet")])

    assert shown.exit_code == 0, shown.output
    assert "2 node(s)" not in shown.output
    assert "1 node(s) of trn2.48xlarge" in " ".join(shown.output.split())
    assert "on other boards than Trainium2 is not known" in " ".join(shown.output.split())


def test_a_fleet_of_which_nothing_has_a_price_is_refused_by_name():
    rows = service(FleetRows(4), "a/mystery", "m", "mystery.8x", gpus=8)

    with pytest.raises(
        MissingPrice, match=r"no node of the fleet has a price.*--kube-dump or --context.*\n.*mystery\.8x"
    ):
        audit(rows.bundle())


def charge(rows, node, usd, start=0, end=24, **changes):
    """One charge for a node, by the provider's id of it."""
    row = {
        "ChargePeriodStart": at(start),
        "ChargePeriodEnd": at(end),
        "BilledCost": 0.0,
        "EffectiveCost": usd,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ResourceId": f"arn:aws:ec2:us-east-1:1:instance/{node}",
    }
    rows.rows["costs"].append(row | changes)
    return rows


def billed(*charges, instance_type="mystery.8x"):
    """The mixed fleet, with charges of a bill."""
    rows = service(FleetRows(4), "a/known", "n", "g5.xlarge")
    service(rows, "a/mystery", "m", "mystery.8x", gpus=8).node("idle", "mystery.8x")
    for row in rows.rows["nodes"]:
        if row["instance_type"] == "mystery.8x":
            row["instance_type"] = instance_type
    for node, usd, changes in charges:
        charge(rows, node, usd, **changes)
    return rows.bundle()


DAY_OF_M = ("m", 480.0, {})
"""$20 an hour for the first of four days."""


def carried_usd_hr(fleet):
    (rate,) = fleet.carried_micro_usd_hr.values()
    return rate / 1e6


def test_nodes_that_no_list_has_cost_what_the_bill_says():
    found = audit(billed(DAY_OF_M, ("n", 24.0, {})))

    hours = found.plan.window.hours
    assert found.bill_micro_usd / 1e6 == pytest.approx(hours * (1.006 + 2 * 20), rel=1e-6)
    (row,) = found.unjudged
    assert (row.workload, row.micro_usd) == ("a/mystery", hours * 20_000_000)
    assert "$20.00 an hour" in row.reason
    assert any("2 node(s) of" in line and "$20.00 an hour each" in line and "1 of 2" in line for line in found.degraded)
    assert not any("mystery" in action.title for action in found.plan.actions)


def test_a_fleet_that_only_its_bill_prices_is_not_refused():
    rows = charge(service(FleetRows(4), "a/mystery", "m", "mystery.8x", gpus=8), "m", 480.0)

    found = audit(rows.bundle())

    assert found.bill_micro_usd == found.plan.after_micro_usd == found.plan.window.hours * 20_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"ChargeCategory": "Tax"},
        {"ChargeCategory": "Credit"},
        {"ChargeCategory": "Purchase"},
        {"CommitmentDiscountStatus": "Unused"},
        {"BillingCurrency": "EUR"},
        {"ResourceId": "arn:aws:ec2:us-east-1:1:instance/i-other"},
        {"ResourceId": None},
        {"start": 96, "end": 120},
    ],
)
def test_charges_that_are_not_for_the_use_of_a_node_do_not_price_it(changes):
    fleet, _ = priced_history(billed(("m", 480.0, changes)))

    assert carried_usd_hr(fleet) == 0


@pytest.mark.parametrize(
    ("charges", "usd_hr"),
    [
        ([DAY_OF_M, ("idle", 240.0, {})], 15.0),  # the mean of the two
        ([DAY_OF_M, ("m", 240.0, {"start": 12, "end": 24})], 30.0),  # two charges for the same hours
        ([("m", 480.0, {"EffectiveCost": None, "BilledCost": 240.0})], 10.0),
        ([("m", 960.0, {"start": 72, "end": 120})], 20.0),  # half of its period lies in the window
    ],
)
def test_the_rate_is_cost_over_the_hours_charged(charges, usd_hr):
    fleet, _ = priced_history(billed(*charges))

    assert carried_usd_hr(fleet) == pytest.approx(usd_hr)


def test_nodes_of_unknown_type_share_what_the_bill_has_for_those_that_it_names():
    fleet, _ = priced_history(billed(DAY_OF_M, instance_type="unknown"))

    assert carried_usd_hr(fleet) == pytest.approx(10.0)


def test_a_charge_for_a_month_is_for_the_hours_that_its_node_was_up():
    rows = service(FleetRows(4), "a/known", "n", "g5.xlarge").node("m", "mystery.8x", start=12, end=36)

    fleet, _ = priced_history(charge(rows, "m", 480.0, end=96).bundle())

    assert carried_usd_hr(fleet) == pytest.approx(20.0)


@given(
    st.lists(
        st.tuples(st.sampled_from(("m", "idle")), st.floats(0.01, 500), st.integers(0, 95)), min_size=1, max_size=6
    )
)
@settings(max_examples=25, deadline=None)
def test_nodes_of_unknown_type_never_cost_more_than_was_charged_for_hours_charged(charges):
    rows = [(node, usd, {"start": hour, "end": hour + 1}) for node, usd, hour in charges]

    fleet, _ = priced_history(billed(*rows, instance_type="unknown"))

    charged_hours = len({hour for _, _, hour in charges})
    assert carried_usd_hr(fleet) * 2 * charged_hours == pytest.approx(sum(usd for _, usd, _ in charges), abs=1e-3)


def test_charge_back_at_list_prices_says_what_the_bill_priced(tmp_path):
    bundle = billed(DAY_OF_M)
    write_bundle(tmp_path / "fleet", bundle.tables, bundle.meta)

    shown = CliRunner().invoke(root, ["allocate", str(tmp_path / "fleet"), "--cost", "list"])

    assert shown.exit_code == 0, shown.output
    assert "charged at the bill's rate, $20.00 an hour each" in " ".join(shown.output.split())

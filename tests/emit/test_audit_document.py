from dataclasses import replace

import pytest
from tests.emit.example import example_audit

from trimtab.emit.audit_document import audit_document


def cents(usd: float) -> int:
    return round(usd * 100)


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


def test_waste_and_useful_work_sum_to_the_bill_to_the_cent(document):
    assert sum(cents(row.usd_mo) for row in document.waste) == cents(document.bill_usd_mo)


@pytest.mark.parametrize("by", ["by_kind", "by_team", "by_workload"])
def test_every_spend_table_sums_to_the_bill_to_the_cent(document, by):
    assert sum(cents(row.usd_mo) for row in getattr(document.spend, by)) == cents(document.bill_usd_mo)


def test_token_dollars_sum_to_the_services_share_of_the_bill_to_the_cent(document):
    shares = {row.name: row.usd_mo for row in document.spend.by_workload}

    assert [row.service for row in document.tokens] == ["prod/chat-api", "prod/embed-api"]
    for row in document.tokens:
        parts = (row.input_usd_mo, row.output_usd_mo, row.cached_usd_mo, row.unread_usd_mo)
        assert sum(map(cents, parts)) == cents(row.usd_mo) == cents(shares[row.service])


def test_savings_of_actions_sum_to_the_joint_saving_to_the_cent(document):
    plan = document.plan

    assert sum(cents(action.saving_usd_mo) for action in plan.actions) == cents(plan.joint_saving_usd_mo)
    assert cents(plan.before_usd_mo) - cents(plan.joint_saving_usd_mo) == cents(plan.objective_usd_mo)


def test_a_saving_lies_within_its_interval_after_rounding(document):
    for action in document.plan.actions:
        assert action.saving_low_usd_mo <= action.saving_usd_mo <= action.saving_high_usd_mo


def test_the_bound_is_never_above_the_objective(document):
    assert document.plan.bound_usd_mo <= document.plan.objective_usd_mo


def test_an_action_carries_the_targets_of_the_workloads_it_touches(document):
    scaling = document.action("a8")

    assert {target.workload for target in scaling.targets} == {"prod/chat-api", "prod/search-rank", "prod/embed-api"}
    assert document.action("a1").targets == ()


def test_spend_on_what_an_action_touches_is_unknown_for_nodes_that_no_workload_holds(document):
    assert document.action("a3").spend_usd_mo == pytest.approx(45_870.40 + 34_546.40, abs=0.02)
    assert document.action("a1").spend_usd_mo is None


def test_exact_settings_of_a_change_are_kept(document):
    change = document.action("a8").changes[0]

    assert change.kind == "SetReplicaPolicy"
    assert change.settings["policy"]["target_frac"] == 0.7
    assert change.settings["policy"]["min_replicas"] == 4


def test_hours_without_readings_are_absent_and_not_zero(document):
    assert None in document.pictures.heat_map.activity_frac[6]
    assert None in document.pictures.capacity[0].demand_gpus


def test_an_empty_plan_has_a_document():
    audit = example_audit()
    bill = audit.bill_micro_usd
    plan = replace(audit.plan, actions=(), not_worth_doing=(), after_micro_usd=bill, bound_micro_usd=bill)

    document = audit_document(
        replace(
            audit,
            plan=plan,
            heat_map=replace(audit.heat_map, rows=(), activity_frac=audit.heat_map.activity_frac[:0]),
            capacity=(),
            verdicts=(),
            unjudged=(),
        )
    )

    assert document.plan.joint_saving_usd_mo == 0
    assert document.plan.objective_usd_mo == document.bill_usd_mo

"""What is always judged: each has a sum that follows its assumptions, none is ever silent, none enters the plan."""

from dataclasses import replace

import numpy as np
import pytest
from tests.plan.fleets import nodes_of, so_much, spend_at

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Alternatives, Settings
from trimtab.levers import sharing
from trimtab.plan.alternatives import ResidualBill, alternatives
from trimtab.plan.model import AlternativeKind, NotWorthDoing
from trimtab.plan.program.table import exact_bill
from trimtab.units import HR_PER_MO, micro_usd, usd

HOURS = 168
P4D, P3 = Pool("aws", "p4d.24xlarge", "us-east-1"), Pool("aws", "p3.8xlarge", "us-east-1")


class NoWorkloads:
    workloads = ()


def market():
    settings = Settings()
    return Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=settings.assumptions)


def left(pool, nodes, commitments=()):
    usage = {pool: np.full(HOURS, nodes * 3600)}
    return ResidualBill(bill=exact_bill(usage, market().rates([pool]), commitments, HOURS))


def judged(use, settings=None, shared=()):
    return {one.kind: one for one in alternatives(NoWorkloads(), use, market(), settings or Settings(), shared)}


def test_all_are_always_there_also_where_there_is_nothing_to_gain():
    found = judged(left(Pool("aws", "p3.8xlarge", "us-east-1"), 0))

    assert set(found) == set(AlternativeKind)
    assert not any(one.worth for one in found.values())
    assert all(one.reason and one.assumptions for one in found.values())


def test_another_cloud_saves_the_difference_of_list_rates_and_costs_its_migration():
    found = judged(left(P4D, 2))[AlternativeKind.ANOTHER_CLOUD]
    spend = 2 * usd(market().rate(P4D)) * HR_PER_MO

    assert 0 < found.saving_usd_mo.low < found.saving_usd_mo.value < found.saving_usd_mo.high < spend
    assert found.once_usd == pytest.approx(26 * 4000 + 20_000 * 0.09)
    assert "not" not in found.subject


def test_a_migration_that_costs_too_much_is_not_worth_it():
    dear = replace(Settings(), alternatives=Alternatives(migration_weeks=10_000.0))

    assert not judged(left(P4D, 2), dear)[AlternativeKind.ANOTHER_CLOUD].worth


def test_hardware_is_held_against_the_committed_rate_where_the_plan_commits():
    rate = micro_usd(usd(market().rate(P4D)) / 2)
    held = so_much(2, nodes_of(P4D, rate))
    listed = judged(left(P4D, 2))[AlternativeKind.OWN_HARDWARE]
    committed = judged(left(P4D, 2, (held,)))[AlternativeKind.OWN_HARDWARE]

    difference = 2 * usd(rate) * HR_PER_MO
    assert listed.saving_usd_mo.value - committed.saving_usd_mo.value == pytest.approx(difference, rel=1e-6)
    assert listed.payback_mo < committed.payback_mo


def test_hardware_by_hand():
    found = judged(left(P4D, 1))[AlternativeKind.OWN_HARDWARE]
    listed, stated = usd(market().rate(P4D)), Alternatives()
    capital = listed * 6_000
    annuity = 0.08 / (1 - 1.08**-4)
    power_usd_hr = 8 * 400 / 1000 * stated.hardware_power_factor * stated.hardware_pue * 0.10
    owned = capital * (annuity + 0.12) / 8760 + power_usd_hr

    assert found.once_usd == pytest.approx(capital)
    assert found.saving_usd_mo.value == pytest.approx((listed - owned) * HR_PER_MO)


def test_a_gpu_that_is_no_longer_sold_is_not_bought():
    assert judged(left(P3, 4))[AlternativeKind.OWN_HARDWARE].subject == "nothing"


def test_sharing_without_isolation_has_the_sum_of_its_pools_and_is_never_worth_it():
    row = NotWorthDoing(lever=sharing.NAME, subject="a, b", saving_usd_mo=5_000.0, reason="requests wait")
    found = judged(left(P4D, 1), shared=(row, row))[AlternativeKind.UNISOLATED]

    assert found.saving_usd_mo.value == pytest.approx(10_000)
    assert not found.worth
    assert found.reason == "requests wait"


PLAN_RATES = """provider,instance_type,region,option,usd_hr
aws,p4d.24xlarge,us-east-1,on-demand,20
aws,p4d.24xlarge,us-east-1,savings-plan-1y,{rate}
"""


def planned_at(rate, tmp_path, use):
    path = tmp_path / "own.csv"
    path.write_text(PLAN_RATES.format(rate=rate))
    sold = replace(market(), catalog=load_catalog(path))
    return {one.kind: one for one in alternatives(NoWorkloads(), use, sold, Settings(), ())}[
        AlternativeKind.SAVINGS_PLAN
    ]


def test_a_savings_plan_without_rates_is_asked_for():
    found = judged(left(P4D, 2))[AlternativeKind.SAVINGS_PLAN]

    assert (found.worth, found.subject) == (False, "nothing")
    assert "--prices" in found.reason


def test_a_savings_plan_that_the_plan_weighed_and_did_not_buy_says_so(tmp_path):
    found = planned_at(15, tmp_path, left(P4D, 2))

    assert (found.worth, found.subject, found.saving_usd_mo.value) == (False, "aws", 0.0)
    assert "weighed" in found.reason


def test_what_the_plan_spends_an_hour_is_named_and_lowers_the_rate_of_what_it_covers():
    spend = so_much(micro_usd(30), spend_at({P4D: micro_usd(15)}))
    usage = {P4D: np.full(HOURS, 2 * 3600)}
    use = ResidualBill(bill=exact_bill(usage, market().rates([P4D]), (spend,), HOURS))

    assert use.rate_usd_hr(P4D, market()) == pytest.approx(15)
    assert use.nodes(P4D) == 2

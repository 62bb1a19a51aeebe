"""Commitments to spend from audit to verify: bought in the plan where rates are known, held ones paid and used first."""

from datetime import timedelta

import pyarrow as pa
import pytest
from tests.fleets import MONDAY, FleetRows, at
from tests.plan.fleets import KeptOutcomes

from trimtab.catalog import load_catalog
from trimtab.cli.audit.run import render_markdown
from trimtab.deployment.effects import BuySpendPlan
from trimtab.emit.audit_document import audit_document
from trimtab.emit.kept_plan import parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.settings import Planning, Settings
from trimtab.pipeline import PlanningInput, audit, kept_plan, verify_plan
from trimtab.pipeline.auditing import audited
from trimtab.plan.commitments.inventory import Owned, OwnedSpend
from trimtab.plan.model import AlternativeKind
from trimtab.plan.verify.verification import ActionStatus
from trimtab.tables.arrow import arrow_schema
from trimtab.tables.bundle import memory_bundle
from trimtab.units import HR_PER_MO, micro_usd

DAYS = 42
RATES = """provider,instance_type,region,option,usd_hr
aws,p4d.24xlarge,us-east-1,on-demand,20
aws,p4d.24xlarge,us-east-1,savings-plan-1y,12
aws,g5.xlarge,us-east-1,on-demand,1
aws,g5.xlarge,us-east-1,savings-plan-1y,0.7
"""
"""12 is below the listed reservation, 13.92."""
WHOLE = Settings(planning=Planning(commitment_coverage_max_frac=1.0))
"""All of the use may be covered."""
OUTCOMES = KeptOutcomes()
"""Prices and purchases change no replay: the audits of one fleet share theirs."""


def busy(days=DAYS):
    """A node of eight GPUs at work in all hours; nothing but a commitment can make it cheaper."""
    rows = FleetRows(days).node("n", "p4d.24xlarge")
    rows.hold("web/a", "n", range(8), owner_kind="Deployment")
    for device in range(8):
        rows.use("web/a", "n", device, range(days * 24), sm=0.8, memory_gib=39.0)
    return rows


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    path = tmp_path_factory.mktemp("rates") / "own.csv"
    path.write_text(RATES)
    return load_catalog(path)


@pytest.fixture(scope="module")
def both(catalog):
    """The audit, and what its plan was made from."""
    return audited(PlanningInput(bundle=busy().bundle(), settings=WHOLE, catalog=catalog, store=OUTCOMES))


@pytest.fixture(scope="module")
def found(both):
    return both[0]


@pytest.fixture(scope="module")
def kept(both):
    return kept_plan(both[0], busy().bundle(), both[1])


def spend_of(found):
    return [
        (action, change.effect)
        for action in found.plan.actions
        for change in action.changes
        if isinstance(change.effect, BuySpendPlan)
    ]


def held(usd_hr, name="sp-1"):
    start, end = MONDAY.date() - timedelta(days=30), MONDAY.date() + timedelta(days=335)
    return Owned(name=name, scope=OwnedSpend(provider="aws", usd_hr=usd_hr), start=start, end=end)


def test_the_plan_buys_the_spend_that_covers_what_always_runs(found):
    ((action, effect),) = spend_of(found)

    assert effect.spend_micro_usd_hr == micro_usd(12)
    assert [(one.pool.instance_type, one.rate_micro_usd_hr) for one in effect.rates] == [
        ("p4d.24xlarge", micro_usd(12))
    ]
    assert action.saving_usd_mo.value == pytest.approx(8 * HR_PER_MO)
    assert found.plan.gap_frac == pytest.approx(0, abs=1e-6)
    assert sum(one.saving_micro_usd for one in found.plan.actions) == found.plan.joint_saving_micro_usd
    assert found.proof.after_micro_usd == 12 * 24 * found.proof.window.days * 1_000_000


def test_no_more_of_the_use_is_covered_than_the_cap_says(catalog):
    ((_, effect),) = spend_of(audit(busy().bundle(), catalog=catalog, store=OUTCOMES))

    assert effect.spend_micro_usd_hr == micro_usd(0.9 * 12)


def test_without_a_rate_nothing_is_assumed_and_one_line_asks_for_it():
    found = audit(busy().bundle(), store=OUTCOMES)

    assert not spend_of(found)
    (alternative,) = [one for one in found.plan.alternatives if one.kind is AlternativeKind.SAVINGS_PLAN]
    assert "give it with --prices" in alternative.reason


def test_every_face_names_the_spend_and_its_order_is_emitted(found, kept):
    text = render_markdown(audit_document(found))
    kept = parse_kept_plan(render_kept_plan(kept), where="a test")
    emission = emit_plan(kept.plan, kept.facts)

    assert kept.plan.actions == found.plan.actions
    assert "commit to spend $12.00 an hour with aws for 1 year" in text
    (order,) = [file for file in emission.files if "buy-aws-savings-plan-1y" in file.path]
    assert "| Commitment | $12.00 an hour" in order.text
    assert "| p4d.24xlarge | us-east-1 | $12.00 | $20.00 | 40.0% |" in order.text


def test_what_is_held_is_paid_used_first_and_not_bought_again(catalog):
    found = audit(busy().bundle(), WHOLE, catalog, owned=[held(9.0)], store=OUTCOMES)

    ((_, effect),) = spend_of(found)
    (one,) = found.owned
    hours = found.plan.window.hours
    assert effect.spend_micro_usd_hr == pytest.approx(micro_usd(3), rel=1e-6)
    assert (one.owned.name, one.used_frac) == ("sp-1", pytest.approx(1.0))
    assert found.bill_micro_usd == pytest.approx((9 + 20 * 3 / 12) * hours * 1e6, rel=1e-6)
    assert found.plan.before_micro_usd == found.bill_micro_usd
    assert "sp-1: $9.00 an hour of spend with aws until" in render_markdown(audit_document(found))


def test_a_held_plan_without_rates_is_left_out_with_the_cure():
    found = audit(busy().bundle(), owned=[held(9.0)], store=OUTCOMES)

    assert found.owned == ()
    assert any("sp-1" in line and "--prices" in line for line in found.degraded)


def test_a_later_bill_shows_what_was_bought_and_what_it_saved(found, kept, catalog):
    ((action, effect),) = spend_of(found)

    bought = verify_plan(kept, later(effect, share=1.0), catalog=catalog)
    half = verify_plan(kept, later(effect, share=0.5), catalog=catalog)
    nothing = verify_plan(kept, busy(2 * DAYS).bundle(), catalog=catalog)

    assert [one.status for one in (bought.actions[0], half.actions[0], nothing.actions[0])] == [
        ActionStatus.ON_TRACK,
        ActionStatus.SHORT,
        ActionStatus.NOT_ENACTED,
    ]
    assert bought.actions[0].realised_usd_mo == pytest.approx(action.saving_usd_mo.value, rel=1e-6)
    assert half.actions[0].realised_usd_mo == pytest.approx(action.saving_usd_mo.value / 2, rel=1e-6)
    assert "--focus" in nothing.actions[0].cause
    for one in (bought, half, nothing):
        assert one.then_usd_mo + one.demand_usd_mo - one.saved_usd_mo + one.rates_usd_mo == pytest.approx(
            one.now_usd_mo
        )


def later(effect, *, share):
    """The same fleet a window later, with bills of a share of the spend."""
    bundle = busy(2 * DAYS).bundle()
    row = {
        "ChargePeriodStart": at(DAYS * 16),
        "ChargePeriodEnd": at(2 * DAYS * 24),
        "BillingCurrency": "USD",
        "ProviderName": "AWS",
        "CommitmentDiscountType": "Savings Plan",
        "EffectiveCost": effect.spend_micro_usd_hr / 1e6 * share * (2 * DAYS * 24 - DAYS * 16),
        "BilledCost": 0.0,
    }
    schema = arrow_schema("costs")
    costs = pa.Table.from_pylist([{name: row.get(name) for name in schema.names}], schema=schema)
    return memory_bundle({**bundle.tables, "costs": costs}, bundle.meta, bundle.workloads)

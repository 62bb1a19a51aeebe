"""What a later window shows to hold no longer, and every way of buying what it used."""

from dataclasses import replace

import pytest
from tests.fleets import FleetRows
from tests.plan.test_verify import DAYS, SERVICES, after, kept, market, rate

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.sections.verification import verification_page
from trimtab.emit.verify_document import verify_document
from trimtab.emit.writers import html, markdown
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.pipeline import verify_plan
from trimtab.plan.verify.enactment import DriftKind, drifts
from trimtab.plan.verify.verification import purchases
from trimtab.units import HR_PER_MO, usd

G5 = Pool("aws", "g5.xlarge", "us-east-1")


def alerts(rows_or_bundle):
    return drifts(kept().plan, build_fleet(rows_or_bundle, Settings()), market(), Settings())


def moved(memory_gib=4.0, sm=0.3):
    rows = FleetRows(DAYS)
    rows.node("m0", "g5.xlarge").hold("web/a", "m0", [0], owner_kind="Deployment")
    rows.use("web/a", "m0", 0, range(DAYS * 24), sm=sm, memory_gib=memory_gib)
    return rows.bundle()


def test_what_was_moved_and_still_fits_gives_no_alert():
    assert alerts(moved()) == ()


def test_a_moved_workload_that_is_busy_for_good_is_named_with_its_action():
    (found,) = alerts(moved(sm=0.97))

    assert (found.kind, found.subject, found.action) == (DriftKind.ACTIVITY, "web/a", "a1")
    assert found.seen_frac == pytest.approx(0.97)


def test_a_moved_workload_that_eats_into_its_memory_headroom_is_named():
    (found,) = alerts(moved(memory_gib=22.0))

    assert found.kind is DriftKind.MEMORY


def test_a_workload_that_was_not_moved_is_no_drift_of_the_plan():
    assert alerts(after((), sm=0.97)) == ()


def reserved(held_hours):
    rows = FleetRows(DAYS).node("r", "g5.xlarge", capacity_type="reserved")
    rows.hold("web/z", "r", [0], 0, held_hours, owner_kind="Deployment")
    rows.use("web/z", "r", 0, range(held_hours), sm=0.5)
    return rows.bundle()


def test_a_commitment_used_less_than_pays_it_is_named_with_what_it_loses():
    committed = usd(market().rate(G5.held_as(CapacityType.RESERVED)))
    (found,) = alerts(reserved(DAYS * 24 // 4))

    assert found.kind is DriftKind.COMMITMENT
    assert found.seen_frac == pytest.approx(0.25)
    assert found.limit_frac == pytest.approx(committed / rate("g5.xlarge"))
    assert f"${(committed - rate('g5.xlarge') / 4) * HR_PER_MO:,.0f}" in found.advice


def test_a_commitment_in_use_all_the_time_is_fine():
    assert alerts(reserved(DAYS * 24)) == ()


def test_every_way_of_buying_is_priced_and_what_the_plan_does_not_buy_is_not_advised():
    (found,) = purchases(build_fleet(moved(), Settings()), market(), kept().plan, Settings())
    by_option = {one.option: one for one in found.options}

    assert found.now_usd_mo == pytest.approx(rate("g5.xlarge") * HR_PER_MO)
    assert by_option[BuyingOption.ON_DEMAND].usd_mo == pytest.approx(found.now_usd_mo)
    assert by_option[BuyingOption.RESERVED_1Y].commit == 1
    assert by_option[BuyingOption.RESERVED_1Y].usd_mo < found.now_usd_mo
    assert found.advice.startswith("the plan commits to none of it")


def test_the_page_holds_every_action_alert_and_pool_and_asks_nothing_of_the_network():
    found = verify_plan(kept(), after(SERVICES[:1]))
    found = replace(found, drifts=alerts(moved(sm=0.97)))

    made = verification_page(found, "a <b> fleet")
    page, text = html.write_page(made), markdown.write_page(made)

    assert "a &lt;b&gt; fleet" in page
    assert "http://" not in page
    assert "https://" not in page
    for words in ("nothing of it on web/b", "g5.12xlarge", "activity 97%"):
        assert words in page
        assert words in text


def test_the_document_adds_up_and_lists_alerts_and_purchases():
    document = verify_document(verify_plan(kept(), after(SERVICES)))

    bridge = document["then_usd_mo"] + document["demand_usd_mo"] - document["saved_usd_mo"] + document["rates_usd_mo"]
    assert bridge == pytest.approx(document["now_usd_mo"], abs=0.03)
    assert {one["instance_type"] for one in document["purchases"]} == {"g5.xlarge"}

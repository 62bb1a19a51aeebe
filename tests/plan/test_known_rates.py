"""What share of a fleet's use could not be judged for lack of a committed rate."""

from datetime import date

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.emit.audit_document import audit_document
from trimtab.emit.sections.audit import audit_sections
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.pipeline import audit
from trimtab.plan.commitments.known_rates import known_rates

LISTED, UNLISTED = Pool("aws", "p4d.24xlarge", "us-east-1"), Pool("aws", "p5.48xlarge", "us-east-1")


@pytest.fixture(scope="module")
def market():
    return Market.of(load_catalog(), date(2026, 11, 1), Settings(), {})


@pytest.fixture(scope="module")
def rows():
    # AWS lists no reservation of a p5.48xlarge
    return FleetRows(42).node("n0", LISTED.instance_type).node("n1", UNLISTED.instance_type)


def usage_of(rows):
    bundle = rows.bundle()
    return build_fleet(bundle, Settings(), bundle_window(bundle)).usage


def test_only_use_without_any_rate_is_unjudged(rows, market):
    usage = usage_of(rows)

    known = known_rates(usage, market)

    assert known.unjudged_pools == (UNLISTED,)
    rates = market.rates([LISTED, UNLISTED])
    assert known.unjudged_usd_mo == pytest.approx(rates[UNLISTED] / 1e6 * 730)
    assert known.on_demand_usd_mo == pytest.approx(sum(rates.values()) / 1e6 * 730)


def test_a_quote_is_a_rate(rows, market):
    quote = CommitmentPrice(pool=UNLISTED, term_years=1, upfront_usd=0.0, usd_hr=60.0, source="given")

    known = known_rates(usage_of(rows), market, [quote])

    assert known.unjudged_usd_mo == 0
    assert known.unjudged_pools == ()


def test_spot_nodes_need_no_committed_rate(market):
    usage = usage_of(FleetRows(42).node("n0", UNLISTED.instance_type, capacity_type="spot"))

    assert known_rates(usage, market).on_demand_usd_mo == 0


def test_one_type_is_judged_alone(rows, market):
    known = known_rates(usage_of(rows), market, instance_type=LISTED.instance_type)

    assert known.unjudged_pools == ()
    assert known.on_demand_usd_mo == pytest.approx(market.rates([LISTED])[LISTED] / 1e6 * 730)


def test_the_audit_says_the_share_and_names_the_nodes(rows):
    document = audit_document(audit(rows.bundle()))

    rates = document.committed_rates
    assert 0 < rates.unjudged_usd_mo < rates.on_demand_usd_mo
    assert rates.unjudged_pools == (str(UNLISTED),)
    (section,) = audit_sections(document, ("rates",))
    shown = str(section.blocks)
    assert "could not be judged: no committed rate is known for it" in shown
    assert str(UNLISTED) in shown
    all_known = replace_rates(document, unjudged_usd_mo=0.0, unjudged_pools=())
    assert not list(audit_sections(all_known, ("rates",)))


def replace_rates(document, **changes):
    return document.model_copy(update={"committed_rates": document.committed_rates.model_copy(update=changes)})

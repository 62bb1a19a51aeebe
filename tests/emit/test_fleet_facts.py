"""The facts that a fleet's own history tells are those that its plan was made on."""

import pytest
from tests.emit.cluster_example import P4D

from trimtab.catalog import load_catalog
from trimtab.emit.manifests.fleet_facts import facts_of_fleet
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.pipeline import open_demo
from trimtab.replay.outcomes.evaluate import law_of

SETTINGS = Settings()


@pytest.fixture(scope="module")
def fleet():
    return build_fleet(open_demo("quad-a100"), SETTINGS)


@pytest.fixture(scope="module")
def facts(fleet):
    market = Market(
        catalog=load_catalog(), at=fleet.window.end.date(), max_term_years=1, assumptions=SETTINGS.assumptions
    )
    return facts_of_fleet(fleet, SETTINGS, market, owner_kinds={}, pools=[*fleet.usage.pools, P4D])


def test_a_service_scales_on_the_capacity_that_was_replayed(fleet, facts):
    served = [one for one in facts.workloads if one.service is not None]

    assert served
    for one in served:
        assert one.service.capacity_req_s == law_of(fleet.workload(one.name), SETTINGS).capacity_req_s


def test_every_workload_has_an_owner_and_at_least_one_replica(fleet, facts):
    assert [one.name for one in facts.workloads] == [one.name for one in fleet.workloads]
    assert all(one.replicas >= 1 and one.owner_kind for one in facts.workloads)


def test_pools_carry_the_rates_of_the_market(facts):
    assert facts.priced(P4D).rate_micro_usd_hr > 0
    assert facts.priced(P4D).gpus_per_node == 8

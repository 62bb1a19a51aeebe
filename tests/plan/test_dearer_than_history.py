"""A plan that costs more than history on weeks that it had not seen, and mends nothing, is not made."""

import numpy as np
import pytest
from tests.fleets import few_machines
from tests.limited_servers import SERVICE, Limited, daily_arrivals, fleet_of, simulate

from trimtab.fleet.settings import Planning, Settings
from trimtab.pipeline.auditing import audit
from trimtab.policies.scaling import SYNC_S
from trimtab.units import S_PER_DAY

DAYS, FIT_DAYS, REPLICAS = 3, 2, 4
SETTINGS = Settings(planning=Planning(max_payback_mo=1000.0, min_saving_usd_mo=0.0))


def audited(growth, load_frac=0.12):
    """Audit a service whose demand is `growth` times as high in the days that the plan has not seen."""
    server = Limited(at_once=16, service_s=20.0, full_sm=0.9)
    arrivals = daily_arrivals(DAYS, load_frac * growth * REPLICAS * server.capacity_req_s, seed=3, least_frac=0.8)
    early = np.random.default_rng(1).random(len(arrivals)) < 1 / growth
    arrivals = arrivals[early | (arrivals >= FIT_DAYS * S_PER_DAY)]
    seen = simulate(server, arrivals, np.full(DAYS * S_PER_DAY // SYNC_S, REPLICAS), DAYS, seed=5)
    return audit(fleet_of(server, seen, REPLICAS, DAYS, 120.0).bundle(), SETTINGS, few_machines())


@pytest.fixture(scope="module")
def grown():
    return audited(5.0)


def test_what_costs_more_than_history_did_leaves_the_plan_with_the_sum(grown):
    assert grown.plan.actions == ()
    assert grown.proof.after_micro_usd == grown.proof.before_micro_usd
    assert grown.plan.after_micro_usd == grown.plan.before_micro_usd
    (repair,) = grown.proof.repairs
    assert repair.workload == SERVICE
    assert repair.missed or repair.extra_micro_usd
    assert repair.now == ()


def test_a_service_that_stays_as_it_is_keeps_what_it_kept(grown):
    (latency,) = [one for one in grown.proof.targets if one.workload == SERVICE]
    assert latency.target.declared
    assert latency.kept
    assert latency.attained_frac == latency.before_frac


def test_demand_that_stays_keeps_the_plan():
    found = audited(1.0, load_frac=0.2)

    assert found.plan.actions
    assert found.proof.after_micro_usd < found.proof.before_micro_usd

"""Nodes that cost more for the same GPUs are left out where no plan needs them, and the plan stays as good."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import nodes_of, so_much

from trimtab.catalog.pools import Pool
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Planning, Settings
from trimtab.levers import right_size
from trimtab.levers.lever import JudgedWays, LeverRequest
from trimtab.plan.options.unneeded import COSTS_MORE, UnneededPlaces
from trimtab.plan.options.workload_options import options_of
from trimtab.plan.planner import plan_of
from trimtab.plan.prospects import judge

SETTINGS = Settings(planning=Planning(engineer_week_usd=200.0))
SIZES = ("g5.2xlarge", "g5.4xlarge", "g5.24xlarge", "g4dn.2xlarge")
DAYS = 1
LE_S = (1.0, 2.0, 4.0, 8.0, 16.0, float("inf"))


def pool(name):
    return Pool("aws", name, "us-east-1")


def fleet_of(*services, jobs=0, home="g5.xlarge", at=SETTINGS, **declared):
    """Services on an A10G a replica, of so many requests an hour at the busiest, and a queue of short runs on nodes of four."""
    rows = FleetRows(DAYS)
    for number, most_hr in enumerate(services):
        name = f"a/s{number}"

        def came(hour, most_hr=most_hr):
            return most_hr * (1.0 if 9 <= hour % 24 < 17 else 0.1)

        def counts(hour, came=came):
            return tuple(came(hour) * share for share in (0.3, 0.6, 0.1, 0.0, 0.0, 0.0))

        for replica in range(2):
            node = f"n{number}-{replica}"
            rows.node(node, "g5.xlarge")
            rows.rows["nodes"][-1]["instance_type"] = home
            rows.hold(name, node, [0], pod=f"s{number}-{replica}", owner_kind="Deployment")
            rows.use(name, node, 0, range(DAYS * 24), sm=0.2, dram=0.1, tensor=0.05, memory_gib=4.0)
        rows.demand(name, came, 2, LE_S, counts, running=lambda hour, came=came: came(hour) * 2 / 3600)
        rows.workloads[name] = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 8.0}], **declared}
    if jobs:
        rows.node("t", "g5.12xlarge")
        rows.hold("t/train", "t", range(4), owner_kind="Job")
        for device in range(4):
            rows.use("t/train", "t", device, range(2 * jobs), sm=0.6, dram=0.3, tensor=0.2, memory_gib=9.0)
        for number in range(jobs):
            rows.job("t/train", 2 * number, 2 * number, 2 * number + 1.5, 4)
        rows.workloads["t/train"] = {"kind": "training", "interruptible": declared.get("interruptible", False)}
    return build_fleet(rows.bundle(), at)


def prospects_of(fleet, at=SETTINGS, owned=()):
    market = Market(
        catalog=few_machines(*SIZES),
        at=date(2026, 9, 30),
        max_term_years=at.planning.max_term_years,
        assumptions=at.assumptions,
        limits=at.limits,
    )
    return judge(fleet, market, at, seed=7, progress=lambda stage, share: None, owned=owned)


def with_all_nodes(prospects):
    rows = [
        judged and options_of(judged.evaluator.case, prospects.market, as_needed=True) for judged in prospects.options
    ]
    return replace(prospects, options=tuple(rows), unneeded=UnneededPlaces())


def left_out(prospects):
    return sum(judged.dropped[COSTS_MORE] for judged in prospects.options)


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(st.lists(st.sampled_from([300.0, 1500.0, 3000.0]), min_size=1, max_size=2), st.sampled_from([0, 6]))
def test_the_plan_is_the_one_with_all_nodes_on_offer(services, jobs):
    prospects = prospects_of(fleet_of(*services, jobs=jobs))

    few = plan_of(prospects, lambda stage, share: None)
    everything = plan_of(with_all_nodes(prospects), lambda stage, share: None)

    gap = SETTINGS.planning.mip_gap_frac
    assert left_out(prospects) > 0
    assert few.plan.after_micro_usd == pytest.approx(everything.plan.after_micro_usd, rel=gap, abs=1)
    assert few.plan.bound_micro_usd <= everything.plan.after_micro_usd
    assert few.plan.options < everything.plan.options


def test_no_workload_goes_to_nodes_that_cost_more_for_the_same_gpus():
    prospects = prospects_of(fleet_of(1500.0))

    (judged,) = prospects.options
    used = {pool for way in (*judged.candidates, *judged.waiting) for pool in way.usage}
    assert prospects.unneeded.nodes == {
        pool("g5.2xlarge"): pool("g5.xlarge"),
        pool("g5.4xlarge"): pool("g5.xlarge"),
        pool("g5.24xlarge"): pool("g5.12xlarge"),
        pool("g4dn.2xlarge"): pool("g4dn.xlarge"),
    }
    assert used
    assert not used & prospects.unneeded.nodes.keys()


def test_nodes_that_some_workload_is_on_stay_on_offer_to_all():
    prospects = prospects_of(fleet_of(1500.0, home="g5.2xlarge"))

    assert pool("g5.2xlarge") not in prospects.unneeded.nodes
    assert prospects.unneeded.nodes[pool("g5.4xlarge")] == pool("g5.xlarge")


def test_nodes_that_a_commitment_may_cover_stay_on_offer():
    owned = (so_much(2, nodes_of(pool("g5.4xlarge"), 1_000_000)),)

    assert pool("g5.4xlarge") not in prospects_of(fleet_of(1500.0), owned=owned).unneeded.nodes


def test_nodes_of_which_there_are_only_so_many_do_not_replace_others():
    few = replace(SETTINGS, limits=Limits(quotas="g5.xlarge=3"))

    nodes = prospects_of(fleet_of(1500.0, at=few), few).unneeded.nodes
    assert pool("g5.2xlarge") not in nodes
    assert nodes[pool("g5.4xlarge")] == pool("g5.2xlarge")


def test_all_nodes_stay_on_offer_where_services_may_keep_a_floor_beside_spot():
    prospects = prospects_of(fleet_of(1500.0, interruptible=True))

    assert not prospects.unneeded.nodes
    assert left_out(prospects) == 0


def test_runs_that_may_be_interrupted_keep_nodes_that_are_sold_on_spot():
    prospects = prospects_of(fleet_of(jobs=6, interruptible=True))

    (judged,) = prospects.options
    spot = {pool.instance_type for way in judged.candidates for pool in way.usage if pool.capacity_type.value == "spot"}
    assert pool("g5.24xlarge") in prospects.unneeded.nodes
    assert "g5.24xlarge" in spot


@pytest.mark.parametrize(
    ("need_gib", "reason"),
    [(4.0, "possible, but more expensive than the plan"), (500.0, "no GPU of the region fits: not enough memory")],
)
def test_why_no_other_gpu_is_planned_speaks_of_gpus_and_not_of_nodes_that_are_left_out(need_gib, reason):
    prospects = prospects_of(fleet_of(1500.0, need_gib=need_gib))
    (judged,) = prospects.options
    ask = LeverRequest(evaluator=judged.evaluator, market=prospects.market)

    assert left_out(prospects) > 0
    assert right_size.LEVER.why_not(ask, JudgedWays(kept=(), candidates=(), missed={})) == reason

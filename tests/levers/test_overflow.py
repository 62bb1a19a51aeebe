"""A service on the nodes that a quota allows, and on another type beyond them: offered, replayed, billed, written, read."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from benchmarks.enact import proved_fleet, row_of
from benchmarks.overflow import MACHINES as BENCHMARKED, drawn
from tests.contracts.random_fleets import LE_S, SHARES
from tests.fleets import FleetRows, few_machines

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import HedgeOnSpot, SetReplicas
from trimtab.deployment.placement import resolve, slower, without_effect
from trimtab.emit.manifests.facts import NodeMaker
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Planning, Settings
from trimtab.levers import autoscaling, overflow, right_size
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.levers.lever import LeverRequest
from trimtab.plan.commitments.inventory import Owned, OwnedNodes
from trimtab.plan.options.composition import places
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

QUOTA = 6
LONG = 4
"""Times as long as usual that a request takes: few requests load the replicas, and a replay of each is short."""
PLANNING = Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1)
FREE = Settings(planning=PLANNING)
SHORT = replace(FREE, limits=Limits(quotas=f"g5.xlarge={QUOTA},g4dn.xlarge=1,g6.xlarge=1"))
"""The other cheap nodes are short as well: a single one carries none of it."""
MACHINES = few_machines("g5.2xlarge")


def service(days):
    """Sixteen replicas on nodes of four GPUs, of which the daytime needs a dozen."""
    rows = FleetRows(days)
    for node in range(4):
        rows.node(f"n{node}", "g5.12xlarge")
        for gpu in range(4):
            rows.hold("prod/api", f"n{node}", [gpu], pod=f"api-{node}-{gpu}", owner_kind="Deployment")
            rows.use(
                "prod/api", f"n{node}", gpu, range(days * 24), sm=0.35, util=0.4, dram=0.2, tensor=0.15, memory_gib=8.0
            )

    def requests(hour):
        return 15_000 if 8 <= hour % 24 < 20 else 2_000

    rows.demand(
        "prod/api",
        requests,
        16,
        [LONG * le_s for le_s in LE_S],
        lambda hour: [requests(hour) * share for share in SHARES],
        running=lambda hour: 7.0,
    )
    rows.workloads["prod/api"] = {"targets": [{"metric": "latency", "quantile": 0.9, "limit_s": LONG * 2.5}]}
    return rows


def ask_of(settings, days=7):
    (case,) = cases_of(build_fleet(service(days).bundle(), settings), settings, seed=7).values()
    return LeverRequest(evaluator=Evaluator(case=case), market=Market.of(MACHINES, None, settings))


@pytest.fixture(scope="module")
def ask():
    return ask_of(SHORT)


def onto(ask, instance_type):
    (size,) = [size for size in right_size.sizes(ask).fitting if size.pool.instance_type == instance_type]
    return Deployment.of((right_size.NAME, size))


def ways_onto(ask, instance_type="g5.xlarge"):
    return list(overflow.LEVER.ways(onto(ask, instance_type), ask))


def test_nodes_behind_are_offered_where_a_quota_holds_too_few_replicas_the_cheapest_first(ask):
    offered = [(way.overflow.further.pool.instance_type, way.overflow.first_nodes) for way in ways_onto(ask)]

    # of a quota that others may need too, parts as well
    assert offered == [*(("g5.2xlarge", nodes) for nodes in (QUOTA, 5, 3, 2)), ("g5.12xlarge", QUOTA)]


def test_none_are_offered_without_a_quota_or_where_it_holds_all_replicas():
    assert not ways_onto(ask_of(FREE))
    assert not ways_onto(ask_of(replace(FREE, limits=Limits(quotas="g5.xlarge=60"))))


def test_a_type_of_which_none_may_be_held_stands_behind_no_other():
    ways = ways_onto(ask_of(replace(FREE, limits=Limits(quotas=f"g5.xlarge={QUOTA},g5.2xlarge=0"))))

    assert ways
    assert "g5.2xlarge" not in {way.overflow.further.pool.instance_type for way in ways}


def test_nothing_stands_behind_slots_other_formats_or_a_move(ask):
    with_overflow = [place for place in places(ask) if place.overflow is not None]

    assert with_overflow
    assert not [place for place in with_overflow if place.sharing or place.precision or place.relocation]


@pytest.mark.parametrize("count", [QUOTA - 2, QUOTA, QUOTA + 1, 12])
def test_replicas_within_the_quota_stand_on_the_first_nodes_and_the_others_behind(ask, count):
    way = ways_onto(ask)[0].plus(("replica-count", SetReplicas(replicas=count, before=16)))
    place = ask.evaluator.place(way)

    usage = {pool.instance_type: seconds for pool, seconds in ask.evaluator.outcome(way).usage(place).items()}

    assert np.all(usage["g5.xlarge"] == min(count, QUOTA) * 3600)
    assert ("g5.2xlarge" in usage) == (count > QUOTA)
    assert np.all(usage.get("g5.2xlarge", 0) == max(0, count - QUOTA) * 3600)


def test_an_autoscaler_has_no_more_first_nodes_than_the_quota_and_one_for_each_replica(ask):
    way = ways_onto(ask)[0]

    for scaler in autoscaling.propose(ask.case)[::7]:
        found = ask.evaluator.outcome(way.plus((autoscaling.NAME, scaler)))
        nodes = found.on_demand + found.further
        assert found.on_demand.max() <= QUOTA * 3600
        assert np.all(nodes >= found.gpus)
        # an empty node is kept for some minutes
        assert nodes.sum() <= 1.1 * found.gpus.sum()


def test_a_bound_of_what_is_used_is_no_more_than_a_replay_on_either_type(ask):
    way = ways_onto(ask)[-1]
    for scaler in autoscaling.propose(ask.case)[::11]:
        scaled = way.plus((autoscaling.NAME, scaler))
        least = ask_of(SHORT).evaluator.least(scaled)
        used = ask.evaluator.outcome(scaled)
        assert np.all(least.on_demand <= used.on_demand)
        assert np.all(least.further <= used.further)


def estimate(value, low, high):
    return Estimate(value=value, low=low, high=high, basis=Basis.MODELLED)


def test_work_dealt_out_evenly_goes_at_the_slower_end_of_both_types():
    found = slower(estimate(2.0, 1.5, 2.5), estimate(1.8, 0.9, 3.0))

    assert (found.value, found.low, found.high) == (1.8, 0.9, 2.5)


def test_nodes_behind_others_come_to_nothing_where_it_does_not_run_on_those(ask):
    way = ways_onto(ask)[0]
    part = way.restricted([overflow.NAME])
    place = resolve(ask.workload, part)

    assert place.overflow is None
    assert "move it there with it" in without_effect(part, place)["overflow"]


def test_replicas_fill_nodes_one_after_the_other_where_only_those_behind_hold_several(ask):
    way = ways_onto(ask)[-1]
    place = ask.evaluator.place(way)

    assert (place.pods_per_node, place.further_pods_per_node) == (1, 4)
    assert place.holds_several


def test_it_is_not_bought_on_spot(ask):
    way = ways_onto(ask)[0]
    hedge = HedgeOnSpot(
        pool=way.overflow.pool.held_as(CapacityType.SPOT), one_in=0, zones=3, loss_per_hr=0.01, outage_s=60.0
    )

    assert resolve(ask.workload, way.plus(("spot", hedge))).hedge is None


def test_a_service_judged_by_activity_is_not_spread_over_types_of_which_each_is_busy_in_its_own_way():
    rows = service(7)
    rows.rows["demand"].clear()
    (case,) = cases_of(build_fleet(rows.bundle(), SHORT), SHORT, seed=7).values()
    asked = LeverRequest(evaluator=Evaluator(case=case), market=Market.of(MACHINES, None, SHORT))

    assert not ways_onto(asked)


@pytest.fixture(scope="module")
def proved():
    """The service planned on a quota of six of the cheapest nodes, and proved."""
    return proved_fleet("overflow", service(14).bundle(), SHORT, MACHINES)


def test_the_plan_overflows_where_that_is_cheapest(proved):
    deployment = proved.planned.deployments["prod/api"]

    assert deployment.overflow is not None
    assert deployment.overflow.pool.instance_type == "g5.xlarge"
    assert deployment.overflow.further.pool.instance_type == "g5.2xlarge"
    assert all(result.kept for result in proved.proven.proof.targets)


def test_every_action_of_it_earns_a_share_since_none_keeps_the_quota_without_the_others(proved):
    savings = {action.lever: action.saving_usd_mo.value for action in proved.planned.plan.actions}

    assert {overflow.NAME, right_size.NAME} <= set(savings)
    assert all(saving > 0 for saving in savings.values())


@pytest.mark.parametrize("maker", NodeMaker)
def test_its_files_are_read_as_the_same_deployment_and_cost_what_the_proof_says(proved, maker, tmp_path):
    found = row_of(proved, maker, tmp_path)

    assert found.files_usd == pytest.approx(found.proof_usd, rel=1e-6)
    assert found.targets_equal == found.targets > 0
    assert found.review_passes
    assert not found.faults
    assert not found.left_behind


def one_node_committed_to():
    pool = Pool("aws", "g5.12xlarge", "us-east-1")
    price = CommitmentPrice(pool=pool, term_years=1, upfront_usd=0.0, usd_hr=3.6, source="a quote")
    scope = OwnedNodes(offer=price, count=1)
    return Owned(name="g5.12xlarge of 2026", scope=scope, start=date(2026, 3, 1), end=date(2027, 3, 1))


@pytest.fixture(scope="module")
def committed():
    """The same service, of which one node is paid for a year, planned without quotas and proved."""
    return proved_fleet("committed", service(14).bundle(), FREE, MACHINES, owned=[one_node_committed_to()])


def test_nodes_that_are_paid_come_first_and_cheaper_ones_behind_them(committed):
    deployment = committed.planned.deployments["prod/api"]

    assert deployment.overflow is not None
    assert (deployment.overflow.pool.instance_type, deployment.overflow.first_nodes) == ("g5.12xlarge", 1)
    # the cheapest GPU of the catalog's few machines is no more than a quarter of a paid node's rate on demand
    assert committed.proven.enacted.market.rate(deployment.overflow.further.pool) < 5_672_000 / 4


def test_its_files_fill_what_is_paid_first(committed, tmp_path):
    found = row_of(committed, NodeMaker.KARPENTER, tmp_path)

    assert found.files_usd == pytest.approx(found.proof_usd, rel=0.02)
    assert found.targets_equal == found.targets > 0
    assert found.review_passes


def test_a_fixed_number_of_replicas_over_nodes_of_several_is_read_as_planned(tmp_path):
    """Reproduced before: no pod says that it fills nodes where their number stays, and what was beyond the first was lost."""
    rows, settings, owned, _ = drawn(603)
    fleet = proved_fleet("fixed", rows.bundle(), settings, BENCHMARKED, owned)

    found = row_of(fleet, NodeMaker.KARPENTER, tmp_path)

    assert isinstance(fleet.planned.deployments["prod/api"].scaling, SetReplicas)
    assert fleet.planned.deployments["prod/api"].overflow is not None
    assert found.files_usd == pytest.approx(found.proof_usd, rel=0.02)
    assert found.review_passes

"""Ways that are dropped unseen cannot be in a better plan: fewer replays, and the plan with every way replayed."""

from datetime import date

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import commitments
from trimtab.levers.lever import LeverRequest
from trimtab.plan.effort import with_effort
from trimtab.plan.options.composition import Veto, bought, candidate_of, on_demand, places
from trimtab.plan.options.unneeded import DOMINATED, UnneededPlaces, dominated_sites
from trimtab.plan.options.workload_options import NO_FEWER, options_of
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.solve import solve_problem
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

SETTINGS = Settings(planning=Planning(engineer_week_usd=100.0))
DAYS = 1
LE_S = (1.0, 2.0, 4.0, 8.0, 16.0, float("inf"))


def market_of_the_day():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


@pytest.fixture(scope="module")
def market():
    return market_of_the_day()


def services(*requests_hr, limit_s=16.0, replicas=1, **declared):
    """Cases of services on an A100 a replica that admit sharing, in a region without other GPUs; requests take two seconds."""
    rows = FleetRows(DAYS)
    for number, most_hr in enumerate(requests_hr):
        name = f"a/s{number}"
        for replica in range(replicas):
            node = f"n{number}-{replica}"
            rows.node(node, "g5.xlarge", region="me-west1")
            rows.rows["nodes"][-1] |= {"provider": "gcp", "instance_type": "a2-highgpu-1g", "gpu": "A100-SXM4-40GB"}
            rows.rows["devices"][-1] |= {"gpu": "A100-SXM4-40GB", "memory_gib": 40.0}
            rows.hold(name, node, [0], pod=f"s{number}-{replica}", owner_kind="Deployment")
            rows.use(name, node, 0, range(DAYS * 24), sm=0.05, dram=0.03, tensor=0.02, memory_gib=4.0)

        def came(hour, most_hr=most_hr):
            return most_hr * (1.0 if 9 <= hour % 24 < 17 else 0.3)

        def counts(hour, came=came):
            return tuple(came(hour) * share for share in (0.3, 0.6, 0.1, 0.0, 0.0, 0.0))

        rows.demand(name, came, replicas, LE_S, counts, running=lambda hour, came=came: came(hour) * 2 / 3600)
        targets = [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]
        rows.workloads[name] = {"isolation": "none", "targets": targets, **declared}
    return list(cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7).values())


def asks_of(cases, market):
    return [LeverRequest(evaluator=Evaluator(case=case), market=market) for case in cases]


def every_way(ask):
    """Every way on offer that keeps the targets, replayed one by one, as a candidate."""
    ways = [one for way in on_demand(ask) for one in (way, *bought(way, ask)) if one.changes]
    kept = [one for one in ways if ask.evaluator.hopeless(one) is None and ask.evaluator.keeps_targets(one)]
    found = [candidate_of(ask.evaluator, one, ask.evaluator.outcome(one), ask.market) for one in kept]
    return [one for one in found if one is not None]


def cost_of_the_best(cases, rows, market):
    """What the best choice costs, in bill and work, and the bound on it."""
    pools = {case.workload.pool for case in cases}
    pools |= {pool for row in rows for one in row for pool in (*one.usage, *(shared.pool for shared in one.slots))}
    problem = Problem(
        options=tuple(
            tuple(Option(usage=one.usage, slots=one.slots, own_micro_usd=one.own_micro_usd) for one in row)
            for row in rows
        ),
        groups=tuple(
            NodeGroup(
                usage={case.workload.pool: np.rint(case.workload.held_node_seconds).astype(np.int64)},
                holders=frozenset({number}),
            )
            for number, case in enumerate(cases)
        ),
        rates_micro_usd_hr=market.rates(sorted(pools)),
        offers=commitments.propose(pools, market),
        hours=cases[0].window.hours,
    )
    paying = with_effort(problem, [[one.effort for one in row] for row in rows])
    return [solve_problem(one, SETTINGS.planning) for one in (problem, paying)]


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(
    st.lists(st.sampled_from([20.0, 100.0, 170.0, 300.0, 900.0]), min_size=2, max_size=2),
    st.sampled_from([4.0, 8.0, 16.0]),
    st.integers(1, 2),
)
def test_the_plan_is_the_one_with_every_way_replayed(requests_hr, limit_s, replicas):
    market = market_of_the_day()
    cases = services(*requests_hr, limit_s=limit_s, replicas=replicas)
    dominated = dominated_sites(asks_of(cases, market), {})

    left = [options_of(case, market, unneeded=UnneededPlaces(sites=dominated)).candidates for case in cases]
    everything = [every_way(ask) for ask in asks_of(cases, market)]

    gap = SETTINGS.planning.mip_gap_frac
    for found, known in zip(*(cost_of_the_best(cases, rows, market) for rows in (left, everything)), strict=True):
        assert found.cost_micro_usd <= known.cost_micro_usd * (1 + gap) + 1
        assert found.bound_micro_usd <= known.cost_micro_usd + 1


def test_quiet_neighbours_are_not_asked_for_where_all_stand_among_busier_ones(market):
    cases = services(100.0, 170.0)
    asks = asks_of(cases, market)

    dominated = dominated_sites(asks, {})

    slots = {place.sharing.shared for ask in asks for place in places(ask) if place.sharing is not None}
    offered = {shared.site for shared in slots if not shared.is_isolated}
    assert dominated < offered
    assert len(dominated) > len(offered) / 2
    assert options_of(cases[0], market, unneeded=UnneededPlaces(sites=dominated)).dropped[DOMINATED] > 0


def test_nodes_stay_on_offer_where_a_way_to_do_without_them_is_vetoed(market):
    cases = services(100.0, 170.0)
    everybody_stays = {case.workload.name: Veto(safe_frac={}, keeps=True) for case in cases}

    assert dominated_sites(asks_of(cases, market), {})
    assert not dominated_sites(asks_of(cases, market), everybody_stays)


def test_no_site_is_spared_for_whom_may_hold_no_replica(market):
    closed = services(100.0, 170.0, open_hours={"days": ["mon", "tue"], "from_hour": 8, "to_hour": 18})

    assert not dominated_sites(asks_of(closed, market), {})


def test_no_autoscaler_is_replayed_where_the_replicas_that_there_are_will_do(market):
    (case,) = services(40.0)

    found = options_of(case, market)

    assert found.dropped[NO_FEWER] > 100
    assert found.candidates


def test_a_way_that_is_dropped_unseen_uses_no_less_in_any_hour(market):
    (case,) = services(900.0, limit_s=8.0)
    (ask,) = asks_of([case], market)
    candidates = every_way(ask)
    standing = {one.deployment: one for one in candidates if one.deployment.scaling is None}

    scaled = [one for one in candidates if one.deployment.without("scaling") in standing and one.deployment.scaling]

    assert scaled
    for one in scaled:
        base = standing[one.deployment.without("scaling")]
        assert base.effort.keys() <= one.effort.keys()
        assert base.needs <= one.needs
        assert base.own_micro_usd <= one.own_micro_usd
        assert np.all(nodes_of(base) <= nodes_of(one) + 1e-9)


def nodes_of(candidate):
    """What a candidate takes in each hour, in nodes, full ones and parts of shared ones, by the measure that takes least."""
    full = sum(candidate.usage.values(), start=np.zeros(DAYS * 24)) / 3600
    return full + sum(held / shared.slots_per_node for shared, held in candidate.slots.items())

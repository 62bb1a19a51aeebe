"""Only ways that could be in the plan are replayed, and the plan is the one with every way replayed.

All fleets are in a region without other GPUs, which leaves few places.
"""

from collections import Counter
from dataclasses import fields, replace
from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.speed import counting
from hypothesis import Phase, given, settings, strategies as st
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.registry import changed, price_change
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.effects import SetReplicas
from trimtab.errors import PlanError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Planning, Settings
from trimtab.fleet.targets import other_limit, with_other_limits
from trimtab.levers import replica_count
from trimtab.plan.options import workload_options
from trimtab.plan.options.workload_options import options_of
from trimtab.plan.planner import plan_of
from trimtab.plan.prospects import EarlierWork, judge
from trimtab.replay.outcomes import service_replays
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.units import per_month, usd

SETTINGS = Settings(planning=Planning(engineer_week_usd=200.0))
DAYS = 1
LE_S = (1.0, 2.0, 4.0, 8.0, 16.0, float("inf"))


def fleet_of(*services, at=SETTINGS):
    """Services on an A100 a replica: (requests an hour at the busiest, share of that at night, replicas, declared p95)."""
    rows = FleetRows(DAYS)
    for number, (most_hr, night_frac, replicas, limit_s) in enumerate(services):
        name = f"a/s{number}"

        def came(hour, most_hr=most_hr, night_frac=night_frac):
            return most_hr * (1.0 if 9 <= hour % 24 < 17 else night_frac)

        def counts(hour, came=came):
            return tuple(came(hour) * share for share in (0.3, 0.6, 0.1, 0.0, 0.0, 0.0))

        for replica in range(replicas):
            node = f"n{number}-{replica}"
            rows.node(node, "g5.xlarge", region="me-west1")
            rows.rows["nodes"][-1] |= {"provider": "gcp", "instance_type": "a2-highgpu-1g", "gpu": "A100-SXM4-40GB"}
            rows.rows["devices"][-1] |= {"gpu": "A100-SXM4-40GB", "memory_gib": 40.0}
            rows.hold(name, node, [0], pod=f"s{number}-{replica}", owner_kind="Deployment")
            busy = min(0.9, most_hr * 2 / 3600 / replicas)
            rows.use(name, node, 0, range(DAYS * 24), sm=busy, dram=busy / 2, tensor=busy / 3, memory_gib=4.0)
        rows.demand(name, came, replicas, LE_S, counts, running=lambda hour, came=came: came(hour) * 2 / 3600)
        rows.workloads[name] = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}
    return build_fleet(rows.bundle(), at)


def market_of(at=SETTINGS):
    return Market(
        catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=at.assumptions, limits=at.limits
    )


def silent(stage, share):
    """Tell nobody."""


def prospects_of(fleet, at=SETTINGS):
    return judge(fleet, market_of(at), at, seed=7, progress=silent)


def with_every_way_replayed(prospects):
    options = tuple(
        None if judged is None else options_of(judged.evaluator.case, prospects.market) for judged in prospects.options
    )
    return replace(prospects, options=options)


SERVICES = st.tuples(
    st.sampled_from([300.0, 1500.0, 4000.0]),
    st.sampled_from([0.02, 0.3, 1.0]),
    st.integers(2, 8),
    st.sampled_from([4.0, 8.0, 16.0]),
)


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(st.lists(SERVICES, min_size=1, max_size=2))
def test_the_plan_is_the_one_with_every_way_replayed(services):
    prospects = prospects_of(fleet_of(*services))

    needed = plan_of(prospects, silent)
    everything = plan_of(with_every_way_replayed(prospects), silent)

    gap = SETTINGS.planning.mip_gap_frac
    assert needed.plan.after_micro_usd == pytest.approx(everything.plan.after_micro_usd, rel=gap, abs=1)
    assert needed.headroom_micro_usd == pytest.approx(
        everything.headroom_micro_usd, abs=gap * everything.plan.after_micro_usd + 1
    )
    assert needed.plan.bound_micro_usd <= everything.plan.after_micro_usd
    assert needed.plan.bound_micro_usd <= needed.plan.after_micro_usd


def test_ways_wait_at_the_least_that_they_could_use():
    prospects = prospects_of(fleet_of((4000.0, 0.1, 6, 16.0)))

    (judged,) = prospects.options
    waiting = {way.deployment: way for way in judged.waiting}
    assert waiting
    assert judged.queued > len(waiting)
    for deployment, way in waiting.items():
        used = judged.evaluator.outcome(deployment).usage(judged.evaluator.place(deployment))
        for pool, least in way.usage.items():
            assert np.all(least <= used[pool])


def test_fewer_replays_find_the_plan(monkeypatch):
    fleet = fleet_of((4000.0, 0.1, 6, 16.0))
    made = []
    replay = service_replays.replay_service
    monkeypatch.setattr(service_replays, "replay_service", lambda *args, **kw: made.append(1) or replay(*args, **kw))

    prospects = prospects_of(fleet)
    plan_of(prospects, silent)
    needed = len(made)
    plan_of(with_every_way_replayed(prospects_of(fleet)), silent)

    assert needed < (len(made) - needed) / 2


def test_a_way_that_waits_is_compared_once_with_each_candidate(monkeypatch):
    compared, beats = Counter(), workload_options._beats

    def counted(one, other, coupling):
        compared[one, other] += not other.outcome.attained  # a lower bound says nothing of targets
        return beats(one, other, coupling)

    monkeypatch.setattr(workload_options, "_beats", counted)

    plan_of(prospects_of(fleet_of((4000.0, 0.1, 6, 16.0))), silent)

    assert max(compared.values()) == 1


def test_what_was_not_replayed_is_counted():
    plan = plan_of(prospects_of(fleet_of((4000.0, 0.1, 6, 16.0))), silent).plan

    assert sum(count for reason, count in plan.pruned.items() if reason.startswith("not replayed")) > 0
    assert sum(plan.pruned.values()) <= plan.options


def under(**limits):
    return replace(SETTINGS, limits=Limits(**limits))


def plan_or_refusal(prospects):
    try:
        return plan_of(prospects, silent).plan
    except PlanError:
        return None


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(st.lists(SERVICES, min_size=1, max_size=2), st.integers(2, 12))
def test_under_a_quota_too_plan_and_price_of_the_quota_are_those_with_every_way_replayed(services, nodes):
    limited = under(quotas=f"a2-highgpu-1g={nodes}")
    prospects = prospects_of(fleet_of(*services, at=limited), limited)

    needed = plan_or_refusal(prospects)
    everything = plan_or_refusal(with_every_way_replayed(prospects))

    assert (needed is None) == (everything is None)
    if needed is None or everything is None:
        return
    near = {"rel": SETTINGS.planning.mip_gap_frac, "abs": 1}
    assert needed.after_micro_usd == pytest.approx(everything.after_micro_usd, **near)
    (price,), (known,) = needed.limits, everything.limits
    assert price.use.binds == known.use.binds
    slack_usd_mo = 2 * SETTINGS.planning.mip_gap_frac * per_month(usd(everything.after_micro_usd), DAYS * 24)
    assert price.cost_usd_mo == pytest.approx(known.cost_usd_mo, abs=slack_usd_mo)


def test_a_quota_that_no_rule_reaches_costs_no_replay():
    service = (4000.0, 0.1, 6, 16.0)
    with counting() as free:
        plan_of(prospects_of(fleet_of(service)), silent)
    limited = under(quotas="a2-highgpu-1g=200")
    with counting() as wide:
        plan = plan_of(prospects_of(fleet_of(service, at=limited), limited), silent).plan

    assert sum(wide.replays.values()) <= sum(free.replays.values())
    assert [limit.cost_usd_mo for limit in plan.limits] == [0.0]


def test_where_the_share_of_spot_is_limited_every_way_is_replayed():
    limited = under(spot_max_frac=0.5)

    prospects = prospects_of(fleet_of((4000.0, 0.1, 6, 16.0), at=limited), limited)

    assert not any(judged.waiting for judged in prospects.options if judged)


@pytest.mark.parametrize("most_hr", [1500.0, 4000.0, 9000.0])
def test_fewer_replicas_than_the_law_needs_miss_a_target(most_hr):
    (judged,) = prospects_of(fleet_of((most_hr, 0.3, 8, 8.0))).options
    evaluator = judged.evaluator

    def holding(replicas):
        return AS_IT_IS.plus((replica_count.NAME, SetReplicas(replicas=replicas, before=8)))

    least = evaluator.least_number(holding(1))

    assert least >= 1
    assert not any(evaluator.keeps_targets(holding(replicas)) for replicas in range(1, least))


def parts(plan):
    """All that a plan says, by field."""
    return {field.name: getattr(plan, field.name) for field in fields(plan)}


def other_world(market, at):
    """Nodes at a third more, and nobody may commit."""
    limits = Limits(use_commitments=False)
    catalog = changed(market.catalog, [price_change("aws+30%"), price_change("gcp+30%")])
    return replace(market, catalog=catalog, limits=limits, max_term_years=0), replace(at, limits=limits)


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(st.lists(SERVICES, min_size=1, max_size=2))
def test_at_other_prices_and_limits_nothing_is_replayed_twice_and_the_plan_is_the_same(services):
    fleet = fleet_of(*services)
    base = plan_of(prospects_of(fleet), silent)
    market, at = other_world(market_of(), SETTINGS)

    with counting() as afresh:
        alone = plan_of(judge(fleet, market, at, seed=7, progress=silent), silent)
    with counting() as again:
        beside = plan_of(
            judge(fleet, market, at, seed=7, progress=silent, earlier=EarlierWork(replayed=base.prospects)), silent
        )

    assert parts(beside.plan) == parts(alone.plan)
    assert beside.deployments == alone.deployments
    assert sum(again.replays.values()) <= sum(afresh.replays.values())


def test_the_same_world_once_more_replays_nothing():
    fleet = fleet_of((4000.0, 0.02, 8, 8.0))
    base = plan_of(prospects_of(fleet), silent)

    with counting() as again:
        judged = judge(
            fleet, market_of(), SETTINGS, seed=7, progress=silent, earlier=EarlierWork(replayed=base.prospects)
        )
        assert parts(plan_of(judged, silent).plan) == parts(base.plan)

    assert sum(again.replays.values()) == 0


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(SERVICES, SERVICES, st.sampled_from([4.0, 8.0, 16.0]))
def test_under_another_target_only_its_workload_is_judged_again_and_the_plan_is_as_good(one, other, limit_s):
    fleet, market = fleet_of(one, other), market_of()
    base = plan_of(judge(fleet, market, SETTINGS, seed=7, progress=silent), silent)
    fleet = with_other_limits(fleet, [other_limit(f"a/s1={limit_s:g}")])

    beside = judge(fleet, market, SETTINGS, seed=7, progress=silent, earlier=EarlierWork(replayed=base.prospects))
    alone = plan_of(judge(fleet, market, SETTINGS, seed=7, progress=silent), silent)
    found = plan_of(beside, silent)

    assert beside.options[0] is base.prospects.options[0]
    assert beside.options[1].evaluator.case.targets == fleet.workload("a/s1").targets
    gap = SETTINGS.planning.mip_gap_frac
    assert found.plan.after_micro_usd == pytest.approx(alone.plan.after_micro_usd, rel=gap, abs=1)
    assert found.plan.bound_micro_usd <= min(found.plan.after_micro_usd, alone.plan.after_micro_usd)


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(SERVICES)
def test_a_way_of_a_queue_uses_at_least_what_the_one_before_it_does(service):
    (judged,) = prospects_of(fleet_of(service)).options
    evaluator, sieve = judged.evaluator, judged.sieve

    assert judged.queued == sum(len(queue) for queue in sieve.behind.values())
    for first, queue in sieve.behind.items():
        bounds = [evaluator.least(way) for way in (first.deployment, *queue)]
        for one, other in pairwise(bounds):
            assert np.all(one.on_demand <= other.on_demand)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(SERVICES)
def test_a_target_missed_under_stress_is_told_by_fewer_replays_and_the_verdict_is_the_same(service):
    (judged,) = prospects_of(fleet_of(service)).options
    case, margin_frac = judged.evaluator.case, SETTINGS.planning.target_margin_frac

    for way in judged.waiting[:40]:
        with counting() as both:
            whole = Evaluator(case=case).judged(way.deployment)
        with counting() as first:
            keeps = Evaluator(case=case).keeps_targets(way.deployment)

        assert keeps == (not whole.missed(margin_frac))
        assert sum(first.replays.values()) == sum(both.replays.values()) - (not keeps)


def test_what_failed_under_stress_is_kept_for_the_next_command(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))
    (judged,) = prospects_of(fleet_of((4000.0, 0.1, 6, 16.0))).options
    ways = [way.deployment for way in judged.waiting[:40]]

    def kept_ways():
        with outcome_cache() as store, counting() as work:
            evaluator = Evaluator(case=replace(judged.evaluator.case, store=store))
            return [way for way in ways if evaluator.keeps_targets(way)], sum(work.replays.values())

    found, made = kept_ways()

    assert 0 < len(found) < len(ways)
    assert made
    assert kept_ways() == (found, 0)

"""Arrivals inside a step: drawn as users come, and what a rule that follows them then costs in another's world."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.proving.world import service as world
from benchmarks.proving.world.arrivals import arrivals as drawn_times

from trimtab.policies.scaling import SYNC_S, HpaPolicy
from trimtab.replay.fluid import serve_history
from trimtab.replay.nodes import bill_each_node
from trimtab.replay.services import ServiceHistory, ServiceModel, arrivals_by_decision, replay_service, usual_demand

MINUTE_S, HOURS = 60, 72
BOOT_S, LOAD_S, KEPT_S = 180.0, 90.0, 600.0
SERVER = world.Server(slots=8, crowding=0.05)
WORK_S = 8.0


def test_every_step_keeps_its_total_and_what_nobody_counted_stays_unknown():
    counts = np.array([0.0, 1.0, 7.0, np.nan, 2.5, 400.0])

    split = arrivals_by_decision(counts, step_s=60, seed=[7]).reshape(-1, 4)

    known = ~np.isnan(counts)
    assert np.array_equal(split[[0, 1, 2, 5]].sum(axis=1), counts[[0, 1, 2, 5]])
    assert split[known].sum(axis=1) == pytest.approx(counts[known])
    assert np.isnan(split[3]).all()
    assert np.array_equal(split[[1, 2, 5]], np.rint(split[[1, 2, 5]]))


def test_a_seed_gives_the_same_split_and_another_seed_another():
    counts = np.full(50, 20.0)

    assert np.array_equal(*(arrivals_by_decision(counts, step_s=60, seed=[7, 1]) for _ in range(2)))
    assert not np.array_equal(*(arrivals_by_decision(counts, step_s=60, seed=[7, one]) for one in (1, 2)))


def test_quarters_of_a_minute_spread_as_independent_arrivals_do():
    split = arrivals_by_decision(np.full(20_000, 40.0), step_s=60, seed=[7])

    assert split.var() == pytest.approx(40 * 0.25 * 0.75, rel=0.03)  # of a binomial


def test_what_came_by_decision_is_not_split():
    counts = np.arange(5.0)
    assert arrivals_by_decision(counts, step_s=SYNC_S, seed=[7]) is counts


def test_a_gap_holds_what_is_usual_at_its_hour_and_a_demand_that_nobody_measured_stays_unknown():
    days = np.tile(np.repeat(np.arange(24.0), 60), 4)
    holed = days.copy()
    holed[1440:2880] = np.nan
    never_seen = days.copy()
    never_seen[np.arange(len(days)) // 60 % 24 == 5] = np.nan

    assert np.array_equal(usual_demand(holed, step_s=60), days)
    assert usual_demand(never_seen, step_s=60)[5 * 60] == pytest.approx(np.nanmean(never_seen))
    assert np.isnan(usual_demand(np.full(10, np.nan), step_s=60)).all()
    assert usual_demand(days, step_s=60) is days


def test_a_rule_scales_through_a_gap_of_the_history_and_nothing_in_it_counts():
    minute = np.arange(4 * 1440)
    known = 60 * (3 - 2 * np.cos(2 * np.pi * minute / 1440))
    holed = known.copy()
    holed[1440:2880] = np.nan
    policy = HpaPolicy(target_frac=0.7, min_replicas=1, max_replicas=40)

    def replayed(arrivals, within):
        history = ServiceHistory(arrivals=arrivals, step_s=60, within=within)
        return replay_service(history, model(1.0, 1), policy, initial_replicas=4)

    whole = replayed(known, known.repeat(4) / 4)
    filled = replayed(holed, usual_demand(holed, step_s=60).repeat(4) / 4)
    held = replayed(holed, holed.repeat(4) / 4)

    assert filled.gap_steps == 1440
    assert filled.requests == pytest.approx(np.nansum(holed))
    assert filled.node_seconds.sum() == pytest.approx(whole.node_seconds.sum(), rel=0.02)
    assert (
        abs(held.node_seconds.sum() / whole.node_seconds.sum() - 1) > 0.04
    )  # the level at which the gap began, for a day


def test_requests_are_judged_over_whole_steps_and_the_rule_sees_what_came_inside():
    counts = np.full(600, 60.0)
    even, drawn = (
        ServiceHistory(arrivals=counts, step_s=60, within=within)
        for within in (None, arrivals_by_decision(counts, step_s=60, seed=[7]))
    )
    still = HpaPolicy(target_frac=0.5, min_replicas=3, max_replicas=3)
    scaled = still._replace(min_replicas=2, max_replicas=20)

    def replayed(history, policy):
        return replay_service(history, model(1.0, 1), policy, initial_replicas=3)

    assert np.array_equal(replayed(even, still).ok, replayed(drawn, still).ok)
    assert replayed(even, scaled).scale_ups == 0
    assert replayed(drawn, scaled).scale_ups > 0


def model(capacity_req_s, per_node):
    return ServiceModel(
        capacity_req_s=capacity_req_s,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([10.0]),
        cold_start_s=BOOT_S + LOAD_S,
        warm_start_s=LOAD_S,
        empty_node_kept_s=KEPT_S,
        gpus_per_node=per_node,
    )


IMAGE_S, SPREAD = 24.0, 0.55


def answered_in_turn(rate_req_s, target_frac, window_s):
    """Node-hours in a world of single requests on replicas with one place each, and in the replay of the same minutes."""
    rng = np.random.default_rng(5)
    wave = rate_req_s * (0.6 + 0.4 * np.sin(2 * np.pi * np.arange(HOURS * 60) / 1440))
    times = drawn_times(wave, rng)
    policy = HpaPolicy(target_frac, 2, 32, down_stabilization_s=window_s, window_s=300)
    played = world.play(
        times,
        rng.lognormal(np.log(IMAGE_S) - SPREAD**2 / 2, SPREAD, len(times)),
        server=world.Server(slots=1),
        nodes=world.Nodes(replicas_per_node=1, boot_s=BOOT_S, load_s=LOAD_S, empty_kept_s=KEPT_S),
        start=world.Start.packed(4, 1),
        horizon_s=HOURS * 3600.0,
        scaling=world.Scaling(
            minimum=2,
            maximum=32,
            target_frac=target_frac,
            capacity_req_s=1 / IMAGE_S,
            mean_ticks=20,
            down_window_s=window_s,
            down_percent=100,
        ),
    )
    counts = np.bincount((times // MINUTE_S).astype(np.int64), minlength=HOURS * 60).astype(np.float64)
    history = ServiceHistory(
        arrivals=counts, step_s=MINUTE_S, within=arrivals_by_decision(counts, step_s=MINUTE_S, seed=[7])
    )
    in_turn = replace(model(1 / IMAGE_S, 1), one_by_one_spread=SPREAD)
    return float(np.diff(played.nodes, axis=1).sum()) / 3600, history, in_turn, policy


@pytest.mark.parametrize("window_s", [300, 900])
@pytest.mark.parametrize("target_frac", [0.5, 0.7])
@pytest.mark.parametrize("rate_req_s", [0.1, 0.3])
def test_requests_that_wait_their_turn_cost_what_they_cost_in_a_world_of_single_requests(
    rate_req_s, target_frac, window_s
):
    true_hr, history, in_turn, policy = answered_in_turn(rate_req_s, target_frac, window_s)

    replayed = replay_service(history, in_turn, policy, initial_replicas=4)

    assert replayed.node_seconds.sum() / 3600 == pytest.approx(true_hr, rel=0.03)


def test_the_compiled_line_is_that_of_the_interpreted_one(monkeypatch):
    _, history, in_turn, policy = answered_in_turn(0.3, 0.7, 300)
    compiled = replay_service(history, in_turn, policy, initial_replicas=4)

    monkeypatch.setattr("trimtab.replay.services.serve_history", serve_history.py_func)
    interpreted = replay_service(history, in_turn, policy, initial_replicas=4)

    assert compiled.held.tobytes() == interpreted.held.tobytes()


def lived(rate_req_s, target_frac, per_node, *, known_frac=1.0, window_s=SYNC_S, **nodes):
    """Node-hours of a small service in a world of single requests, its arrivals by minute, and its replays' model and policy.

    The rule and the replay know a share of what a replica truly serves.
    """
    rng = np.random.default_rng(3)
    minute = np.arange(HOURS * 60)
    wave = rate_req_s * (0.6 + 0.4 * np.sin(2 * np.pi * minute / 1440))
    times = drawn_times(wave, rng)
    capacity = SERVER.capacity_req_s(WORK_S) * known_frac
    played = world.play(
        times,
        rng.lognormal(np.log(WORK_S) - 0.08, 0.4, len(times)),
        server=SERVER,
        nodes=world.Nodes(replicas_per_node=per_node, boot_s=BOOT_S, load_s=LOAD_S, empty_kept_s=KEPT_S, **nodes),
        start=world.Start.packed(4, per_node),
        horizon_s=HOURS * 3600.0,
        scaling=world.Scaling(
            minimum=2, maximum=16, target_frac=target_frac, capacity_req_s=capacity, mean_ticks=window_s // SYNC_S
        ),
    )
    counts = np.bincount((times // MINUTE_S).astype(int), minlength=len(minute)).astype(float)
    policy = HpaPolicy(target_frac=target_frac, min_replicas=2, max_replicas=16, window_s=window_s)
    true = np.subtract(played.nodes[:, 1], played.nodes[:, 0]).sum() / 3600
    return true, counts, model(capacity, per_node), policy


def node_hr(counts, within, server, policy):
    history = ServiceHistory(arrivals=counts, step_s=MINUTE_S, within=within)
    return replay_service(history, server, policy, initial_replicas=4).node_seconds.sum() / 3600


@pytest.mark.parametrize(("rate_req_s", "target_frac"), [(1.0, 0.55), (2.0, 0.55), (2.0, 0.8), (4.0, 0.7)])
def test_a_small_service_costs_what_it_costs_in_a_world_of_single_requests(rate_req_s, target_frac):
    true, counts, server, policy = lived(rate_req_s, target_frac, per_node=1)

    drawn = node_hr(counts, arrivals_by_decision(counts, step_s=MINUTE_S, seed=[7]), server, policy)
    even = node_hr(counts, None, server, policy)

    assert drawn == pytest.approx(true, rel=0.03)
    assert even < 0.95 * true  # what the replay took it for while arrivals came evenly


@pytest.mark.parametrize("rate_req_s", [2.0, 4.0])
def test_a_rule_that_knows_less_than_a_replica_serves_is_told_of_no_queue_that_servers_do_not_report(rate_req_s):
    true, counts, server, policy = lived(rate_req_s, 0.8, per_node=1, known_frac=0.7, window_s=300)
    drawn = arrivals_by_decision(counts, step_s=MINUTE_S, seed=[7])

    careful, full = (
        node_hr(counts, drawn, replace(server, full_req_s=served), policy)
        for served in (None, SERVER.capacity_req_s(WORK_S))
    )

    assert full == pytest.approx(true, rel=0.03)
    assert careful > 1.05 * true  # what such plans were claimed to cost


@pytest.mark.parametrize("spreads", [True, False])
@pytest.mark.parametrize("rate_req_s", [2.0, 4.0, 6.0])
def test_nodes_of_several_replicas_cost_what_they_cost_where_pods_are_placed_one_by_one(rate_req_s, spreads):
    true, counts, server, policy = lived(rate_req_s, 0.55, 4, consolidates=True, spreads=spreads)
    drawn = arrivals_by_decision(counts, step_s=MINUTE_S, seed=[7])
    history = ServiceHistory(arrivals=counts, step_s=MINUTE_S, within=drawn)
    found = replay_service(history, server, policy, initial_replicas=4)

    each = np.zeros(HOURS, dtype=np.int64)
    start_steps = round((BOOT_S + LOAD_S) / SYNC_S), round(LOAD_S / SYNC_S)
    bill_each_node(found.held, 4, round(KEPT_S / SYNC_S), start_steps, spreads, True, each)

    assert each.sum() / 3600 == pytest.approx(true, rel=0.05)

"""The world against closed forms and cases worked by hand."""

from __future__ import annotations

from math import factorial, inf

import numpy as np
import pytest
from benchmarks.proving.world.arrivals import arrivals
from benchmarks.proving.world.billing import Committed, Kind, bill_usd, node_hours
from benchmarks.proving.world.clock import DAY_S, HOUR_S, MINUTE_S
from benchmarks.proving.world.hardware import relative_speed
from benchmarks.proving.world.hpa import desired_replicas, limited, stabilized
from benchmarks.proving.world.runs import Checkpoints, Ground, Run, play_runs
from benchmarks.proving.world.service import Guard, Nodes, Played, Scaling, Server, Start, play


def erlang_c_wait_s(rate_s: float, work_s: float, servers: int) -> float:
    """Return the mean wait of M/M/c."""
    load = rate_s * work_s
    last = load**servers / factorial(servers) * servers / (servers - load)
    waits = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return waits * work_s / (servers - load)


@pytest.mark.parametrize("slots", [1, 4])
def test_the_mean_wait_is_that_of_erlang_c(slots: int) -> None:
    # given: 4 servers at 80 % load, as four replicas of one place or one replica of four
    rng = np.random.default_rng(5)
    arrival_s = arrivals(np.full(6 * DAY_S // MINUTE_S, 3.2), rng)
    work_s = rng.exponential(1.0, len(arrival_s))

    played = play(
        arrival_s,
        work_s,
        server=Server(slots=slots),
        nodes=Nodes(),
        start=Start.packed(4 // slots, 1),
        horizon_s=6.0 * DAY_S,
    )

    done = np.isfinite(played.latency_s)
    wait_s = played.latency_s[done] - work_s[done]
    assert wait_s.mean() == pytest.approx(erlang_c_wait_s(3.2, 1.0, 4), rel=0.05)
    assert played.activity.mean() == pytest.approx(0.95 * 0.8, rel=0.02)


def test_a_crowded_replica_shares_its_speed() -> None:
    # given: two requests of 10 s at once, each slowed by 50 % of itself by the other
    played = play(
        np.array([0.0, 0.0, 100.0]),
        np.array([10.0, 10.0, 10.0]),
        server=Server(slots=2, crowding=0.5),
        nodes=Nodes(),
        start=Start.packed(1, 1),
        horizon_s=300.0,
    )

    assert played.latency_s == pytest.approx([15.0, 15.0, 10.0])


def test_work_on_a_node_of_twice_the_speed_takes_half_the_time() -> None:
    played = play(
        np.array([0.0, 1.0]),
        np.array([10.0, 10.0]),
        server=Server(slots=1),
        nodes=Nodes(),
        start=Start(node_of=[0, 1], speeds=[2.0, 1.0]),
        horizon_s=60.0,
    )

    assert played.latency_s == pytest.approx([5.0, 10.0])


def test_the_hpa_follows_its_formula() -> None:
    assert desired_replicas(4, 6.0, 1.0, 0.1, 0.1) == 6
    assert desired_replicas(4, 4.39, 1.0, 0.1, 0.1) == 4
    assert desired_replicas(4, 4.41, 1.0, 0.1, 0.1) == 5
    assert desired_replicas(10, 3.0, 0.65, 0.1, 0.1) == 5
    assert desired_replicas(0, 0.2, 0.65, 0.1, 0.1) == 1


def test_the_hpa_goes_down_to_the_highest_recommendation_of_its_window() -> None:
    recent = np.full(512, np.nan)

    got = [stabilized(recent, at, 0, 3, desired, 10) for at, desired in enumerate([8, 5, 5, 5])]

    assert got == [8, 8, 8, 5]


def test_the_replicas_at_the_start_count_as_a_recommendation() -> None:
    recent = np.full(512, np.nan)
    recent[-1] = 10

    got = [stabilized(recent, at, 0, 3, 5, 10) for at in range(3)]

    assert got == [10, 10, 5]


def test_a_pod_takes_room_that_there_is_before_a_new_node() -> None:
    # given: 4 nodes of 2; demand falls from 8 replicas to 2 and rises to 4 again
    arrival_s = np.concatenate([np.arange(0, 600, 1 / 7), np.arange(600, 1500, 1.0), np.arange(1500, 1800, 1 / 3.5)])
    played = play(
        arrival_s,
        np.full(len(arrival_s), 0.9),
        server=Server(slots=1),
        nodes=Nodes(replicas_per_node=2, boot_s=30.0, load_s=15.0, empty_kept_s=3600.0),
        start=Start.packed(8, 2),
        horizon_s=1800.0,
        scaling=Scaling(minimum=1, maximum=8, target_frac=1.0),
    )

    assert len(played.nodes) == 4


def test_a_node_that_consolidation_drains_goes_at_once_and_takes_no_new_pod() -> None:
    # given: 2 nodes of 4 with two pods each; nothing happens for ten minutes, so that one of them is drained
    played = play(
        np.zeros(0),
        np.zeros(0),
        server=Server(slots=1),
        nodes=Nodes(replicas_per_node=4, boot_s=60.0, load_s=60.0, empty_kept_s=600.0, consolidates=True, spreads=True),
        start=Start(node_of=[0, 0, 1, 1], speeds=[1.0, 1.0]),
        horizon_s=3600.0,
    )

    # then: it is gone with its pods, and these are on the other
    assert played.nodes.tolist() == [[0.0, 600.0], [0.0, 3600.0]]


def test_behaviours_limit_the_change_within_a_period() -> None:
    changes = np.zeros(512)

    assert limited(changes, 0, 1, 3, 30, 100.0, 4, True) == 7
    assert limited(changes, 0, 1, 10, 30, 100.0, 4, True) == 20
    assert limited(changes, 0, 1, 10, 1, 100.0, 0, False) == 1
    assert limited(changes, 0, 1, 10, 1, 50.0, 0, False) == 5
    changes[1] = 4
    assert limited(changes, 2, 2, 7, 30, 100.0, 4, True) == 7


def test_scaling_up_waits_for_the_node_and_the_load() -> None:
    # given: one replica that a constant load would keep busy three times over, from a start of 1
    arrival_s = np.arange(0, 1200, 1 / 3)
    work_s = np.ones(len(arrival_s))

    played = play(
        arrival_s,
        work_s,
        server=Server(slots=1),
        nodes=Nodes(boot_s=100.0, load_s=50.0),
        start=Start.packed(1, 1),
        horizon_s=1200.0,
        scaling=Scaling(minimum=1, maximum=8, target_frac=1.0, lag_ticks=0),
    )

    # then: decided at the first tick, ready 150 s later, and only the first replica has served until then
    assert played.nodes[1][0] == pytest.approx(15.0)
    assert played.minutes[1, 2] == pytest.approx(60.0)
    assert played.minutes[3, 2] > 60.0


def test_a_rule_on_a_mean_does_not_follow_every_clump() -> None:
    # given: a replica's worth of requests a minute, all within the minute's first ten seconds, and rules on 15 s and on 5 min
    arrival_s = np.concatenate([minute * 60 + np.linspace(0, 10, 60) for minute in range(120)])

    def replica_seconds(mean_ticks: int) -> float:
        played = play(
            arrival_s,
            np.full(len(arrival_s), 0.5),
            server=Server(slots=16),
            nodes=Nodes(),
            start=Start.packed(2, 1),
            horizon_s=7200.0,
            scaling=Scaling(minimum=1, maximum=8, target_frac=0.8, mean_ticks=mean_ticks),
        )
        return float(played.minutes[30:, 2].sum())

    assert replica_seconds(20) < 0.7 * replica_seconds(1)


def test_a_guard_adds_to_the_replicas_that_served_while_latency_was_measured() -> None:
    # given: ten replicas of which five are at work, on requests of 10 s
    def most(guards: list[Guard]) -> int:
        arrival_s = np.arange(0.0, 900.0, 2.0)
        played = play(
            arrival_s,
            np.full(len(arrival_s), 10.0),
            server=Server(slots=1),
            nodes=Nodes(boot_s=600.0, load_s=90.0),
            start=Start.packed(10, 1),
            horizon_s=900.0,
            scaling=Scaling(minimum=10, maximum=64, target_frac=1.0, capacity_req_s=0.1, guards=guards),
        )
        return int(played.replicas.max())

    # 10 s lie in the bucket up to 10 s, whose 95th percentile reads as 9.75 s
    assert most([]) == 10
    assert most([Guard(limit_s=9.7, quantile=0.95, least=1.2, times_most=9.0)]) == 12
    assert most([Guard(limit_s=2.0, quantile=0.95, least=1.2, times_most=9.0)]) == 20
    assert most([Guard(limit_s=9.8, quantile=0.95, least=1.2, times_most=9.0)]) == 10
    # three times the load at most, of which not quite five have been answered in five minutes; nothing up to so many times
    assert most([Guard(limit_s=2.0, quantile=0.95, least=1.2, times_most=3.0)]) == 14
    assert most([Guard(limit_s=2.0, quantile=0.95, least=1.2, times_most=3.0, off=3.0)]) == 10


def test_a_guard_lets_go_of_what_it_remembers_little_by_little() -> None:
    # given: five replicas for a load of 4, requests that take longer for ten minutes, and two hours after that
    arrival_s = np.arange(0.0, 9000.0, 2.5)
    played = play(
        arrival_s,
        np.where(arrival_s < 600.0, 12.0, 8.0),
        server=Server(slots=1),
        nodes=Nodes(boot_s=0.0, load_s=15.0),
        start=Start.packed(5, 1),
        horizon_s=9000.0,
        scaling=Scaling(
            minimum=5,
            maximum=64,
            target_frac=0.8,
            capacity_req_s=0.1,
            down_window_s=15,
            guards=[Guard(limit_s=10.0, quantile=0.95, least=1.2, kept_frac=0.99, off=1.1)],
        ),
    )

    after = played.replicas[80:]
    assert after[0] > 6
    assert after[-1] == 5
    assert sorted(set(after), reverse=True) == list(dict.fromkeys(after))


def test_a_quota_keeps_pods_pending() -> None:
    arrival_s = np.arange(0, 3600, 0.2)
    played = play(
        arrival_s,
        np.ones(len(arrival_s)),
        server=Server(slots=1),
        nodes=Nodes(quota=3),
        start=Start.packed(1, 1),
        horizon_s=3600.0,
        scaling=Scaling(minimum=1, maximum=8, target_frac=1.0),
    )

    assert len(played.nodes) == 3
    assert np.isinf(played.latency_s).any()


def run(name: str, submit_s: float, work_s: float, pods: int = 1, gpus: int = 1) -> Run:
    return Run(name=name, workload="a/b", submit_s=submit_s, pods=pods, pod_gpus=gpus, work_s=work_s)


def test_a_queue_of_gangs_worked_by_hand() -> None:
    # given: two nodes of two GPUs; a gang of two pods waits for both, and a small run behind it does not overtake
    runs = [run("a", 0.0, 100.0), run("b", 10.0, 50.0, pods=2, gpus=2), run("c", 20.0, 10.0)]

    story = play_runs(runs, Ground(gpus_per_node=2, standing=2), horizon_s=1000.0)

    assert {one.run.name: (one.start_s, one.end_s) for one in story.ended} == {
        "a": (0.0, 100.0),
        "b": (100.0, 150.0),
        "c": (150.0, 160.0),
    }


def test_elastic_nodes_boot_hold_what_fits_and_go_when_empty() -> None:
    ground = Ground(gpus_per_node=2, elastic=True, boot_s=30.0, empty_kept_s=60.0)
    runs = [run("a", 0.0, 100.0), run("b", 10.0, 100.0), run("wide", 10.0, 100.0, pods=2, gpus=2)]

    story = play_runs(runs, ground, horizon_s=1000.0)

    # b shares a's node, which is still booting; the gang takes two more
    assert {one.run.name: one.start_s for one in story.ended} == {"a": 30.0, "b": 30.0, "wide": 40.0}
    assert [(node.start_s, node.end_s) for node in story.nodes] == [(0.0, 190.0), (10.0, 200.0), (10.0, 200.0)]


def test_a_run_resumes_from_its_checkpoint_on_demand_where_spot_is_gone() -> None:
    ground = Ground(
        gpus_per_node=1,
        elastic=True,
        boot_s=0.0,
        empty_kept_s=0.0,
        spot=True,
        droughts=[(250.0, 10_000.0)],
    )

    story = play_runs(
        [run("a", 1.0, 400.0)],
        ground,
        horizon_s=5000.0,
        checkpoints=Checkpoints(interval_s=100.0, restore_s=20.0),
    )

    # 249 s done, 200 saved; 200 left and 20 to restore
    assert story.ended[0].losses == 1
    assert story.ended[0].end_s == pytest.approx(250.0 + 20.0 + 200.0)
    assert [(node.spot, node.start_s) for node in story.nodes] == [(True, 1.0), (False, 250.0)]


def test_a_pod_wider_than_any_node_never_starts_and_blocks_nobody() -> None:
    runs = [run("wide", 0.0, 1.0, gpus=4), run("narrow", 1.0, 1.0)]

    story = play_runs(runs, Ground(gpus_per_node=1, elastic=True, boot_s=10.0), horizon_s=100.0)

    assert {one.run.name: one.start_s for one in story.ended} == {"wide": inf, "narrow": 11.0}


def test_committed_nodes_are_paid_whether_used_or_not() -> None:
    lives = [(0.0, 2.0 * HOUR_S), (1800.0, 3600.0)]
    hours = node_hours(lives, start_s=0.0, hours=3)

    assert hours == pytest.approx([1.5, 1.0, 0.0])
    kind = Kind(instance_type="x")
    assert bill_usd({kind: hours}, {kind: 10.0}) == pytest.approx(25.0)
    assert bill_usd({kind: hours}, {kind: 10.0}, [Committed(instance_type="x", nodes=1, usd_hr=6.0)]) == pytest.approx(
        23.0
    )


def test_relative_speed_lies_between_the_ratios_of_bandwidth_and_arithmetic() -> None:
    assert relative_speed("H100-SXM5-80GB", "A100-SXM4-80GB", compute_frac=1.0) == pytest.approx(989 / 312)
    assert relative_speed("H100-SXM5-80GB", "A100-SXM4-80GB", compute_frac=0.0) == pytest.approx(3350 / 2039)
    assert relative_speed("H100-SXM5-80GB", "A100-SXM4-80GB", compute_frac=0.0, host_frac=1.0) == pytest.approx(1.0)
    assert relative_speed("unheard of", "T4", compute_frac=0.5) is None


def test_counts_cluster_as_asked() -> None:
    rng = np.random.default_rng(2)
    at = arrivals(np.full(20_000, 1.0), rng, dispersion=6.0)

    counts = np.bincount((at // MINUTE_S).astype(int), minlength=20_000)

    assert counts.mean() == pytest.approx(60, rel=0.01)
    assert counts.var() / counts.mean() == pytest.approx(6.0, rel=0.1)


def test_keda_gives_up_the_last_replica_and_starts_one_for_who_asks_at_the_gateway() -> None:
    # given: a request at the start and one two hours later, which takes a node of 180 s and a load of 90 s
    def played(wake_window_s: float) -> Played:
        return play(
            np.array([10.0, 7200.0]),
            np.array([5.0, 5.0]),
            server=Server(slots=1),
            nodes=Nodes(boot_s=180.0, load_s=90.0, empty_kept_s=600.0),
            start=Start.packed(1, 1),
            horizon_s=4.0 * HOUR_S,
            scaling=Scaling(
                minimum=0, maximum=1, target_frac=0.7, cooldown_s=360.0, polling_s=15.0, wake_window_s=wake_window_s
            ),
            gives_up_s=900.0,
        )  # fmt: skip

    woken, never = played(120.0), played(0.0)

    assert woken.latency_s[0] == pytest.approx(5.0)
    assert 270.0 < woken.latency_s[1] < 270.0 + 5.0 + 60.0
    assert never.latency_s[1] == inf  # nothing before the pods tells of it
    first, second = woken.nodes
    assert first[1] == pytest.approx(10 + 120 + 360 + 600, abs=90)
    assert second[0] == pytest.approx(7200.0, abs=60)
    assert len(never.nodes) == 1


def test_a_trigger_by_the_hour_holds_replicas_while_nothing_comes() -> None:
    played = play(
        np.zeros(0),
        np.zeros(0),
        server=Server(slots=1),
        nodes=Nodes(boot_s=30.0, load_s=30.0),
        start=Start.packed(1, 1),
        horizon_s=3600.0,
        scaling=Scaling(minimum=1, maximum=8, target_frac=1.0, timed=((600.0, 1200.0, 5),)),
    )

    # five from the decision at 600 s on, until five minutes after the last that asked
    assert [int(played.replicas[at]) for at in (38, 39, 78, 97, 98)] == [1, 5, 5, 5, 1]

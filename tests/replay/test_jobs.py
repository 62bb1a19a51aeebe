"""Jobs replayed: queues, losses, checkpoints, fallback."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.replay.jobs import Checkpoints, JobHistory, JobRules, Spot, replay_jobs, saved_work_s

SAVES = Checkpoints(interval_s=600.0, save_s=60.0, restore_s=30.0)


def jobs(count=1, work_s=7200.0, nodes=1, every_s=0.0):
    return JobHistory(submit_s=np.arange(count) * every_s, work_s=np.full(count, work_s), nodes=np.full(count, nodes))


def test_on_demand_a_job_pays_its_start_and_its_work():
    result = replay_jobs(jobs(nodes=2), JobRules(startup_s=300.0), hours=3, seed=0)

    assert result.on_demand_node_seconds.tolist() == [7200, 7200, 600]
    assert result.finish_s.tolist() == [7500.0]


def test_its_nodes_are_billed_until_they_are_given_back_once_it_has_ended():
    kept = JobRules(startup_s=300.0, empty_node_kept_s=60.0)
    on_spot = replace(kept, capacity=Spot(lifetimes_s=np.array([3600.0 * 5]), on_demand_after=1))

    assert replay_jobs(jobs(nodes=2), kept, hours=3, seed=0).on_demand_node_seconds.tolist() == [7200, 7200, 720]
    assert replay_jobs(jobs(nodes=2), on_spot, hours=3, seed=0).spot_node_seconds.tolist() == [7200, 7200, 720]
    assert replay_jobs(jobs(nodes=2), kept, hours=3, seed=0).finish_s.tolist() == [7500.0]


def test_faster_hardware_shortens_the_work_and_not_the_start():
    result = replay_jobs(jobs(), JobRules(startup_s=300.0, speed=2.0), hours=3, seed=0)
    assert result.finish_s.tolist() == [3900.0]


def test_a_quota_makes_jobs_wait_in_order():
    result = replay_jobs(jobs(3, nodes=2), JobRules(max_nodes=4), hours=5, seed=0)
    assert result.wait_s.tolist() == [0.0, 0.0, 7200.0]


def test_a_job_larger_than_the_quota_is_reported():
    result = replay_jobs(jobs(nodes=8), JobRules(max_nodes=4), hours=5, seed=0)

    assert result.impossible == 1
    assert np.isnan(result.finish_s[0])


def test_lost_work_is_done_and_paid_again():
    market = Spot(lifetimes_s=np.array([1000.0]), on_demand_after=2)

    result = replay_jobs(jobs(), JobRules(capacity=market, checkpoints=SAVES), hours=4, seed=0)

    # 1000 s of life keep one interval of 600 s; 340 s after it are lost; the second life starts with 30 s of restore
    assert result.interruptions == 2
    assert result.lost_s == pytest.approx(400 + 370)
    assert result.spot_node_seconds.sum() == 2000
    assert result.on_demand_node_seconds.sum() == 30 + 6000


def test_a_notice_saves_all_but_the_last_save():
    assert saved_work_s(1000.0, SAVES, 0.0) == 600.0
    assert saved_work_s(1000.0, SAVES, 120.0) == 600.0 + 340.0 - 60.0
    assert saved_work_s(1000.0, Checkpoints(interval_s=None, save_s=60.0, restore_s=0.0), 120.0) == 940.0
    assert saved_work_s(1000.0, None, 120.0) == 0.0


def test_a_job_that_can_never_finish_on_spot_ends_at_infinity():
    market = Spot(lifetimes_s=np.array([100.0]))

    result = replay_jobs(jobs(), JobRules(capacity=market), hours=4, seed=0)

    assert result.finish_s.tolist() == [float("inf")]


def test_more_nodes_are_lost_sooner():
    market = Spot(loss_per_hr=0.2)
    rules = JobRules(capacity=market, checkpoints=SAVES)

    few = replay_jobs(jobs(200, nodes=1), rules, hours=48, seed=3)
    many = replay_jobs(jobs(200, nodes=16), rules, hours=48, seed=3)

    assert many.interruptions > 4 * few.interruptions


def test_the_same_seed_gives_the_same_bytes():
    rules = JobRules(capacity=Spot(loss_per_hr=0.5), checkpoints=SAVES)

    first = replay_jobs(jobs(50), rules, hours=24, seed=5)
    second = replay_jobs(jobs(50), rules, hours=24, seed=5)

    assert first.finish_s.tobytes() == second.finish_s.tobytes()
    assert first.spot_node_seconds.tobytes() == second.spot_node_seconds.tobytes()

"""Jobs replayed: queues, losses, checkpoints, fallback."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.policies.blocks import BlockCalendar
from trimtab.replay.job_nodes import Blocks, Droughts, booked_node_seconds, draw_droughts
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
    on_spot = replace(kept, capacity=Spot(lifetimes_s=np.array([3600.0 * 5])))

    assert replay_jobs(jobs(nodes=2), kept, hours=3, seed=0).on_demand_node_seconds.tolist() == [7200, 7200, 720]
    assert replay_jobs(jobs(nodes=2), on_spot, hours=3, seed=0).spot_node_seconds.tolist() == [7200, 7200, 720]
    assert replay_jobs(jobs(nodes=2), kept, hours=3, seed=0).finish_s.tolist() == [7500.0]


def test_faster_hardware_shortens_the_work_and_not_the_start():
    history = jobs()
    halved = replace(history, work_s=history.work_s / 2)

    result = replay_jobs(halved, JobRules(startup_s=300.0), hours=3, seed=0)
    assert result.finish_s.tolist() == [3900.0]


def test_a_quota_makes_jobs_wait_in_order():
    result = replay_jobs(jobs(3, nodes=2), JobRules(max_nodes=4), hours=5, seed=0)
    assert result.wait_s.tolist() == [0.0, 0.0, 7200.0]


def test_a_job_larger_than_the_quota_is_reported():
    result = replay_jobs(jobs(nodes=8), JobRules(max_nodes=4), hours=5, seed=0)

    assert result.impossible == 1
    assert np.isnan(result.finish_s[0])


def test_lost_work_is_done_and_paid_again():
    market = Spot(lifetimes_s=np.array([1000.0]), droughts=droughts((2000.0, 20_000.0), take_nodes=False))

    result = replay_jobs(jobs(), JobRules(capacity=market, checkpoints=SAVES), hours=4, seed=0)

    # 1000 s of life keep one interval of 600 s; 340 s after it are lost; the second life starts with 30 s of restore
    assert result.interruptions == 2
    assert result.lost_s.sum() == pytest.approx(400 + 370)
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


def droughts(*spells, take_nodes=True, length_s=24 * 3600.0):
    begins, ends = zip(*spells, strict=True)
    return Droughts(begins_s=np.array(begins), ends_s=np.array(ends), length_s=length_s, take_nodes=take_nodes)


def test_a_job_that_starts_in_a_drought_runs_on_demand_to_its_end():
    market = Spot(droughts=droughts((0.0, 600.0)))

    result = replay_jobs(jobs(2, every_s=1000.0), JobRules(capacity=market), hours=3, seed=0)

    assert result.on_demand_node_seconds.sum() == 7200
    assert result.spot_node_seconds.sum() == 7200
    assert result.interruptions == 0
    assert result.wait_s.tolist() == [0.0, 0.0]


def test_a_drought_takes_all_nodes_and_what_ran_on_them_goes_on_on_demand():
    market = Spot(droughts=droughts((1000.0, 1001.0)))

    result = replay_jobs(jobs(3), JobRules(capacity=market, checkpoints=SAVES), hours=4, seed=0)

    # 1000 s keep one interval of 600 s; the rest takes 30 s to restore
    assert result.interruptions == 3
    assert result.spot_node_seconds.sum() == 3 * 1000
    assert result.on_demand_node_seconds.sum() == 3 * (30 + 6600)


def test_a_drought_that_takes_no_nodes_only_keeps_new_ones_away():
    market = Spot(droughts=droughts((1000.0, 5000.0), take_nodes=False))

    result = replay_jobs(jobs(2, every_s=2000.0), JobRules(capacity=market), hours=3, seed=0)

    assert result.interruptions == 0
    assert result.spot_node_seconds.sum() == result.on_demand_node_seconds.sum() == 7200


def test_a_node_lost_after_a_drought_has_ended_is_replaced_on_spot():
    spells = droughts((200.0, 500.0), (1500.0, 20_000.0), take_nodes=False)
    market = Spot(lifetimes_s=np.array([1000.0]), droughts=spells)

    result = replay_jobs(jobs(), JobRules(capacity=market, checkpoints=SAVES), hours=4, seed=0)

    assert result.spot_node_seconds.sum() == 2000


def test_droughts_begin_anew_after_their_length():
    spells = droughts((600.0, 1200.0), length_s=3600.0)

    assert [spells.lasts_at(at) for at in (0.0, 600.0, 1199.0, 1200.0, 3600.0, 4200.0)] == [
        False, True, True, False, False, True,
    ]  # fmt: skip
    assert [spells.next_begin_s(at) for at in (0.0, 600.0, 1300.0, 4300.0)] == [600.0, 4200.0, 4200.0, 7800.0]


@given(frac=st.floats(0.05, 0.9), mean_s=st.floats(600.0, 6 * 3600.0), seed=st.integers(0, 1000))
def test_droughts_are_drawn_apart_and_by_seed(frac, mean_s, seed):
    drawn, again = (draw_droughts(frac, mean_s, 28 * 86_400.0, take_nodes=True, seed=seed) for _ in range(2))

    assert drawn.begins_s.tobytes() == again.begins_s.tobytes()
    assert (drawn.begins_s < drawn.ends_s).all()
    assert (drawn.ends_s[:-1] < drawn.begins_s[1:]).all()
    assert drawn.ends_s.max(initial=0.0) <= drawn.length_s


def test_droughts_last_the_share_of_time_that_is_asked_for():
    drawn = draw_droughts(0.4, 5400.0, 5000 * 86_400.0, take_nodes=True, seed=3)
    spells_s = drawn.ends_s - drawn.begins_s

    assert spells_s.sum() / drawn.length_s == pytest.approx(0.4, abs=0.01)
    assert spells_s.mean() == pytest.approx(5400.0, rel=0.03)
    assert len(draw_droughts(0.0, 5400.0, 86_400.0, take_nodes=True, seed=3).begins_s) == 0


@given(frac=st.floats(0.0, 0.9), seed=st.integers(0, 50), take=st.booleans(), loss=st.floats(0.0, 0.5))
def test_whatever_droughts_do_all_work_is_done_and_billed(frac, seed, take, loss):
    history = jobs(20, every_s=5000.0, nodes=2)
    market = Spot(
        loss_per_hr=loss,
        droughts=draw_droughts(frac, 5400.0, 7 * 86_400.0, take_nodes=take, seed=seed),
    )

    result = replay_jobs(history, JobRules(capacity=market, checkpoints=SAVES), hours=7 * 24, seed=seed)

    billed_s = result.on_demand_node_seconds.sum() + result.spot_node_seconds.sum()
    assert billed_s >= (history.work_s * history.nodes).sum() - 20
    assert np.isfinite(result.finish_s).all()


def beside(submit, work, pods, gpus, **rules):
    count = len(submit)
    history = JobHistory(
        submit_s=np.array(submit, dtype=float), work_s=np.array(work, dtype=float), nodes=np.ones(count, dtype=int),
        pods=np.array(pods), pod_gpus=np.array(gpus, dtype=float),
    )  # fmt: skip
    return history, replay_jobs(history, JobRules(shared_node_gpus=8.0, **rules), hours=48, seed=0)


def test_jobs_that_fit_on_one_node_share_it_and_only_the_first_waits_for_it():
    _, result = beside([0, 1000, 1000], [7200] * 3, [1, 1, 2], [1, 3, 2], startup_s=300.0, empty_node_kept_s=60.0)

    assert result.on_demand_node_seconds.sum() == 1000 + 7200 + 60
    assert result.ready_s.tolist() == [300.0, 1000.0, 1000.0]


def test_a_job_without_room_gets_a_node_of_its_own():
    _, result = beside([0, 0], [7200] * 2, [1, 1], [6, 3])
    assert result.on_demand_node_seconds.sum() == 2 * 7200


def test_a_pod_takes_the_emptiest_node_with_room():
    # the third pod goes beside the lone one, and keeps up the node that would have gone
    _, result = beside([0, 0, 100], [3600, 3600, 7200], [1, 1, 1], [6, 3, 2])
    assert result.on_demand_node_seconds.sum() == 3600 + 7300


def test_an_empty_node_is_found_again_while_it_is_kept():
    _, soon = beside([0, 630], [600] * 2, [1, 1], [8, 4], empty_node_kept_s=60.0)
    _, late = beside([0, 700], [600] * 2, [1, 1], [8, 4], empty_node_kept_s=60.0)

    assert soon.on_demand_node_seconds.sum() == 630 + 600 + 60
    assert late.on_demand_node_seconds.sum() == 2 * 660


def test_a_quota_counts_shared_nodes():
    _, result = beside([0, 0, 0], [3600] * 3, [1, 1, 3], [4, 4, 8], max_nodes=3, empty_node_kept_s=60.0)
    assert result.start_s.tolist() == [0.0, 0.0, 3600.0]
    assert np.isnan(beside([0], [60], [4], [8], max_nodes=3)[1].start_s[0])


@given(
    drawn=st.lists(
        st.tuples(
            st.integers(0, 90_000), st.integers(60, 30_000), st.integers(1, 4), st.sampled_from([0.5, 1, 2, 4, 8])
        ),
        min_size=1,
        max_size=12,
    ),
    quota=st.one_of(st.none(), st.integers(4, 8)),
)
def test_shared_nodes_hold_all_the_work_and_no_more_than_a_node_for_each_pod(drawn, quota):
    submit, work, pods, gpus = zip(*sorted(drawn), strict=True)

    history, result = beside(submit, work, pods, gpus, max_nodes=quota, startup_s=300.0, empty_node_kept_s=60.0)

    gpu_seconds = float((history.work_s * history.pods * history.pod_gpus).sum())
    assert result.impossible == 0
    assert result.on_demand_node_seconds.sum() * 8 >= gpu_seconds - 8 * len(drawn)
    assert result.finish_s - result.ready_s == pytest.approx(history.work_s)
    assert (result.start_s >= history.submit_s).all()
    assert result.on_demand_node_seconds.sum() <= float(((history.work_s + 361) * history.pods).sum()) + 1


def in_blocks(history, nodes, checkpoints=None, hours=7 * 24, **rules):
    blocks = Blocks(calendar=BlockCalendar(nodes), first_week_hour=0)
    return replay_jobs(history, JobRules(capacity=blocks, checkpoints=checkpoints, **rules), hours=hours, seed=0)


MONDAY_NOON_S = 12 * 3600.0


def test_booked_nodes_are_taken_where_enough_are_free_and_the_rest_runs_on_demand():
    history = JobHistory(
        submit_s=MONDAY_NOON_S + np.array([0.0, 60.0, 120.0]),
        work_s=np.full(3, 3600.0),
        nodes=np.array([2, 2, 1]),
    )

    result = in_blocks(history, (3, 0, 0, 0, 0, 0, 0))

    assert result.block_node_seconds.sum() == 3 * 3600
    assert result.on_demand_node_seconds.sum() == 2 * 3600
    assert result.wait_s.tolist() == [0.0, 0.0, 0.0]


def test_a_run_goes_on_on_demand_once_its_block_ends():
    history = JobHistory(submit_s=np.array([MONDAY_NOON_S]), work_s=np.array([24 * 3600.0]), nodes=np.array([1]))

    saved = in_blocks(history, (1, 0, 0, 0, 0, 0, 0), SAVES, startup_s=300.0)
    lost = in_blocks(history, (1, 0, 0, 0, 0, 0, 0), None, startup_s=300.0)

    # the node is taken back on Tuesday at 11:00, after 23 h, of which 300 s went into its start
    assert saved.block_node_seconds.sum() == lost.block_node_seconds.sum() == 23 * 3600
    assert saved.interruptions == lost.interruptions == 1
    assert lost.on_demand_node_seconds.sum() == 300 + 24 * 3600
    assert saved.lost_s.sum() == pytest.approx(
        7500.0, abs=200.0
    )  # a twelfth of the time goes into saving; the last save is lost
    assert saved.on_demand_node_seconds.sum() == pytest.approx(
        300 + 30 + 24 * 3600 - (23 * 3600 - 300) + saved.lost_s.sum()
    )


def test_a_run_is_not_put_on_a_node_that_goes_before_it_is_up():
    history = JobHistory(submit_s=np.array([35 * 3600.0 - 200]), work_s=np.array([3600.0]), nodes=np.array([1]))
    assert in_blocks(history, (1, 0, 0, 0, 0, 0, 0), startup_s=300.0).block_node_seconds.sum() == 0


@given(
    submit=st.lists(st.integers(0, 6 * 86_400), min_size=1, max_size=8),
    work=st.integers(600, 200_000),
    nodes=st.tuples(*[st.integers(0, 3)] * 7),
)
def test_runs_never_use_more_than_is_booked(submit, work, nodes):
    count = len(submit)
    history = JobHistory(
        submit_s=np.sort(np.array(submit, dtype=float)), work_s=np.full(count, float(work)), nodes=np.full(count, 1)
    )

    result = in_blocks(history, nodes, hours=14 * 24)

    paid = booked_node_seconds(Blocks(calendar=BlockCalendar(nodes), first_week_hour=0), 14 * 24)
    assert (result.block_node_seconds <= paid).all()
    assert (result.start_s == history.submit_s).all()
    assert (result.finish_s >= history.submit_s + work - 1).all()


CLOSED = (1800.0, 7200.0)


def test_what_starts_while_no_node_can_be_had_waits_and_what_runs_goes_on():
    result = replay_jobs(jobs(3, every_s=1800.0), JobRules(startup_s=300.0, closed_s=CLOSED), hours=6, seed=0)

    assert result.start_s.tolist() == [0.0, 7200.0, 7200.0]
    assert result.wait_s.tolist() == [0.0, 5400.0, 3600.0]
    assert result.no_node_s.tolist() == [0.0, 5400.0, 3600.0]
    assert result.on_demand_node_seconds.sum() == 3 * 7500


def test_nodes_that_stay_are_there_while_no_other_can_be_had():
    rules = JobRules(closed_s=CLOSED, first_nodes_stay=True)

    assert replay_jobs(jobs(3, every_s=1800.0), rules, hours=6, seed=0).wait_s.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("stay", [False, True])
def test_a_job_that_loses_its_nodes_while_none_can_be_had_goes_on_afterwards(stay):
    market = Spot(droughts=droughts((2000.0, 2001.0)))
    rules = JobRules(capacity=market, checkpoints=SAVES, closed_s=CLOSED, first_nodes_stay=stay)

    result = replay_jobs(jobs(), rules, hours=6, seed=0)

    # 2000 s keep three intervals of 600 s; the rest takes 30 s to restore and 8 saves
    assert result.start_s.tolist() == [0.0]
    assert result.no_node_s.tolist() == [5200.0]
    assert result.finish_s.tolist() == [7200.0 + 30 + 5400 + 8 * 60]


def test_booked_nodes_are_there_while_no_other_can_be_had():
    block = Blocks(calendar=BlockCalendar(nodes=(1,) * 7), first_week_hour=0)

    result = replay_jobs(jobs(2), JobRules(capacity=block, closed_s=(0.0, 7200.0)), hours=24, seed=0)

    assert result.start_s.tolist() == [0.0, 7200.0]


def test_pods_find_room_on_nodes_that_are_up_while_no_other_can_be_had():
    _, result = beside([0, 1800, 1900], [7200, 600, 600], [1, 1, 1], [4, 4, 4], closed_s=CLOSED)

    # the third waits until the second has left
    assert result.start_s.tolist() == [0.0, 1800.0, 2400.0]
    assert result.no_node_s.tolist() == [0.0, 0.0, 500.0]


@given(
    begins=st.floats(0, 20_000), lasts=st.floats(0, 40_000), gpus=st.sampled_from([None, 8.0]), loss=st.floats(0, 0.5)
)
def test_all_work_is_done_and_billed_however_long_no_node_can_be_had(begins, lasts, gpus, loss):
    history = replace(jobs(12, every_s=2000.0), pods=np.ones(12, dtype=int), pod_gpus=np.full(12, 3.0))
    market = {} if gpus else {"capacity": Spot(loss_per_hr=loss)}
    rules = JobRules(shared_node_gpus=gpus, checkpoints=SAVES, closed_s=(begins, begins + lasts), **market)

    result, free = (replay_jobs(history, one, hours=48, seed=1) for one in (rules, replace(rules, closed_s=(0.0, 0.0))))

    billed_s = result.on_demand_node_seconds.sum() + result.spot_node_seconds.sum()
    assert billed_s >= history.work_s.sum() * (3 / 8 if gpus else 1) - 20
    assert (result.start_s >= free.start_s - 1e-6).all()
    assert ((result.start_s < begins) | (result.start_s >= begins + lasts) | (gpus is not None)).all()

"""Models that take turns on one GPU: times worked by hand, and what no replay may break."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.levers.pooling import DISK, HOST_MEMORY, PoolMargin, PoolService, choose_pool, replay_daily, warm_frac
from trimtab.policies.pooling import OWN_REPLICAS, PoolPolicy
from trimtab.replay import pooling
from trimtab.replay.pooling import PooledModel, PoolRequests, replay_pool
from trimtab.units import S_PER_DAY

MODEL = PooledModel(
    name="a", awake_gib=30, asleep_gib=1, wake_s=2, sleep_s=1, growth=0.0, concurrency=16, own_concurrency=64,
    own_start_s=120, wait_limit_s=10,
)  # fmt: skip


def requests(*arrival_s, prompt_s=0.1, answer_s=1.0):
    number = len(arrival_s)
    return PoolRequests(
        arrival_s=np.array(arrival_s, dtype=float),
        prompt_s=np.full(number, float(prompt_s)),
        answer_s=np.full(number, float(answer_s)),
    )


def every(step_s, *, span_s, start_s=0.0):
    return requests(*np.arange(start_s, span_s, step_s))


def test_a_request_waits_for_the_wake_and_for_its_prompt():
    replayed = replay_pool([MODEL], [requests(5)], PoolPolicy(), memory_gib=40, span_s=100)

    assert replayed.first_s[0] == pytest.approx([2.1])
    assert replayed.last_s[0] == pytest.approx([3.1])
    assert replayed.wakes.tolist() == [1]


def test_an_idle_model_sleeps_before_another_wakes_if_both_do_not_fit():
    models = [MODEL, replace(MODEL, name="b")]

    together = replay_pool(models, [requests(0), requests(10)], PoolPolicy(), memory_gib=61, span_s=100)
    in_turns = replay_pool(models, [requests(0), requests(10)], PoolPolicy(), memory_gib=40, span_s=100)

    assert together.first_s[1] == pytest.approx([2.1])
    assert in_turns.first_s[1] == pytest.approx([1 + 2.1])


def test_a_busy_model_is_not_interrupted_however_long_another_waits():
    models = [MODEL, replace(MODEL, name="b")]

    replayed = replay_pool(models, [every(0.5, span_s=60), requests(10)], PoolPolicy(), memory_gib=40, span_s=100)

    assert replayed.first_s[1][0] > 50


def test_limits_in_whole_numbers_compile_nothing_again():
    for policy in (PoolPolicy(own_requests=8, own_idle_s=30), PoolPolicy(own_requests=8.0, own_idle_s=30.0)):
        replay_pool([MODEL], [requests(5)], policy, memory_gib=40, span_s=100)

    assert len(pooling._loop._ready.signatures) == 1


def test_servers_that_work_share_the_gpu_evenly():
    models = [replace(MODEL, pinned=True), replace(MODEL, name="b", pinned=True)]

    replayed = replay_pool(models, [requests(0), requests(0)], PoolPolicy(), memory_gib=60, span_s=100)

    assert replayed.last_s[0] == pytest.approx([2.2])
    assert replayed.last_s[1] == pytest.approx([2.2])


def test_a_crowded_model_gets_a_replica_of_its_own_and_gives_it_back():
    # eight requests at once from 5 s on: one replica is asked for at 15 s, and serves from 20 s on
    model = replace(MODEL, concurrency=4, own_start_s=5, own_concurrency=64)
    policy = PoolPolicy(own_requests=4, own_idle_s=30)

    replayed = replay_pool([model], [requests(*[5.0] * 8, answer_s=99.9)], policy, memory_gib=40, span_s=1000)

    # four wait for the wake, the other four for their own replica
    assert sorted(replayed.first_s[0]) == pytest.approx([2.1] * 4 + [15.1] * 4)
    # the last one ends at 120 s, and 30 s later the replica is given back
    assert replayed.own_s.tolist() == pytest.approx([120 + 30 - 15])


def test_fewer_requests_than_the_limit_keep_a_replica_that_is_held_but_start_none():
    model = replace(MODEL, own_start_s=5)
    crowd, trickle = [0.0] * 8, np.arange(20.0, 200.0, 20.0)
    policy = PoolPolicy(own_requests=8, own_idle_s=30)

    held = replay_pool([model], [requests(*crowd, *trickle, answer_s=19)], policy, memory_gib=40, span_s=1000)
    none = replay_pool([model], [requests(*trickle, answer_s=19)], policy, memory_gib=40, span_s=1000)

    # the last request comes at 180 s and takes 19.1
    assert held.own_s.tolist() == pytest.approx([199.1 + 30 - 15])
    assert none.own_s.tolist() == [0]


def test_models_that_wait_behind_a_busy_one_wake_when_it_moves_to_its_own_replica():
    models = [replace(MODEL, own_start_s=5), replace(MODEL, name="b", own_start_s=5)]
    busy = every(0.1, span_s=60)

    left = replay_pool(models, [busy, requests(10)], PoolPolicy(), memory_gib=40, span_s=100)
    moved = replay_pool(models, [busy, requests(10)], PoolPolicy(own_requests=8), memory_gib=40, span_s=100)

    assert left.first_s[1][0] > 50
    # asked for at 15 s, serving from 20 s on; then the last answer, half a second of idleness, 1 s of sleep, 2 s of wake
    assert moved.first_s[1][0] == pytest.approx(10 + 1.1 + 0.5 + 1 + 2.1, abs=0.3)
    assert moved.own_s[1] == 0


def test_a_model_that_blocks_another_sleeps_as_soon_as_it_is_idle():
    big = replace(MODEL, wake_s=6, sleep_s=6)
    models = [big, replace(big, name="b")]
    early = PoolPolicy(early_sleep_s=2)

    late = replay_pool(models, [requests(0), requests(60)], PoolPolicy(), memory_gib=40, span_s=100)
    soon = replay_pool(models, [requests(0), requests(60)], early, memory_gib=40, span_s=100)
    beside = replay_pool(models, [requests(0, 60), requests(30)], early, memory_gib=61, span_s=100)

    assert late.first_s[1] == pytest.approx([6 + 6.1])
    assert soon.first_s[1] == pytest.approx([6.1])
    assert beside.wakes.tolist() == [1, 1]


def test_every_request_ends_once_whatever_the_load():
    rng = np.random.default_rng(3)
    models = [replace(MODEL, name=str(at), growth=0.1, awake_gib=20 + 5 * at) for at in range(5)]
    asked = [requests(*np.sort(rng.uniform(0, 3000, 400))) for _ in models]

    replayed = replay_pool(models, asked, PoolPolicy(), memory_gib=60, span_s=3000)

    for first_s, last_s in zip(replayed.first_s, replayed.last_s, strict=True):
        assert (first_s >= 0.1 - 1e-9).all()
        assert (last_s >= 1.1 - 1e-6).all()
        assert np.isfinite(last_s).all()


def test_a_model_that_could_never_wake_is_refused():
    with pytest.raises(ValueError, match="cannot wake"):
        replay_pool(
            [MODEL, replace(MODEL, name="b", pinned=True)], [requests(0)] * 2, PoolPolicy(), memory_gib=40, span_s=9
        )


def test_wake_times_are_those_that_vllm_measured():
    weights_gib = {"qwen3-0.6b": 1.5e9 / 2**30, "phi-3-vision": 8.3e9 / 2**30}

    assert HOST_MEMORY.wake_s(weights_gib["qwen3-0.6b"]) == pytest.approx(0.26, abs=0.01)
    assert HOST_MEMORY.wake_s(weights_gib["phi-3-vision"]) == pytest.approx(0.82, abs=0.01)
    assert DISK.wake_s(weights_gib["phi-3-vision"]) == pytest.approx(2.58, abs=0.03)


def pooled(name, asked):
    return PoolService(model=replace(MODEL, name=name), requests=asked, required_frac=0.99, first_limit_s=10.0)


def test_quiet_services_share_a_gpu_and_a_busy_or_unknown_one_does_not():
    span_s = 2 * S_PER_DAY
    services = [
        pooled("quiet", every(1800, span_s=span_s)),
        pooled("quiet too", every(1800, span_s=span_s, start_s=600)),
        pooled("busy", requests(*np.arange(0, span_s, 2), answer_s=15.0)),
        pooled("unknown", requests()),
    ]

    plan = choose_pool(services, PoolPolicy(), memory_gib=40, span_s=span_s, margin=PoolMargin(turns=1))

    assert [set(gpu.services) for gpu in plan.gpus] == [{0, 1}]
    assert set(plan.alone) == {2, 3}
    assert plan.gpu_count == 3


def test_a_service_that_one_replica_cannot_serve_stays_alone():
    span_s = 2 * S_PER_DAY
    full = pooled("full", requests(*np.arange(0, span_s, 10), answer_s=15.0))
    services = [
        replace(full, model=replace(full.model, own_concurrency=1)),
        pooled("quiet", every(1800, span_s=span_s)),
    ]

    plan = choose_pool(services, PoolPolicy(), memory_gib=40, span_s=span_s)

    assert plan.alone[0] == "one warm replica already misses its target"


def test_services_of_too_little_history_share_gpus_among_themselves():
    span_s = 7 * S_PER_DAY
    services = [pooled(str(number), requests(5.0 * number)) for number in range(5)]

    roomy = choose_pool(services, PoolPolicy(), memory_gib=150, span_s=span_s, margin=PoolMargin(newcomers=4))
    tight = choose_pool(services, PoolPolicy(), memory_gib=60, span_s=span_s, margin=PoolMargin(newcomers=4))

    assert [(gpu.services, gpu.newcomers) for gpu in roomy.gpus] == [((0, 1, 2, 3), True)]
    assert roomy.alone == {4: "too few requests in the history"}
    # only those that can all be awake at once
    assert [gpu.services for gpu in tight.gpus] == [(0, 1), (2, 3)]


def test_a_placement_is_kept_while_it_keeps_the_targets_and_left_by_those_that_grew():
    span_s = 2 * S_PER_DAY
    quiet = [pooled(name, every(1800, span_s=span_s, start_s=600 * at)) for at, name in enumerate("abc")]
    before = choose_pool(quiet, PoolPolicy(), memory_gib=40, span_s=span_s)
    grown = [*quiet[:2], quiet[2].with_requests(requests(*np.arange(0, span_s, 2), answer_s=15.0))]

    same = choose_pool(quiet, PoolPolicy(), memory_gib=40, span_s=span_s, before=before)
    after = choose_pool(grown, PoolPolicy(), memory_gib=40, span_s=span_s, before=before)

    assert [set(gpu.services) for gpu in same.gpus] == [{0, 1, 2}]
    assert [set(gpu.services) for gpu in after.gpus] == [{0, 1}]


def test_a_day_is_placed_on_the_days_before_it():
    span_s = 4 * S_PER_DAY
    services = [pooled(name, every(1800, span_s=span_s, start_s=600 * at)) for at, name in enumerate("ab")]

    days = list(
        replay_daily(
            services, PoolPolicy(), memory_gib=40, start_s=2 * S_PER_DAY, end_s=span_s, history_s=2 * S_PER_DAY
        )
    )

    assert [day.gpus for day in days] == [1.0, 1.0]
    assert [day.in_time.tolist() for day in days] == [[48, 48], [48, 48]]


def test_a_warm_replica_does_not_wait_to_wake():
    assert warm_frac(replace(pooled("a", requests(0, 5)), first_limit_s=0.2), memory_gib=40, span_s=10) == 1.0


def test_a_burst_gets_as_many_own_replicas_as_it_fills():
    # ten requests of 100 s at once, one on the shared GPU and two on each replica at a time
    model = replace(MODEL, concurrency=1, own_concurrency=2)
    asked = requests(*np.zeros(10), prompt_s=0.0, answer_s=100.0)
    policy = PoolPolicy(own_requests=1, own_idle_s=10)

    one = replay_pool([model], [asked], policy, memory_gib=40, span_s=10_000)
    many = replay_pool([model], [asked], policy._replace(own_most=4), memory_gib=40, span_s=10_000)

    # asked for at 15 s, serving from 135 s on: two are on the shared GPU before; of the other eight two at a time, in four
    # rounds; given back 10 s after the last
    assert one.last_s[0].max() == pytest.approx(135 + 4 * 100)
    assert one.own_s.tolist() == pytest.approx([135 + 4 * 100 + 10 - 15])
    # the first look asks for one, the second, 15 s later, for as many as ten requests fill: four, of which three start at 30 s
    assert sorted(many.last_s[0]) == pytest.approx([102, 202, 235, 235, 250, 250, 250, 250, 250, 250])
    assert many.own_s.tolist() == pytest.approx([250 + 10 - 15 + 3 * (250 + 10 - 30)])


def test_services_that_seldom_burst_share_a_gpu_by_number_where_bursts_get_own_replicas():
    span_s = 3 * S_PER_DAY
    # twice 25 minutes with three times as many requests as a warm replica can work on
    minutes = np.arange(0, 1500, 1 / 6)
    burst = [*(5000 + minutes), *(S_PER_DAY + minutes)]
    bursty = [pooled(str(number), requests(*burst, answer_s=30.0)) for number in range(3)]
    busy = pooled("busy", requests(*np.arange(0, span_s, 40), answer_s=20.0))

    warm = choose_pool([*bursty, busy], PoolPolicy(), memory_gib=40, span_s=span_s)
    elastic = choose_pool([*bursty, busy], OWN_REPLICAS, memory_gib=40, span_s=span_s)

    assert set(warm.alone) == {0, 1, 2, 3}
    assert [(gpu.services, gpu.newcomers) for gpu in elastic.gpus] == [((0, 1, 2), True)]
    assert set(elastic.alone) == {3}


def test_a_service_that_is_busy_all_the_time_shares_no_gpu_by_number():
    span_s = 2 * S_PER_DAY
    busy = [pooled(name, requests(*np.arange(0, span_s, 40), answer_s=20.0)) for name in "ab"]

    plan = choose_pool(busy, OWN_REPLICAS, memory_gib=40, span_s=span_s)

    assert all(not gpu.newcomers for gpu in plan.gpus)

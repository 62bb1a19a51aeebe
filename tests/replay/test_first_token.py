"""Time to first token of a deployment by replay: what load, clients and a measured point do to it."""

import numpy as np
import pytest
from tests.physics.test_step_times import query

from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import FirstTokenCosts
from trimtab.physics.serving_query import serving_columns
from trimtab.replay.first_token import beyond_saturation, drawn_requests, replay_deployment, seen_by_requests

COSTS = FirstTokenCosts(wait_scale=1.0, fixed_s=0.0, delay_steps=0.0)


def seen(rate_req_s=None, clients=0, costs=COSTS, **changes):
    asked = query()
    columns = serving_columns([asked])
    coefficients = coefficients_of([asked], columns)
    requests = drawn_requests(1024, 256, rate_req_s=rate_req_s, clients=clients)
    limits = {"max_num_seqs": 64, "clients": clients}
    return seen_by_requests(replay_deployment(columns, coefficients, requests, **(limits | changes)), costs)


def test_first_tokens_take_longer_the_more_requests_come():
    p95 = [seen(rate).ttft_p95_s for rate in (1, 4, 16, 40)]

    assert p95 == sorted(p95)
    assert p95[-1] > 2 * p95[0]


def test_a_quantile_is_above_a_lower_one_and_both_above_a_prompt_alone():
    found = seen(10)
    alone = seen(0.01).ttft_p50_s

    assert alone < found.ttft_p50_s < found.ttft_p95_s


def test_a_measured_point_scales_every_time_of_a_closed_loop():
    once, twice = seen(clients=16), seen(clients=16, scale=2.0)

    assert twice.ttft_p95_s == pytest.approx(2 * once.ttft_p95_s)
    assert twice.tpot_p95_s == pytest.approx(2 * once.tpot_p95_s)


def test_the_constants_of_a_first_token_come_on_top():
    later = FirstTokenCosts(wait_scale=1.0, fixed_s=0.5, delay_steps=0.0)

    assert seen(5, costs=later).ttft_p50_s == pytest.approx(seen(5).ttft_p50_s + 0.5)


def test_fewer_places_make_requests_wait():
    assert seen(20, max_num_seqs=16).ttft_p95_s > seen(20, max_num_seqs=64).ttft_p95_s


def test_a_load_beyond_what_is_served_is_told_from_a_busy_one():
    assert not seen(10).is_beyond_saturation
    assert seen(40).is_beyond_saturation
    assert not seen(clients=64).is_beyond_saturation
    # three quarters of the clients wait for one of the places
    assert seen(clients=256).is_beyond_saturation


def test_requests_that_lose_their_cache_are_beyond_saturation():
    asked = query()
    columns = serving_columns([asked])
    coefficients = coefficients_of([asked], columns)
    requests = drawn_requests(16_000, 8_000, rate_req_s=None, clients=64)

    replayed = replay_deployment(columns, coefficients, requests, max_num_seqs=64, clients=64)

    assert replayed.preemptions > 0.01 * len(requests.arrival_s)
    assert beyond_saturation(replayed)


def test_clients_send_ten_requests_each_at_least():
    assert len(drawn_requests(10, 10, rate_req_s=None, clients=900).arrival_s) == 9000
    assert np.all(np.diff(drawn_requests(10, 10, rate_req_s=3).arrival_s) > 0)

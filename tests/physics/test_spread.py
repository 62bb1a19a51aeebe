"""Replicas over several nodes: only on networks that are known, with the memory and the exchanges of their layout."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.physics.ask import FitMarket, serving_answer
from trimtab.physics.fabrics import stated
from trimtab.physics.footprint import Item, Parallel, Serving, inference_footprint, weight_bytes
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Unmet
from trimtab.physics.models import model_named
from trimtab.physics.offers import NodeOffer, board
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import decode_s
from trimtab.physics.serving_demand import Demand, query_of, spread_ways
from trimtab.physics.serving_query import serving_columns

DEEPSEEK = model_named("deepseek-v3")
H100 = board("H100-SXM5-80GB")
DEMAND = Demand(input_tokens=1024, output_tokens=256, rate_req_s=2)


def offer(provider="aws", instance_type="p5.48xlarge"):
    return NodeOffer(
        provider=provider, instance_type=instance_type, region="r", gpus=8, usd_hr={BuyingOption.ON_DEMAND: 55.0}
    )


def spread(*offers, link=None, stored=WeightFormat.FP8):
    return spread_ways(DEEPSEEK, H100, offers, DEMAND, "vllm", [stored], link)


def step_s(query, requests):
    v = serving_columns([query])
    c = coefficients_of([query], v)
    return float(decode_s(v, c, np.array([float(requests)]))[0])


def test_a_model_too_large_for_a_node_is_spread_over_two_or_more():
    ways, rejected = spread(offer())

    assert not rejected
    layouts = {(way.query.tensor, way.query.pipeline, way.query.expert) for way in ways}
    assert {(8, 2, 1), (1, 1, 16)} <= layouts
    # 3200 Gbit/s over eight GPUs
    assert all(way.query.network_gb_s == pytest.approx(50) for way in ways)


def test_without_a_published_network_nothing_is_guessed():
    unknown = offer("runpod", "h100-pod")
    ways, rejected = spread(unknown)

    assert not ways
    assert rejected[0].reason is Unmet.UNKNOWN
    assert "--kv-gb-s" in rejected[0].because
    assert spread(unknown, link=stated(400.0))[0]


def test_ranks_hold_their_share_of_experts_and_all_of_the_rest():
    ranks = Serving(model=DEEPSEEK, stored=WeightFormat.FP8, parallel=Parallel(expert=16, data=16))
    weights = weight_bytes(DEEPSEEK, WeightFormat.FP8)
    experts = weights * DEEPSEEK.expert_params / DEEPSEEK.params

    held = inference_footprint(ranks).bytes_by_item[Item.WEIGHTS]

    assert held == pytest.approx(weights - experts + experts / 16)


def test_a_slower_network_makes_steps_longer():
    for way in spread(offer())[0]:
        slow = replace(way.query, network_gb_s=1.0)
        assert step_s(slow, 256) > step_s(way.query, 256)


def test_a_search_prices_whole_nodes_and_asks_the_same_question_again():
    market = FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",), provider="aws", over_nodes=True)
    answer = serving_answer(DEEPSEEK, DEMAND, market, formats=[WeightFormat.BF16, WeightFormat.FP8])

    assert answer.found
    for way in answer.found:
        assert way.replica_gpus > 8
        assert way.nodes == way.replicas * way.replica_gpus // 8
        assert way.gpus == way.replicas * way.replica_gpus
        again = query_of(way, DEMAND, "vllm")
        assert (again.gpus, again.pipeline, again.expert) == (way.replica_gpus, way.pipeline, way.expert)
        assert again.network_gb_s > 0


def test_without_asking_a_replica_stays_within_a_node():
    market = FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",), provider="aws")
    answer = serving_answer(DEEPSEEK, DEMAND, market, formats=[WeightFormat.FP8])

    assert not answer.found
    assert any(reject.reason is Unmet.MEMORY for reject in answer.rejected)


def test_ranks_share_the_cost_of_requests_and_exchange_only_their_own_tokens():
    """Published runs of DeepSeek on 8 ranks: 4,096 requests in 45 ms a token, where one scheduler for all would take 130."""
    base = replace(spread(offer())[0][0].query, network_gb_s=0, tensor=8, pipeline=1, gpus=8)
    ranks = replace(base, tensor=1, expert=8)

    assert step_s(ranks, 4096) < 0.5 * step_s(base, 4096)

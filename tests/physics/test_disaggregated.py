"""Pools of prefill and decode: their sizes, the link between them, places, and what they cost."""

from dataclasses import replace

import pytest

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.physics.ask import FitMarket, offered
from trimtab.physics.disaggregated import joined, search_disaggregated
from trimtab.physics.fabrics import between_nodes, stated, within_node
from trimtab.physics.footprint import kv_bytes
from trimtab.physics.found_ways import Rejected
from trimtab.physics.models import model_named
from trimtab.physics.offers import Caveat, NodeOffer, board
from trimtab.physics.serving_demand import Demand, Targets, ways_of

MODEL = model_named("llama-3.1-8b")
DEMAND = Demand(input_tokens=4096, output_tokens=256, rate_req_s=40, targets=Targets(tpot_s=0.03))


def offer(*, provider="aws", instance_type="p5.48xlarge", region="us-east-1", gpus=8, usd_hr=40.0):
    return NodeOffer(
        provider=provider,
        instance_type=instance_type,
        region=region,
        gpus=gpus,
        usd_hr={BuyingOption.ON_DEMAND: usd_hr},
    )


def pairs(*offers, gpu="H100-SXM5-80GB", demand=DEMAND, link=None):
    ways, _ = ways_of(MODEL, board(gpu), offers, demand, "vllm")
    return search_disaggregated(ways, demand, link=link)


def test_both_halves_serve_the_rate_with_headroom():
    found, _ = pairs(offer())

    assert found
    for pair in found:
        for half in (pair.prefill, pair.decode):
            assert half.replicas * half.replica_req_s >= DEMAND.rate_req_s
            assert half.busy_frac(DEMAND.rate_req_s) <= 1
        assert pair.decode.time.value <= DEMAND.targets.tpot_s


def test_cost_is_that_of_whole_nodes_that_one_shape_shares():
    pair = pairs(offer())[0][0]

    assert pair.nodes == -(-(pair.prefill.gpus + pair.decode.gpus) // 8)
    assert pair.usd_hr == pytest.approx(40.0 * pair.nodes)
    tokens = DEMAND.input_tokens + DEMAND.output_tokens
    assert pair.usd_per_mtok.value == pytest.approx(pair.usd_hr / (DEMAND.rate_req_s * tokens * 3600 / 1e6))
    assert pair.usd_per_mtok.low <= pair.usd_per_mtok.value <= pair.usd_per_mtok.high


def test_a_cache_has_the_bytes_of_the_prompt_and_crosses_the_network_of_the_nodes():
    busy = replace(DEMAND, rate_req_s=400.0)
    pair = next(pair for pair in pairs(offer(), demand=busy)[0] if pair.nodes > 1)
    query = pair.prefill.query

    sent = pair.transfer.token_bytes * busy.input_tokens
    assert sent == pytest.approx(kv_bytes(MODEL, busy.input_tokens, query.kv_value_bytes))
    # p5.48xlarge: 3200 Gbit/s, shared by its GPUs
    shares = [half.query.tensor / 8 for half in (pair.prefill, pair.decode)]
    assert pair.transfer.byte_s == pytest.approx(400e9 * min(shares))


def test_within_one_node_caches_go_over_nvlink():
    pair = next(pair for pair in pairs(offer())[0] if pair.nodes == 1)

    assert "NVLink" in pair.transfer.label
    assert pair.transfer.byte_s == pytest.approx(min(pair.prefill.query.tensor, pair.decode.query.tensor) * 450e9)


def test_where_nobody_published_the_network_only_one_node_or_a_stated_figure_will_do():
    unknown = offer(provider="runpod", instance_type="h100-pod", gpus=1)
    found, rejected = pairs(unknown)

    assert not found
    assert all("--kv-gb-s" in reject.because for reject in rejected)
    assert pairs(unknown, link=stated(25.0))[0]


def test_a_network_too_slow_for_the_caches_takes_more_replicas():
    thin = offer(provider="runpod", instance_type="h100-pod", gpus=1)

    slow, fast = pairs(thin, link=stated(1.0))[0], pairs(thin, link=stated(100.0))[0]

    assert slow[0].usd_hr > fast[0].usd_hr
    for pair in slow:
        prompts_s = DEMAND.rate_req_s / pair.prefill.replicas
        assert prompts_s * pair.transfer.token_bytes * DEMAND.input_tokens <= 0.7 * pair.transfer.byte_s * 1.0001


def test_halves_lie_in_one_region():
    east, west = offer(), offer(region="us-west-2", usd_hr=39.0)
    found, _ = pairs(east, west)

    assert {pair.prefill.offer.region for pair in found} == {"us-east-1", "us-west-2"}
    assert all(pair.prefill.offer.region == pair.decode.offer.region for pair in found)


def test_halves_may_be_of_different_boards_but_share_the_format():
    catalog = load_catalog()
    ways = []
    for gpu, offers in offered(FitMarket(catalog=catalog, gpus=("H100-SXM5-80GB", "A100-SXM4-80GB"), provider="aws")):
        ways += ways_of(MODEL, gpu, offers, DEMAND, "vllm")[0]
    found, _ = search_disaggregated(ways, DEMAND)

    assert any(pair.prefill.gpu != pair.decode.gpu for pair in found)
    assert all(pair.prefill.query.stored is pair.decode.query.stored for pair in found)
    assert all(pair.prefill.query.kv_value_bytes == pair.decode.query.kv_value_bytes for pair in found)


def test_a_concurrency_has_no_pools_to_size():
    asked = Demand(input_tokens=1024, output_tokens=256, concurrency=16)

    assert pairs(offer(), demand=asked) == ([], [])


def test_joining_says_which_offer_has_no_network():
    ways, _ = ways_of(MODEL, board("H100-SXM5-80GB"), (offer(),), DEMAND, "vllm")
    found, _ = search_disaggregated(ways, DEMAND)
    lone = replace(found[0].decode, offer=offer(provider="vultr", instance_type="x", gpus=8))

    refused = joined(found[0].prefill, lone, DEMAND)

    assert isinstance(refused, Rejected)
    assert "vultr x" in refused.because


def test_fabrics_are_of_types_that_the_catalog_knows():
    catalog = load_catalog()
    known = [
        instance
        for instance in catalog.instance_table.values()
        if between_nodes(offer(provider=instance.provider, instance_type=instance.name)) is not None
    ]

    assert len(known) == 82
    assert between_nodes(offer()).node_byte_s == 400e9
    assert within_node(board("L4"), 8).of_gpus(1, 8) == pytest.approx(31.504e9)


def test_pairs_with_a_caveat_come_last_unless_it_is_accepted():
    ways, _ = ways_of(MODEL, board("B200-SXM-180GB"), (offer(instance_type="p6-b200.48xlarge"),), DEMAND, "vllm")
    careful, _ = search_disaggregated(ways, DEMAND)
    free, _ = search_disaggregated(ways, DEMAND, accepted=frozenset(Caveat))

    order = [bool(pair.caveats) for pair in careful]
    assert order == sorted(order)
    assert any(order)
    assert not careful[0].caveats
    assert not any(pair.caveats for pair in free)
    assert free[0].usd_hr <= careful[0].usd_hr

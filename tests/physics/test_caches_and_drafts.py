"""What a prefix cache, KV offload, a draft and adapters do to times and memory."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import InputError
from trimtab.physics.footprint import Item, kv_bytes
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.offers import board, owned_offer
from trimtab.physics.predict import Quantity, coefficients_of, with_interval
from trimtab.physics.search_serving import search_serving
from trimtab.physics.serving import decode_s, prefill_s, serving_times, step_times
from trimtab.physics.serving_demand import Demand, ways_of
from trimtab.physics.serving_query import (
    PUBLIC_SLOWDOWN,
    Adapters,
    Load,
    ServingQuery,
    Speculation,
    adapter_params,
    link_gb_s,
    serving_columns,
    slot_gb_s,
)

MODEL = model_named("llama-3.1-8b")
QUERY = ServingQuery(
    model=MODEL,
    gpu=board("H100-SXM5-80GB"),
    stored=WeightFormat.BF16,
    engine="vllm",
    year=2026,
    load=Load.ONLINE,
    requests=16,
    input_tokens=4096,
    output_tokens=256,
)


def columns_of(query):
    v = serving_columns([query])
    return v, coefficients_of([query], v)


def times_of(query):
    return serving_times(*columns_of(query))


def demand(**fields):
    return Demand(input_tokens=4096, output_tokens=256, rate_req_s=10, **fields)


@pytest.mark.parametrize(
    ("acceptance", "drafted", "speed"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_tokens_a_step_are_those_of_the_paper(acceptance, drafted, speed):
    """Leviathan et al., arXiv 2211.17192, table 1: speed where drafting costs nothing."""
    draft = Speculation(draft_tokens=drafted, acceptance_frac=acceptance, draft_cost_frac=0)

    assert draft.step_tokens == pytest.approx(speed, abs=0.006)


def test_a_draft_that_is_always_or_never_accepted():
    assert Speculation(draft_tokens=4, acceptance_frac=1, draft_cost_frac=0).step_tokens == 5
    assert Speculation(draft_tokens=4, acceptance_frac=0, draft_cost_frac=0).step_tokens == 1


def test_alone_a_draft_speeds_up_by_the_papers_factor_and_in_large_batches_by_less():
    draft = Speculation(draft_tokens=4, acceptance_frac=0.8, draft_cost_frac=0.05)
    factor = draft.step_tokens / (1 + 4 * 0.05)

    def speed_up(requests):
        plain, drafted = (replace(QUERY, requests=requests, speculation=one) for one in (None, draft))
        return float((times_of(plain).decode_s / times_of(drafted).decode_s)[0])

    # a step of one request is bound by memory: checking four more positions is nearly free
    assert speed_up(1) == pytest.approx(factor, rel=0.03)
    assert 1 < speed_up(512) < 0.9 * speed_up(1)


def test_the_replays_steps_have_the_same_speed_as_the_formula():
    draft = Speculation(draft_tokens=3, acceptance_frac=0.7, draft_cost_frac=0.1)
    v, c = columns_of(replace(QUERY, speculation=draft))
    steps = step_times(v, c, max_num_seqs=32, step_tokens=2048)
    context = QUERY.input_tokens + QUERY.output_tokens / 2

    formula = float((decode_s(v, c, np.array([32.0])) * c["glob"])[0])

    assert steps.decode_s[32] + 32 * context * steps.context_s == pytest.approx(formula, rel=1e-6)


def test_a_cached_prefix_takes_the_time_of_the_rest_and_of_attention_to_it():
    v, c = columns_of(replace(QUERY, cached_tokens=3072))
    rest, c_rest = columns_of(replace(QUERY, input_tokens=1024))
    whole, c_whole = columns_of(QUERY)

    cached = float(prefill_s(v, c, np.ones(1))[0])

    assert cached > float(prefill_s(rest, c_rest, np.ones(1))[0])
    assert cached < 0.4 * float(prefill_s(whole, c_whole, np.ones(1))[0])


def test_more_cached_is_never_slower():
    ttft = [float(times_of(replace(QUERY, cached_tokens=tokens)).ttft_s[0]) for tokens in (0, 1000, 2000, 4000)]
    tpot = [float(times_of(replace(QUERY, cached_tokens=tokens)).tpot_s[0]) for tokens in (0, 1000, 2000, 4000)]

    assert ttft == sorted(ttft, reverse=True)
    assert tpot == sorted(tpot, reverse=True)


def test_loading_from_host_memory_takes_its_bytes_over_the_slot():
    found = replace(QUERY, cached_tokens=2048)
    loaded = replace(found, loaded_tokens=1024)

    # PCIe 5 x16: 16 lanes of 3.938 GB/s in one direction
    expected = kv_bytes(MODEL, 1024, 2) / 63.008e9
    assert float((times_of(loaded).ttft_s - times_of(found).ttft_s)[0]) == pytest.approx(expected)
    assert float(times_of(loaded).tpot_s[0]) == float(times_of(found).tpot_s[0])


@pytest.mark.parametrize(
    ("name", "gb_s"),
    [
        ("T4", 15.76),
        ("L4", 31.504),
        ("A2", 15.752),
        ("RTX-5090", 63.008),
        ("B300-SXM-270GB", 121.008),
        ("GH200-96GB", 450),
    ],
)
def test_a_slot_is_as_fast_as_its_generation_and_lanes(name, gb_s):
    assert slot_gb_s(board(name)) == pytest.approx(gb_s)


def test_boards_without_nvlink_exchange_at_half_of_their_slot():
    assert link_gb_s(board("L4")) == pytest.approx(31.504 / 2)
    assert link_gb_s(board("H100")) == 450


def test_adapters_take_memory_and_reading():
    held = Adapters(number=64, rank=32, slowdown_frac=0.0)
    size = 2 * adapter_params(MODEL, 32)

    plain, adapted = times_of(QUERY), times_of(replace(QUERY, adapters=held))

    # 16 requests read 16 adapters at most
    read = serving_columns([replace(QUERY, adapters=held)])
    assert read["adapter_bytes"][0] * read["adapters"][0] == pytest.approx(64 * size)
    assert plain.decode_s[0] < adapted.decode_s[0] < 1.1 * plain.decode_s[0]
    assert adapted.resident[0] <= plain.resident[0]


def test_adapters_of_an_unstated_slowdown_take_what_was_published_and_widen_the_interval():
    stated, public = (
        replace(QUERY, adapters=Adapters(number=1, rank=8, slowdown_frac=frac))
        for frac in (PUBLIC_SLOWDOWN.value - 1, None)
    )
    one, other = (with_interval(each, Quantity.TPOT, 0.02) for each in (stated, public))

    assert times_of(stated).decode_s[0] == times_of(public).decode_s[0]
    assert other.value == pytest.approx(one.value)
    assert other.low < one.low < one.high < other.high


def test_a_stated_slowdown_is_that_of_every_step():
    held = Adapters(number=1, rank=8, slowdown_frac=0.0)
    slower = replace(held, slowdown_frac=0.25)

    one, other = (times_of(replace(QUERY, adapters=each)).decode_s[0] for each in (held, slower))

    assert other / one == pytest.approx(1.25)


def test_a_search_counts_adapters_in_the_footprint():
    asked = demand(adapters=Adapters(number=100, rank=64))
    ways, _ = ways_of(MODEL, QUERY.gpu, (owned_offer(QUERY.gpu, 1),), asked, "vllm", [WeightFormat.BF16])
    found, _ = search_serving(ways, asked)

    held_gib = 100 * 2 * adapter_params(MODEL, 64) / 2**30
    assert found[0].footprint.gib(Item.ADAPTERS) == pytest.approx(held_gib)


def test_a_hit_rate_makes_serving_cheaper():
    def replica_req_s(asked):
        ways, _ = ways_of(MODEL, QUERY.gpu, (owned_offer(QUERY.gpu, 1),), asked, "vllm", [WeightFormat.BF16])
        return search_serving(ways, asked)[0][0].replica_req_s

    assert replica_req_s(demand(cached_frac=0.5)) > 1.3 * replica_req_s(demand())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: demand(cached_frac=0.7, loaded_frac=0.5),
        lambda: demand(cached_frac=-0.1),
        lambda: Speculation(draft_tokens=0, acceptance_frac=0.5, draft_cost_frac=0),
        lambda: Speculation(draft_tokens=1, acceptance_frac=1.5, draft_cost_frac=0),
        lambda: Adapters(number=0, rank=8),
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()


def test_a_prompt_that_is_wholly_cached_still_computes_a_token():
    assert demand(cached_frac=1.0).found_tokens == 4095

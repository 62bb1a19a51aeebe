"""Memory of inference, item by item, against worked figures."""

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import load_catalog
from trimtab.physics.footprint import (
    Item,
    Parallel,
    Serving,
    inference_footprint,
    kv_bytes,
    resident_requests,
    waves,
    weight_bytes,
)
from trimtab.physics.formats import WeightFormat, weight_format
from trimtab.physics.models import model_named

GPUS = load_catalog()


def test_llama_3_8b_keeps_131_kb_of_cache_per_token():
    # 2 x 32 layers x 8 heads x 128 x 2 bytes
    assert kv_bytes(model_named("llama-3-8b"), 1) == 131_072


def test_latent_attention_keeps_one_latent_and_not_two():
    # 61 x (512 + 64) x 2 bytes
    assert kv_bytes(model_named("deepseek-v3"), 1) == 70_272


def test_a_sliding_window_caps_the_cache():
    mistral = model_named("mistral-7b")

    assert kv_bytes(mistral, 32_768) == kv_bytes(mistral, 4_096)


def test_70b_in_16_bit_does_not_fit_one_a100():
    serving = Serving(model=model_named("llama-2-70b"), stored=WeightFormat.FP16)

    assert inference_footprint(serving).gib(Item.WEIGHTS) == pytest.approx(128.5, abs=0.2)
    assert not inference_footprint(serving).fits(GPUS.gpu("A100-SXM4-80GB"))


def test_42_gb_and_59_gb_do_not_fit_an_a10g_of_24_gb():
    a10g = GPUS.gpu("A10G")

    assert a10g.memory_gib < 23
    assert resident_requests(Serving(model=model_named("codellama-34b")), a10g) == 0


def test_a_quantized_format_leaves_the_head_in_16_bits():
    model = model_named("llama-3-8b")

    assert weight_bytes(model, WeightFormat.NF4) > 0.5625 * model.params


def test_tensor_parallel_repeats_a_latent_cache():
    one = Serving(model=model_named("deepseek-v3"), stored=WeightFormat.FP8, requests=8, context=8192)
    eight = Serving(model=one.model, stored=one.stored, requests=8, context=8192, parallel=Parallel(tensor=8))

    assert inference_footprint(eight).gib(Item.KV_CACHE) == inference_footprint(one).gib(Item.KV_CACHE)


def test_requests_beyond_the_budget_run_in_waves():
    assert waves(64, 24) == 3


@given(
    requests=st.integers(1, 256),
    context=st.integers(16, 65_536),
    stored=st.sampled_from(WeightFormat),
    name=st.sampled_from(["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"]),
)
def test_more_requests_or_context_never_need_less(requests, context, stored, name):
    base = Serving(model=model_named(name), stored=stored, requests=requests, context=context)
    more = Serving(model=base.model, stored=stored, requests=requests + 1, context=context + 1)

    assert inference_footprint(more).total_bytes >= inference_footprint(base).total_bytes


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("awq-int4", WeightFormat.INT4),
        ("bnb.nf4-dq", WeightFormat.NF4_DQ),
        ("bnb.nf4", WeightFormat.NF4),
        ("amp_bf16", WeightFormat.BF16),
        ("MXFP8", WeightFormat.FP8),
        ("NVFP4", WeightFormat.FP4),
        ("fp32(tf32 on Ampere+)", WeightFormat.FP32),
        ("amp/fp16", WeightFormat.FP16),
    ],
)
def test_formats_are_read_in_every_engines_spelling(spelling, meant):
    assert weight_format(spelling) is meant

"""The serving model taken apart for a replay of steps: it must say what the whole says."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import load_catalog
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.predict import coefficients_of, times_of
from trimtab.physics.serving import default_step_tokens, first_token_fit, kv_blocks, step_times, token_seconds
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns

GPUS = load_catalog()
MODELS = ("llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b")


def query(**changes):
    asked = {
        "model": model_named("llama-3-8b"),
        "gpu": GPUS.gpu("H100-SXM5-80GB"),
        "stored": WeightFormat.BF16,
        "engine": "vllm",
        "year": 2026,
        "load": Load.ONLINE,
        "requests": 16,
        "input_tokens": 1024,
        "output_tokens": 256,
    }
    return ServingQuery(**(asked | changes))


def parts_of(asked, **limits):
    columns = serving_columns([asked])
    coefficients = coefficients_of([asked], columns)
    return columns, step_times(columns, coefficients, **({"max_num_seqs": 64, "step_tokens": 8192} | limits))


@given(requests=st.integers(1, 64), name=st.sampled_from(MODELS), degree=st.sampled_from([1, 8]))
def test_a_step_of_decodes_takes_what_the_serving_model_says_of_it(requests, name, degree):
    asked = query(
        model=model_named(name), gpu=GPUS.gpu("B200-SXM-180GB"), requests=requests, tensor=degree, gpus=degree
    )

    _, times = parts_of(asked)

    whole = times_of([asked])
    if whole.resident[0] == requests:
        # the serving model reads caches at their mean length
        context = requests * (asked.input_tokens + asked.output_tokens / 2)
        assert times.decode_s[requests] + times.context_s * context == pytest.approx(whole.decode_s[0], rel=1e-9)


@given(tokens=st.integers(64, 8192), name=st.sampled_from(MODELS))
def test_a_step_of_one_prompt_takes_what_the_serving_model_says_of_it(tokens, name):
    asked = query(model=model_named(name), input_tokens=tokens)

    _, times = parts_of(asked)

    # attention is within the soft maximum there and beside it here: never less than a part below, never much above
    alone = times.mixed_s[tokens] + times.pair_s * tokens * tokens / 2
    assert 0.98 <= alone / times_of([asked]).prefill_one_s[0] <= 1.26


def test_steps_never_get_faster_with_more_in_them():
    _, times = parts_of(query())

    assert (np.diff(times.decode_s) > 0).all()
    assert (np.diff(times.mixed_s) >= 0).all()


def test_memory_holds_as_many_blocks_as_the_serving_model_has_room_for():
    columns, _ = parts_of(query(model=model_named("llama-3-70b"), tensor=2, gpus=2))

    # 2 x 79.6 GiB x 0.9 less 141 GB of weights and the runtime leave some 6 GB for 0.33 MB a token
    assert 15_000 < kv_blocks(columns, 16) * 16 < 30_000


def test_boards_of_70_gib_take_the_larger_step_but_not_the_a100():
    found = {name: default_step_tokens(GPUS.gpu(name)) for name in ("L4", "A100-SXM4-80GB", "H100-SXM5-80GB")}

    assert found == {"L4": 2048, "A100-SXM4-80GB": 2048, "H100-SXM5-80GB": 8192}


def test_an_engine_that_was_not_measured_takes_the_constants_of_vllm():
    fitted = first_token_fit()

    assert fitted.of({"engine": "tgi", "kind": ""}) == fitted.of({"engine": "vllm", "kind": ""})
    assert fitted.low < 0 < fitted.high


MEAN = {"input_tokens": 1000.0, "cached_tokens": 0.0, "output_tokens": 200.0}


def test_an_answer_alone_takes_whole_steps_and_its_prompt_the_one_before():
    _, times = parts_of(query())

    alone = token_seconds(times, **MEAN, requests=1)

    assert alone.output_s == pytest.approx(199 * (times.decode_s[1] + times.context_s * 1100))
    assert alone.input_s == pytest.approx(times.mixed_s[1000] + times.pair_s * 1000**2 / 2)
    assert alone.cached_s == 0


def test_a_prompt_beside_others_takes_what_its_step_is_longer_for_it():
    _, times = parts_of(query())

    beside = token_seconds(times, **MEAN, requests=9)

    longer = times.mixed_s[1008] + 8 * times.sequence_s - times.decode_s[8]
    assert beside.input_s == pytest.approx(longer + times.pair_s * 1000**2 / 2)
    assert beside.output_s < token_seconds(times, **MEAN, requests=1).output_s / 5


@given(cached=st.floats(0, 1000), requests=st.integers(1, 64))
def test_a_cached_prompt_never_takes_more_than_a_computed_one(cached, requests):
    _, times = parts_of(query())

    found = token_seconds(times, **(MEAN | {"cached_tokens": cached}), requests=requests)
    computed = token_seconds(times, **MEAN, requests=requests)

    assert found.output_s == computed.output_s
    assert found.input_s + found.cached_s <= computed.input_s * (1 + 1e-9)


def test_a_prompt_longer_than_a_step_is_cut_into_several():
    _, times = parts_of(query(), step_tokens=512)

    cut = token_seconds(times, **MEAN, requests=1)

    assert cut.input_s == pytest.approx(times.mixed_s[512] + times.mixed_s[488] + times.pair_s * 1000**2 / 2)

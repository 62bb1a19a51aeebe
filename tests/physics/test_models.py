"""Architectures by name and by size."""

import pytest

from trimtab.errors import InputError, UnknownName
from trimtab.physics.models import find_model, generic_model, known_models, model_named, resolve_model, shape_params


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3-8b"),
        ("LLAMA3-70B", "llama-3-70b"),
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("Qwen3-235B-a22B (tokendrop)", "qwen3-235b-a22b"),
        ("DeepSeekV3 (w/o MTP)", "deepseek-v3"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google-bert/bert-base", "bert-base"),
    ],
)
def test_a_model_is_found_under_the_names_people_write(name, meant):
    assert find_model(name).name == meant


def test_the_parameter_count_follows_from_the_shape():
    # Latent attention, hybrid layers and encoder-decoders are not counted exactly from the columns of the table.
    plain = [
        model
        for model in known_models().values()
        if not model.kv_lora_rank
        and model.kv_layers == model.layers
        and "granite-moe" not in model.name
        and model.name not in ("t0-3b", "mt0-xxl")
    ]

    wrong = {model.name: shape_params(model) / model.params for model in plain}

    assert {name: ratio for name, ratio in wrong.items() if not 0.97 < ratio < 1.03} == {}


def test_an_unknown_model_names_its_neighbours():
    with pytest.raises(UnknownName, match="llama-3-8b"):
        model_named("llama-3-8c")


def test_a_size_stands_in_for_an_unknown_name():
    assert resolve_model("in-house-13b", 13.0).generic
    assert resolve_model("llama-3-8b", 8.0).name == "llama-3-8b"


def test_a_generic_model_is_shaped_like_its_peers():
    seven = generic_model(7)

    assert 28 <= seven.layers <= 36
    assert 3584 <= seven.hidden <= 4608


@pytest.mark.parametrize("size", [0, -1, 1e9, float("nan")])
def test_an_absurd_size_is_refused(size):
    with pytest.raises(InputError, match="--params"):
        generic_model(size)

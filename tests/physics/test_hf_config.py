"""Architectures from a config.json."""

import pytest

from trimtab.errors import InputError
from trimtab.physics.models import architecture_from_config, model_named

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def test_llama_3_8b_is_read_as_the_table_knows_it():
    read, known = architecture_from_config(LLAMA, name="x"), model_named("llama-3-8b")

    assert read.params_b == pytest.approx(known.params_b, rel=0.005)
    assert (read.kv_heads, read.head_dim, read.kv_layers) == (known.kv_heads, known.head_dim, known.kv_layers)


def test_a_mixture_of_experts_knows_what_a_token_uses():
    mixtral = {**LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}

    read = architecture_from_config(mixtral, name="x")

    assert read.params_b == pytest.approx(46.7, rel=0.01)
    assert read.active_b == pytest.approx(12.9, rel=0.01)


def test_all_faults_of_a_config_are_told_at_once():
    with pytest.raises(InputError) as caught:
        architecture_from_config({"hidden_size": 100, "num_attention_heads": 7, "num_experts": 4}, name="broken")

    text = str(caught.value)
    assert "num_hidden_layers" in text
    assert "vocab_size" in text
    assert "not a multiple" in text
    assert "num_experts_per_tok" in text


@pytest.mark.parametrize("size", [0, -4, 10**9])
def test_absurd_sizes_are_refused(size):
    with pytest.raises(InputError, match="hidden_size"):
        architecture_from_config({**LLAMA, "hidden_size": size}, name="x")


def test_sliding_layers_are_counted_from_the_list_of_layers():
    config = {**LLAMA, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}

    assert architecture_from_config(config, name="x").windowed_layers == 16

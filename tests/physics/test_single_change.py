"""Make it fit on my card: one change, and its cost."""

import pytest

from trimtab.physics.models import model_named
from trimtab.physics.offers import board
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand, cheapest_change, serving_change
from trimtab.physics.training import Method

CHAT = Demand(input_tokens=1024, output_tokens=256, rate_req_s=1)


def test_full_training_of_7b_on_24_gb_needs_adapters_and_says_what_they_cost():
    change = cheapest_change(
        model_named("mistral-7b"), board("rtx4090"), TrainingDemand(method=Method.FULL, tokens=1e7)
    )

    assert change.startswith("LoRA")
    assert "0.58% of the weights" in change


def test_the_cheapest_change_comes_first():
    # 3B with AdamW states does not fit 48 GB; 8-bit states bring it within reach without touching the arithmetic.
    demand = TrainingDemand(method=Method.FULL, tokens=1e7, sequence=512)

    change = cheapest_change(model_named("llama-3.2-3b"), board("L40S"), demand)

    assert change.startswith("an 8-bit optimizer")


@pytest.mark.parametrize(("card", "stored"), [("T4", "int4"), ("L4", "fp8")])
def test_serving_14b_or_8b_on_a_small_card_needs_narrower_weights(card, stored):
    model = model_named("llama-3.1-8b" if card == "T4" else "qwen2.5-14b")

    change = serving_change(model, board(card), CHAT, "vllm")

    assert change.startswith(f"{stored} weights")
    assert "test quality first" in change


def test_long_requests_are_cut_before_the_answer_is_nothing():
    long = Demand(input_tokens=120_000, output_tokens=1000, rate_req_s=1)

    assert "requests of at most" in serving_change(model_named("llama-2-7b"), board("L4"), long, "vllm")


def test_a_70b_model_fits_no_24_gb_card_by_any_single_change():
    assert serving_change(model_named("llama-3.1-70b"), board("rtx4090"), CHAT, "vllm") == ""

"""Rooflines of the two phases."""

import pytest

from trimtab.catalog import load_catalog
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.roofline import Phase, intensity, roofline
from trimtab.physics.serving_query import Load, ServingQuery
from trimtab.physics.transfer import Binding


def query(requests):
    return ServingQuery(
        model=model_named("llama-2-7b"), gpu=load_catalog().gpu("A100-SXM4-80GB"), stored=WeightFormat.FP16,
        engine="vllm", year=2026, load=Load.ONLINE, requests=requests, input_tokens=1024, output_tokens=128,
    )  # fmt: skip


def test_batch_1_decode_does_about_one_flop_a_byte():
    assert intensity(query(1), Phase.DECODE) == pytest.approx(1.0, abs=0.1)


def test_prefill_is_compute_bound_and_decode_memory_bound():
    prefill, decode = roofline(query(8)).points

    assert prefill.binding is Binding.COMPUTE
    assert decode.binding is Binding.MEMORY
    assert decode.attainable_tflops < 0.05 * prefill.attainable_tflops


def test_the_ridge_of_an_a100_lies_at_153_flops_a_byte():
    assert roofline(query(1)).ridge_flop_per_byte == pytest.approx(312e12 / 2039e9)


def test_batching_raises_the_intensity_of_decode():
    assert intensity(query(64), Phase.DECODE) > 8 * intensity(query(1), Phase.DECODE) * 0.9

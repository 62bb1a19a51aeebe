"""Figures that popular articles get wrong, against what our formulas and facts answer.

Numbers are those of the checked list of claims; each test states the right-hand column.
"""

import pytest

from trimtab.catalog import BuyingOption, Precision, load_catalog
from trimtab.catalog.mig import place
from trimtab.physics.footprint import Item, Serving, inference_footprint, resident_requests
from trimtab.physics.formats import WeightFormat, why_not
from trimtab.physics.models import model_named
from trimtab.physics.predict import times_of
from trimtab.physics.serving_query import Load, ServingQuery
from trimtab.physics.training import Training, training_footprint
from trimtab.physics.transfer import DeviceActivity, speed_ratio

CATALOG = load_catalog()


def gpu(name):
    return CATALOG.gpu(name)


@pytest.mark.parametrize(
    ("name", "tensor", "fp32"),
    [("A100-SXM4-80GB", 312, 19.5), ("H100-SXM5-80GB", 989.4, 66.9), ("T4", 65, 8.1), ("A10G", 70, 31.5)],
)
def test_tensor_rates_are_not_fp32_rates(name, tensor, fp32):  # claims 1, 2
    assert gpu(name).tflops(Precision.FP16) == pytest.approx(tensor)
    assert gpu(name).fp32_tflops == pytest.approx(fp32)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("A100-SXM4-80GB", 2039),
        ("A100-SXM4-40GB", 1555),
        ("A100-PCIe-80GB", 1935),
        ("H100-PCIe-80GB", 2000),
        ("T4", 320),
    ],
)
def test_bandwidth_depends_on_the_board_and_not_only_the_chip(name, bandwidth):  # claim 3
    assert gpu(name).mem_bw_gb_s == bandwidth


@pytest.mark.parametrize("name", ["T4", "A10G"])
def test_inference_cards_have_gddr6_and_not_hbm(name):  # claims 4, 8
    assert gpu(name).memory_type == "GDDR6"
    assert gpu(name).memory_gib < 24


def test_a_batch_1_token_of_7b_takes_7_ms_of_memory_and_45_us_of_compute():  # claims 5, 6
    weights_bytes, flops = 14e9, 14e9
    a100 = gpu("A100-SXM4-80GB")

    assert weights_bytes / (a100.mem_bw_gb_s * 1e9) * 1e3 == pytest.approx(6.87, rel=0.01)
    assert flops / (a100.tflops(Precision.FP16) * 1e12) * 1e3 == pytest.approx(0.045, rel=0.01)


def test_a_t4_reads_7b_in_44_ms_a_token_or_longer():  # claim 7
    query = ServingQuery(
        model=model_named("llama-2-7b"),
        gpu=gpu("T4"),
        stored=WeightFormat.FP16,
        engine="vllm",
        year=2024,
        load=Load.DECODE,
        requests=1,
        input_tokens=128,
        output_tokens=128,
    )

    assert times_of([query]).decode_s[0] > 0.85 * 14e9 / 320e9


@pytest.mark.parametrize("gib", [59 * 1e9 / 2**30, 42 * 1e9 / 2**30])
def test_59_and_42_gb_do_not_fit_an_a10g(gib):  # claim 9
    assert gib > gpu("A10G").memory_gib


def test_full_training_of_7b_needs_112_gb_before_activations():  # claim 10
    parts = training_footprint(Training(model=model_named("llama-2-7b"))).bytes_by_item
    states = sum(parts[item] for item in (Item.WEIGHTS, Item.GRADIENTS, Item.OPTIMIZER)) / 1e9

    assert states == pytest.approx(16 * 6.738, rel=0.01)
    assert states > 89


def test_70b_in_full_precision_does_not_fit_one_a100():  # claim 14
    serving = Serving(model=model_named("llama-2-70b"), stored=WeightFormat.FP16)

    assert resident_requests(serving, gpu("A100-SXM4-80GB")) == 0
    assert inference_footprint(serving).gib(Item.WEIGHTS) > 80


def test_low_sm_activity_alone_is_no_memory_bound():  # claim 44
    a100, h100 = gpu("A100-SXM4-80GB"), gpu("H100-SXM5-80GB")
    alone, with_dram = (
        speed_ratio(observed=seen, source=a100, target=h100)
        for seen in (DeviceActivity(sm_active=0.5), DeviceActivity(sm_active=0.5, dram_active=0.85))
    )

    # SM activity alone may be launches or input, which no faster GPU helps; DRAM activity shows that bandwidth does
    assert alone.low < 1 < with_dram.low


def test_an_embedding_service_at_22_percent_of_an_a100_cannot_be_assumed_as_fast_on_an_a10g():  # claim 47
    seen = DeviceActivity(tensor_active=0.22, dram_active=0.15, sm_active=0.3)

    ratio = speed_ratio(observed=seen, source=gpu("A100-SXM4-80GB"), target=gpu("A10G"), precision=Precision.FP16)

    assert pytest.approx(0.98, abs=0.01) == 0.22 * 312 / 70
    assert ratio.low < 0.8


def test_a100_to_a10g_saves_2_73_times_an_hour_and_not_4():  # claim 46
    p4d = CATALOG.prices.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND).usd_hr / 8
    g5 = CATALOG.prices.price("aws", "g5.xlarge", "us-east-1", BuyingOption.ON_DEMAND).usd_hr

    assert p4d / g5 == pytest.approx(2.73, abs=0.02)


def test_hopper_has_no_fp4_products_and_turing_no_bf16():  # claim 52
    assert "Blackwell" in why_not(gpu("H100-SXM5-80GB"), WeightFormat.FP4)
    assert "fp16" in why_not(gpu("T4"), WeightFormat.BF16)
    assert why_not(gpu("H100-SXM5-80GB"), WeightFormat.INT4) == ""


@pytest.mark.parametrize("name", ["A100-SXM4-80GB"])
def test_an_a100_partitions_into_7_of_10_and_2_of_40(name):  # claims 34, 54, 62, 63
    profiles = {profile.name: profile for profile in CATALOG.mig_profiles(gpu(name))}

    assert place([profiles["1g.10gb"]] * 7) is not None
    assert place([profiles["2g.20gb"]] * 3) is not None
    assert place([profiles["3g.40gb"]] * 2) is not None
    assert place([profiles["1g.10gb"]] * 8) is None


def test_four_a100_at_35_percent_sm_and_high_dram_are_not_sped_up_in_proportion_by_an_h100():
    # The golden case: memory-bound decode. An H100 costs 2.5 times as much and reads 1.64 times as fast.
    seen = DeviceActivity(sm_active=0.35, tensor_active=0.08, dram_active=0.85, gpu_util=0.97)
    a100, h100 = gpu("A100-SXM4-80GB"), gpu("H100-SXM5-80GB")

    ratio = speed_ratio(observed=seen, source=a100, target=h100, precision=Precision.BF16)
    p4de = CATALOG.prices.price("aws", "p4de.24xlarge", "us-east-1", BuyingOption.ON_DEMAND).usd_hr
    p5 = CATALOG.prices.price("aws", "p5.48xlarge", "us-east-1", BuyingOption.ON_DEMAND).usd_hr

    assert ratio.value < p5 / p4de

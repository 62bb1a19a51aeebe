"""The whole list of checked claims: which test answers which row, which rows nothing of ours can answer, and the other tests.

The list has 65 rows. `ANSWERED` names the test of each row that the catalog or physics can answer (here, in test_claims.py
beside this file or in tests/catalog/test_claims.py); `UNANSWERED` says why for the others.
"""

import re
from pathlib import Path
from statistics import median

import pytest

import trimtab as tt
from trimtab.catalog import BuyingOption, InterruptionBucket, Lifecycle, Precision, load_catalog
from trimtab.cli.fit.inputs import amount_per_second
from trimtab.errors import MissingPrice
from trimtab.physics.ask import FitMarket
from trimtab.physics.footprint import Serving, weight_bytes
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.roofline import Phase, intensity
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_query import Load, ServingQuery
from trimtab.physics.transfer import DeviceActivity, speed_ratio

CATALOG = load_catalog()
AWS = "aws"
ON_DEMAND, SPOT = BuyingOption.ON_DEMAND, BuyingOption.SPOT
TESTS = Path(__file__).resolve().parents[1]
FILES = ("physics/test_claims.py", "physics/test_claims_list.py", "catalog/test_claims.py")

ANSWERED = {
    1: "test_tensor_rates_are_not_fp32_rates",
    2: "test_tensor_rates_are_not_fp32_rates",
    3: "test_bandwidth_depends_on_the_board_and_not_only_the_chip",
    4: "test_inference_cards_have_gddr6_and_not_hbm",
    5: "test_a_batch_1_token_of_7b_takes_7_ms_of_memory_and_45_us_of_compute",
    6: "test_a_batch_1_token_does_one_flop_a_byte",
    7: "test_a_t4_reads_7b_in_44_ms_a_token_or_longer",
    8: "test_a10g_has_24_gb",
    9: "test_59_and_42_gb_do_not_fit_an_a10g",
    10: "test_full_training_of_7b_needs_112_gb_before_activations",
    11: "test_month_on_demand",
    12: "test_p3_8xlarge_is_four_v100_for_8935_a_month",
    13: "test_dollars_per_flop_are_far_from_equal",
    14: "test_70b_in_full_precision_does_not_fit_one_a100",
    16: "test_p3_has_nvlink_and_v100",
    17: "test_p3_has_nvlink_and_v100",
    18: "test_p4d_fell_a_third_to_21_96",
    19: "test_p5_costs_two_and_a_half_p4d",
    20: "test_no_reservation_is_sold_for_p5_and_on_demand_is_below_8_a_gpu",
    21: "test_links_of_gcp_a2_and_a3",
    22: "test_gcp_a2_on_demand",
    23: "test_gcp_a3_on_demand_and_spot",
    24: "test_there_is_no_a3e",
    25: "test_three_year_commitment_on_a2_is_65_percent_off",
    26: "test_azure_per_gpu_hour",
    27: "test_azure_per_gpu_hour",
    28: "test_azure_one_year_a100_is_34_6_percent_off",
    30: "test_aws_a100_is_a_quarter_below_gcp_on_demand_and_above_it_committed",
    31: "test_a3_costs_more_a_gpu_than_p4d",
    32: "test_twenty_requests_at_100_a_second_take_200_ms",
    33: "test_a_million_a_day_in_windows_of_4_hours_is_167k_a_window",
    34: "test_mig_slice_of_an_a100_is_5_or_10_gb",
    36: "test_a10g_and_a100_tokens_for_a_dollar_are_not_2_5_times_apart",
    38: "test_four_h100_do_not_outrun_eight_a100_in_proportion_to_their_price",
    40: "test_us_west_2_costs_what_us_east_1_costs",
    42: "test_power_of_an_a100_pcie_ends_at_250_w",
    43: "test_gpu_utilisation_is_not_occupancy",
    44: "test_low_sm_activity_alone_is_no_memory_bound",
    46: "test_a100_to_a10g_saves_2_73_times_an_hour_and_not_4",
    47: "test_an_embedding_service_at_22_percent_of_an_a100_cannot_be_assumed_as_fast_on_an_a10g",
    48: "test_h100_to_a100_at_one_and_a_half_times_the_time_is_60_percent_of_the_cost",
    49: "test_aws_spot_saves_about_two_thirds_on_small_gpus_and_half_on_p5",
    50: "test_some_gpu_types_are_interrupted_over_20_percent_and_some_under_5",
    51: "test_gpu_reservations_are_not_always_sold",
    52: "test_hopper_has_no_fp4_products_and_turing_no_bf16",
    54: "test_an_a100_partitions_into_7_of_10_and_2_of_40",
    55: "test_p3_2xlarge_is_3_06_and_of_a_previous_generation",
    59: "test_h100_costs_from_1_25_preemptible_to_12_29_on_the_large_clouds",
    62: "test_a100_80_packs_seven_1g_three_2g_or_two_3g",
    63: "test_7g_is_an_instance_that_loses_ten_multiprocessors",
}
ARITHMETIC = "sums over the article's own inputs: no fact or formula of ours enters"
TOOLING = "about a cloud's or a driver's behaviour, which neither the catalog nor physics holds"
UNANSWERED = {
    **dict.fromkeys((15, 29, 35, 37, 39, 45, 65), ARITHMETIC),
    **dict.fromkeys((41, 53, 57, 58, 60, 61, 64), TOOLING),
    56: "a reservation rate of a retired offer that the price book has no row of: it answers with MissingPrice",
}


def usd_hr(name, region="us-east-1", option=ON_DEMAND, provider=AWS):
    price = CATALOG.prices.price(provider, name, region, option)
    return price.usd_hr / CATALOG.instance_type(provider, name).gpu_count


def test_every_row_of_the_list_is_answered_or_says_why_not():
    assert not set(ANSWERED) & set(UNANSWERED)
    assert set(ANSWERED) | set(UNANSWERED) == set(range(1, 66))


def test_the_named_tests_exist():
    found = {
        name for file in FILES for name in re.findall(r"def (test_\w+)", (TESTS / file).read_text(encoding="utf-8"))
    }

    assert set(ANSWERED.values()) <= found


def test_a_batch_1_token_does_one_flop_a_byte():
    query = ServingQuery(
        model=model_named("llama-2-7b"),
        gpu=CATALOG.gpu("A100-80GB"),
        stored=WeightFormat.FP16,
        engine="vllm",
        year=2026,
        load=Load.ONLINE,
        requests=1,
        input_tokens=16,
        output_tokens=16,
    )

    assert intensity(query, Phase.DECODE) == pytest.approx(1, rel=0.05)


def test_70b_weights_in_fp16_are_140_gb():
    serving = Serving(model=model_named("llama-2-70b"), stored=WeightFormat.FP16)

    assert weight_bytes(serving.model, serving.stored) / 1e9 == pytest.approx(138, rel=0.02)


def test_p4d_fell_a_third_to_21_96():
    history = CATALOG.prices.history(AWS, "p4d.24xlarge", "us-east-1", ON_DEMAND)

    assert history[-1].usd_hr == pytest.approx(21.96, abs=0.005)
    assert history[0].usd_hr == pytest.approx(32.77, abs=0.005)


def test_no_reservation_is_sold_for_p5_and_on_demand_is_below_8_a_gpu():
    with pytest.raises(MissingPrice):
        CATALOG.prices.price(AWS, "p5.48xlarge", "us-east-1", BuyingOption.RESERVED_3Y)
    assert usd_hr("p5.48xlarge") < 8


def test_there_is_no_a3e():
    assert not [one.name for one in CATALOG.instance_types if one.name.startswith(("a3e", "a3-e"))]


def test_a3_costs_more_a_gpu_than_p4d():
    assert usd_hr("a3-highgpu-8g", "us-central1", provider="gcp") > 3 * usd_hr("p4d.24xlarge")


def test_twenty_requests_at_100_a_second_take_200_ms():
    rate = amount_per_second("100/s")

    assert rate * 0.050 == pytest.approx(5)
    assert 20 / rate == pytest.approx(0.2)


def test_a_million_a_day_in_windows_of_4_hours_is_167k_a_window():
    assert amount_per_second("1M/day") * 4 * 3600 == pytest.approx(166_667, abs=1)


def tok_s_per_usd_hr(model, name, *, gpus=None):
    market = FitMarket(catalog=CATALOG, gpus=(name,), provider=AWS, region="us-east-1")
    demand = Demand(input_tokens=512, output_tokens=256, concurrency=8)
    found = tt.fit(model, serve=demand, market=market, formats=(WeightFormat.BF16,)).found
    return max(one.tok_s.value / (one.usd_hr / (one.gpus + one.stranded_gpus)) for one in found if one.tensor == 1)


def test_a10g_and_a100_tokens_for_a_dollar_are_not_2_5_times_apart():
    ratio = tok_s_per_usd_hr("llama-3.1-8b", "A10G") / tok_s_per_usd_hr("llama-3.1-8b", "A100-40GB")

    assert 0.4 < ratio < 2.0


def test_four_h100_do_not_outrun_eight_a100_in_proportion_to_their_price():
    h100, a100 = (CATALOG.gpu(name) for name in ("H100", "A100-40GB"))

    assert 4 * h100.tflops(Precision.BF16) / (8 * a100.tflops(Precision.BF16)) == pytest.approx(1.59, abs=0.01)
    assert 4 * h100.mem_bw_gb_s / (8 * a100.mem_bw_gb_s) == pytest.approx(1.08, abs=0.01)
    assert 4 * usd_hr("p5.48xlarge") / (8 * usd_hr("p4d.24xlarge")) == pytest.approx(1.25, abs=0.01)


def test_gpu_utilisation_is_not_occupancy():
    busy_kernels = DeviceActivity(gpu_util=1.0, sm_active=0.12, tensor_active=0.01, dram_active=0.05)

    ratio = speed_ratio(observed=busy_kernels, source=CATALOG.gpu("A100-80GB"), target=CATALOG.gpu("H100"))

    # neither bandwidth (1.64 times) nor tensor rate (3.17 times) limits it: what runs all the time leaves most of the GPU idle,
    # and may gain nothing
    assert ratio.low < 1.0 < ratio.value < 1.3


def test_h100_to_a100_at_one_and_a_half_times_the_time_is_60_percent_of_the_cost():
    assert 1.5 * usd_hr("p4d.24xlarge") / usd_hr("p5.48xlarge") == pytest.approx(0.60, abs=0.005)


def spot_savings(*families):
    found = []
    for price in CATALOG.prices.prices:
        if price.option is SPOT and price.provider == AWS and price.instance_type.split(".")[0] in families:
            listed = CATALOG.prices.price(AWS, price.instance_type, price.region, ON_DEMAND).usd_hr
            found.append(1 - price.usd_hr / listed)
    return found


def test_aws_spot_saves_about_two_thirds_on_small_gpus_and_half_on_p5():
    # Four regions here; over all regions the medians are 66-67 % and 52 %.
    assert median(spot_savings("g4dn", "g5", "g6")) == pytest.approx(0.64, abs=0.04)
    assert median(spot_savings("p5")) == pytest.approx(0.5, abs=0.04)
    assert min(spot_savings("g6e")) < 0.4


def test_some_gpu_types_are_interrupted_over_20_percent_and_some_under_5():
    rows = [one for one in CATALOG.prices.prices if one.option is SPOT and one.provider == AWS]

    def share(bucket):
        return sum(one.interruption is bucket for one in rows) / len(rows)

    assert share(InterruptionBucket.OVER_20) > 0.4
    assert share(InterruptionBucket.UNDER_5) == pytest.approx(0.19, abs=0.04)


@pytest.mark.parametrize("name", ["p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p3.16xlarge"])
def test_gpu_reservations_are_not_always_sold(name):
    with pytest.raises(MissingPrice):
        CATALOG.prices.price(AWS, name, "us-east-1", BuyingOption.RESERVED_1Y)


def test_p3_2xlarge_is_3_06_and_of_a_previous_generation():
    assert usd_hr("p3.2xlarge") == pytest.approx(3.06)
    assert CATALOG.instance_type(AWS, "p3.2xlarge").lifecycle is Lifecycle.PREVIOUS


def test_a_reservation_of_p3_2xlarge_is_answered_with_missing_price():
    with pytest.raises(MissingPrice):
        CATALOG.prices.price(AWS, "p3.2xlarge", "us-east-1", BuyingOption.RESERVED_1Y)

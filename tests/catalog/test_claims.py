"""Claims of popular articles on GPU cost that the catalog can answer: the right figure comes out of our own data.

Each test states the claim it refutes or confirms.
"""

import pytest

from trimtab.catalog import BuyingOption, Precision
from trimtab.catalog.mig import place
from trimtab.units import HR_PER_MO

ON_DEMAND, SPOT = BuyingOption.ON_DEMAND, BuyingOption.SPOT
ONE_YEAR, THREE_YEARS = BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y

AWS_NODE = {
    "T4": "g4dn.xlarge", "A10G": "g5.xlarge", "L4": "g6.xlarge", "L40S": "g6e.xlarge", "A100-40GB": "p4d.24xlarge",
    "A100-80GB": "p4de.24xlarge", "H100": "p5.48xlarge", "H200": "p5en.48xlarge",
}  # fmt: skip


@pytest.fixture(scope="session")
def gpu_hr(catalog):
    """USD of one GPU-hour."""

    def usd(provider, name, region, option=ON_DEMAND):
        price = catalog.prices.price(provider, name, region, option)
        return price.usd_hr / catalog.instance_type(provider, name).gpu_count

    return usd


@pytest.fixture(scope="session")
def aws_mo(gpu_hr):
    """USD of one GPU-month in us-east-1."""
    return lambda gpu, option=ON_DEMAND: gpu_hr("aws", AWS_NODE[gpu], "us-east-1", option) * HR_PER_MO


def profile_named(catalog, gpu, name):
    return next(profile for profile in catalog.mig_profiles(gpu) if profile.name == name)


@pytest.mark.parametrize(("gpu", "tflops"), [("A100-40GB", 19.5), ("H100", 66.9), ("T4", 8.1), ("A10G", 31.5)])
def test_fp32_is_not_the_tensor_rate(catalog, gpu, tflops):
    """Claimed: A100 312, H100 989, T4 65, A10G 150 TFLOPS of FP32."""
    assert catalog.gpu(gpu).tflops(Precision.FP32) == pytest.approx(tflops)


@pytest.mark.parametrize(
    ("gpu", "gb_s"),
    [("A100-80GB", 2039), ("A100-40GB", 1555), ("A100-PCIe-80GB", 1935), ("H100", 3350), ("H100-PCIe", 2000), ("T4", 320),
     ("A10G", 600)],
)  # fmt: skip
def test_bandwidth_depends_on_the_form_factor(catalog, gpu, gb_s):
    """Claimed for all A100 and H100: 2.0 and 3.35 TB/s."""
    assert catalog.gpu(gpu).mem_bw_gb_s == gb_s


def test_t4_and_a10g_have_no_hbm(catalog):
    """Claimed: HBM."""
    assert [catalog.gpu(name).memory_type for name in ("T4", "A10G")] == ["GDDR6", "GDDR6"]


def test_a10g_has_24_gb(catalog):
    """Claimed: 40 GB; and that 59 GB or 42 GB fit it."""
    assert catalog.gpu("A10G").memory_gib == pytest.approx(22.49, abs=0.01)


def test_70b_in_fp16_does_not_fit_one_a100(catalog):
    """Claimed: served in full precision on one A100; the weights alone are 140 GB."""
    assert catalog.gpu("A100-80GB").memory_gib * 1.0737 < 140


def test_p3_has_nvlink_and_v100(catalog):
    """Claimed: no NVLink, and A100 GPUs in P3."""
    for name in ("p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"):
        instance = catalog.instance_type("aws", name)
        assert instance.gpu.startswith("V100")
        assert "NVLink 300" in instance.interconnect
    assert ("aws", "p3.24xlarge") not in catalog.instance_table


def test_links_of_gcp_a2_and_a3(catalog):
    """Claimed: A2 without NVLink, A3 with 600 GB/s."""
    assert "600 GB/s" in catalog.instance_type("gcp", "a2-highgpu-8g").interconnect
    assert "900 GB/s" in catalog.instance_type("gcp", "a3-highgpu-8g").interconnect
    assert catalog.gpu("A100-40GB").nvlink_gb_s == 600
    assert catalog.gpu("H100").nvlink_gb_s == 900


def test_power_of_an_a100_pcie_ends_at_250_w(catalog):
    """Claimed: below 250 W on an A100 cores are idle."""
    assert catalog.gpu("A100-PCIe-40GB").tdp_w == 250


def test_mig_slice_of_an_a100_is_5_or_10_gb(catalog):
    """Claimed: 7 instances of about 11 GB each."""
    for board, name, gib in (("A100-40GB", "1g.5gb", 4.75), ("A100-80GB", "1g.10gb", 9.625)):
        gpu = catalog.gpu(board)
        assert profile_named(catalog, gpu, name).memory_gib(gpu.memory_gib) == pytest.approx(gib)


def test_a100_80_packs_seven_1g_three_2g_or_two_3g(catalog):
    """Claimed: 7 x 1g.10gb and 3 x 2g.20gb (true), 1 x 3g.40gb (two fit)."""
    gpu = catalog.gpu("A100-80GB")

    for name, count in (("1g.10gb", 7), ("2g.20gb", 3), ("3g.40gb", 2)):
        assert place([profile_named(catalog, gpu, name)] * count) is not None


def test_7g_is_an_instance_that_loses_ten_multiprocessors(catalog):
    """Claimed: 7g.80gb means that MIG is off."""
    gpu = catalog.gpu("A100-80GB")

    assert gpu.sm_count - profile_named(catalog, gpu, "7g.80gb").sm_count == 10


@pytest.mark.parametrize(("gpu", "usd_mo"), [("T4", 384), ("A10G", 734), ("A100-80GB", 2505), ("H100", 5022)])
def test_month_on_demand(aws_mo, gpu, usd_mo):
    """Claimed: about 200, 350, 2,200 and 3,100 a month."""
    assert aws_mo(gpu) == pytest.approx(usd_mo, abs=0.6)


@pytest.mark.parametrize(("gpu", "usd_mo"), [("T4", 242), ("A10G", 463), ("A100-80GB", 1588)])
def test_month_under_a_year(aws_mo, gpu, usd_mo):
    assert aws_mo(gpu, ONE_YEAR) == pytest.approx(usd_mo, abs=0.6)


def test_p3_8xlarge_is_four_v100_for_8935_a_month(catalog):
    """Claimed: a per-GPU column named after it."""
    price = catalog.prices.price("aws", "p3.8xlarge", "us-east-1", ON_DEMAND)

    assert price.usd_mo == pytest.approx(8935, abs=1)
    assert catalog.instance_type("aws", "p3.8xlarge").gpu_count == 4


def test_dollars_per_flop_are_far_from_equal(catalog, aws_mo):
    """Claimed: flops per dollar nearly identical, and smaller GPUs cheaper for all work."""
    usd_per_tflops = {
        gpu: aws_mo(gpu) / catalog.gpu(gpu).tflops(Precision.FP16) for gpu in AWS_NODE if gpu != "A100-40GB"
    }

    assert sorted(usd_per_tflops, key=usd_per_tflops.get) == ["L40S", "L4", "H100", "H200", "T4", "A100-80GB", "A10G"]
    assert usd_per_tflops["L40S"] == pytest.approx(3.75, abs=0.01)
    assert usd_per_tflops["A10G"] == pytest.approx(10.49, abs=0.01)


def test_dollars_per_bandwidth_rank_otherwise(catalog, aws_mo):
    """A move to L4 pays for work bound by compute and loses where bandwidth binds."""
    usd_per_gb_s = {
        gpu: aws_mo(gpu) / catalog.gpu(gpu).mem_bw_gb_s for gpu in ("T4", "A10G", "A100-80GB", "H100", "L4")
    }

    assert list(usd_per_gb_s.values()) == pytest.approx([1.20, 1.22, 1.23, 1.50, 1.96], abs=0.006)


def test_p3dn_and_p3_16xlarge_rates(catalog):
    """Claimed: p3.24xlarge, 8x A100, about 24."""
    assert catalog.prices.price("aws", "p3dn.24xlarge", "us-east-1", ON_DEMAND).usd_hr == pytest.approx(31.212)
    assert catalog.prices.price("aws", "p3.16xlarge", "us-east-1", ON_DEMAND).usd_hr == pytest.approx(24.48)


def test_p5_costs_two_and_a_half_p4d(gpu_hr):
    """Claimed: 12.25 per GPU, four times; and 8 under a 3-year reservation, above today's on-demand 6.88."""
    h100 = gpu_hr("aws", "p5.48xlarge", "us-east-1")

    assert h100 == pytest.approx(6.88)
    assert h100 / gpu_hr("aws", "p4d.24xlarge", "us-east-1") == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize(
    ("name", "usd"), [("a2-highgpu-1g", 3.673), ("a2-megagpu-16g", 3.484), ("a2-ultragpu-1g", 5.069)]
)
def test_gcp_a2_on_demand(gpu_hr, name, usd):
    """Claimed: about 1.90 per GPU-hour, which is the spot price."""
    assert gpu_hr("gcp", name, "us-central1") == pytest.approx(usd, abs=0.001)


def test_gcp_a3_on_demand_and_spot(gpu_hr):
    """Claimed: about 4.70."""
    assert gpu_hr("gcp", "a3-highgpu-8g", "us-central1") == pytest.approx(11.06, abs=0.005)
    assert gpu_hr("gcp", "a3-highgpu-8g", "us-central1", SPOT) == pytest.approx(6.33, abs=0.005)
    assert gpu_hr("gcp", "a3-highgpu-8g", "asia-northeast1", SPOT) == pytest.approx(3.24, abs=0.005)


def test_three_year_commitment_on_a2_is_65_percent_off(catalog, gpu_hr):
    """Claimed: 70 % off, 0.57 per GPU-hour."""
    committed = gpu_hr("gcp", "a2-highgpu-8g", "us-central1", THREE_YEARS)

    assert committed == pytest.approx(1.286, abs=0.001)
    assert 1 - committed / gpu_hr("gcp", "a2-highgpu-8g", "us-central1") == pytest.approx(0.65, abs=0.001)
    assert catalog.prices.price("gcp", "a2-highgpu-8g", "us-central1", THREE_YEARS).usd_mo == pytest.approx(7509, abs=1)


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("Standard_NC6s_v3", 3.06),
        ("Standard_ND96asr_v4", 3.40),
        ("Standard_ND96amsr_A100_v4", 4.10),
        ("Standard_ND96isr_H100_v5", 12.29),
    ],
)
def test_azure_per_gpu_hour(gpu_hr, name, usd):
    """Claimed: NCv3 3.50, NDv4 4.50, NDv5 6.20."""
    assert gpu_hr("azure", name, "eastus") == pytest.approx(usd, abs=0.005)


def test_azure_one_year_a100_is_34_6_percent_off(catalog):
    """Claimed: 52 % off over three years; the one point found."""
    one_year = [price for price in catalog.prices.prices if price.provider == "azure" and price.option is ONE_YEAR]

    assert [price.instance_type for price in one_year] == ["Standard_NC48ads_A100_v4"]
    assert one_year[0].usd_hr == pytest.approx(42066 / 8760, abs=0.001)
    listed = catalog.prices.price("azure", one_year[0].instance_type, one_year[0].region, ON_DEMAND)
    assert 1 - one_year[0].usd_hr / listed.usd_hr == pytest.approx(0.346, abs=0.001)


def test_aws_a100_is_a_quarter_below_gcp_on_demand_and_above_it_committed(gpu_hr):
    """Claimed: GCP A2 is 45 % or 70 % cheaper than AWS."""
    aws, gcp = gpu_hr("aws", "p4d.24xlarge", "us-east-1"), gpu_hr("gcp", "a2-highgpu-8g", "us-central1")

    assert 1 - aws / gcp == pytest.approx(0.25, abs=0.005)
    assert gpu_hr("gcp", "a2-highgpu-8g", "us-central1", THREE_YEARS) == pytest.approx(1.286, abs=0.001)
    assert gpu_hr("aws", "p4d.24xlarge", "us-east-1", ONE_YEAR) == pytest.approx(1.740, abs=0.001)


def test_us_west_2_costs_what_us_east_1_costs(catalog):
    """Claimed: 10-20 % cheaper."""
    compared = 0
    for instance in catalog.instance_types:
        rates = [
            {price.option: price.usd_hr for price in catalog.prices.options("aws", instance.name, region)}.get(
                ON_DEMAND
            )
            for region in ("us-east-1", "us-west-2")
        ]
        if instance.provider == "aws" and all(rates):
            compared += 1
            assert rates[0] == pytest.approx(rates[1], rel=1e-4), instance.name

    assert compared > 50


def test_a100_over_a10g_fell_from_fourfold(catalog, gpu_hr):
    """Claimed: A10G is roughly four times cheaper per hour."""
    a10g = gpu_hr("aws", "g5.xlarge", "us-east-1")
    before = catalog.prices.history("aws", "p4d.24xlarge", "us-east-1", ON_DEMAND)[0].usd_hr / 8

    assert gpu_hr("aws", "p4d.24xlarge", "us-east-1") / a10g == pytest.approx(2.73, abs=0.005)
    assert before / a10g == pytest.approx(4.07, abs=0.005)


def test_an_a100_hour_is_40_percent_of_an_h100_hour(gpu_hr):
    """Claimed: 50 %."""
    ratio = gpu_hr("aws", "p4d.24xlarge", "us-east-1") / gpu_hr("aws", "p5.48xlarge", "us-east-1")

    assert ratio == pytest.approx(0.399, abs=0.001)


def test_h100_costs_from_1_25_preemptible_to_12_29_on_the_large_clouds(catalog, gpu_hr):
    """Claimed: 5 to 8 on demand."""
    assert gpu_hr("nebius", "gpu-h100-sxm_1gpu-16vcpu-200gb", "eu-north1", SPOT) == pytest.approx(1.25)
    assert gpu_hr("azure", "Standard_ND96isr_H100_v5", "eastus2") == pytest.approx(12.29)

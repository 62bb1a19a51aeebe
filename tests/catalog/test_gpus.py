"""Boards: names, dense rates, visible memory."""

import math

import pytest

from trimtab.catalog import Precision
from trimtab.errors import UnknownName

DENSE_FP16_DATASHEET_TFLOPS = {
    "T4": 65, "V100-SXM2-16GB": 125, "A10G": 70, "A10": 125, "L4": 121, "L40S": 362, "A40": 149.7, "RTX-A6000": 154.8,
    "A100-SXM4-40GB": 312, "A100-PCIe-80GB": 312, "H100-SXM5-80GB": 989.4, "H100-NVL-94GB": 835, "H100-PCIe-80GB": 756,
    "H200-SXM-141GB": 989.4, "B200-SXM-180GB": 2250, "GB200-186GB": 2500, "B300-SXM-270GB": 2250, "MI300X": 1307.4,
    "MI355X": 2500, "RTX-4090": 165.2, "RTX-3090": 71, "Inferentia": 64, "Inferentia2": 190, "Trainium": 190,
    "Trainium2": 667, "Gaudi2": 432, "Gaudi3": 1835, "Max-1550": 839,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("tpu-v6e-slice", "TPU-v6e"),
        ("tpu-v5-lite-podslice", "TPU-v5e"),
        ("trn1n", "Trainium"),
        ("Intel(R) Data Center GPU Max 1550", "Max-1550"),
        ("NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-SXM4-40GB"),
        ("nvidia-tesla-a100", "A100-SXM4-40GB"),
        ("A100-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIe-80GB"),
        ("nvidia-a100-80gb", "A100-SXM4-80GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("V100-16GB", "V100-SXM2-16GB"),
        ("Tesla-T4-SHARED", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("a10g", "A10G"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("H100", "H100-SXM5-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA B200", "B200-SXM-180GB"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
    ],
)
def test_board_is_found_under_the_names_that_drivers_clusters_and_price_lists_use(catalog, name, board):
    assert catalog.gpu(name).name == board


def test_every_board_is_found_under_each_of_its_own_names(catalog):
    for gpu in catalog.gpus:
        for name in (gpu.name, gpu.nvidia_smi_name, gpu.nvidia_smi_name.replace(" ", "-"), *gpu.aliases):
            assert catalog.gpu(name) is gpu, name


def test_a_name_that_leaves_the_memory_open_is_not_guessed(catalog):
    with pytest.raises(UnknownName) as caught:
        catalog.gpu("A100")

    assert all(name.startswith("A100") for name in caught.value.near)


def test_unknown_board_brings_near_matches(catalog):
    with pytest.raises(UnknownName, match="did you mean L40, L40S"):
        catalog.gpu("L40Z")


@pytest.mark.parametrize(("name", "dense_tflops"), DENSE_FP16_DATASHEET_TFLOPS.items())
def test_no_rate_exceeds_the_dense_datasheet(catalog, name, dense_tflops):
    assert catalog.gpu(name).tflops(Precision.FP16) == pytest.approx(dense_tflops, rel=0.01)


def test_halving_the_bits_doubles_a_dense_rate_at_most(catalog):
    """A step of 4 would betray a sparse figure next to a dense one.

    FP4 on Blackwell Ultra is three times FP8 by design; GeForce halves the rates that accumulate in FP32, FP4 does not.
    """
    for gpu in (gpu for gpu in catalog.gpus if "GeForce" not in gpu.nvidia_smi_name):
        for wide, narrow in (
            (Precision.FP16, Precision.FP8),
            (Precision.TF32, Precision.FP16),
            (Precision.FP8, Precision.FP4),
        ):
            if gpu.tflops(wide) and gpu.tflops(narrow):
                most = 3.01 if narrow is Precision.FP4 and gpu.architecture == "Blackwell Ultra" else 2.03
                assert gpu.tflops(narrow) / gpu.tflops(wide) <= most, (gpu.name, narrow)


def test_a_board_without_a_path_has_no_rate_there(catalog):
    assert catalog.gpu("V100").tflops(Precision.BF16) is None
    assert catalog.gpu("T4").tflops(Precision.FP8) is None
    assert catalog.gpu("H100").tflops(Precision.FP4) is None


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("T4", 15360),
        ("A10G", 23028),
        ("L4", 23034),
        ("A100-80GB", 81920),
        ("H100", 81559),
        ("H200", 143771),
        ("B200", 183359),
    ],
)
def test_memory_is_what_the_driver_reports(catalog, name, mib):
    assert catalog.gpu(name).memory_gib == pytest.approx(mib / 1024)


def test_visible_memory_stays_below_the_box_but_for_binary_gigabytes(catalog):
    for gpu in catalog.gpus:
        assert gpu.memory_gib <= gpu.memory_gb * 1.001, gpu.name


def test_ridge_of_an_a100_lies_at_153_flop_per_byte(catalog):
    """312 TFLOPS / 2,039 GB/s."""
    assert catalog.gpu("A100-80GB").flop_per_byte() == pytest.approx(153.0, abs=0.05)


def test_int8_falls_thirtyfold_on_b300(catalog):
    """A model quantized to INT8 must not be moved there."""
    drop = catalog.gpu("B200").tflops(Precision.INT8) / catalog.gpu("B300").tflops(Precision.INT8)

    assert drop == pytest.approx(29.3, abs=0.1)


def test_a_figure_without_a_second_source_is_named(catalog):
    assert "tdp_w" in catalog.gpu("A10G").unverified_fields
    assert "fp16_tflops" not in catalog.gpu("A10G").unverified_fields


def test_every_board_names_its_sources_and_its_date(catalog):
    for gpu in catalog.gpus:
        assert gpu.sources
        assert gpu.as_of


def test_what_a_maker_does_not_tell_is_missing_and_not_zero(catalog):
    tpu = catalog.gpu("TPU-v6e")

    assert tpu.tflops(Precision.BF16) == 918
    assert tpu.tflops(Precision.FP16) is None
    assert math.isnan(tpu.tdp_w)
    assert math.isnan(tpu.fp32_tflops)
    assert catalog.gpu("Trainium").pcie_gen is None


def test_only_gpus_have_a_law_of_their_speed(catalog):
    lawless = {gpu.vendor for gpu in catalog.gpus if not gpu.has_speed_law}

    assert lawless == {"AWS", "Google"}


@pytest.mark.parametrize(
    ("name", "gb_s"),
    [
        ("V100-SXM2-16GB", 15.75),
        ("A100-PCIe-80GB", 31.5),
        ("L4", 31.5),
        ("H100-SXM5-80GB", 63.0),
        ("B300-SXM-270GB", 121.0),
    ],
)
def test_a_link_carries_half_of_what_datasheets_print_for_both_directions(catalog, name, gb_s):
    """NVIDIA's datasheets: 32, 64, 128 and 256 GB/s for sixteen lanes of PCIe 3, 4, 5 and 6, before line coding."""
    assert catalog.gpu(name).pcie_gb_s == pytest.approx(gb_s, rel=0.01)


@pytest.mark.parametrize("name", ["Trainium", "GB200-186GB", "T4G"])
def test_a_board_whose_host_link_is_not_told_or_is_no_pcie_has_no_rate(catalog, name):
    assert catalog.gpu(name).pcie_gb_s is None

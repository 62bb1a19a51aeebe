"""Carrying a measured workload to another GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.catalog import Precision, load_catalog
from trimtab.errors import Unpredictable
from trimtab.physics.transfer import Activity, Binding, binding_resource, fits_memory, speed_ratio

GPUS = load_catalog()
A100 = GPUS.gpu("A100-SXM4-80GB")
H100 = GPUS.gpu("H100-SXM5-80GB")
L4 = GPUS.gpu("L4")
A10G = GPUS.gpu("A10G")


def test_a_memory_bound_workload_follows_the_bandwidth():
    seen = Activity(sm_active=0.35, tensor_active=0.05, dram_active=0.90, gpu_util=0.98)

    ratio = speed_ratio(observed=seen, source=A100, target=H100)

    assert ratio.value == pytest.approx(H100.mem_bw_gb_s / A100.mem_bw_gb_s, rel=0.05)
    assert binding_resource(seen) is Binding.MEMORY


def test_a_compute_bound_workload_follows_the_tensor_rate():
    seen = Activity(sm_active=0.95, tensor_active=0.80, dram_active=0.20)

    ratio = speed_ratio(observed=seen, source=A100, target=H100, precision=Precision.BF16)

    assert ratio.value == pytest.approx(989.4 / 312, rel=0.12)
    assert binding_resource(seen) is Binding.COMPUTE


def test_a_starved_workload_gains_little_from_a_faster_gpu():
    seen = Activity(sm_active=0.10, tensor_active=0.04, dram_active=0.08, gpu_util=0.20)

    ratio = speed_ratio(observed=seen, source=A100, target=H100)

    assert 1.0 < ratio.value < 1.15
    assert binding_resource(seen) is Binding.HOST


def test_low_sm_activity_alone_does_not_prove_a_memory_bound():
    assert binding_resource(Activity(sm_active=0.30)) is Binding.HOST


def test_22_percent_of_an_a100_is_nearly_all_of_an_a10g():
    # 22 % of 312 TFLOPS = 69 TFLOPS, and an A10G peaks at 70: the same throughput cannot be assumed.
    seen = Activity(sm_active=0.30, tensor_active=0.22, dram_active=0.15)

    ratio = speed_ratio(observed=seen, source=A100, target=A10G)

    assert ratio.low < 0.75


def test_gpu_util_alone_is_no_basis_for_a_prediction():
    with pytest.raises(Unpredictable, match="GPU_UTIL"):
        speed_ratio(observed=Activity(gpu_util=0.9), source=A100, target=H100)


def test_the_same_gpu_is_exactly_as_fast():
    assert speed_ratio(observed=Activity(dram_active=0.5), source=A100, target=A100).value == 1.0


@given(
    dram=st.floats(0, 1),
    tensor=st.one_of(st.none(), st.floats(0, 1)),
    sm=st.one_of(st.none(), st.floats(0, 1)),
    pair=st.tuples(st.sampled_from(GPUS.gpus), st.sampled_from(GPUS.gpus)),
)
def test_every_ratio_is_positive_lies_in_its_interval_and_reverses_in_sign(dram, tensor, sm, pair):
    source, target = pair
    seen = Activity(sm_active=sm, tensor_active=tensor, dram_active=dram)

    there = speed_ratio(observed=seen, source=source, target=target)

    assert 0 < there.low <= there.value <= there.high
    faster = target.mem_bw_gb_s >= source.mem_bw_gb_s and target.tflops(Precision.FP16) >= source.tflops(Precision.FP16)
    if faster and source.vendor == target.vendor == "NVIDIA" and Precision.BF16 in source.rates_tflops:
        assert there.value >= 0.999


def test_a_peak_of_30_gib_does_not_fit_an_l4_and_fits_an_a100():
    assert not fits_memory(30.0, L4).fits
    verdict = fits_memory(30.0, A100)
    assert verdict.fits
    assert verdict.headroom_frac == pytest.approx(1 - 30 / (80 * 0.95), abs=0.01)

"""Carrying a measured workload to another GPU."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, strategies as st

from trimtab.catalog import Precision, load_catalog
from trimtab.errors import Unpredictable
from trimtab.physics.transfer import DeviceActivity, fits_memory, speed_ratio

GPUS = load_catalog()
A100 = GPUS.gpu("A100-SXM4-80GB")
H100 = GPUS.gpu("H100-SXM5-80GB")
L4 = GPUS.gpu("L4")
A10G = GPUS.gpu("A10G")
COUNTERS = ("sm_active", "tensor_active", "dram_active")
LAWFUL = [gpu for gpu in GPUS.gpus if gpu.has_speed_law]
PAIRS = st.tuples(st.sampled_from(LAWFUL), st.sampled_from(LAWFUL)).filter(lambda pair: pair[0] != pair[1])


@st.composite
def readings(draw):
    """Draw all four counters as one device shows them: a kernel runs while anything is active, pipes lie in SMs."""
    ran = draw(st.floats(0, 1))
    sm = ran * draw(st.floats(0, 1))
    return DeviceActivity(
        gpu_util=ran, sm_active=sm, tensor_active=sm * draw(st.floats(0, 1)), dram_active=ran * draw(st.floats(0, 1))
    )


def without(seen, counters):
    return replace(seen, **dict.fromkeys(counters))


def spans(wide, narrow):
    return wide.low <= narrow.low * (1 + 1e-9) and narrow.high <= wide.high * (1 + 1e-9)


def test_a_memory_bound_workload_follows_the_bandwidth():
    seen = DeviceActivity(sm_active=0.35, tensor_active=0.05, dram_active=0.90, gpu_util=0.98)

    ratio = speed_ratio(observed=seen, source=A100, target=H100)

    assert ratio.value == pytest.approx(H100.mem_bw_gb_s / A100.mem_bw_gb_s, rel=0.05)


def test_a_compute_bound_workload_follows_the_tensor_rate():
    seen = DeviceActivity(sm_active=0.95, tensor_active=0.80, dram_active=0.20)

    ratio = speed_ratio(observed=seen, source=A100, target=H100, precision=Precision.BF16)

    assert ratio.value == pytest.approx(989.4 / 312, rel=0.12)


def test_a_starved_workload_gains_little_from_a_faster_gpu():
    seen = DeviceActivity(sm_active=0.10, tensor_active=0.04, dram_active=0.08, gpu_util=0.20)

    ratio = speed_ratio(observed=seen, source=A100, target=H100)

    assert 1.0 < ratio.value < 1.15


def test_kernels_that_fill_neither_resource_may_slow_down_as_large_ones_do_and_waits_for_the_host_do_not():
    small = DeviceActivity(sm_active=0.25, tensor_active=0.08, dram_active=0.09, gpu_util=1.0)
    waits = replace(small, gpu_util=0.25)

    small_there, waits_there = (speed_ratio(observed=seen, source=A100, target=L4) for seen in (small, waits))

    as_large = math.sqrt(L4.mem_bw_gb_s / A100.mem_bw_gb_s * 121 / 312)
    assert small_there.low < as_large < small_there.value < waits_there.value
    assert waits_there.low > as_large


@given(seen=readings(), missing=st.sets(st.sampled_from((*COUNTERS, "gpu_util"))), pair=PAIRS)
def test_the_interval_without_a_counter_spans_that_of_every_reading_that_it_may_have(seen, missing, pair):
    assume(not missing.issuperset(COUNTERS))
    source, target = pair

    unsure = speed_ratio(observed=without(seen, missing), source=source, target=target)

    assert spans(unsure, speed_ratio(observed=seen, source=source, target=target))


@given(seen=readings(), missing=st.permutations((*COUNTERS, "gpu_util")), pair=PAIRS)
def test_every_further_missing_counter_leaves_an_interval_that_spans_the_one_before(seen, missing, pair):
    source, target = pair
    steps = [missing[:dropped] for dropped in range(4) if not set(missing[:dropped]).issuperset(COUNTERS)]

    found = [speed_ratio(observed=without(seen, gone), source=source, target=target) for gone in steps]

    assert all(spans(wide, narrow) for narrow, wide in itertools.pairwise(found))


@given(seen=readings(), knows_when=st.booleans(), pair=PAIRS)
def test_without_dram_activity_the_low_end_takes_all_busy_time_for_bandwidth(seen, knows_when, pair):
    source, target = pair
    unsure = replace(seen, dram_active=None, gpu_util=seen.gpu_util if knows_when else None)
    all_bandwidth = replace(seen, dram_active=seen.gpu_util if knows_when else 1.0)

    low = speed_ratio(observed=unsure, source=source, target=target).low

    assert low <= speed_ratio(observed=all_bandwidth, source=source, target=target).value


def test_the_middle_is_as_far_from_the_slowest_as_from_the_fastest():
    # A kernel ran for 46 % of the time without tensor work: the bus took nothing, or at most half of each second at its reach.
    ratio = speed_ratio(
        observed=DeviceActivity(sm_active=0.4, tensor_active=0.0, gpu_util=0.46), source=A100, target=L4
    )

    slowest_s = 0.5 + 0.5 * A100.mem_bw_gb_s / L4.mem_bw_gb_s
    assert ratio.value == pytest.approx(1 / math.sqrt(slowest_s * 1.0))
    assert "memory 0% to 50%" in ratio.because
    assert "not measured: DRAM activity" in ratio.because


def test_a_reading_that_is_no_number_is_refused():
    with pytest.raises(Unpredictable, match="dram_active must be a share between 0 and 1, got nan"):
        speed_ratio(observed=DeviceActivity(sm_active=0.5, dram_active=math.nan), source=A100, target=L4)


def test_22_percent_of_an_a100_is_nearly_all_of_an_a10g():
    # 22 % of 312 TFLOPS = 69 TFLOPS, and an A10G peaks at 70: the same throughput cannot be assumed.
    seen = DeviceActivity(sm_active=0.30, tensor_active=0.22, dram_active=0.15)

    ratio = speed_ratio(observed=seen, source=A100, target=A10G)

    assert ratio.low < 0.75


def test_gpu_util_alone_is_no_basis_for_a_prediction():
    with pytest.raises(Unpredictable, match="GPU_UTIL"):
        speed_ratio(observed=DeviceActivity(gpu_util=0.9), source=A100, target=H100)


def test_the_same_gpu_is_exactly_as_fast():
    assert speed_ratio(observed=DeviceActivity(dram_active=0.5), source=A100, target=A100).value == 1.0


@given(
    dram=st.floats(0, 1),
    tensor=st.one_of(st.none(), st.floats(0, 1)),
    sm=st.one_of(st.none(), st.floats(0, 1)),
    pair=st.tuples(st.sampled_from(LAWFUL), st.sampled_from(LAWFUL)),
)
def test_every_ratio_is_positive_lies_in_its_interval_and_reverses_in_sign(dram, tensor, sm, pair):
    source, target = pair
    seen = DeviceActivity(sm_active=sm, tensor_active=tensor, dram_active=dram)

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


@pytest.mark.parametrize("pair", [("Trainium", "L4"), ("L4", "TPU-v5e"), ("Trainium", "Inferentia2")])
def test_boards_that_no_measured_run_compares_have_no_ratio(pair):
    source, target = map(GPUS.gpu, pair)

    with pytest.raises(Unpredictable, match="no measured runs compare"):
        speed_ratio(observed=DeviceActivity(sm_active=0.5, tensor_active=0.2), source=source, target=target)

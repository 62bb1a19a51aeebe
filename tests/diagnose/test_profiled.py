"""The verdict on one run: phases, working time, roofline."""

import pytest

from trimtab.catalog import load_catalog
from trimtab.diagnose.profiled import PhaseKind, judge, phases_of
from trimtab.diagnose.verdicts import Cause
from trimtab.tables.profile_file import checked_profile


def slot(start_s, util, sm, dram=0.1, tensor=0.1):
    return {
        "start_s": start_s,
        "width_s": 10.0,
        "gpu_util_frac": util,
        "sm_active_frac": sm,
        "dram_active_frac": dram,
        "tensor_active_frac": tensor,
    }


def profile(slots, wall_s):
    device = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "memory_gib": 80, "timeline": slots}
    return checked_profile(
        {"schema_version": 1, "started_epoch_s": 0, "wall_s": wall_s, "interval_s": 1, "devices": [device]}
    )


def test_phases_follow_the_timeline_and_a_blink_joins_its_neighbour():
    slots = [slot(10.0 * k, 0, 0) for k in range(10)] + [slot(10.0 * k, 0.9, 0.7) for k in range(10, 100)]
    slots[50] = slot(500.0, 0, 0)

    found = phases_of(profile(slots, 1000.0))

    assert [(one.kind, one.start_s, one.end_s) for one in found] == [
        (PhaseKind.IDLE, 0.0, 100.0),
        (PhaseKind.COMPUTE, 100.0, 1000.0),
    ]


def test_idle_set_up_is_a_phase_and_does_not_dilute_the_verdict():
    slots = [slot(10.0 * k, 0, 0) for k in range(50)] + [slot(10.0 * k, 0.95, 0.8, dram=0.75) for k in range(50, 100)]

    verdict = judge(profile(slots, 1000.0), None)

    assert verdict.findings[0].cause is Cause.MEMORY_BANDWIDTH
    assert verdict.signs.sm_frac == pytest.approx(0.8)


def test_the_roofline_point_is_activity_times_the_boards_peaks():
    gpu = load_catalog().gpu("H100-SXM5-80GB")

    point = judge(profile([slot(0.0, 1, 0.9, dram=0.5, tensor=0.4)], 10.0), gpu).roofline

    assert point.dram_gb_s == pytest.approx(0.5 * gpu.mem_bw_gb_s)
    assert point.flop_per_byte == pytest.approx(0.8 * point.ridge_flop_per_byte)


def test_a_run_that_nobody_sampled_has_no_phases_and_an_undetermined_cause():
    verdict = judge(profile([], 0.1), None)

    assert (verdict.phases, verdict.roofline) == ((), None)
    assert verdict.findings[0].cause is Cause.UNDETERMINED

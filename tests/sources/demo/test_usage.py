from datetime import UTC, datetime

import numpy as np

from trimtab.sources.demo.machines import G5_XLARGE
from trimtab.sources.demo.usage import NOBODY, UsageBlock, hourly, idle, serving

START = datetime(2026, 9, 21, tzinfo=UTC)


def _block(owner, activity, **more):
    return UsageBlock(
        machine=G5_XLARGE,
        devices=tuple(f"GPU-{i}" for i in range(len(owner))),
        start=START,
        workloads=("a/b", "c/d"),
        owner=owner,
        activity=activity,
        **more,
    )


def test_an_hour_that_changes_hands_gives_a_row_to_each_holder():
    owner = np.zeros((1, 120), dtype=np.int64)
    owner[0, 20:60] = 1
    owner[0, 60:] = NOBODY
    activity = idle(1, 120)
    activity.sm_active[0, :20] = 0.5

    rows = hourly(_block(owner, activity), np.random.default_rng(3))

    assert rows.workload == ["a/b", "c/d", None]
    assert rows.hour_s.tolist() == [0, 0, 3600]
    assert 17 <= rows.columns["samples"][0] <= 20
    np.testing.assert_allclose(rows.columns["sm_active_mean"], [0.5, 0.0, 0.0])
    assert rows.histogram[0, 50] == rows.columns["samples"][0]


def test_an_hour_without_a_sample_has_no_row():
    unseen = np.zeros((1, 120), dtype=np.bool_)
    unseen[0, :60] = True

    rows = hourly(_block(np.zeros((1, 120), dtype=np.int64), idle(1, 120), unseen=unseen), np.random.default_rng(3))

    assert rows.hour_s.tolist() == [3600]


def test_a_device_without_profiling_counters_reports_gpu_util_alone():
    activity = idle(1, 60)
    activity.gpu_util[:] = 0.25

    rows = hourly(_block(np.zeros((1, 60), dtype=np.int64), activity, unprofiled=(0,)), np.random.default_rng(3))

    assert np.isnan(rows.columns["sm_active_mean"]).all()
    assert rows.columns["gpu_util_p95"].tolist() == [0.25]
    assert rows.histogram[0, 25] == rows.columns["samples"][0]


def test_serving_keeps_kernels_running_far_longer_than_sms_busy():
    rho = np.full(600, 0.2)

    activity = serving(rho, 2, memory_gib=8.0, tensor_of_sm=0.5, dram_of_sm=0.7, rng=np.random.default_rng(0))

    assert abs(activity.sm_active.mean() - 0.203) < 0.01
    assert abs(activity.gpu_util.mean() - 0.59) < 0.02
    assert (activity.gpu_util >= activity.sm_active).all()

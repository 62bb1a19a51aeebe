"""The hottest replica's load is evidence for all, and one odd device or hour is not."""

import numpy as np
import pytest

from trimtab.fleet.activity import METRICS, DeviceHours, activity_of

HOURS, DEVICES = 48, 4


def uneven(p95, signal="sm_active"):
    """Return `Activity.uneven` of devices half busy in every hour, with these 95th percentiles (n_hours, n_devices)."""
    rows = HOURS * DEVICES
    half, absent = np.full(rows, 0.5), np.full(rows, np.nan)
    found = DeviceHours(
        owner=np.zeros(rows, dtype=np.int64),
        hour=np.repeat(np.arange(HOURS), DEVICES),
        means={metric: half if metric == signal else absent for metric in METRICS},
        peak=half,
        median=half,
        p95=p95.ravel(),
        memory_gib=half,
        memory_total_gib=np.full(DEVICES, 24.0),
        cpu=absent,
        pcie_rx_gb_s=absent,
        pcie_tx_gb_s=absent,
        device=np.tile(np.arange(DEVICES), HOURS),
        names=tuple("abcd"),
        gpu=np.full(DEVICES, "A10G", dtype=object),
        of_pods=np.zeros(rows, dtype=np.bool_),
    )
    return activity_of(found, 0, np.full(HOURS, DEVICES * 3600.0), 0.01).uneven


def test_the_second_busiest_device_over_the_mean_of_all():
    p95 = np.full((HOURS, DEVICES), 0.55)
    p95[:, 1], p95[:, 2] = 0.8, 0.7

    assert uneven(p95) == pytest.approx(1.4)


def test_a_device_that_somebody_else_used_tells_nothing():
    p95 = np.full((HOURS, DEVICES), 0.55)
    p95[:, 3] = 1.0

    assert uneven(p95) == pytest.approx(1.1)


def test_an_hour_of_restarts_tells_nothing():
    p95 = np.full((HOURS, DEVICES), 0.55)
    p95[5] = 1.0

    assert uneven(p95) == pytest.approx(1.1)


def test_what_is_no_sm_activity_tells_nothing():
    assert uneven(np.full((HOURS, DEVICES), 0.9), signal="gpu_util") is None
    assert uneven(np.full((HOURS, DEVICES), np.nan)) is None

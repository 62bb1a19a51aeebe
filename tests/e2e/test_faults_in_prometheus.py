"""Faults that a real server tells of: XIDs, ECC errors, failed remaps, throttling, nodes out of service."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from tests.e2e.conftest import collected_from

pytestmark = pytest.mark.prometheus

START = datetime(2026, 9, 1, tzinfo=UTC)
HOURS = 10
STEP_S = 60
STEPS = HOURS * 60
MINUTE = np.arange(STEPS)


def series(name, values, **labels):
    """Return a series as OpenMetrics text, one sample a minute; none where the value is NaN."""
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    start_s = int(START.timestamp())
    values = np.broadcast_to(values, (STEPS,))
    return "".join(
        f"{name}{{{text}}} {float(value)!r} {start_s + step * STEP_S}\n"
        for step, value in enumerate(values)
        if not np.isnan(value)
    )


def board(place):
    return {"UUID": f"GPU-{place}", "gpu": str(place), "modelName": "NVIDIA A100-SXM4-40GB", "Hostname": "node-a"}


def page():
    """Five boards of a node: off the bus at 3:20, an ECC error in the sixth hour, hot from 4:00 to 6:00, well, and slowed by
    its power supply at all times.

    XIDs of the first are not scraped from 6:00 to 8:00. All but the last are at their software power cap, which is no fault.
    """
    off_the_bus = np.where(MINUTE >= 200, 79.0, 0.0)
    off_the_bus[(MINUTE >= 360) & (MINUTE < 480)] = np.nan
    text = ""
    for place in range(5):
        text += series("DCGM_FI_DEV_GPU_UTIL", 99.0, **board(place))
        text += series("DCGM_FI_DEV_XID_ERRORS", off_the_bus if place == 0 else 0.0, **board(place))
        text += series(
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", np.where(MINUTE >= 330, 1.0, 0.0) if place == 1 else 0.0, **board(place)
        )
        text += series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0.0, **board(place))
        hot = (MINUTE >= 240) & (MINUTE < 360) & (place == 2)
        text += series("DCGM_FI_DEV_THERMAL_VIOLATION", np.cumsum(hot) * 1e6, **board(place))
        braked = place == 4
        # while it is hot its power supply slows it too: the hour counts once
        reasons = np.where(hot | braked, 0x80, 0x04).astype(float)
        text += series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", reasons, **board(place))
        text += series("DCGM_FI_DEV_SM_CLOCK", np.where(hot, 987.0, 1128.0 if braked else 1410.0), **board(place))
    text += series("kube_node_info", 1.0, node="node-a", provider_id="aws:///us-east-1a/i-1")
    text += series("kube_node_spec_unschedulable", np.where(MINUTE >= 480, 1.0, 0.0), node="node-a")
    ready = {"node": "node-a", "condition": "Ready"}
    text += series("kube_node_status_condition", 0.0, **ready, status="false")
    return text


@pytest.fixture(scope="module")
def faults(prometheus_bin, promtool_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    binaries = (prometheus_bin, promtool_bin)
    return collected_from(page(), folder, binaries, START, HOURS).table("faults").to_pylist()


def test_every_fault_is_told_with_its_node_and_nothing_else_is(faults):
    assert {(row["fault"], row["device"]) for row in faults} == {
        ("xid", "GPU-0"),
        ("ecc", "GPU-1"),
        ("thermal-throttle", "GPU-2"),
        ("power-throttle", "GPU-4"),
        ("cordoned", None),
    }
    assert {row["node"] for row in faults} == {"node-a"}


def test_an_xid_begins_with_the_scrape_that_first_shows_it_and_a_gap_does_not_end_it(faults):
    (row,) = [row for row in faults if row["fault"] == "xid"]

    assert row["code"] == 79
    assert abs((row["start"] - START).total_seconds() - 200 * 60) <= 60
    assert row["end"] is None


def test_throttling_tells_the_share_of_the_clock_that_it_took(faults):
    rows = [row for row in faults if row["fault"] == "thermal-throttle"]

    hours = {row["start"]: row["lost_frac"] for row in rows if row["lost_frac"] > 0.05}
    assert sorted(hours) == [START + timedelta(hours=4), START + timedelta(hours=5)]
    assert all(abs(lost - 0.3) < 0.02 for lost in hours.values())


def test_a_board_that_its_power_supply_always_slows_is_compared_with_others_of_its_model(faults):
    rows = [row for row in faults if row["fault"] == "power-throttle"]

    assert len(rows) == HOURS
    assert all(abs(row["lost_frac"] - 0.2) < 0.02 for row in rows)


def test_a_cordon_begins_where_it_was_made_and_lasts(faults):
    (row,) = [row for row in faults if row["fault"] == "cordoned"]

    assert abs((row["start"] - START).total_seconds() - 480 * 60) <= 60
    assert row["end"] is None

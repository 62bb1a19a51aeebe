"""What a bundle covers, in a line: "13.2 of 14 days, 97 % of GPUs"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from trimtab.tables.bundle import Bundle
from trimtab.units import HR_PER_DAY, hours_between


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCoverage:
    """How much of the window and of the fleet was watched."""

    days: float
    """Days of the window, and in them the days' worth of hours in which at least one GPU was watched."""
    days_seen: float
    gpus: int
    """GPUs of the nodes, and how many of them have readings."""
    gpus_seen: int

    def __str__(self) -> str:
        share = f"{100 * self.gpus_seen / self.gpus:.0f} % of {self.gpus} GPUs" if self.gpus else "no GPUs"
        return f"{self.days_seen:.1f} of {self.days:.4g} days, {share}"


def bundle_coverage(bundle: Bundle) -> BundleCoverage:
    """Measure a bundle's coverage; an hour counts by the fullest device in it."""
    usage = bundle.table("gpu_usage", ["device", "hour", "samples", "samples_expected"])
    hours = usage["hour"].to_numpy()
    expected = np.maximum(usage["samples_expected"].to_numpy(), 1)
    full = np.minimum(usage["samples"].to_numpy() / expected, 1.0)
    _, slot = np.unique(hours, return_inverse=True)
    fullest = np.zeros(int(slot.max(initial=-1)) + 1)
    np.maximum.at(fullest, slot, full)
    nodes = bundle.table("nodes", ["node", "gpu_count"]).group_by("node").aggregate([("gpu_count", "max")])
    devices = bundle.table("devices", ["device", "mig_profile"])
    board = {row["device"]: _board(row["device"], row["mig_profile"]) for row in devices.to_pylist()}
    boards = set(board.values())
    watched = {board.get(device, device) for device in pc.unique(usage["device"]).to_pylist()}
    return BundleCoverage(
        days=hours_between(bundle.start, bundle.end) / HR_PER_DAY,
        days_seen=float(fullest.sum()) / HR_PER_DAY,
        gpus=max(int(pc.sum(nodes["gpu_count_max"]).as_py() or 0), len(boards)),
        gpus_seen=len(watched),
    )


def _board(device: str, mig_profile: str | None) -> str:
    """Return the board of a device: a MIG instance is named after its board, `UUID/3`; a board may have a slash of its own."""
    return device if mig_profile is None else device.rpartition("/")[0]

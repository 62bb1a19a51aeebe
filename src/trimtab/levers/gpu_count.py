"""Ask for as many GPUs as a run uses."""

from __future__ import annotations

import math

from trimtab.fleet.effects import SetGpuCount
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Lever

LEVER = Lever.GPU_COUNT


def gpus_needed(workload: Workload) -> int | None:
    """Return how many of a run's GPUs ever did anything, or None where that was not measured."""
    share = workload.activity.active_devices_frac
    if share is None or share <= 0:
        return None
    return max(1, math.ceil(workload.gpus_per_pod * share - 1e-6))


def propose(workload: Workload, market: Market) -> tuple[SetGpuCount, ...]:
    """Return the smaller counts, one per instance type with the same GPU that holds that many on one node."""
    needed = gpus_needed(workload)
    before = round(workload.gpus_per_pod)
    gpu = market.gpu(workload.gpu)
    if workload.kind not in RUN_KINDS or needed is None or needed >= before or gpu is None:
        return ()
    return tuple(
        SetGpuCount(gpus=needed, before=before, pool=offering.pool, gpus_per_node=offering.gpus_per_node)
        for offering in offerings_at_home(workload, market)
        if offering.gpu == gpu and offering.gpus_per_node >= needed
    )

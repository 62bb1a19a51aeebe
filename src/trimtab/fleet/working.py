"""What a workload's GPUs do while they work: readings over the time in which there was work, not over the whole time.

A GPU that serves one request in ten minutes reads 1 % on average and may be full while it serves it: how fast it would be on
a smaller GPU, or on part of one, follows from the second figure. Of a run the whole time counts: what it spends waiting for its
input is part of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.model import Activity, FloatArray, Workload
from trimtab.units import S_PER_HR


def working_frac(workload: Workload) -> float:
    """Return the share of the time in which a GPU of the workload had work, on the low side.

    From requests in work where they were counted: with r of them a replica on average, arrivals without memory leave a replica
    idle for exp(-r) of the time (M/G/infinity). GPU_UTIL, the share of the time in which a kernel ran, where that is less.
    Where neither was measured, the GPU is taken to have been full whenever it worked.
    """
    activity = workload.activity
    known = [share for share in (_with_requests(workload), activity.gpu_util_frac) if share is not None]
    full = max((share for share in (activity.sm_frac, activity.dram_frac, activity.tensor_frac) if share), default=1.0)
    return min(1.0, max(full, min(known, default=full)))


def _with_requests(workload: Workload) -> float | None:
    service = workload.service
    if service is None:
        return None
    seen = ~np.isnan(service.running) & (service.replicas > 0)
    if not seen.any():
        return None
    return float(1 - np.exp(-service.running[seen] / service.replicas[seen]).mean())


def activity_in_work(workload: Workload) -> Activity:
    """Return the activity of the workload's GPUs while they had work: requests or cells, or any hour of a run."""
    activity = workload.activity
    working = 1.0 if workload.kind in RUN_KINDS else working_frac(workload)

    def scaled(share: float | None) -> float | None:
        return None if share is None else min(1.0, share / working)

    return replace(
        activity,
        sm_frac=scaled(activity.sm_frac),
        tensor_frac=scaled(activity.tensor_frac),
        dram_frac=scaled(activity.dram_frac),
        gpu_util_frac=scaled(activity.gpu_util_frac),
    )


def busiest_hour_frac(workload: Workload, replicas: FloatArray | None = None) -> float:
    """Return the share of its busiest hour in which a replica is at work on a GPU of its own; 1 where nothing was measured.

    `replicas` (n_hours,) are those among whom its work is divided; None: as many as history held. A replica may be at work,
    with requests that leave most of the GPU idle, for longer than its activity says: longer by as much as on average.
    """
    held = workload.gpu_seconds / S_PER_HR
    busy = workload.activity.busy_gpus
    known = np.isfinite(busy) & (held > 0)
    if not known.any() or busy[known].sum() <= 0:
        return 1.0
    stretch = max(1.0, working_frac(workload) * float(held[known].sum() / busy[known].sum()))
    among = held if replicas is None else replicas * workload.gpus_per_pod
    served = known & (among > 0)
    return float((busy[served] / among[served]).max(initial=0.0)) * stretch

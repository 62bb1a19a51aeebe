"""Places queued experiments on a pool of whole nodes: runs, pods, readings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.sources.demo.draft import FleetDraft
from trimtab.sources.demo.jobs import JobClass, Run, queue
from trimtab.sources.demo.machines import Machine
from trimtab.sources.demo.online import Node
from trimtab.sources.demo.usage import NOBODY, UsageBlock, from_sm, gaps, idle, jitter
from trimtab.units import S_PER_MIN

_LOADING_MIN = 3
"""Minutes in which a run reads its data and the GPU waits."""


def add_pool(
    draft: FleetDraft,
    classes: tuple[JobClass, ...],
    machine: Machine,
    homes: Sequence[Node],
    *,
    growth_frac: float,
    sensor_gaps: int,
) -> list[Run]:
    """Queue the classes' jobs in front of the nodes, one job a node, and run them."""
    rng = draft.stream("pool/" + classes[0].workload)
    runs = queue(classes, len(homes), draft.span, growth_frac, rng)
    for run in runs:
        draft.run(run, None if run.node is None else homes[run.node][0])
        if run.node is not None and run.start_s is not None:
            node, devices = homes[run.node]
            draft.pod(
                run.job_class.workload,
                run.job_class.team,
                "Job",
                node,
                devices[: run.job_class.gpus_requested],
                start=draft.span.at(run.start_s),
                end=None if run.end_s is None else draft.span.at(run.end_s),
                name=run.name,
            )
    draft.usage(_readings(draft, classes, machine, homes, runs, sensor_gaps, rng))
    return runs


def _readings(
    draft: FleetDraft,
    classes: tuple[JobClass, ...],
    machine: Machine,
    homes: Sequence[Node],
    runs: Sequence[Run],
    sensor_gaps: int,
    rng: np.random.Generator,
) -> UsageBlock:
    """Return what the pool's sensors read: the GPUs that a run uses are busy, those it only holds read nothing."""
    n_devices, n_minutes = len(homes) * machine.gpu_count, draft.span.minutes
    owner = np.full((n_devices, n_minutes), NOBODY, dtype=np.int64)
    readings = idle(n_devices, n_minutes)
    codes = {job_class.workload: i for i, job_class in enumerate(classes)}
    for run in runs:
        if run.node is None or run.start_s is None:
            continue
        first, last = -(-run.start_s // S_PER_MIN), -(-(run.start_s + run.duration_s) // S_PER_MIN)
        device = run.node * machine.gpu_count
        owner[device : device + run.job_class.gpus_requested, first:last] = codes[run.job_class.workload]
        used = slice(device, device + run.job_class.gpus_used)
        readings.sm_active[used, first + _LOADING_MIN : last] = run.sm_frac
        readings.memory_gib[used, first:last] = run.memory_gib
    first_class = classes[0]
    sm_active = np.minimum(readings.sm_active * jitter(readings.sm_active.shape, 0.12, rng), np.float32(1.0))
    gpu_util = np.minimum(sm_active * np.float32(1.5), np.float32(0.99))
    return UsageBlock(
        machine=machine,
        devices=tuple(device for _, devices in homes for device in devices),
        start=draft.span.start,
        workloads=tuple(codes),
        owner=owner,
        activity=from_sm(
            sm_active,
            gpu_util,
            readings.memory_gib,
            tensor_of_sm=first_class.tensor_of_sm,
            dram_of_sm=first_class.dram_of_sm,
            rng=rng,
        ),
        unseen=gaps(n_devices, n_minutes, count=sensor_gaps, hours=(2, 7), rng=rng),
    )

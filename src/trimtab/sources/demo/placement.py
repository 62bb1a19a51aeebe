"""Places work on nodes: services with their readings and demand, queued experiments, and work that keeps a calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from trimtab.sources.demo.demand import (
    MIN_PER_DAY,
    MIN_PER_HR,
    DemoService,
    Floats,
    ServedMinutes,
    demand_rate,
    serve,
    weekend,
)
from trimtab.sources.demo.draft import FleetDraft, JobClass, JobRun, queue
from trimtab.sources.demo.machines import Machine
from trimtab.sources.demo.usage import NOBODY, GpuActivity, UsageBlock, from_sm, gaps, idle, jitter, serving, steady
from trimtab.units import HR_PER_DAY, S_PER_MIN

Node = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """A stretch of the proof window in which a service meets a multiple of its usual demand."""

    start: datetime
    minutes: int
    gain: float


def nodes(
    draft: FleetDraft, machine: Machine, pool: str, count: int, taints: dict[str, str] | None = None
) -> list[Node]:
    """Rent some nodes for the whole window."""
    return [draft.node(machine, pool, taints=taints) for _ in range(count)]


def add_service(
    draft: FleetDraft,
    service: DemoService,
    machine: Machine,
    homes: Sequence[Node],
    expected: Floats,
    *,
    first_minute: int = 0,
    rollouts: Sequence[datetime] = (),
    sensor_gaps: int = 0,
    unprofiled: tuple[int, ...] = (),
) -> ServedMinutes:
    """Run a service's replicas, one GPU each, on whole nodes from `first_minute` on; each rollout replaces every pod."""
    rng = draft.stream(service.workload)
    served = serve(service, expected[first_minute:], rng)
    placed = [(node, device) for node, devices in homes for device in devices][: service.replicas]
    moments = [draft.span.at(first_minute * S_PER_MIN), *rollouts]
    for start, end in zip(moments, [*rollouts, None], strict=True):
        for node, device in placed:
            draft.pod(service.workload, service.team, "Deployment", node, (device,), start=start, end=end)
    draft.demand(service.workload, served, first_minute=first_minute)
    shape = (len(placed), len(served.rho))
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=tuple(device for _, device in placed),
            start=moments[0],
            workloads=(service.workload,),
            owner=np.zeros(shape, dtype=np.int64),
            activity=serving(
                served.rho,
                len(placed),
                memory_gib=service.memory_gib,
                tensor_of_sm=service.tensor_of_sm,
                dram_of_sm=service.dram_of_sm,
                rng=rng,
            ),
            unseen=gaps(*shape, count=sensor_gaps, hours=(2, 7), rng=rng) if sensor_gaps else None,
            unprofiled=unprofiled,
        )
    )
    return served


def add_static(
    draft: FleetDraft,
    service: DemoService,
    machine: Machine,
    pool: str,
    *,
    growth_frac: float,
    sensor_gaps: int = 0,
    surge: Surge | None = None,
) -> ServedMinutes:
    """Rent the nodes that a service's replicas need, draw its demand, and run it throughout the window."""
    expected = demand_rate(service, draft.span, growth_frac, draft.stream(f"demand/{service.workload}"))
    if surge is not None:
        first = draft.span.minute_of(surge.start)
        expected[first : first + surge.minutes] *= surge.gain
    homes = nodes(draft, machine, pool, -(-service.replicas // machine.gpu_count))
    return add_service(draft, service, machine, homes, expected, sensor_gaps=sensor_gaps)


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
) -> list[JobRun]:
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
    draft.usage(_readings_of_runs(draft, classes, machine, homes, runs, sensor_gaps, rng))
    return runs


def _readings_of_runs(
    draft: FleetDraft,
    classes: tuple[JobClass, ...],
    machine: Machine,
    homes: Sequence[Node],
    runs: Sequence[JobRun],
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


Minutes = npt.NDArray[np.bool_]
"""Whether something is on: `(n_minutes,)`, or `(n_devices, n_minutes)`."""
STEPS_PER_MIN = 95
"""Optimizer steps that production training makes in a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """How hard a job works its GPUs while it runs."""

    sm_frac: float
    busy_frac: float
    memory_gib: float
    tensor_of_sm: float
    dram_of_sm: float
    noise_frac: float = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Runs of fixed length at a fixed hour (UTC), every so many days from the first one on."""

    workload: str
    team: str
    first_day: int
    every_days: int
    start_hr: float
    run_hr: float
    items_per_run: float
    intensity: Intensity


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """One person's notebook: a GPU held all the time, used in sessions on weekdays."""

    workload: str
    team: str
    sessions_per_day: float
    session_min: tuple[float, float]
    office_hours_utc: tuple[int, int]
    intensity: Intensity


def add_training(
    draft: FleetDraft, workload: str, team: str, machine: Machine, home: Node, intensity: Intensity
) -> None:
    """Run one training job on a whole node throughout the window."""
    node, devices = home
    name = draft.pod(workload, team, "PyTorchJob", node, devices, start=draft.span.start)
    on = np.ones((len(devices), draft.span.minutes), dtype=np.bool_)
    draft.job(
        {
            "job": name,
            "workload": workload,
            "submit": draft.span.start,
            "start": draft.span.start,
            "gpus": float(len(devices)),
            "state": "running",
            "node": node,
            "steps_done": float(draft.span.minutes * STEPS_PER_MIN),
        }
    )
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=devices,
            start=draft.span.start,
            workloads=(workload,),
            owner=np.zeros(on.shape, dtype=np.int64),
            activity=_working(draft, workload, on, intensity, on),
        )
    )


def add_nightly(draft: FleetDraft, calendar: Calendar, machine: Machine, home: Node) -> None:
    """Run a batch by calendar on a node that is kept between runs, when its GPUs are free."""
    node, devices = home
    on = np.zeros((len(devices), draft.span.minutes), dtype=np.bool_)
    for number, start in enumerate(_starts(draft, calendar)):
        end = start + timedelta(hours=calendar.run_hr)
        name = f"{calendar.workload.split('/')[1]}-{number:03d}"
        draft.pod(calendar.workload, calendar.team, "CronJob", node, devices, start=start, end=end, name=name)
        draft.job(_run_row(calendar, name, start, start, end, len(devices), node))
        on[:, draft.span.minute_of(start) : draft.span.minute_of(end)] = True
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=devices,
            start=draft.span.start,
            workloads=(calendar.workload,),
            owner=np.where(on, 0, NOBODY),
            activity=_working(draft, calendar.workload, on, calendar.intensity, on),
        )
    )


def add_weekly(draft: FleetDraft, calendar: Calendar, machine: Machine, n_nodes: int, pool: str, held_hr: int) -> None:
    """Run an evaluation by calendar on nodes rented for it: its pods hold them for `held_hr`, the run itself is shorter."""
    for number, start in enumerate(_starts(draft, calendar)):
        held_from = start.replace(hour=0, minute=0)
        held_to = held_from + timedelta(hours=held_hr)
        taints = {"dedicated": f"{pool}:NoSchedule"}
        homes = [draft.node(machine, pool, start=held_from, end=held_to, taints=taints) for _ in range(n_nodes)]
        name = f"{calendar.workload.split('/')[1]}-{number:03d}"
        for rank, (node, devices) in enumerate(homes):
            pod = f"{name}-worker-{rank}"
            draft.pod(calendar.workload, calendar.team, "Job", node, devices, start=held_from, end=held_to, name=pod)
        end = start + timedelta(hours=calendar.run_hr)
        names = ",".join(node for node, _ in homes)
        draft.job(_run_row(calendar, name, held_from, start, end, n_nodes * machine.gpu_count, names))
        _use_held(draft, calendar, machine, homes, name, held_from, start, held_hr)


def _use_held(
    draft: FleetDraft,
    calendar: Calendar,
    machine: Machine,
    homes: Sequence[Node],
    name: str,
    held_from: datetime,
    start: datetime,
    held_hr: int,
) -> None:
    """Let the GPUs of held nodes work while the run lasts."""
    on = np.zeros((len(homes) * machine.gpu_count, held_hr * MIN_PER_HR), dtype=np.bool_)
    first = int((start - held_from).total_seconds()) // S_PER_MIN
    on[:, first : first + int(calendar.run_hr * MIN_PER_HR)] = True
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=tuple(device for _, devices in homes for device in devices),
            start=held_from,
            workloads=(calendar.workload,),
            owner=np.zeros(on.shape, dtype=np.int64),
            activity=_working(draft, name, on, calendar.intensity, on),
        )
    )


def add_notebook(
    draft: FleetDraft, notebook: Notebook, machine: Machine, home: Node, *, end: datetime | None = None
) -> None:
    """Keep a notebook on its own node until `end`, its kernel's memory held day and night."""
    node, devices = home
    draft.pod(notebook.workload, notebook.team, "Notebook", node, devices, start=draft.span.start, end=end)
    n_minutes = draft.span.minutes if end is None else draft.span.minute_of(end)
    on = _sessions(draft, notebook, n_minutes)[None, :].repeat(len(devices), axis=0)
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=devices,
            start=draft.span.start,
            workloads=(notebook.workload,),
            owner=np.zeros(on.shape, dtype=np.int64),
            activity=_working(draft, notebook.workload, on, notebook.intensity, np.ones_like(on)),
        )
    )


def add_empty(draft: FleetDraft, machine: Machine, home: Node) -> None:
    """Let the sensors of an unheld node read zero throughout the window."""
    shape = (machine.gpu_count, draft.span.minutes)
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=home[1],
            start=draft.span.start,
            workloads=(),
            owner=np.full(shape, NOBODY, dtype=np.int64),
            activity=idle(*shape),
        )
    )


def _starts(draft: FleetDraft, calendar: Calendar) -> list[datetime]:
    days = draft.span.minutes // MIN_PER_DAY
    numbers = range(calendar.first_day, days, calendar.every_days)
    return [draft.span.start + timedelta(days=day, hours=calendar.start_hr) for day in numbers]


def _run_row(
    calendar: Calendar, name: str, submit: datetime, start: datetime, end: datetime, n_gpus: int, node: str
) -> dict[str, object]:
    return {
        "job": name,
        "workload": calendar.workload,
        "submit": submit,
        "start": start,
        "end": end,
        "gpus": float(n_gpus),
        "state": "completed",
        "node": node,
        "steps_done": calendar.items_per_run,
    }


def _working(draft: FleetDraft, key: str, on: np.ndarray, intensity: Intensity, memory_on: np.ndarray) -> GpuActivity:
    return steady(
        on,
        sm_frac=intensity.sm_frac,
        busy_frac=intensity.busy_frac,
        memory_gib=memory_on * intensity.memory_gib,
        tensor_of_sm=intensity.tensor_of_sm,
        dram_of_sm=intensity.dram_of_sm,
        noise_frac=intensity.noise_frac,
        rng=draft.stream(f"activity/{key}"),
    )


def _sessions(draft: FleetDraft, notebook: Notebook, n_minutes: int) -> Minutes:
    """Draw the minutes in which a person runs something; sessions start in office hours of weekdays."""
    rng = draft.stream(f"sessions/{notebook.workload}")
    on = np.zeros(n_minutes, dtype=np.bool_)
    rests = weekend(draft.span)
    for day in range(n_minutes // MIN_PER_DAY):
        if rests[day * MIN_PER_DAY]:
            continue
        for _ in range(rng.poisson(notebook.sessions_per_day)):
            start = int((day * HR_PER_DAY + rng.uniform(*notebook.office_hours_utc)) * MIN_PER_HR)
            on[start : start + int(rng.uniform(*notebook.session_min))] = True
    return on

"""Clusters with planted offenders and harmless lookalikes, and what each offender costs, counted minute by minute.

Nothing here asks the code that is judged: a GPU is a row of minutes with a holder and a level of activity, kubelet and
checkpoints are played through, and dollars are minutes times the list price of the node over its GPUs. What readings lose (they
are means and maxima of hours) is lost only in the tables that are given away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from trimtab.sources.kubernetes.health import pod_health
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.tables.schemas import TABLES

START = datetime(2026, 9, 7, tzinfo=UTC)
DAY = 24 * 60
"""Minutes."""
TYPES = {
    "p4d.24xlarge": ("A100-SXM4-40GB", 8, 40.0, 21.957642),
    "p3.8xlarge": ("V100-SXM2-16GB", 4, 16.0, 12.24),
    "g5.12xlarge": ("A10G", 4, 22.49, 5.672),
    "g5.xlarge": ("A10G", 1, 22.49, 1.006),
}
"""Type -> GPU, GPUs, memory of each in GiB, list price an hour on demand in us-east-1 (AWS, 2026-09)."""
TAINT = {"nvidia.com/gpu": "present:NoSchedule"}
Row = dict[str, object]
Levels = npt.NDArray[np.float64]


@dataclass(slots=True)
class Node:
    """A node: who holds each GPU in each minute (-1: nobody), and how active it is (NaN: not measured)."""

    name: str
    instance_type: str
    holder: npt.NDArray[np.int64]
    level: Levels

    @property
    def usd_gpu_min(self) -> float:
        """Return what one GPU costs a minute."""
        _, gpus, _, usd_hr = TYPES[self.instance_type]
        return usd_hr / gpus / 60


@dataclass(slots=True)
class Cluster:
    """A cluster in the making: rows of its tables, and the truth as (what, subject) -> dollars."""

    days: int
    rng: np.random.Generator
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    truth: dict[tuple[str, str], float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    lookalikes: int = 0

    @property
    def minutes(self) -> int:
        """Return the minutes of its history."""
        return self.days * DAY

    def owe(self, what: str, subject: str, usd: float) -> None:
        """Add to what an offender costs."""
        self.truth[what, subject] = self.truth.get((what, subject), 0.0) + usd

    def node(self, instance_type: str, pool: str, *, tainted: bool = True) -> Node:
        """Rent a node for the whole history."""
        gpu, gpus, memory_gib, _ = TYPES[instance_type]
        name = f"{pool}-{len(self.nodes)}"
        self.rows["nodes"].append(
            {
                "node": name, "provider": "aws", "instance_type": instance_type, "region": "us-east-1",
                "capacity_type": "on-demand", "start": START - timedelta(days=40), "end": None, "gpu": gpu,
                "gpu_count": gpus, "labels": {"karpenter.sh/nodepool": pool}, "taints": TAINT if tainted else {},
            }
        )  # fmt: skip
        for place in range(gpus):
            self.rows["devices"].append(
                {"device": f"{name}/{place}", "node": name, "gpu": gpu, "memory_gib": memory_gib}
            )
        shape = (gpus, self.minutes)
        made = Node(name, instance_type, np.full(shape, -1, dtype=np.int64), np.zeros(shape))
        self.nodes.append(made)
        return made

    def hold(
        self,
        node: Node,
        workload: str,
        gpus: range,
        first: int,
        last: int,
        *,
        kind: str,
        pod: str,
        level: Levels | float,
    ) -> None:
        """Let a pod hold GPUs of a node from one minute to another (the history's last: it still holds them)."""
        if workload not in self.workloads:
            self.workloads.append(workload)
        node.holder[gpus.start : gpus.stop, first:last] = self.workloads.index(workload)
        node.level[gpus.start : gpus.stop, first:last] = level
        for place in gpus:
            self._allocation(node, workload, kind, pod, first, last, 1.0, f"{node.name}/{place}")

    def beside(self, node: Node, workload: str, first: int, last: int, *, kind: str, pod: str) -> None:
        """Let a pod without GPUs be on a node."""
        self._allocation(node, workload, kind, pod, first, last, 0.0, None)
        self.pod(workload, pod, node, 0, first, kind=kind)

    def _allocation(
        self, node: Node, workload: str, kind: str, pod: str, first: int, last: int, gpus: float, device: str | None
    ) -> None:
        self.rows["allocations"].append(
            {
                "workload": workload, "namespace": workload.partition("/")[0], "owner_kind": kind, "pod": pod,
                "node": node.name, "device": device, "gpus": gpus, "start": at(first),
                "end": None if last >= self.minutes else at(last),
            }
        )  # fmt: skip

    def pod(
        self, workload: str, name: str, node: Node | None, gpus: int, created: int, *, kind: str,
        phase: str = "Running", status: Row | None = None, queue: str | None = None,
    ) -> None:  # fmt: skip
        """List a pod as the API server has it at the end; its health is read off its status."""
        health = pod_health({"status": status or {}})
        self.rows["pods"].append(
            {
                "pod": name, "namespace": workload.partition("/")[0], "workload": workload, "owner_kind": kind,
                "node": node.name if node else None, "phase": phase, "gpus": float(gpus), "cpu_request": 4.0,
                "created": at(created), "scheduled": at(created) if node else None, "queue": queue,
                "ready": at(created + 3) if phase == "Running" and not health["restarts"] else None,
                "tolerations": {"nvidia.com/gpu": ":NoSchedule"} if gpus else {}, **health,
            }
        )  # fmt: skip

    def bundle(self) -> Bundle:
        """Return its tables as a bundle: means and maxima of hours are all that is left of the minutes."""
        for node in self.nodes:
            for place in range(len(node.holder)):
                self.rows["gpu_usage"] += _hourly(node, place, self.workloads)
        meta = BundleMeta(start=START, end=at(self.minutes), created_by="benchmark", sources=("generated",))
        return memory_bundle({name: table_from_rows(name, rows) for name, rows in self.rows.items()}, meta)


def at(minute: float) -> datetime:
    """Return a minute of the history as a moment."""
    return START + timedelta(minutes=minute)


def _hourly(node: Node, place: int, workloads: list[str]) -> list[Row]:
    found: list[Row] = []
    for hour in range(node.holder.shape[1] // 60):
        minutes = slice(hour * 60, hour * 60 + 60)
        holders = node.holder[place, minutes]
        for holder in np.unique(holders).tolist():
            level = node.level[place, minutes][holders == holder]
            level = level[~np.isnan(level)]
            if len(level):
                found.append(
                    {
                        "device": f"{node.name}/{place}", "workload": workloads[holder] if holder >= 0 else None,
                        "hour": at(hour * 60), "samples": len(level), "samples_expected": 60,
                        "sm_active_mean": float(level.mean()), "sm_active_max": float(level.max()),
                        "memory_used_gib_max": 6.0, "basis": "raw samples",
                    }
                )  # fmt: skip
    return found


def working(cluster: Cluster, minutes: int, mean: float = 0.6) -> Levels:
    """Return minutes of steady work."""
    return np.clip(cluster.rng.normal(mean, 0.05, minutes), 0.1, 1.0)


def _busy_service(cluster: Cluster, name: str, instance_type: str, *, tainted: bool = True) -> Node:
    """Run a service on all GPUs of a node of its own, all the time: what every cluster has."""
    node = cluster.node(instance_type, f"pool-{name}", tainted=tainted)
    gpus = range(len(node.holder))
    workload = f"prod/{name}"
    cluster.hold(node, workload, gpus, 0, cluster.minutes, kind="Deployment", pod=f"{name}-0", level=0.0)
    for place in gpus:
        node.level[place] = working(cluster, cluster.minutes)
    cluster.pod(workload, f"{name}-0", node, len(gpus), -DAY, kind="Deployment")
    return node


def _nightly(cluster: Cluster, name: str, *, tainted: bool) -> Node:
    """Run a job for hours of each day on a node that is kept between."""
    node = cluster.node(str(cluster.rng.choice(["p3.8xlarge", "g5.12xlarge"])), f"pool-{name}", tainted=tainted)
    for day in range(cluster.days):
        first = day * DAY + int(cluster.rng.integers(0, 600))
        last = first + int(cluster.rng.integers(120, 700))
        _run(cluster, node, f"data/{name}", f"{name}-{day}", range(4), first, last, "completed")
    return node


def _run(
    cluster: Cluster, node: Node, workload: str, run: str, gpus: range, first: int, last: int, state: str,
    checkpoint_min: int | None = None,
) -> None:  # fmt: skip
    cluster.hold(node, workload, gpus, first, last, kind="Job", pod=run, level=0.0)
    for place in gpus:
        node.level[place, first:last] = working(cluster, last - first)
    cluster.rows["jobs"].append(
        {
            "job": f"{workload.partition('/')[0]}/{run}", "workload": workload, "submit": at(first), "start": at(first),
            "end": None if state == "running" else at(last), "gpus": float(len(gpus)), "state": state, "node": node.name,
            "checkpoint_interval_s": None if checkpoint_min is None else checkpoint_min * 60.0,
        }
    )  # fmt: skip


# Offenders


def stray(cluster: Cluster, name: str) -> None:
    """Put one or two pods without GPUs on a node that a nightly job leaves idle; the pool has no taint."""
    node = _nightly(cluster, name, tainted=False)
    idle = (node.holder < 0).all(axis=0)
    firsts = [0] if cluster.rng.random() < 0.5 else [0, int(cluster.rng.integers(DAY, 3 * DAY))]
    there = np.zeros(cluster.minutes)
    for first in firsts:
        there[first:] += 1
    for number, first in enumerate(firsts):
        workload = f"web/{name}-{number}"
        cluster.beside(node, workload, first, cluster.minutes, kind="Deployment", pod=f"{name}-{number}-x")
        mine = idle & (np.arange(cluster.minutes) >= first)
        share = np.divide(1.0, there, out=np.zeros(cluster.minutes), where=there > 0)
        cluster.owe("stray", workload, float((mine * share).sum()) * node.usd_gpu_min * len(node.holder))
    cluster.owe("no taint", f"pool-{name}", 0.0)


def untainted(cluster: Cluster, name: str) -> None:
    """Leave a pool without a taint, though nothing stands there yet that does not belong."""
    _busy_service(cluster, name, "g5.12xlarge", tainted=False)
    cluster.owe("no taint", f"pool-{name}", 0.0)


def crash_loop(cluster: Cluster, name: str) -> None:
    """Let a container crash from some minute on, played as kubelet does: lives of seconds, pauses that double up to 300 s."""
    node = cluster.node("g5.12xlarge", f"pool-{name}")
    broke_s = 60.0 * int(cluster.rng.integers(DAY, cluster.minutes - 3 * 60))
    works = cluster.rng.random() < 0.5
    now_s, pause_s, restarts, life_s, end_s = broke_s, 10.0, 0, 0.0, cluster.minutes * 60.0
    mean_s, ended_s = float(cluster.rng.uniform(5, 90)), broke_s
    touched: list[int] = []
    """Minutes in which a life began: half of the programs load their weights before they crash."""
    while now_s < end_s:
        life_s = max(1.0, float(cluster.rng.normal(mean_s, 0.2 * mean_s)))
        touched.append(int(now_s // 60))
        now_s += life_s
        if now_s >= end_s:
            break
        ended_s, restarts = now_s, restarts + 1
        now_s += pause_s
        pause_s = min(300.0, pause_s * 2)
    first = 0 if works else int(broke_s // 60)
    workload, gpus = f"prod/{name}", range(int(cluster.rng.integers(1, 5)))
    cluster.hold(node, workload, gpus, first, cluster.minutes, kind="Deployment", pod=f"{name}-x", level=0.0)
    if works:
        for place in gpus:
            node.level[place, : int(broke_s // 60)] = working(cluster, int(broke_s // 60))
    if cluster.rng.random() < 0.5:
        node.level[gpus.start : gpus.stop, touched] = 0.2
    ended = {"startedAt": stamp(ended_s - life_s), "finishedAt": stamp(ended_s), "reason": "Error", "exitCode": 1}
    status: Row = {
        "containerStatuses": [
            {
                "restartCount": restarts, "lastState": {"terminated": ended},
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ]
    }  # fmt: skip
    cluster.pod(workload, f"{name}-x", node, len(gpus), first, kind="Deployment", status=status)
    cluster.owe("crash loop", workload, (end_s - broke_s) / 60 * node.usd_gpu_min * len(gpus))


def stamp(seconds: float) -> str:
    """Return seconds of the history as the API server writes a moment."""
    return f"{START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def stuck(cluster: Cluster, name: str) -> None:
    """Let a pod hold GPUs and wait for an image that is not there."""
    node, first = cluster.node("p3.8xlarge", f"pool-{name}"), int(cluster.rng.integers(0, cluster.minutes - 120))
    gpus = range(int(cluster.rng.integers(1, 5)))
    cluster.hold(node, f"prod/{name}", gpus, first, cluster.minutes, kind="Deployment", pod=f"{name}-x", level=0.0)
    status: Row = {"containerStatuses": [{"restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    cluster.pod(f"prod/{name}", f"{name}-x", node, len(gpus), first, kind="Deployment", phase="Pending", status=status)
    cluster.owe("stuck", f"prod/{name}", (cluster.minutes - first) * node.usd_gpu_min * len(gpus))


def pending(cluster: Cluster, name: str) -> None:
    """Let a pod wait for a node that never comes."""
    waits = int(cluster.rng.integers(70, 3000))
    message = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    cluster.pod(
        f"prod/{name}", f"{name}-x", None, 2, cluster.minutes - waits, kind="Deployment", phase="Pending",
        status={"conditions": [unplaced]},
    )  # fmt: skip
    cluster.owe("pending", f"prod/{name}", 0.0)


def _sessions(cluster: Cluster, nights_idle: bool) -> Levels:
    """Return the minutes of a notebook: worked in through the day, at nights left open or kept busy."""
    level = np.zeros(cluster.minutes)
    for day in range(cluster.days):
        first = day * DAY + int(cluster.rng.integers(7 * 60, 10 * 60))
        last = first + int(cluster.rng.integers(6 * 60, 10 * 60))
        if not nights_idle:
            first, last = day * DAY, (day + 1) * DAY
        minutes = np.arange(first, min(last, cluster.minutes))
        busy = working(cluster, len(minutes), 0.3) * (cluster.rng.random(len(minutes)) < cluster.rng.uniform(0.5, 1.0))
        level[minutes] = busy
    return level


def notebook(cluster: Cluster, name: str) -> None:
    """Leave a notebook open through its nights: what is idle beyond four hours on end counts."""
    node = cluster.node("g5.xlarge", f"pool-{name}")
    level = _sessions(cluster, nights_idle=True)
    workload = f"notebooks/{name}"
    cluster.hold(node, workload, range(1), 0, cluster.minutes, kind="Notebook", pod=f"{name}-0", level=level)
    cluster.pod(workload, f"{name}-0", node, 1, -DAY, kind="Notebook")
    cluster.owe("notebook", workload, sum(max(0, idle - 240) for idle in stretches(level <= 0)) * node.usd_gpu_min)


def stretches(flags: npt.NDArray[np.bool_]) -> list[int]:
    """Return the lengths of stretches of set flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int64), [0]])))
    return [int(length) for length in edges[1::2] - edges[::2]]


def unused(cluster: Cluster, name: str) -> None:
    """Let a service's GPUs do nothing from some minute on, for more than a day."""
    node = cluster.node("p3.8xlarge", f"pool-{name}")
    quiet = cluster.minutes - int(cluster.rng.integers(26 * 60, 4 * DAY))
    workload, gpus = f"prod/{name}", range(int(cluster.rng.integers(1, 5)))
    cluster.hold(node, workload, gpus, 0, cluster.minutes, kind="Deployment", pod=f"{name}-x", level=0.0)
    for place in gpus:
        node.level[place, :quiet] = working(cluster, quiet)
    cluster.pod(workload, f"{name}-x", node, len(gpus), -DAY, kind="Deployment")
    cluster.owe("unused", workload, (cluster.minutes - quiet) * node.usd_gpu_min * len(gpus))


def over_asked(cluster: Cluster, name: str) -> None:
    """Let runs ask for four GPUs and use fewer."""
    node, used = cluster.node("p3.8xlarge", f"pool-{name}"), int(cluster.rng.integers(1, 4))
    workload = f"lab/{name}"
    for day in range(cluster.days):
        first = day * DAY + int(cluster.rng.integers(0, 300))
        last = first + int(cluster.rng.integers(200, 900))
        _run(cluster, node, workload, f"{name}-{day}", range(4), first, last, "completed")
        node.level[used:, first:last] = 0.0
        cluster.owe("over-asked", workload, (last - first) * (4 - used) * node.usd_gpu_min)


def failed_runs(cluster: Cluster, name: str) -> None:
    """Let some runs fail, time out or be preempted, with or without checkpoints; count what none of these kept."""
    node, workload = cluster.node("p3.8xlarge", f"pool-{name}"), f"lab/{name}"
    every = int(cluster.rng.integers(15, 90)) if cluster.rng.random() < 0.5 else None
    state = str(cluster.rng.choice(["failed", "timeout", "preempted", "node_fail"]))
    now = 0
    for turn in range(cluster.days):
        first = now + int(cluster.rng.integers(0, 300))
        last = first + int(cluster.rng.integers(100, 1000))
        if last >= cluster.minutes:
            break
        fails = turn % 3 == 1
        gpus = range(4)
        _run(cluster, node, workload, f"{name}-{turn}", gpus, first, last, state if fails else "completed", every)
        if fails:
            saved = first
            while every is not None and saved + every <= last:
                saved += every
            cluster.owe(state, workload, (last - saved) * len(gpus) * node.usd_gpu_min)
        now = last


def dead_gpu(cluster: Cluster, name: str) -> None:
    """Let a GPU of a service fall off the bus and stay so until it is repaired; nothing reads it in between."""
    node = _busy_service(cluster, name, "p4d.24xlarge")
    place = int(cluster.rng.integers(0, 8))
    first = int(cluster.rng.integers(0, cluster.minutes - 2 * DAY))
    last = first + int(cluster.rng.integers(6 * 60, 2 * DAY))
    node.level[place, first:last] = np.nan
    code = int(cluster.rng.choice([79, 95, 119]))
    fault(cluster, node, "xid", first, last, place, code=code)
    cluster.owe("xid", node.name, (last - first) * node.usd_gpu_min)


def throttled(cluster: Cluster, name: str) -> None:
    """Slow a GPU of a service down for some time."""
    node = _busy_service(cluster, name, "p3.8xlarge")
    first = int(cluster.rng.integers(0, cluster.minutes - DAY))
    last, lost = first + int(cluster.rng.integers(60, DAY)), float(cluster.rng.uniform(0.1, 0.5))
    fault(cluster, node, "thermal-throttle", first, last, 1, lost_frac=lost)
    cluster.owe("throttle", node.name, (last - first) * lost * node.usd_gpu_min)


def cordoned(cluster: Cluster, name: str) -> None:
    """Take a node out of service once its run is done, and leave it so."""
    node = cluster.node("p3.8xlarge", f"pool-{name}")
    done = int(cluster.rng.integers(60, cluster.minutes - 2 * DAY))
    _run(cluster, node, f"lab/{name}", f"{name}-0", range(4), 0, done, "completed")
    first = max(0, done - int(cluster.rng.integers(0, 60)))
    fault(cluster, node, "cordoned", first, None)
    cluster.owe("cordoned", node.name, (cluster.minutes - done) * 4 * node.usd_gpu_min)


def fault(
    cluster: Cluster, node: Node, kind: str, first: int, last: int | None, place: int | None = None, **more: object
) -> None:
    """List a fault of a node or of one of its GPUs."""
    told: Row = {"node": node.name, "fault": kind, "start": at(first), "end": None if last is None else at(last)}
    cluster.rows["faults"].append(told | {"device": None if place is None else f"{node.name}/{place}"} | more)


OFFENDERS: tuple[Callable[[Cluster, str], None], ...] = (
    stray, untainted, crash_loop, stuck, pending, notebook, unused, over_asked, failed_runs, dead_gpu, throttled, cordoned,
)  # fmt: skip


# Lookalikes


def belongs_there(cluster: Cluster, name: str) -> None:
    """Put a DaemonSet's pod, a job of hours and the launcher of a workload with GPUs on a node that is idle by day."""
    node = _nightly(cluster, name, tainted=True)
    cluster.beside(node, f"monitoring/{name}", 0, cluster.minutes, kind="DaemonSet", pod=f"{name}-d")
    cluster.beside(node, f"ci/{name}", 100, 100 + 5 * 60, kind="Job", pod=f"{name}-ci")
    cluster.beside(node, f"data/{name}", 0, cluster.minutes, kind="Job", pod=f"{name}-launcher")


def restarted(cluster: Cluster, name: str) -> None:
    """Let a service be restarted once a day, just now once more, and another a few times."""
    node = _busy_service(cluster, name, "g5.12xlarge")
    ended_s = cluster.minutes * 60.0 - float(cluster.rng.uniform(1, 400))
    daily = {"startedAt": stamp(ended_s - 86_400), "finishedAt": stamp(ended_s), "reason": "OOMKilled", "exitCode": 137}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    statuses: tuple[Row, ...] = (
        {"restartCount": 60, "lastState": {"terminated": daily}, "state": waiting},
        {"restartCount": 3, "lastState": {"terminated": daily | {"startedAt": stamp(ended_s - 20)}}, "state": waiting},
    )
    last = cluster.rows["pods"].pop()
    for number, status in enumerate(statuses):
        cluster.pod(
            str(last["workload"]), f"{name}-{number}", node, 2, -DAY, kind="Deployment",
            status={"containerStatuses": [status]},
        )  # fmt: skip


def waits_a_little(cluster: Cluster, name: str) -> None:
    """Let pods wait for minutes, and in a queue for days."""
    cluster.pod(f"prod/{name}", f"{name}-x", None, 2, cluster.minutes - 20, kind="Deployment", phase="Pending")
    cluster.pod(
        f"lab/{name}", f"{name}-q", None, 8, cluster.minutes - 2 * DAY, kind="Job", phase="Pending", queue="research"
    )


def notebook_in_use(cluster: Cluster, name: str) -> None:
    """Use one notebook around the clock, and close another every evening."""
    node = cluster.node("g5.xlarge", f"pool-{name}")
    cluster.hold(
        node, f"notebooks/{name}", range(1), 0, cluster.minutes, kind="Notebook", pod=f"{name}-0",
        level=_sessions(cluster, nights_idle=False),
    )  # fmt: skip
    other = cluster.node("g5.xlarge", f"pool-{name}")
    for day in range(cluster.days):
        first = day * DAY + 8 * 60
        level = working(cluster, 9 * 60, 0.3)
        level[200 : 200 + int(cluster.rng.integers(30, 100))] = 0.0
        cluster.hold(
            other, f"notebooks/{name}-b", range(1), first, first + 9 * 60, kind="Notebook", pod=f"{name}-b-{day}",
            level=level,
        )  # fmt: skip


def rests_a_night(cluster: Cluster, name: str) -> None:
    """Let a service rest for its last night, and a GPU of it be read by nobody for days."""
    node = _busy_service(cluster, name, "p3.8xlarge")
    node.level[:, cluster.minutes - int(cluster.rng.integers(5 * 60, 20 * 60)) :] = 0.0
    other = _busy_service(cluster, f"{name}-b", "p3.8xlarge")
    other.level[:, cluster.minutes - 3 * DAY :] = np.nan


def stopped_by_people(cluster: Cluster, name: str) -> None:
    """Let runs be cancelled, complete, and one still run."""
    node, workload = cluster.node("p3.8xlarge", f"pool-{name}"), f"lab/{name}"
    for turn, state in enumerate(("cancelled", "completed", "cancelled")):
        first = turn * DAY
        _run(cluster, node, workload, f"{name}-{turn}", range(4), first, first + 300, state)
    _run(cluster, node, workload, f"{name}-last", range(4), 4 * DAY, cluster.minutes, "running")


def shrugs_it_off(cluster: Cluster, name: str) -> None:
    """Let programs fault, GPUs recover at once, a node be cordoned for minutes, clocks differ by a little."""
    node = _busy_service(cluster, name, "p3.8xlarge")
    when = int(cluster.rng.integers(0, cluster.minutes - DAY))
    for place, code in enumerate((13, 31, 43)):
        fault(cluster, node, "xid", when, None, place, code=code)
    fault(cluster, node, "xid", when, when + 5, 3, code=74)
    fault(cluster, node, "cordoned", when, when + int(cluster.rng.integers(5, 50)))
    fault(cluster, node, "thermal-throttle", when, when + DAY // 2, 0, lost_frac=float(cluster.rng.uniform(0, 0.04)))


LOOKALIKES: tuple[Callable[[Cluster, str], None], ...] = (
    belongs_there, restarted, waits_a_little, notebook_in_use, rests_a_night, stopped_by_people, shrugs_it_off,
)  # fmt: skip


def drawn_cluster(seed: int) -> Cluster:
    """Return a cluster of 6 to 10 days with three to six kinds of offenders and three to six lookalikes."""
    rng = np.random.default_rng(seed)
    cluster = Cluster(days=int(rng.integers(6, 11)), rng=rng)
    _busy_service(cluster, "steady", "p3.8xlarge")
    for number, plant in enumerate(rng.permutation(np.array(OFFENDERS, dtype=object))[: int(rng.integers(3, 7))]):
        plant(cluster, f"o{number}")
    chosen = rng.permutation(np.array(LOOKALIKES, dtype=object))[: int(rng.integers(3, 7))]
    for number, plant in enumerate(chosen):
        plant(cluster, f"l{number}")
    cluster.lookalikes = len(chosen)
    return cluster

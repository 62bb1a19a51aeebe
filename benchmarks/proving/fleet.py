"""A fleet's truth: its services, runs and nodes as the world plays them, the history that shows, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.proving.history import START, History, Machine
from benchmarks.proving.world import service as world_service
from benchmarks.proving.world.billing import Committed, Kind
from benchmarks.proving.world.clock import HOUR_S, MINUTE_S
from benchmarks.proving.world.hardware import relative_speed
from benchmarks.proving.world.runs import Checkpoints, Ground, Run, Story, play_runs
from benchmarks.proving.world.service import BOUNDS_S, Nodes, Played, Server, Start

Floats = npt.NDArray[np.float64]
Lives = dict[Kind, list[tuple[float, float]]]

P4D = Machine(instance_type="p4d.24xlarge", gpu="A100-SXM4-40GB", gpus=8, memory_gib=40.0)
P5 = Machine(instance_type="p5.48xlarge", gpu="H100-SXM5-80GB", gpus=8, memory_gib=79.6)
G5 = Machine(instance_type="g5.xlarge", gpu="A10G", gpus=1, memory_gib=22.5)
G5_12 = Machine(instance_type="g5.12xlarge", gpu="A10G", gpus=4, memory_gib=22.5)
G6 = Machine(instance_type="g6.xlarge", gpu="L4", gpus=1, memory_gib=22.5)
G6E = Machine(instance_type="g6e.xlarge", gpu="L40S", gpus=1, memory_gib=44.7)
G6E_12 = Machine(instance_type="g6e.12xlarge", gpu="L40S", gpus=4, memory_gib=44.7)

_TURN_S = 900.0
"""Between the replacements of two nodes."""
USD_HR: Mapping[str, float] = {
    "p4d.24xlarge": 21.957642,
    "p5.48xlarge": 55.04,
    "g5.xlarge": 1.006,
    "g5.12xlarge": 5.672,
    "g6.xlarge": 0.8048,
    "g6e.xlarge": 1.861,
    "g6e.12xlarge": 10.49264,
}
"""AWS list prices on demand, us-east-1, Linux, as of 2026-07."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Replicas of a service on one kind of node."""

    machine: Machine
    replicas: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ServiceTruth:
    """A service: what arrives, how long each request takes alone at home, how a replica works, where replicas stand today."""

    name: str
    sites: Sequence[Site]
    server: Server
    arrival_s: Floats
    work_s: Floats
    gpus_per_replica: int = 1
    compute_frac: float = 0.3
    host_frac: float = 0.0
    boot_s: float = 180.0
    load_s: float = 90.0
    memory_gib: float = 16.0
    shows_requests: bool = True
    declared: Mapping[str, object] = field(default_factory=dict)
    gives_up_s: float = 300.0
    restarts_s: Sequence[float] = ()
    """When its nodes are replaced one after the other, each by a new one that is up before the old one goes."""

    @property
    def home(self) -> Machine:
        """Return the kind of node whose speed is 1."""
        return self.sites[0].machine

    def speed(self, gpu: str) -> float | None:
        """Return how fast a replica is on another GPU; None where the world does not know it."""
        return true_speed(gpu, self.home.gpu, self.compute_frac, self.host_frac)

    def lives_of(self, node: int, horizon_s: float) -> list[tuple[float, float]]:
        """Return the lives of a place for a node: one, or more where nodes are replaced in turn."""
        begins = [0.0, *(at + node * _TURN_S for at in self.restarts_s if at + node * _TURN_S < horizon_s)]
        ends = [begin + self.boot_s + self.load_s for begin in begins[1:]]
        return list(zip(begins, [*ends, horizon_s], strict=True))

    def start(self) -> tuple[Start, list[Machine]]:
        """Return today's replicas on their nodes, and the machine of each node."""
        node_of: list[int] = []
        machines: list[Machine] = []
        for site in self.sites:
            per_node = site.machine.gpus // self.gpus_per_replica
            node_of += [len(machines) + at // per_node for at in range(site.replicas)]
            machines += [site.machine] * -(-site.replicas // per_node)
        speeds = [self.speed(machine.gpu) or 0.0 for machine in machines]
        return Start(node_of=node_of, speeds=speeds), machines


def true_speed(gpu: str, home: str, compute_frac: float, host_frac: float) -> float | None:
    """Return the true relative speed, from the world's data sheets."""
    return relative_speed(gpu, home, compute_frac=compute_frac, host_frac=host_frac)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunsTruth:
    """A workload of runs on nodes that stand all the time."""

    name: str
    machine: Machine
    standing: int
    runs: Sequence[Run]
    compute_frac: float = 0.7
    scaling: float = 0.95
    """A run on a k-th of its GPUs takes k to this power as long."""
    sm_frac: float = 0.85
    memory_gib: float = 30.0
    owner_kind: str = "Job"
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    boot_s: float = 300.0
    declared: Mapping[str, object] = field(default_factory=dict)

    def speed(self, gpu: str) -> float | None:
        """Return how fast a run is on another GPU; None where the world does not know it."""
        return true_speed(gpu, self.machine.gpu, self.compute_frac, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A node with no holder; its GPUs work at `sm_frac` all the same (0: they rest). Reserved ones cost what they cost."""

    name: str
    machine: Machine
    sm_frac: float = 0.0
    start_s: float = 0.0
    end_s: float = inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet:
    """A whole fleet, the world around it, and how its audit is asked for."""

    family: str
    seed: int
    hours: int
    services: Sequence[ServiceTruth] = ()
    runs: Sequence[RunsTruth] = ()
    strays: Sequence[Stray] = ()
    options: Sequence[str] = ()
    """Further arguments of the audit."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Instance type: nodes that may be up at once."""
    refusals: Sequence[tuple[float, float]] = ()
    """Times in which the cloud gives no new node on demand."""
    droughts: Sequence[tuple[float, float]] = ()
    """Times in which it gives no spot node, and takes those there are."""
    usd_hr: Mapping[str, float | Floats] = field(default_factory=lambda: dict(USD_HR))
    """On demand, by instance type; or by hour of the history."""
    start: datetime = START
    blind: Sequence[tuple[float, float]] = ()
    """Times of which monitoring kept nothing; nodes were billed and held all the same."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the options name, by name."""
    owned: Sequence[Committed] = ()
    """Commitments that are paid whatever is planned."""

    @property
    def horizon_s(self) -> float:
        """Return the length of the history."""
        return float(self.hours * HOUR_S)

    @cached_property
    def played(self) -> dict[str, Played]:
        """Return what truly happened to each service."""
        found = {}
        for service in self.services:
            start, _ = service.start()
            found[service.name] = world_service.play(
                service.arrival_s,
                service.work_s,
                server=service.server,
                nodes=Nodes(),
                start=start,
                horizon_s=self.horizon_s,
                gives_up_s=service.gives_up_s,
            )
        return found

    @cached_property
    def stories(self) -> dict[str, Story]:
        """Return what truly happened to each workload of runs."""
        return {
            one.name: play_runs(
                one.runs,
                Ground(gpus_per_node=one.machine.gpus, standing=one.standing),
                horizon_s=self.horizon_s,
                checkpoints=one.checkpoints,
            )
            for one in self.runs
        }

    def lives(self) -> dict[str, Lives]:
        """Return by workload (or stray node) the lives of its nodes, as history had them."""
        always = (0.0, self.horizon_s)
        found: dict[str, Lives] = {}
        for service in self.services:
            lives: Lives = {}
            for at, machine in enumerate(service.start()[1]):
                lives.setdefault(kind_of(machine), []).extend(service.lives_of(at, self.horizon_s))
            found[service.name] = lives
        for one in self.runs:
            found[one.name] = {kind_of(one.machine): [always] * one.standing}
        for stray in self.strays:
            life = (stray.start_s, min(stray.end_s, self.horizon_s))
            found[stray.name] = {kind_of(stray.machine): [life]}
        return found

    def write(self, folder: Path) -> Path:
        """Write the history that monitoring shows of it, and return the bundle's folder."""
        history = History(self.hours, self.start, self.blind)
        for service in self.services:
            _show_service(history, service, self.played[service.name])
        for one in self.runs:
            _show_runs(history, one, self.stories[one.name])
        for stray in self.strays:
            _show_stray(history, stray)
        workloads: list[ServiceTruth | RunsTruth] = [*self.services, *self.runs]
        declared = {one.name: dict(one.declared) for one in workloads if one.declared}
        return history.write(folder, declared)


def kind_of(machine: Machine) -> Kind:
    """Return what a node on demand is on the bill."""
    return Kind(instance_type=machine.instance_type, region=machine.region)


def short(name: str) -> str:
    """Return a workload's name without its namespace."""
    return name.split("/")[-1]


def _show_service(history: History, service: ServiceTruth, played: Played) -> None:
    start, machines = service.start()
    taken = [0] * len(machines)
    places_of: list[range] = []
    for node in start.node_of:
        places_of.append(range(taken[node], taken[node] + service.gpus_per_replica))
        taken[node] += service.gpus_per_replica
    for at, machine in enumerate(machines):
        for life, (begin, end) in enumerate(service.lives_of(at, history.hours * float(HOUR_S))):
            name = f"{short(service.name)}-node-{at}" + (f"-{life}" if life else "")
            history.node(name, machine, start_s=begin, end_s=end)
            up_s = begin + service.boot_s if life else 0.0
            for replica in (replica for replica, home in enumerate(start.node_of) if home == at):
                pod = f"{short(service.name)}-{replica}" + (f"-{life}" if life else "")
                history.hold(service.name, "Deployment", pod, name, list(places_of[replica]), up_s, end)
                _show_replica(history, service, f"{name}/", places_of[replica], played.activity[replica], (up_s, end))
            _show_rest(history, name, range(taken[at], machine.gpus), (begin, end))
    if service.shows_requests:
        _show_requests(history, service, played, history.hours * HOUR_S // MINUTE_S)


def _show_replica(
    history: History, service: ServiceTruth, prefix: str, places: range, activity: Floats, held: tuple[float, float]
) -> None:
    sm = _within(activity[: history.hours * HOUR_S // MINUTE_S], held)
    used = np.clip(sm / service.server.sm_full_frac, 0.0, 1.0)
    util = np.maximum(1 - (1 - used) ** min(service.server.slots, 4), sm)
    for place in places:
        history.usage(f"{prefix}{place}", service.name, sm, memory_gib=service.memory_gib, util=util)


def _within(by_minute: Floats, span: tuple[float, float]) -> Floats:
    """Return readings by minute, NaN outside a span of seconds."""
    minute_s = np.arange(len(by_minute)) * float(MINUTE_S)
    return np.where((minute_s >= span[0]) & (minute_s < span[1]), by_minute, np.nan)


def _show_rest(history: History, node: str, places: range, life: tuple[float, float]) -> None:
    """GPUs of a node that no workload holds rest."""
    rest = _within(np.zeros(history.hours * HOUR_S // MINUTE_S), life)
    for place in places:
        history.usage(f"{node}/{place}", None, rest, memory_gib=0.4, util=rest)


def _show_requests(history: History, service: ServiceTruth, played: Played, minutes: int) -> None:
    latency, arrival = played.latency_s, service.arrival_s
    answered = np.isfinite(latency)
    done = arrival[answered] + latency[answered]
    inside = done < minutes * MINUTE_S
    minute = (done[inside] // MINUTE_S).astype(np.int64)
    bucket = np.searchsorted(BOUNDS_S, latency[answered][inside], side="left")
    flat = np.bincount(minute * len(BOUNDS_S) + bucket, minlength=minutes * len(BOUNDS_S))
    counts = flat.reshape(minutes, len(BOUNDS_S)).astype(np.float64)
    arrived = np.bincount((arrival // MINUTE_S).astype(np.int64), minlength=minutes)[:minutes].astype(np.float64)
    columns = {
        "arrivals": arrived,
        "completed": counts.sum(axis=1),
        "failed": played.minutes[:minutes, 3],
        "running_mean": played.minutes[:minutes, 0] / MINUTE_S,
        "waiting_mean": played.minutes[:minutes, 1] / MINUTE_S,
        "replicas_ready": played.minutes[:minutes, 2] / MINUTE_S,
    }
    history.demand(service.name, columns, BOUNDS_S, counts)


def _show_runs(history: History, one: RunsTruth, story: Story) -> None:
    names = [f"{short(one.name)}-node-{node.name}" for node in story.nodes]
    for name in names:
        history.node(name, one.machine)
    minutes = history.hours * HOUR_S // MINUTE_S
    level = {(at, place): np.full(minutes, np.nan) for at in range(len(names)) for place in range(one.machine.gpus)}
    nodes_of: dict[str, list[str]] = {}
    for hold in story.holds:
        nodes_of.setdefault(hold.run, []).append(names[hold.node])
        pod = f"{hold.run}-{hold.pod}"
        history.hold(one.name, one.owner_kind, pod, names[hold.node], hold.places, hold.start_s, hold.end_s)
        for place in hold.places:
            held = slice(int(hold.start_s // MINUTE_S), int(-(-hold.end_s // MINUTE_S)))
            level[hold.node, place][held] = one.sm_frac
    for (node, place), sm in level.items():
        device = f"{names[node]}/{place}"
        history.usage(device, one.name, sm, memory_gib=one.memory_gib, util=np.minimum(sm * 1.1, 1.0))
        rest = np.where(np.isnan(sm), 0.0, np.nan)
        history.usage(device, None, rest, memory_gib=0.4, util=rest)
    for ended in story.ended:
        run, finished = ended.run, ended.end_s < history.hours * HOUR_S
        started = ended.start_s < inf
        interval = one.checkpoints.interval_s
        history.job(
            {
                "job": run.name,
                "workload": one.name,
                "submit": history.moment(run.submit_s),
                "start": history.moment(ended.start_s) if started else None,
                "end": history.moment(ended.end_s) if finished else None,
                "gpus": float(run.gpus),
                "state": "completed" if finished else "running" if started else "queued",
                "node": ",".join(sorted(set(nodes_of.get(run.name, [])))) or None,
                "checkpoint_interval_s": interval if interval < inf else None,
                "checkpoint_save_s": 0.0 if interval < inf else None,
                "checkpoint_restore_s": one.checkpoints.restore_s if interval < inf else None,
            }
        )


def _show_stray(history: History, stray: Stray) -> None:
    history.node(stray.name, stray.machine, start_s=stray.start_s, end_s=stray.end_s)
    minutes = np.arange(history.hours * HOUR_S // MINUTE_S) * MINUTE_S
    there = (minutes >= stray.start_s) & (minutes < stray.end_s)
    sm = np.where(there, stray.sm_frac, np.nan)
    for place in range(stray.machine.gpus):
        memory = 12.0 if stray.sm_frac else 0.4
        history.usage(f"{stray.name}/{place}", None, sm, memory_gib=memory, util=np.minimum(sm * 1.2, 1.0))

"""Runs that come and go: a first-in-first-out queue of gangs of pods, nodes that stand or are started, spot that goes.

A run starts when every one of its pods has a place (gang admission, as Kueue's all-or-nothing and Volcano's gang plugin
document it); the head of the queue waits for its whole gang and nobody overtakes it. A pod takes the emptiest node with room,
as kube-scheduler scores nodes where nobody configures it (NodeResourcesFit, `LeastAllocated`; kubernetes.io/docs/reference/
scheduling/config), else a new node is started where nodes are elastic. A spot node that is taken ends the run that it held
part of; the run goes back to the head of the queue and resumes from its last checkpoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its pods ask for `pod_gpus` GPUs each; it takes `work_s` there at the home GPU's speed."""

    name: str
    workload: str
    submit_s: float
    pods: int
    pod_gpus: int
    work_s: float

    @property
    def gpus(self) -> int:
        """Return the GPUs of the whole run."""
        return self.pods * self.pod_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How a run saves: every so often, and what it takes to come back."""

    interval_s: float = inf
    restore_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The nodes that runs are placed on."""

    gpus_per_node: int
    standing: int = 0
    """Nodes that are always up."""
    elastic: bool = False
    """Whether further nodes are started for runs that wait, and go when they are empty."""
    boot_s: float = 300.0
    empty_kept_s: float = 60.0
    quota: float = inf
    refusals: Sequence[tuple[float, float]] = ()
    """Times in which no node is to be had on demand."""
    speed: float = 1.0
    """Over the home GPU."""
    spot: bool = False
    loss_per_hr: float = 0.0
    droughts: Sequence[tuple[float, float]] = ()
    """Times in which no spot node is to be had, and at whose start all are taken."""
    held: Sequence[tuple[float, float]] = ()
    """Where not empty: standing nodes are up in these times only."""


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One node's life."""

    name: int
    start_s: float
    ready_s: float
    """When its first pod can run."""
    end_s: float = inf
    spot: bool = False
    free: list[int] = field(default_factory=list)
    """GPUs that no workload holds, by place."""
    empty_since: float = inf
    holders: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """GPUs (by place) that a pod of a run held on a node."""

    run: str
    workload: str
    pod: int
    node: int
    places: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run as it came to be: its first start, and its end (inf: not within the time played)."""

    run: Run
    start_s: float
    end_s: float
    losses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happened to all runs, and the nodes that it took."""

    ended: tuple[Ended, ...]
    nodes: tuple[Node, ...]
    holds: tuple[Hold, ...]


@dataclass(slots=True, eq=False)
class _Live:
    run: Run
    left_s: float
    first_start_s: float = inf
    since_s: float = inf
    restoring: bool = False
    losses: int = 0
    places: list[tuple[Node, tuple[int, ...]]] = field(default_factory=list)
    turn: int = 0


class _World:
    def __init__(self, ground: Ground, checkpoints: Checkpoints, horizon_s: float, seed: int) -> None:
        self.ground, self.checkpoints, self.horizon_s = ground, checkpoints, horizon_s
        self.rng = np.random.default_rng(seed)
        self.events: list[tuple[float, int, str, object]] = []
        self.count = 0
        self.waiting: list[_Live] = []
        self.live: dict[str, _Live] = {}
        self.up: list[Node] = []
        self.all: list[Node] = []
        self.holds: list[Hold] = []
        self.ended: list[Ended] = []
        for _ in range(ground.standing):
            self._node(-1e9, spot=False, standing=True)

    def at(self, time_s: float, kind: str, what: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, kind, what))

    def _node(self, now: float, *, spot: bool, standing: bool = False) -> Node:
        node = Node(
            name=len(self.all),
            start_s=max(now, 0.0),
            ready_s=now + self.ground.boot_s,
            spot=spot,
            free=list(range(self.ground.gpus_per_node)),
        )
        self.all.append(node)
        self.up.append(node)
        if not standing:
            node.empty_since = now
        if spot:
            life = self.rng.exponential(3600 / self.ground.loss_per_hr) if self.ground.loss_per_hr > 0 else inf
            taken = min([begin for begin, _ in self.ground.droughts if begin > now], default=inf)
            self.at(min(now + life, taken), "taken", node)
        return node

    def play(self, runs: Sequence[Run], taken: TakenOver) -> Story:
        for run in sorted(runs, key=taken.place):
            self.at(max(run.submit_s, taken.at_s), "submit", run)
        for begin, end in (*self.ground.refusals, *self.ground.held):
            self.at(begin, "look", None)
            self.at(end, "look", None)
        while self.events and self.events[0][0] <= self.horizon_s:
            now, _, kind, what = heapq.heappop(self.events)
            if kind == "submit" and isinstance(what, Run):
                left_s = what.work_s * (1 - taken.done_frac.get(what.name, 0.0))
                self.waiting.append(_Live(run=what, left_s=left_s / self.ground.speed))
            elif kind == "done" and isinstance(what, tuple):
                live, turn = what
                if live.turn == turn:
                    self._leave(live, now)
                    self.ended.append(Ended(run=live.run, start_s=live.first_start_s, end_s=now, losses=live.losses))
            elif kind == "taken" and isinstance(what, Node) and what in self.up:
                self._take(what, now)
            elif kind == "empty" and isinstance(what, Node):
                kept = self.ground.empty_kept_s
                if what in self.up and not what.holders and now - what.empty_since >= kept - 1e-6:
                    self._drop(what, now)
            self._admit(now)
        for live in self.live.values():
            self._holds_end(live, self.horizon_s)
        self.ended += [
            Ended(run=live.run, start_s=live.first_start_s, end_s=inf, losses=live.losses)
            for live in (*self.live.values(), *self.waiting)
        ]
        for node in self.all:
            node.end_s = min(node.end_s, self.horizon_s)
        return Story(ended=tuple(self.ended), nodes=tuple(self.all), holds=tuple(self.holds))

    def _admit(self, now: float) -> None:
        # what no node can ever hold stays pending by itself: an inadmissible gang does not block those behind it
        fitting = [live for live in self.waiting if live.run.pod_gpus <= self.ground.gpus_per_node]
        for live in fitting:
            if not self._start(live, now):
                break
            self.waiting.remove(live)

    def _start(self, live: _Live, now: float) -> bool:
        """Place the whole gang, on new nodes where they can be had; False where it has to wait."""
        ground, run = self.ground, live.run
        if ground.held and not any(begin <= now < end for begin, end in ground.held):
            return False
        free = {node.name: len(node.free) for node in self.up}
        chosen: list[Node | None] = []
        for _ in range(run.pods):
            fitting = [node for node in self.up if free[node.name] >= run.pod_gpus]
            node = min(fitting, key=lambda one: (-free[one.name], one.name)) if fitting else None
            if node is not None:
                free[node.name] -= run.pod_gpus
            chosen.append(node)
        missing = sum(node is None for node in chosen)
        if missing and not self._can_grow(missing, run.pod_gpus, now):
            return False
        fresh: list[Node] = []
        spot_now = ground.spot and not any(begin <= now < end for begin, end in ground.droughts)
        for placed in chosen:
            node = placed or next((one for one in fresh if len(one.free) >= run.pod_gpus), None)
            if node is None:
                node = self._node(now, spot=spot_now)
                fresh.append(node)
            places, node.free = tuple(node.free[: run.pod_gpus]), node.free[run.pod_gpus :]
            node.holders.add(run.name)
            node.empty_since = inf
            live.places.append((node, places))
        begin = max(now, *(node.ready_s for node, _ in live.places))
        live.since_s, live.turn = begin, live.turn + 1
        live.first_start_s = min(live.first_start_s, begin)
        live.restoring = live.losses > 0 and live.left_s < run.work_s / ground.speed
        takes = live.left_s + (self.checkpoints.restore_s if live.restoring else 0.0)
        self.live[run.name] = live
        self.at(begin + takes, "done", (live, live.turn))
        return True

    def _can_grow(self, pods: int, pod_gpus: int, now: float) -> bool:
        ground = self.ground
        if not ground.elastic:
            return False
        each = max(1, ground.gpus_per_node // max(1, pod_gpus))
        if len(self.up) + -(-pods // each) > ground.quota:
            return False
        on_spot = ground.spot and not any(begin <= now < end for begin, end in ground.droughts)
        return on_spot or not any(begin <= now < end for begin, end in ground.refusals)

    def _holds_end(self, live: _Live, now: float) -> None:
        for pod, (node, places) in enumerate(live.places):
            self.holds.append(
                Hold(
                    run=live.run.name,
                    workload=live.run.workload,
                    pod=pod,
                    node=node.name,
                    places=places,
                    start_s=min(live.since_s, now),
                    end_s=now,
                )
            )

    def _leave(self, live: _Live, now: float) -> None:
        """Give the places back."""
        self._holds_end(live, now)
        for node, places in live.places:
            node.free = sorted([*node.free, *places])
            if len(node.free) == self.ground.gpus_per_node:
                node.holders.clear()
                if self.ground.elastic and node.name >= self.ground.standing:
                    node.empty_since = now
                    self.at(now + self.ground.empty_kept_s, "empty", node)
        live.places = []
        live.turn += 1
        del self.live[live.run.name]

    def _take(self, node: Node, now: float) -> None:
        """A spot node goes: whoever held part of it falls back to a checkpoint and to the head of the queue."""
        self._drop(node, now)
        for name in [name for name in self.live if any(one is node for one, _ in self.live[name].places)]:
            live = self.live[name]
            worked = now - live.since_s - (self.checkpoints.restore_s if live.restoring else 0.0)
            if worked > 0:
                interval = self.checkpoints.interval_s
                live.left_s -= floor(worked / interval) * interval if interval < inf else 0.0
            live.losses += 1
            self._leave(live, now)
            self.waiting.insert(0, live)

    def _drop(self, node: Node, now: float) -> None:
        node.end_s = now
        self.up.remove(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Where a play begins in the middle of another: runs in progress go on where they were, before those that waited."""

    at_s: float = 0.0
    since_s: Mapping[str, float] = field(default_factory=dict)
    """By run in progress: when it began."""
    done_frac: Mapping[str, float] = field(default_factory=dict)
    """By run in progress: the share of its work that is done."""
    over: frozenset[str] = frozenset()
    """The runs that have ended."""

    def place(self, run: Run) -> tuple[bool, float, str]:
        """Return a run's place in the queue."""
        return run.name not in self.since_s, self.since_s.get(run.name, run.submit_s), run.name


def taken_over(story: Story, at_s: float) -> TakenOver:
    """Return how a story that knew no losses stood at a moment; its runs went at the home GPU's speed."""
    going = [ended for ended in story.ended if ended.start_s < at_s < ended.end_s]
    return TakenOver(
        at_s=at_s,
        since_s={ended.run.name: ended.start_s for ended in going},
        done_frac={ended.run.name: (at_s - ended.start_s) / ended.run.work_s for ended in going},
        over=frozenset(ended.run.name for ended in story.ended if ended.end_s <= at_s),
    )


def play_runs(
    runs: Sequence[Run],
    ground: Ground,
    *,
    horizon_s: float,
    checkpoints: Checkpoints | None = None,
    seed: int = 0,
    taken: TakenOver | None = None,
) -> Story:
    """Play all runs to the horizon, from the start or from where another play of theirs stood."""
    taken = taken or TakenOver()
    left = [run for run in runs if run.name not in taken.over]
    return _World(ground, checkpoints or Checkpoints(), horizon_s, seed).play(left, taken)


def busy(holds: Sequence[Hold]) -> Iterator[tuple[int, int, Hold]]:
    """Yield (node, place, hold) of every GPU held."""
    for hold in holds:
        for place in hold.places:
            yield hold.node, place, hold

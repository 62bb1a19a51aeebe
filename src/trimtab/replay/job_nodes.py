"""Nodes for pods of runs: on which node and GPUs a pod goes, nodes that pods share, capacity blocks, and droughts.

Each node with room is scored by the use that it loses to pods still to come (`least_lost`); the highest score wins, the first
of equals. What pods would make of a free part of a GPU is worked out from the mix of pods: how much some twenty of them, drawn
one after another, would fill of it, and how much CPU and memory they would take along (`expected_fill`). So a gap that only
rare pods fit counts as mostly lost, and so do GPUs of a node whose CPUs or memory will not last for them.

The rules that it is compared with are best fit and fragmentation gradient descent (FGD: Weng et al., "Beware of Fragmentation",
USENIX ATC '23), which asks only whether the next pod would fit.

Thousandths of a GPU are `milli`. A pod asks for whole GPUs, or for a part of one. The functions are plain, so that loops over
whole traces can be compiled with them.

A pod takes the emptiest node with room, as kube-scheduler does by default (NodeResourcesFit, `LeastAllocated`; see
kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing), and Karpenter starts nodes only for pods that fit on none
(karpenter.sh/docs/concepts). Pods that came late to a node keep it up: packing is never better here than in a cluster.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.policies.blocks import NOTICE_S, START_S, BlockCalendar, stands_for_s, weekday_at
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_HR

GPU_MILLI = 1000
STEP_MILLI = 10
"""Fills are worked out for every so many thousandths of a GPU that are free."""
ANY_MODEL = (1 << 62) - 1
"""The models of GPUs that a pod accepts are bits; all of them."""
OFFERS = 20
"""Pods of the mix that come by a gap. Fitted together with `NEED_FRAC` on five of the published openb workloads with other
shares of pods (multigpu20, multigpu50, gpushare40, cpu050, cpu250), two random orders each; 8 to 30 differ by 0.2 points."""
NEED_FRAC = 0.7
"""Share of the mean pods' CPU and memory that filling a node takes: where these are short, pods that need less fill it."""

_FULLER_FIRST = 1e-3
"""Weight of what the GPU has left: of places that lose the same, a part goes to the fullest GPU."""


class PodAsk(NamedTuple):
    """What a pod asks for."""

    cpu_milli: float
    memory_mib: float
    gpus: int
    """GPUs; 0 where it needs none."""
    gpu_milli: int
    """Thousandths of each; below 1,000 only for one GPU."""
    models: int
    """The models that it accepts, as bits."""


class NodeRoom(NamedTuple):
    """What a node has free."""

    cpu_milli: float
    memory_mib: float
    gpu_milli: IntArray
    """Of each GPU, in the order of the devices."""
    model: int
    """The number of its bit among the models."""


class PodMix(NamedTuple):
    """Kinds of pods, one element each, and how common they are; `share` sums to 1 at most."""

    cpu_milli: FloatArray
    memory_mib: FloatArray
    gpus: IntArray
    gpu_milli: IntArray
    models: IntArray
    share: FloatArray


class ExpectedFill(NamedTuple):
    """What pods of a mix would take of a GPU, by the tens of thousandths that are free of it."""

    gpu_milli: FloatArray
    cpu_milli: FloatArray
    memory_mib: FloatArray


class Score(NamedTuple):
    """How well a pod goes to a node; `gpu` is the GPU that it would have a part of, -1 where it takes whole ones or none."""

    value: float
    gpu: int


def pod_mix(pods: list[PodAsk]) -> PodMix:
    """Return the kinds among pods with how common each is."""
    counts = Counter(pods)
    kinds = list(counts)
    return PodMix(
        cpu_milli=np.array([kind.cpu_milli for kind in kinds], dtype=np.float64),
        memory_mib=np.array([kind.memory_mib for kind in kinds], dtype=np.float64),
        gpus=np.array([kind.gpus for kind in kinds], dtype=np.int64),
        gpu_milli=np.array([kind.gpu_milli for kind in kinds], dtype=np.int64),
        models=np.array([kind.models for kind in kinds], dtype=np.int64),
        share=np.array([counts[kind] / len(pods) for kind in kinds], dtype=np.float64),
    )


def gpus_with(gpu_milli: IntArray, least_milli: int) -> int:
    """Return how many GPUs have at least so much free."""
    count = 0
    for free in gpu_milli:
        if free >= least_milli:
            count += 1
    return count


def fits(room: NodeRoom, pod: PodAsk) -> bool:
    """Return whether a node has room for a pod."""
    if room.cpu_milli < pod.cpu_milli or room.memory_mib < pod.memory_mib:
        return False
    if pod.gpus == 0:
        return True
    return (pod.models >> room.model) & 1 == 1 and gpus_with(room.gpu_milli, pod.gpu_milli) >= pod.gpus


def left_after(room: NodeRoom, pod: PodAsk, gpu: int) -> NodeRoom:
    """Return what a node has free once a pod has come that fits; whole GPUs are the first that are free."""
    gpu_milli = room.gpu_milli.copy()
    if pod.gpus == 1 and pod.gpu_milli < GPU_MILLI:
        gpu_milli[gpu] -= pod.gpu_milli
    else:
        missing = pod.gpus
        for device in range(len(gpu_milli)):
            if missing and gpu_milli[device] == GPU_MILLI:
                gpu_milli[device] = 0
                missing -= 1
    return NodeRoom(room.cpu_milli - pod.cpu_milli, room.memory_mib - pod.memory_mib, gpu_milli, room.model)


def is_first_of_its_kind(gpu_milli: IntArray, device: int) -> bool:
    """Return whether no GPU before this one has as much free: they would score alike."""
    alike = 0
    for other in range(device):
        alike += gpu_milli[other] == gpu_milli[device]
    return alike == 0


def expected_fill(mix: PodMix, model: int, offers: int) -> ExpectedFill:
    """Return what so many pods drawn from a mix, one after another, would take of a GPU of a model.

    A pod that asks for one GPU or a part of it takes that where so much is left, and passes by where it is not. Pods of
    several GPUs and of none pass by too.
    """
    size = GPU_MILLI // STEP_MILLI + 1
    gpu_milli, cpu_milli, memory_mib = np.zeros(size), np.zeros(size), np.zeros(size)
    takes_one = (mix.gpus == 1) & ((mix.models >> model) & 1 == 1)
    # rounded up to the next step, so that nothing is promised more room than there is
    steps = (mix.gpu_milli + STEP_MILLI - 1) // STEP_MILLI
    for _ in range(offers):
        gpu_then, cpu_then, memory_then = gpu_milli.copy(), cpu_milli.copy(), memory_mib.copy()
        for free in range(1, size):
            share = np.where(takes_one & (steps <= free), mix.share, 0.0)
            rest = np.maximum(free - steps, 0)
            passing = 1.0 - share.sum()
            gpu_milli[free] = (share * (mix.gpu_milli + gpu_then[rest])).sum() + passing * gpu_then[free]
            cpu_milli[free] = (share * (mix.cpu_milli + cpu_then[rest])).sum() + passing * cpu_then[free]
            memory_mib[free] = (share * (mix.memory_mib + memory_then[rest])).sum() + passing * memory_then[free]
    return ExpectedFill(gpu_milli, cpu_milli, memory_mib)


def usable_milli(room: NodeRoom, mix: PodMix, fill: ExpectedFill) -> float:
    """Return how much of a node's free GPUs pods of the mix are expected to use, as far as its CPUs and memory last."""
    usable = cpu_milli = memory_mib = 0.0
    for free in room.gpu_milli:
        steps = free // STEP_MILLI
        usable += fill.gpu_milli[steps]
        cpu_milli += fill.cpu_milli[steps]
        memory_mib += fill.memory_mib[steps]
    if usable == 0.0:
        return 0.0
    lasts_frac = 1.0
    if room.cpu_milli < NEED_FRAC * cpu_milli:
        lasts_frac = room.cpu_milli / (NEED_FRAC * cpu_milli)
    if room.memory_mib < NEED_FRAC * memory_mib:
        lasts_frac = min(lasts_frac, room.memory_mib / (NEED_FRAC * memory_mib))
    usable *= lasts_frac
    # pods of several GPUs need them whole and on one node
    whole = gpus_with(room.gpu_milli, GPU_MILLI)
    if whole > 1:
        fit = (mix.gpus > 1) & (mix.gpus <= whole) & ((mix.models >> room.model) & 1 == 1)
        fit &= (mix.cpu_milli <= room.cpu_milli) & (mix.memory_mib <= room.memory_mib)
        gpus = np.maximum(mix.gpus, 1)
        usable += np.where(fit, mix.share * GPU_MILLI * gpus * (whole // gpus), 0.0).sum()
    return usable


def least_lost(room: NodeRoom, pod: PodAsk, mix: PodMix, fill: ExpectedFill, before_milli: float) -> Score:
    """Score a node with room by the use that it loses to others; `before_milli` is what was usable of it without the pod."""
    if pod.gpus != 1 or pod.gpu_milli == GPU_MILLI:
        return Score(usable_milli(left_after(room, pod, -1), mix, fill) - before_milli, -1)
    best = Score(-math.inf, -1)
    for device in range(len(room.gpu_milli)):
        if room.gpu_milli[device] >= pod.gpu_milli and is_first_of_its_kind(room.gpu_milli, device):
            after = left_after(room, pod, device)
            value = usable_milli(after, mix, fill) - before_milli - _FULLER_FIRST * after.gpu_milli[device]
            if value > best.value:
                best = Score(value, device)
    return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Droughts:
    """Spells without spot `(n_spells,)`, in order and apart, within `length_s`, after which they begin again."""

    begins_s: FloatArray
    ends_s: FloatArray
    length_s: float
    take_nodes: bool
    """Whether a drought begins by taking all spot nodes of the pool, or only keeps new ones away."""

    def lasts_at(self, at_s: float) -> bool:
        """Return whether no spot node can be had at a moment."""
        # the record begins again after its length
        within_s = at_s % self.length_s
        latest = int(np.searchsorted(self.begins_s, within_s, side="right")) - 1
        return latest >= 0 and within_s < float(self.ends_s[latest])

    def next_begin_s(self, at_s: float) -> float:
        """Return when the next drought begins after a moment; never, where there is none."""
        if not len(self.begins_s):
            return math.inf
        rounds, within_s = divmod(at_s, self.length_s)
        following = int(np.searchsorted(self.begins_s, within_s, side="right"))
        # none is left in this round: the first of the next one
        if following == len(self.begins_s):
            rounds, following = rounds + 1, 0
        return rounds * self.length_s + float(self.begins_s[following])


def opens_s(closed_s: tuple[float, float], at_s: float) -> float:
    """Return the first moment from one on at which a node can be had; none can from the first of `closed_s` to the second."""
    begins_s, ends_s = closed_s
    return ends_s if begins_s <= at_s < ends_s else at_s


def draw_droughts(unavailable_frac: float, mean_s: float, length_s: float, *, take_nodes: bool, seed: int) -> Droughts:
    """Draw droughts that last `mean_s` on average and that share of the time, by exponential spells."""
    if not 0 <= unavailable_frac < 1:
        raise ValueError(f"a share of time without spot must be at least 0 and below 1, got {unavailable_frac}")
    begins_s: list[float] = []
    ends_s: list[float] = []
    if unavailable_frac > 0 and mean_s > 0:
        rng = np.random.default_rng((seed, _STREAM))
        # with a share u of the time in droughts, the mean stretch between them is mean * (1 - u) / u
        between_s = mean_s * (1 - unavailable_frac) / unavailable_frac
        # exponential spells have no memory: the window begins within one as often as any other moment lies in one
        at_s = 0.0 if rng.random() < unavailable_frac else float(rng.exponential(between_s))
        while at_s < length_s:
            ends = min(at_s + float(rng.exponential(mean_s)), length_s)
            if ends > at_s:
                begins_s.append(at_s)
                ends_s.append(ends)
            # never touching, so that begins and ends stay in order
            at_s = ends + max(float(rng.exponential(between_s)), 1e-3)
    return Droughts(begins_s=np.array(begins_s), ends_s=np.array(ends_s), length_s=length_s, take_nodes=take_nodes)


_STREAM = 0x5907
"""Keeps these draws apart from those of single losses, which are drawn by seed and job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Nodes booked by a calendar, beside as many on demand as are needed; `first_week_hour` is that of the window's start."""

    calendar: BlockCalendar
    first_week_hour: int


def hours_of_days(first_week_hour: int, hours: int) -> IntArray:
    """Return the seconds of each hour of a window that belong to the block day of each weekday (n_hours, 7)."""
    shares = np.zeros((HR_PER_WEEK, DAYS_PER_WEEK), dtype=np.int64)
    # the hour in which blocks change hands belongs to two days: to the old one up to this second
    before_s = START_S % S_PER_HR
    for hour in range(HR_PER_WEEK):
        today = weekday_at(hour * S_PER_HR)
        turns = hour % HR_PER_DAY == START_S // S_PER_HR
        shares[hour, today] += before_s if turns else S_PER_HR
        if turns:
            shares[hour, weekday_at(hour * S_PER_HR + before_s)] += S_PER_HR - before_s
    # the calendar repeats weekly, and the window may begin at any hour of it
    return np.asarray(shares[(first_week_hour + np.arange(hours)) % HR_PER_WEEK])


def booked_node_seconds(blocks: Blocks, hours: int) -> IntArray:
    """Return the node-seconds per hour (n_hours,) that are paid, used or not."""
    return np.asarray(hours_of_days(blocks.first_week_hour, hours) @ np.array(blocks.calendar.nodes, dtype=np.int64))


class BookedNodes:
    """Booked nodes in use. A job takes those that stand longest, which are the lowest numbers."""

    notice_s = float(NOTICE_S)

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        # the fullest day bounds how many numbers there are
        self._busy_until_s: FloatArray = np.zeros(max(blocks.calendar.nodes, default=0))

    def free(self, nodes: int, at_s: float) -> IntArray:
        """Return the numbers of so many nodes that stand and are free at a moment; none where there are fewer."""
        up = self._blocks.calendar.nodes[weekday_at(self._week_s(at_s))]
        idle = np.flatnonzero(self._busy_until_s[:up] <= at_s)[:nodes]
        # all or none: a job does not stand half on booked nodes
        return np.asarray(idle if len(idle) == nodes else idle[:0], dtype=np.int64)

    def stand_for_s(self, taken: IntArray, at_s: float) -> float:
        """Return for how long all of some nodes can still be used: as long as the first of them to go."""
        return min(stands_for_s(self._blocks.calendar, int(node), self._week_s(at_s)) for node in taken)

    def hold(self, taken: IntArray, until_s: float) -> None:
        """Keep some nodes busy until a moment."""
        self._busy_until_s[taken] = until_s

    def _week_s(self, at_s: float) -> float:
        return self._blocks.first_week_hour * S_PER_HR + at_s


_ROUNDING = 1e-9
"""Of a GPU: what pods ask for are floats."""


@dataclass(slots=True, eq=False)
class SharedNode:
    """One node's life; it ends `kept_s` after its last pod left."""

    begins_s: float
    ready_s: float
    free: float
    pods: int = 0
    empty_s: float = 0.0


@dataclass(slots=True)
class PackedNodes:
    """Nodes that are up, and those that have gone."""

    gpus_per_node: float
    startup_s: float
    kept_s: float
    max_nodes: int | None
    closed_s: tuple[float, float] = (0.0, 0.0)
    """From the first second to the second no new node can be had."""
    up: list[SharedNode] = field(default_factory=list)
    lives: list[tuple[float, float]] = field(default_factory=list)
    """When each node that has gone began and ended."""
    _ends: list[tuple[float, int, SharedNode, float]] = field(default_factory=list)
    _count: int = 0
    _now_s: float = 0.0

    def place(self, pods: int, gpus: float, submit_s: float) -> tuple[float, float, list[SharedNode]] | None:
        """Return when a run gets its nodes, when the last of them is ready, and each pod's node; None if it never does.

        First come, first served: within a quota it waits for those before it, and while no node can be had for room.
        """
        # how many of its pods an empty node holds
        beside = int(self.gpus_per_node / gpus + _ROUNDING)
        if beside < 1 or (self.max_nodes is not None and -(-pods // beside) > self.max_nodes):
            return None
        self._now_s = max(self._now_s, submit_s)
        self._pass(self._now_s)
        # room comes only when a pod leaves, a node goes or nodes can be had again
        while (taken := self._fit(pods, gpus, beside)) is None:
            self._now_s = self._next_change_s()
            self._pass(self._now_s)
        for node in taken:
            node.free -= gpus
            node.pods += 1
        return self._now_s, max([self._now_s, *(node.ready_s for node in taken)]), taken

    def hold(self, nodes: list[SharedNode], gpus: float, until_s: float) -> None:
        """Let a run's pods leave their nodes at a time to come."""
        for node in nodes:
            # the number breaks ties, because nodes have no order
            self._count += 1
            heapq.heappush(self._ends, (until_s, self._count, node, gpus))

    def close(self) -> list[tuple[float, float]]:
        """Return when each node began and ended, once all pods have left."""
        self._pass(float("inf"))
        return self.lives

    def _fit(self, pods: int, gpus: float, beside: int) -> list[SharedNode] | None:
        """Return a node for each pod, new ones where there is no room; None where the quota allows none."""
        # a trial on copies: either all pods find a place or nothing is taken
        free = {id(node): node.free for node in self.up}
        taken: list[SharedNode] = []
        for _ in range(pods):
            room = [node for node in self.up if free[id(node)] >= gpus - _ROUNDING]
            if not room:
                break
            # the emptiest with room, as LeastAllocated scores it
            node = max(room, key=lambda node: free[id(node)])
            free[id(node)] -= gpus
            taken.append(node)
        missing = pods - len(taken)
        # rounded up
        new = -(-missing // beside)
        if self.max_nodes is not None and len(self.up) + new > self.max_nodes:
            return None
        if new and opens_s(self.closed_s, self._now_s) > self._now_s:
            return None
        fresh = [
            SharedNode(begins_s=self._now_s, ready_s=self._now_s + self.startup_s, free=self.gpus_per_node)
            for _ in range(new)
        ]
        self.up += fresh
        # new nodes are filled one after another
        return taken + [fresh[pod // beside] for pod in range(missing)]

    def _next_change_s(self) -> float:
        """Return when a pod leaves, an empty node goes or nodes can be had again next."""
        changes = [node.empty_s + self.kept_s for node in self.up if not node.pods]
        changes += [end_s for end_s, *_ in self._ends[:1]]
        opens = opens_s(self.closed_s, self._now_s)
        return min([*changes, opens] if opens > self._now_s else changes)

    def _pass(self, now_s: float) -> None:
        """Let pods leave and empty nodes go up to a moment; a node that would go at that very moment goes."""
        # pods leave before nodes go, because a node's empty time begins then
        while self._ends and self._ends[0][0] <= now_s:
            end_s, _, node, gpus = heapq.heappop(self._ends)
            node.free += gpus
            node.pods -= 1
            node.empty_s = end_s
        stay = []
        for node in self.up:
            ends_s = node.empty_s + self.kept_s
            if node.pods or ends_s > now_s:
                stay.append(node)
            else:
                self.lives.append((node.begins_s, ends_s))
        self.up = stay

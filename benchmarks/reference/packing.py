"""Best fit and fragmentation gradient descent, and a cluster to which pods come one by one under either of them or ours.

Both as kubernetes-scheduler-simulator has them (github.com/hkust-adsl, commit 8f3d641; Weng et al., "Beware of Fragmentation",
USENIX ATC '23), with its rounding of scores to whole points, because that decides ties, and its choice of the first among
equals. A pod is tried once, when it comes; nothing leaves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay import job_nodes
from trimtab.replay.compiled import admit, compiled, inlined
from trimtab.replay.job_nodes import (
    GPU_MILLI,
    OFFERS,
    STEP_MILLI,
    ExpectedFill,
    NodeRoom,
    PodAsk,
    PodMix,
    Score,
    expected_fill,
    fits,
    is_first_of_its_kind,
    least_lost,
    left_after,
    usable_milli,
)

admit(job_nodes)

BEST_FIT, FGD, EXPECTED_FILL = 0, 1, 2
_SCORES = 100.0
_MOST_CPU_MILLI, _MOST_GPU_MILLI = 128_000.0, 8_000.0
"""The largest node, as the simulator has it."""
_RELEARN_UNTIL = 1600
"""Pods seen, up to which the mix is learnt anew at each doubling; after that at each so many."""
_FIRST_LEARNT = 100
_NEVER = 1 << 62


class Cluster(NamedTuple):
    """Nodes, one element each; `gpu_milli` is (nodes, devices), 0 where a node has fewer."""

    cpu_milli: FloatArray
    memory_mib: FloatArray
    gpu_milli: IntArray
    model: IntArray


class Packed(NamedTuple):
    """A cluster after the last pod: what is free, and how many pods of each kind found no room.

    `first_turned_away` is the number in the order of the first pod of at most one GPU that found none; that of all pods if each
    found one.
    """

    cluster: Cluster
    turned_away: IntArray
    first_turned_away: int


@inlined
def best_fit(room: NodeRoom, pod: PodAsk) -> Score:
    """Score a node with room by how little it has left, 0..100 in whole points; a part of a GPU comes from the fullest."""
    gpu = -1
    for device in range(len(room.gpu_milli)):
        free = room.gpu_milli[device]
        if free >= pod.gpu_milli and (gpu < 0 or free < room.gpu_milli[gpu]):
            gpu = device
    gpu_left = (room.gpu_milli.sum() - pod.gpus * pod.gpu_milli) / _MOST_GPU_MILLI
    left = 0.5 * (room.cpu_milli - pod.cpu_milli) / _MOST_CPU_MILLI + 0.5 * gpu_left
    return Score(float(math.floor((1.0 - left) * _SCORES)), gpu)


@inlined
def fragmentation_milli(room: NodeRoom, mix: PodMix) -> float:
    """Return how much free GPU of a node a pod drawn from the mix could not use, on average; memory is not asked."""
    free = float(room.gpu_milli.sum())
    lost = 0.0
    for kind in range(len(mix.share)):
        milli = mix.gpu_milli[kind]
        usable = 0.0
        # a pod without GPUs uses none of them
        if milli and room.cpu_milli >= mix.cpu_milli[kind] and (mix.models[kind] >> room.model) & 1 == 1:
            count = 0
            for gpu in room.gpu_milli:
                if gpu >= milli:
                    count += 1
                    usable += gpu
            if count < mix.gpus[kind]:
                usable = 0.0
        lost += mix.share[kind] * (free - usable)
    return lost


@inlined
def fgd(room: NodeRoom, pod: PodAsk, mix: PodMix, before_milli: float) -> Score:
    """Score a node with room by how little of it is fragmented; `before_milli` is its fragmentation without the pod."""
    if pod.gpus != 1 or pod.gpu_milli == GPU_MILLI:
        return Score(_points(before_milli - fragmentation_milli(left_after(room, pod, -1), mix)), -1)
    best = Score(-1.0, -1)
    for device in range(len(room.gpu_milli)):
        if room.gpu_milli[device] >= pod.gpu_milli and is_first_of_its_kind(room.gpu_milli, device):
            value = _points(before_milli - fragmentation_milli(left_after(room, pod, device), mix))
            if value > best.value:
                best = Score(value, device)
    return best


@inlined
def _points(gained_milli: float) -> float:
    """Return the simulator's whole points for less fragmentation."""
    return float(math.floor(_SCORES / (1.0 + math.exp(-gained_milli / GPU_MILLI))))


@compiled
def place_all(rule: int, cluster: Cluster, kinds: PodMix, order: IntArray, fgd_mix: PodMix) -> Packed:
    """Place pods in the order in which they come; `order` holds the number of each pod's kind.

    `kinds.share` is not used: expected fill learns how common each kind is from the pods that came so far. FGD is told its mix.
    """
    cpu_milli, memory_mib = cluster.cpu_milli.copy(), cluster.memory_mib.copy()
    gpu_milli, model = cluster.gpu_milli.copy(), cluster.model
    nodes, count = len(cpu_milli), len(kinds.gpus)
    # a score is kept until its node changes or the mix is learnt anew
    value, device = np.zeros((count, nodes)), np.zeros((count, nodes), dtype=np.int64)
    scored, changed = np.full((count, nodes), -1), np.zeros(nodes, dtype=np.int64)
    before, measured = np.zeros(nodes), np.full(nodes, -1)
    seen, turned_away = np.zeros(count), np.zeros(count, dtype=np.int64)
    mix = PodMix(kinds.cpu_milli, kinds.memory_mib, kinds.gpus, kinds.gpu_milli, kinds.models, np.zeros(count))
    fills = np.zeros((model.max() + 1, 3, GPU_MILLI // STEP_MILLI + 1))
    learn_at = 0 if rule == EXPECTED_FILL else _NEVER
    first_turned_away = len(order)
    for number in range(len(order)):
        kind = order[number]
        seen[kind] += 1
        if number == learn_at:
            learn_at = max(_FIRST_LEARNT, 2 * number) if number < _RELEARN_UNTIL else number + _RELEARN_UNTIL
            mix.share[:] = seen / (number + 1)
            for which in range(len(fills)):
                learnt = expected_fill(mix, which, OFFERS)
                fills[which, 0], fills[which, 1], fills[which, 2] = (
                    learnt.gpu_milli,
                    learnt.cpu_milli,
                    learnt.memory_mib,
                )
            scored[:] = -1
            measured[:] = -1
        pod = PodAsk(
            kinds.cpu_milli[kind], kinds.memory_mib[kind], kinds.gpus[kind], kinds.gpu_milli[kind], kinds.models[kind]
        )
        chosen = -1
        for node in range(nodes):
            if scored[kind, node] != changed[node]:
                scored[kind, node] = changed[node]
                room = NodeRoom(cpu_milli[node], memory_mib[node], gpu_milli[node], model[node])
                score = Score(-math.inf, -1)
                if fits(room, pod):
                    if rule == BEST_FIT:
                        score = best_fit(room, pod)
                    elif rule == FGD:
                        if measured[node] != changed[node]:
                            before[node], measured[node] = fragmentation_milli(room, fgd_mix), changed[node]
                        score = fgd(room, pod, fgd_mix, before[node])
                    else:
                        of_model = fills[model[node]]
                        fill = ExpectedFill(of_model[0], of_model[1], of_model[2])
                        if measured[node] != changed[node]:
                            before[node], measured[node] = usable_milli(room, mix, fill), changed[node]
                        score = least_lost(room, pod, mix, fill, before[node])
                value[kind, node], device[kind, node] = score.value, score.gpu
            if value[kind, node] > -math.inf and (chosen < 0 or value[kind, node] > value[kind, chosen]):
                chosen = node
        if chosen < 0:
            turned_away[kind] += 1
            if pod.gpus == 1:
                first_turned_away = min(first_turned_away, number)
            continue
        room = NodeRoom(cpu_milli[chosen], memory_mib[chosen], gpu_milli[chosen], model[chosen])
        after = left_after(room, pod, device[kind, chosen])
        cpu_milli[chosen], memory_mib[chosen], gpu_milli[chosen] = after.cpu_milli, after.memory_mib, after.gpu_milli
        changed[chosen] += 1
    return Packed(Cluster(cpu_milli, memory_mib, gpu_milli, model), turned_away, first_turned_away)

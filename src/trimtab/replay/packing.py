"""Where a pod goes: on which node and on which of its GPUs, so that what stays free can still be used.

Each node with room is scored by the use that it loses to pods still to come (`least_lost`); the highest score wins, the first
of equals. What pods would make of a free part of a GPU is worked out from the mix of pods: how much some twenty of them, drawn
one after another, would fill of it, and how much CPU and memory they would take along (`expected_fill`). So a gap that only
rare pods fit counts as mostly lost, and so do GPUs of a node whose CPUs or memory will not last for them.

The rules that it is compared with are best fit and fragmentation gradient descent (FGD: Weng et al., "Beware of Fragmentation",
USENIX ATC '23), which asks only whether the next pod would fit.

Thousandths of a GPU are `milli`. A pod asks for whole GPUs, or for a part of one. The functions are plain, so that loops over
whole traces can be compiled with them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

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
    counts: dict[PodAsk, int] = {}
    for pod in pods:
        counts[pod] = counts.get(pod, 0) + 1
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
    """Tell whether a node has room for a pod."""
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
    """Tell whether no GPU before this one has as much free: they would score alike."""
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

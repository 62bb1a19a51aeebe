"""The Knative Pod Autoscaler: an average over a minute, and a panic over the last seconds.

From knative.dev (autoscaling, KPA) and knative/serving pkg/autoscaler/scaling/autoscaler.go: stable window 60 s, panic window
a tenth of it, panic when that asks for at least twice the ready pods, no scale-down in panic, at most halving per decision.
Knative decides every 2 s; here it decides every 15 s, so that its panic window is the last step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.metrics import ROUNDING
from trimtab.policies.scaling import (
    SYNC_S,
    Memory,
    Observation,
    push_for_sum,
    ring_end,
    window_steps,
)


class KnativePolicy(NamedTuple):
    """A KPA with a concurrency target."""

    target_frac: float
    min_replicas: int
    max_replicas: int
    stable_window_s: int = 60
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0


def knative_memory(policy: KnativePolicy) -> list[float]:
    """Return a memory: a ring of demands over the stable window, the seconds of panic left, the most replicas in it."""
    slots = window_steps(policy.stable_window_s)
    return [float(slots), 0.0, 0.0] + [0.0] * slots + [0.0, 0.0]


def knative_step(policy: KnativePolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas, ready and starting, that the KPA wants after this step."""
    current = seen.ready + seen.starting
    if math.isnan(seen.load):
        return current
    demand = seen.load + seen.backlog_replica_s / SYNC_S
    slots = min(int(memory[0]), seen.step + 1)
    stable = push_for_sum(memory, 0, demand) / slots
    panic_at = ring_end(memory, 0)
    ready = max(seen.ready, 1)
    most = math.ceil(policy.max_scale_up_rate * ready)
    least = math.floor(ready / policy.max_scale_down_rate)
    wanted = min(max(math.ceil(stable / policy.target_frac - ROUNDING), least), most)
    urgent = min(max(math.ceil(demand / policy.target_frac - ROUNDING), least), most)
    if urgent / ready >= policy.panic_threshold:
        memory[panic_at] = float(policy.stable_window_s)
    elif memory[panic_at] > 0.0:
        memory[panic_at] -= SYNC_S
    if memory[panic_at] > 0.0:
        memory[panic_at + 1] = max(memory[panic_at + 1], float(urgent), float(current))
        wanted = int(memory[panic_at + 1])
    else:
        memory[panic_at + 1] = 0.0
    return min(max(wanted, policy.min_replicas), policy.max_replicas)

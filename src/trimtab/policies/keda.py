"""KEDA: an HPA between one replica and many, and its own rule between none and one; and a timetable of replicas by hour.

Polling and cooldown govern only 0 <-> 1; above one replica KEDA feeds the HPA (keda.sh, scaledobject-spec: pollingInterval
30 s, cooldownPeriod 300 s). While a trigger fails nothing goes to none, and the cooldown runs on (kedacore/keda
pkg/scaling/executor/scale_scaledobjects.go). Several triggers are several metrics of that HPA (`HpaPolicy.others`), which
takes the highest; work that arrives or waits wakes the service, whichever trigger sees it, and so does a trigger by the hour.
The timetable is KEDA's cron scaler alone, or a CronJob that scales.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from trimtab.policies.scaling import (
    RING_HEAD,
    SYNC_S,
    HpaPolicy,
    Memory,
    Observation,
    hpa_memory,
    hpa_step,
    push_for_mean,
    window_steps,
)
from trimtab.units import S_PER_HR


class Timetable(Protocol):
    """Whole numbers by hour."""

    def __getitem__(self, at: int, /) -> int: ...
    def __len__(self) -> int: ...


class CronPolicy(NamedTuple):
    """Replicas by hour of the day (24 numbers) or of the week (168, from Monday 00:00 UTC).

    A rise comes `lead_s` early, so that replicas are ready when the hour begins; a fall comes on time.
    """

    replicas_by_hour: tuple[int, ...]
    lead_s: int = 0


def cron_step(by_hour: Timetable, lead_s: int, now_s: int) -> int:
    """Return the replicas of the timetable for now or for `lead_s` later, whichever is more."""
    now = by_hour[(now_s // S_PER_HR) % len(by_hour)]
    ahead = by_hour[((now_s + lead_s) // S_PER_HR) % len(by_hour)]
    return max(now, ahead)


class KedaPolicy(NamedTuple):
    """A ScaledObject: the HPA it makes, and when it goes to none and comes back.

    A service is active while its mean load of `activation_window_s` is above `activation_load` (replicas), or work above
    `activation_backlog_replica_s` waits: KEDA compares what a trigger's query says, and is active if any trigger is.
    """

    hpa: HpaPolicy
    polling_s: int = 30
    cooldown_s: int = 300
    activation_load: float = 0.0
    activation_window_s: int = SYNC_S
    activation_backlog_replica_s: float = 0.0
    idles: bool = False
    """Whether it goes to none although its HPA keeps more: `idleReplicaCount: 0`, the only one that KEDA supports."""


def goes_to_none(policy: KedaPolicy) -> bool:
    """Return whether a ScaledObject gives up the last replica."""
    return policy.idles or policy.hpa.min_replicas == 0


def keda_memory(policy: KedaPolicy) -> list[float]:
    """Return the HPA's memory, a ring of loads in the activation's window and, last, the seconds without activity."""
    slots = window_steps(policy.activation_window_s)
    return [*hpa_memory(policy.hpa), float(slots), 0.0, math.nan, *[math.nan] * slots, 0.0]


def keda_step(policy: KedaPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas after this step: none after a whole cooldown without activity, the least when a poll sees any.

    As RequestScale, scaleToZeroOrIdle and scaleFromZeroOrIdle of kedacore/keda v2.20.2 (pkg/scaling/executor/
    scale_scaledobjects.go) have it. The least is 1 where `min_replicas` is 0: so is that of the HPA (GetHPAMinReplicas).
    """
    current = seen.ready + seen.starting
    idle_at = len(memory) - 1
    load = push_for_mean(memory, idle_at - RING_HEAD - window_steps(policy.activation_window_s), seen.load)
    busy = load > policy.activation_load or seen.backlog_replica_s > policy.activation_backlog_replica_s
    active = busy or seen.guarded_replicas > 0.0
    memory[idle_at] = 0.0 if active else memory[idle_at] + SYNC_S
    # from none only a poll wakes it, and only a trigger that can be read
    if current == 0:
        polled = (seen.step * SYNC_S) % policy.polling_s < SYNC_S
        wakes = active or (not goes_to_none(policy) and not math.isnan(seen.load))
        return max(1, policy.hpa.min_replicas) if wakes and polled else 0
    if goes_to_none(policy) and memory[idle_at] >= policy.cooldown_s and not math.isnan(seen.load):
        return 0
    return max(1, hpa_step(policy.hpa, memory, seen))

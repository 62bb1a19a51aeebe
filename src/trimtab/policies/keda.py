"""KEDA: an HPA between one replica and many, and its own rule between none and one; and a timetable of replicas by hour.

Polling and cooldown govern only 0 <-> 1; above one replica KEDA feeds the HPA (keda.sh, scaledobject-spec: pollingInterval
30 s, cooldownPeriod 300 s). While a trigger fails nothing goes to none, and the cooldown runs on (kedacore/keda
pkg/scaling/executor/scale_scaledobjects.go). Several triggers are several metrics of that HPA (`HpaPolicy.others`), which
takes the highest; work that arrives or waits wakes the service, whichever trigger sees it. The timetable is KEDA's cron
scaler, or a CronJob that scales.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from trimtab.policies.scaling import SYNC_S, HpaPolicy, Memory, Observation, hpa_memory, hpa_step
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
    """A ScaledObject: the HPA it makes, and when it goes to none and comes back."""

    hpa: HpaPolicy
    polling_s: int = 30
    cooldown_s: int = 300
    activation_load: float = 0.0
    """A demand above this, in replicas, counts as activity."""


def keda_memory(policy: KedaPolicy) -> list[float]:
    """Return the HPA's memory and, last, the seconds without activity."""
    return [*hpa_memory(policy.hpa), 0.0]


def keda_step(policy: KedaPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas after this step: none after a whole cooldown without activity, one when a poll sees any."""
    current = seen.ready + seen.starting
    active = seen.load > policy.activation_load or seen.backlog_replica_s > 0.0
    idle_at = len(memory) - 1
    memory[idle_at] = 0.0 if active else memory[idle_at] + SYNC_S
    if current == 0:
        polled = (seen.step * SYNC_S) % policy.polling_s < SYNC_S
        return 1 if active and polled else 0
    if policy.hpa.min_replicas == 0 and memory[idle_at] >= policy.cooldown_s and not math.isnan(seen.load):
        return 0
    return max(1, hpa_step(policy.hpa, memory, seen))

"""A timetable of replicas by hour: KEDA's cron scaler, or a CronJob that scales."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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
    """Return what the timetable says for now or, where that is more, for `lead_s` later."""
    now = by_hour[(now_s // S_PER_HR) % len(by_hour)]
    ahead = by_hour[((now_s + lead_s) // S_PER_HR) % len(by_hour)]
    return max(now, ahead)

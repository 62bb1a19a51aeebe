"""Hours of the week in which a clock holds replicas: a ScaledObject of KEDA's cron triggers, or CronJobs of a Notebook.

As KEDA has it (keda.sh, scalers/cron): between `start` and `end`, which are cron expressions, a trigger asks for
`desiredReplicas`; the highest trigger counts. A Notebook is there from each start to the next stop. Read are times on the
hour, in UTC, on any days of the week.
"""

from __future__ import annotations

from trimtab.emit.manifests.cron_files import moments
from trimtab.review.manifests import NOTEBOOK_TIMETABLE, Scaler
from trimtab.sources.kubernetes.objects import Object, at, listed, number, text
from trimtab.units import HR_PER_WEEK

_UTC = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT"})


def is_timetable(scaler: Scaler) -> bool:
    """Tell whether an autoscaler follows the clock and nothing else."""
    triggers = listed(scaler.spec, "triggers")
    return scaler.kind == NOTEBOOK_TIMETABLE or (
        bool(triggers) and all(text(trigger, "type") == "cron" for trigger in triggers)
    )


def held_hours(scaler: Scaler) -> tuple[int, ...] | str:
    """Return the hours of the week (Monday 00:00 UTC is 0) in which a timetable holds replicas, or why it cannot be read."""
    if scaler.kind == NOTEBOOK_TIMETABLE:
        return _notebook_hours(scaler)
    if number(scaler.spec, "minReplicaCount"):
        return "it keeps replicas outside its hours"
    held: set[int] = set()
    for trigger in listed(scaler.spec, "triggers"):
        if text(trigger, "metadata", "timezone") not in _UTC:
            return f"its hours are those of {text(trigger, 'metadata', 'timezone')}, and only UTC is read"
        hours = _hours(trigger)
        if hours is None:
            return "its hours are not whole hours of days of the week"
        held |= hours
    return tuple(sorted(held))


def _notebook_hours(scaler: Scaler) -> tuple[int, ...] | str:
    starts, stops, zones = ([str(item) for item in _list(scaler.spec, key)] for key in ("starts", "stops", "zones"))
    if not set(zones) <= _UTC:
        return f"its hours are those of {', '.join(sorted(set(zones) - _UTC)) or 'the cluster'}, and only UTC is read"
    turns = [[moments(cron) for cron in crons] for crons in (starts, stops)]
    if not all(turns) or any(turn is None for part in turns for turn in part):
        return "its hours are not whole hours of days of the week, or it is only started, or only stopped"
    begins, ends = ([hour for part in parts for hour in part or ()] for parts in turns)
    return tuple(sorted(_between(begins, ends)))


def _list(spec: Object, key: str) -> list[object]:
    found = at(spec, key)
    return found if isinstance(found, list) else []


def _hours(trigger: Object) -> set[int] | None:
    """Return the hours from each start to the end that comes next; None where they cannot be read."""
    starts, ends = (moments(text(trigger, "metadata", name)) for name in ("start", "end"))
    return _between(starts, ends) if starts and ends else None


def _between(starts: list[int], ends: list[int]) -> set[int]:
    """Return the hours of the week from each start to the end that comes next."""
    found = set[int]()
    for start in starts:
        length = min((end - start) % HR_PER_WEEK or HR_PER_WEEK for end in ends)
        found |= {(start + hour) % HR_PER_WEEK for hour in range(length)}
    return found

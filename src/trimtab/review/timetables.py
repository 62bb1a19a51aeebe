"""Hours of the week in which a clock holds replicas: a ScaledObject of KEDA's cron triggers, or CronJobs of a Notebook.

As KEDA has it (keda.sh, scalers/cron): between `start` and `end`, which are cron expressions, a trigger asks for
`desiredReplicas`; the highest trigger counts. A Notebook is there from each start to the next stop. Read are times on the
hour, in UTC, on any days of the week.
"""

from __future__ import annotations

import re

from trimtab.review.manifests import NOTEBOOK_TIMETABLE, Scaler
from trimtab.sources.kubernetes.objects import Object, at, listed, number, text
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK

_ON_THE_HOUR = re.compile(r"0 (?P<hour>\d+) \* \* (?P<days>\*|[0-7](?:[-,][0-7])*)")
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
    moments = [[_moments(cron) for cron in crons] for crons in (starts, stops)]
    if not all(moments) or any(moment is None for part in moments for moment in part):
        return "its hours are not whole hours of days of the week, or it is only started, or only stopped"
    begins, ends = ([hour for part in parts for hour in part or ()] for parts in moments)
    return tuple(sorted(_between(begins, ends)))


def _list(spec: Object, key: str) -> list[object]:
    found = at(spec, key)
    return found if isinstance(found, list) else []


def _hours(trigger: Object) -> set[int] | None:
    """Return the hours from each start to the end that comes next; None where they cannot be read."""
    starts, ends = (_moments(text(trigger, "metadata", name)) for name in ("start", "end"))
    return _between(starts, ends) if starts and ends else None


def _between(starts: list[int], ends: list[int]) -> set[int]:
    """Return the hours of the week from each start to the end that comes next."""
    found = set[int]()
    for start in starts:
        length = min((end - start) % HR_PER_WEEK or HR_PER_WEEK for end in ends)
        found |= {(start + hour) % HR_PER_WEEK for hour in range(length)}
    return found


def _moments(cron: str) -> list[int] | None:
    """Return the hours of the week at which a cron expression fires.

    >>> _moments("0 8 * * 1-2,7"), _moments("30 8 * * *")
    ([8, 32, 152], None)
    """
    found = _ON_THE_HOUR.fullmatch(cron)
    if found is None or int(found["hour"]) >= HR_PER_DAY:
        return None
    days: set[int] = set()
    for part in ("0-6" if found["days"] == "*" else found["days"]).split(","):
        first, _, last = part.partition("-")
        days |= set(range(int(first), int(last or first) + 1))
    # cron counts days from Sunday = 0 (or 7); the week here starts on Monday
    return sorted({(day - 1) % DAYS_PER_WEEK * HR_PER_DAY + int(found["hour"]) for day in days})

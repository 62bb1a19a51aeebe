"""How pods and nodes fare, from a snapshot: restarts, why containers wait or ended, and nodes that are out of service."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from trimtab.sources.kubernetes.objects import Object, Objects, at, condition, listed, moment_at, number, text

_CORDON_TAINT = "node.kubernetes.io/unschedulable"


def pod_health(pod: Object) -> dict[str, object]:
    """Return the columns of `pods` that say how a pod fares; of several containers the one started again most often."""
    statuses = [*listed(pod, "status", "containerStatuses"), *listed(pod, "status", "initContainerStatuses")]
    worst = max(statuses, key=lambda status: number(status, "restartCount") or 0.0, default={})
    ended = at(worst, "lastState", "terminated")
    began, until = moment_at(ended, "startedAt"), moment_at(ended, "finishedAt")
    waiting = [reason for status in statuses if (reason := text(status, "state", "waiting", "reason"))]
    unplaced = condition(pod, "PodScheduled", "False")
    return {
        "restarts": int(number(worst, "restartCount") or 0) if statuses else None,
        "waiting": next((reason for reason in waiting if reason != "PodInitializing"), None),
        "last_exit": _exit(ended),
        "last_ended": until,
        "last_life_s": max((until - began).total_seconds(), 0.0) if began and until else None,
        "unschedulable": text(unplaced, "message") or None,
    }


def _exit(ended: object) -> str | None:
    """Return how a life ended: `OOMKilled`, `Error (exit 1)`; None where none did."""
    reason, code = text(ended, "reason"), number(ended, "exitCode")
    if not reason and code is None:
        return None
    if reason in ("", "Error", "Completed") and code is not None:
        return f"{reason or 'Error'} (exit {code:.0f})"
    return reason


def fault_rows(objects: Objects, nodes: Collection[str], start: datetime) -> list[dict[str, object]]:
    """Return the rows of `faults` that a snapshot tells of the named nodes; what has no moment began with the window."""
    rows: list[dict[str, object]] = []
    for node in objects.of("Node"):
        name = text(node, "metadata", "name")
        unready = condition(node, "Ready", "False") or condition(node, "Ready", "Unknown")
        if name not in nodes:
            continue
        if at(node, "spec", "unschedulable") is True:
            rows.append({"node": name, "fault": "cordoned", "start": _cordoned(node) or start})
        if unready is not None:
            rows.append(
                {"node": name, "fault": "not-ready", "start": moment_at(unready, "lastTransitionTime") or start}
            )
    return rows


def _cordoned(node: Object) -> datetime | None:
    """Return when a node was cordoned: the moment of the taint that comes with it."""
    taints = [taint for taint in listed(node, "spec", "taints") if text(taint, "key") == _CORDON_TAINT]
    return next((when for taint in taints if (when := moment_at(taint, "timeAdded")) is not None), None)

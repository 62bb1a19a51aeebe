"""How pods and nodes fare, from a snapshot: starts, restarts, why containers wait or ended, nodes that are out of service."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime

from trimtab.sources.kubernetes.objects import (
    Object,
    Objects,
    at,
    condition,
    listed,
    moment_at,
    namespace_and_name,
    number,
    text,
)
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.units import BYTES_PER_GIB, MS_PER_S, S_PER_HR, S_PER_MIN

_CORDON_TAINT = "node.kubernetes.io/unschedulable"
_PULLED = re.compile(
    r'Successfully pulled image ".*" in (?P<alone>[0-9.hms]+)( \((?P<waited>[0-9.hms]+) including waiting\))?'
    r"(\. Image size: (?P<bytes>[0-9]+) bytes)?"
)
"""kubernetes/kubernetes pkg/kubelet/images/image_manager.go; older kubelets tell no wait and no size."""
_PRESENT = re.compile(r'Container image ".*" already present on machine')
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s)")
_UNIT_S = {"h": float(S_PER_HR), "m": float(S_PER_MIN), "s": 1.0, "ms": 1 / MS_PER_S}
"""As Go prints durations; a kubelet cuts them to milliseconds."""


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


def started_at(pod: Object) -> datetime | None:
    """Return when the last of a pod's containers started; None where one has not, or was started again."""
    statuses = listed(pod, "status", "containerStatuses")
    if not statuses or any(number(status, "restartCount") for status in statuses):
        return None
    lives = [at(status, "state", "running") or at(status, "state", "terminated") for status in statuses]
    begun = [began for life in lives if (began := moment_at(life, "startedAt")) is not None]
    return max(begun) if len(begun) == len(statuses) else None


def image_pulls(objects: Objects, tally: Tally) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Return (seconds, GiB) that pulls of images took by (namespace, pod), of pods of which events tell every container's.

    The GiB are None where an event of theirs tells no size, as those of older kubelets. Kubelets tell one event a container;
    clusters keep them for an hour by default, so that most pods have none, and of some a
    part is gone: these are counted, and nothing is said of their pulls.
    """
    told: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    of_uid = {namespace_and_name(pod): text(pod, "metadata", "uid") for pod in objects.of("Pod")}
    for event in objects.of("Event"):
        key = (text(event, "involvedObject", "namespace"), text(event, "involvedObject", "name"))
        uid = text(event, "involvedObject", "uid")
        # a StatefulSet's next pod has the same name
        if text(event, "reason") != "Pulled" or key not in of_uid or (uid and of_uid[key] and uid != of_uid[key]):
            continue
        pull = _pull(text(event, "message"))
        if pull is None:
            tally.count("events of pulled images in unknown words")
        else:
            told.setdefault(key, []).append(pull)
    found = {}
    for pod in objects.of("Pod"):
        pulls = told.get(namespace_and_name(pod), [])
        containers = len(listed(pod, "spec", "containers")) + len(listed(pod, "spec", "initContainers"))
        if pulls and len(pulls) == containers:
            sizes = [gib for _, gib in pulls if gib is not None]
            pulled_gib = sum(sizes) if len(sizes) == len(pulls) else None
            found[namespace_and_name(pod)] = (sum(seconds for seconds, _ in pulls), pulled_gib)
        elif pulls:
            tally.count("pods with events for the image pulls of some containers and not all: not measured")
    return found


def _pull(message: str) -> tuple[float, float | None] | None:
    """Return (seconds, GiB) that a kubelet's message tells, no GiB where it tells no size; None where it is none.

    >>> _pull('Successfully pulled image "m:1" in 1m2.5s (1m3.5s including waiting). Image size: 2147483648 bytes.')
    (63.5, 2.0)
    """
    if _PRESENT.search(message):
        return 0.0, 0.0
    found = _PULLED.search(message)
    if found is None:
        return None
    length = found["waited"] or found["alone"]
    parts = _DURATION.findall(length)
    if "".join(amount + unit for amount, unit in parts) != length:
        return None
    try:
        seconds = sum(float(amount) * _UNIT_S[unit] for amount, unit in parts)
    except ValueError:
        return None
    return seconds, float(found["bytes"]) / BYTES_PER_GIB if found["bytes"] else None


def _exit(ended: object) -> str | None:
    """Return how a life ended: `OOMKilled`, `Error (exit 1)`; None where none did."""
    reason, code = text(ended, "reason"), number(ended, "exitCode")
    if not reason and code is None:
        return None
    if reason in ("", "Error", "Completed") and code is not None:
        return f"{reason or 'Error'} (exit {code:.0f})"
    return reason


def fault_rows(objects: Objects, nodes: Collection[str], start: datetime) -> list[dict[str, object]]:
    """Return the rows of `faults` that a snapshot shows of the named nodes; what has no moment began with the window."""
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

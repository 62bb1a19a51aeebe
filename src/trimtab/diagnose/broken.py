"""Time that broken things took: runs that failed, containers that crash, nodes cordoned, GPUs faulty or slowed down.

What counts, and what does not:

- a run that failed, ran into its time limit or was lost with its node took all its time, or where it saves checkpoints the part
  after its last one; what was cancelled by a person, completed or still runs does not count;
- a container in a crash loop took the pauses that kubelet makes and the lives in between, no more than its pod held GPUs;
- a node that is cordoned or not ready costs its GPUs that no workload holds; what still runs there works;
- a GPU with a fault that needs a reset costs its time from the fault on, while it does nothing; the first hour in which it
  works again ends that;
- a GPU that is throttled costs the share of its speed that it lost, while somebody holds it.

Sources: kubelet's pauses (10 s, doubled up to 300 s, again after ten minutes): kubernetes.io, "Pod Lifecycle", restart policy.
XIDs: docs.nvidia.com/deploy/xid-errors, those whose action is to reset the GPU or the node, or to send the board back.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from trimtab.diagnose.cluster_records import (
    NOBODY,
    Call,
    ClusterRecords,
    HeldGpus,
    LostSpan,
    distinct,
    gpus_words,
    lost_spans,
    number,
    seconds,
)
from trimtab.diagnose.findings import WasteKind
from trimtab.fleet.settings import Hygiene
from trimtab.tables.arrow import RecordedRow
from trimtab.units import S_PER_HR

FAILED_STATES = ("failed", "timeout", "node_fail", "preempted", "requeued")
FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 140})
"""Double-bit ECC, internal halt, row remap failed, NVLink, off the bus, uncontained ECC, GSP timeout, GSP error, unrecovered
ECC."""
_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 300.0
_NAMED = 3
_NEARLY_FRAC = 0.25
"""What is counted from restarts and what readings say may differ so much of the time: lives differ in length."""
_OWN = frozenset({"owned", "unknown", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """One broken thing: what it is, whose it is, where, how often, and who can end it."""

    kind: WasteKind
    what: str
    subject: str
    nodes: tuple[str, ...]
    items: tuple[str, ...]
    """Runs, pods or GPUs, those that lost most first."""
    call: Call
    evidence: str
    ongoing: bool = False
    """Whether it lasted when the history ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Everything broken, and the GPU time that each took; spans name breakages by their number."""

    breakages: tuple[Breakage, ...]
    spans: tuple[LostSpan, ...]

    def gpu_hours(self) -> tuple[float, ...]:
        """Return the GPU-hours that each breakage took, at full loss."""
        taken = [0.0] * len(self.breakages)
        for span in self.spans:
            taken[span.finding] += span.gpus * span.lost_frac * max(0.0, span.end_s - span.start_s) / S_PER_HR
        return tuple(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    breakage: Breakage
    spans: tuple[LostSpan, ...]


def broken(records: ClusterRecords, settings: Hygiene) -> Broken:
    """Return what was broken in a history, whatever it cost."""
    losses = [*_failed_runs(records, settings), *_crash_loops(records, settings), *_faults(records, settings)]
    return Broken(
        breakages=tuple(loss.breakage for loss in losses),
        spans=tuple(replace(span, finding=number) for number, loss in enumerate(losses) for span in loss.spans),
    )


# Runs


def _failed_runs(records: ClusterRecords, settings: Hygiene) -> Iterator[_Loss]:
    groups: dict[tuple[str, str, Call, str], list[tuple[RecordedRow, list[LostSpan]]]] = defaultdict(list)
    ran: dict[str, int] = defaultdict(int)
    faults = _faults_by_node(records.faults)
    for job in records.jobs:
        if job["start"] is None:
            continue
        ran[str(job["workload"])] += 1
        if job["state"] in FAILED_STATES and job["end"] is not None:
            call, cause = _to_blame(job, faults, records, settings)
            groups[str(job["workload"]), str(job["state"]), call, cause].append((job, _lost_spans(job, records)))
    for (workload, state, call, cause), runs in groups.items():
        runs.sort(key=lambda run: -sum(span.gpus * (span.end_s - span.start_s) for span in run[1]))
        spans = tuple(span for _, parts in runs for span in parts)
        yield _Loss(
            breakage=Breakage(
                kind=WasteKind.FAILED_RUNS,
                what=_STATE_WORDS[state],
                subject=workload,
                nodes=distinct(span.node for span in spans),
                items=tuple(str(job["job"]) for job, _ in runs),
                call=call,
                evidence=_run_evidence(runs, ran[workload], state, cause),
            ),
            spans=spans,
        )


_STATE_WORDS = {
    "failed": "runs that failed",
    "timeout": "runs that met their time limit",
    "node_fail": "runs lost with their node",
    "preempted": "runs that were preempted",
    "requeued": "runs that were queued again",
}


def _to_blame(
    job: RecordedRow, faults: Mapping[str, list[RecordedRow]], records: ClusterRecords, settings: Hygiene
) -> tuple[Call, str]:
    """Return who can end a failure, and the fault on its nodes that came just before it, in words."""
    ended_s = seconds(job["end"], records.end_s)
    for node in _nodes_of(job):
        for fault in faults.get(node, ()):
            if 0 <= ended_s - seconds(fault["start"], records.start_s) <= settings.fault_to_failure_s:
                if fault["fault"] == "xid" and not is_fatal(fault):
                    return Call.OWNER, f"{_fault_words(fault)} came before it: a fault of the program"
                return _vendor(node, records), f"{_fault_words(fault)} on its node came before it"
    if job["state"] in ("node_fail", "preempted", "requeued"):
        return Call.PLATFORM, ""
    return Call.OWNER, ""


def _lost_spans(job: RecordedRow, records: ClusterRecords) -> list[LostSpan]:
    """Return the time that a failed run lost: all of it, or what followed its last checkpoint, on each of its nodes."""
    start_s, end_s = seconds(job["start"], records.start_s), seconds(job["end"], records.end_s)
    interval = job["checkpoint_interval_s"]
    if isinstance(interval, float) and interval > 0:
        start_s = max(start_s, end_s - (end_s - start_s) % interval)
    nodes = _nodes_of(job) or distinct(
        held.node
        for held in records.held
        if held.workload == job["workload"] and held.start_s < end_s and held.end_s > start_s
    )
    gpus = number(job["gpus"]) / max(len(nodes), 1)
    start_s = max(start_s, records.start_s)
    return [LostSpan(node=node, holder=str(job["workload"]), gpus=gpus, start_s=start_s, end_s=end_s) for node in nodes]


def _run_evidence(runs: Sequence[tuple[RecordedRow, list[LostSpan]]], ran: int, state: str, cause: str) -> str:
    saved = sum(isinstance(job["checkpoint_interval_s"], float) for job, _ in runs)
    kept = "" if not saved else f"; {saved} saved checkpoints, so only the time after the last one counts"
    longest = ", ".join(f"{job['job']} lost {_longest_hr(spans):.1f} h" for job, spans in runs[:_NAMED])
    told = f"; {cause}" if cause else ""
    return f"{len(runs)} of {ran} runs ended as {state}: {longest}{kept}{told}"


def _longest_hr(spans: Sequence[LostSpan]) -> float:
    return max((span.end_s - span.start_s for span in spans), default=0.0) / S_PER_HR


# Crash loops


def crash_loop_s(restarts: int, life_s: float) -> float:
    """Return how long a crash loop has lasted: kubelet's pauses, and as many lives as there were restarts.

    >>> crash_loop_s(6, 0.0)
    610.0
    """
    pauses = sum(min(_PAUSE_S * 2.0**turn, _LONGEST_PAUSE_S) for turn in range(min(restarts, 6)))
    return pauses + max(0, restarts - 6) * _LONGEST_PAUSE_S + restarts * life_s


def is_crash_looping(pod: RecordedRow, end_s: float, settings: Hygiene) -> bool:
    """Return whether a pod's container crashed again and again, and still did when it was read."""
    restarts, life_s = pod["restarts"], number(pod["last_life_s"])
    if not isinstance(restarts, int) or restarts < settings.crash_restarts or life_s >= settings.crash_life_s:
        return False
    lately = end_s - seconds(pod["last_ended"], -math.inf) <= settings.crash_life_s
    return pod["ended"] is None and (pod["waiting"] == "CrashLoopBackOff" or (lately and pod["ready"] is None))


def _crash_loops(records: ClusterRecords, settings: Hygiene) -> Iterator[_Loss]:
    held_by: dict[tuple[str, str], list[HeldGpus]] = defaultdict(list)
    for held in records.held:
        held_by[held.workload, held.pod].append(held)
    for pod in records.pods:
        if not number(pod["gpus"]) or not is_crash_looping(pod, records.end_s, settings):
            continue
        restarts = int(number(pod["restarts"]))
        lasting = [held for held in held_by[str(pod["workload"]), str(pod["pod"])] if held.end_s >= records.end_s]
        began_s = _began(records.end_s - crash_loop_s(restarts, number(pod["last_life_s"])), lasting, records)
        spans = tuple(
            LostSpan(
                node=held.node,
                holder=held.workload,
                gpus=held.gpus,
                start_s=max(held.start_s, began_s),
                end_s=held.end_s,
            )
            for held in lasting
        )
        exits = f", last with {pod['last_exit']}" if pod["last_exit"] else ""
        hours = (records.end_s - max(began_s, min((span.start_s for span in spans), default=began_s))) / S_PER_HR
        yield _Loss(
            breakage=Breakage(
                kind=WasteKind.FAILED_RUNS,
                what="container in a crash loop",
                subject=str(pod["workload"]),
                nodes=distinct(span.node for span in spans),
                items=(str(pod["pod"]),),
                call=Call.OWNER,
                evidence=f"pod {pod['pod']}: {restarts} restarts{exits}; it holds {gpus_words(number(pod['gpus']))}, about "
                f"{hours:.1f} h of that in the loop",
                ongoing=True,
            ),
            spans=spans,
        )


def _began(counted_s: float, held: Sequence[HeldGpus], records: ClusterRecords) -> float:
    """Return when a crash loop began: as restarts count it, put right by when its GPUs last worked, if both nearly agree.

    Lives are assumed to be as long as the last one, which is a few percent off. Where the program works its GPUs before each
    crash, readings tell nothing, and disagree.
    """
    if not held:
        return counted_s
    active = [hour for hold in held for hour in records.gpus.active(hold.device)]
    first_s = min(hold.start_s for hold in held)
    worked = max((hour for hour in active if hour >= first_s // S_PER_HR), default=None)
    low_s, high_s = (first_s, first_s) if worked is None else (worked * float(S_PER_HR), (worked + 1) * float(S_PER_HR))
    seen_s = min(max(counted_s, low_s), high_s)
    return seen_s if abs(seen_s - counted_s) <= _NEARLY_FRAC * (records.end_s - counted_s) else counted_s


# Hardware


def is_fatal(fault: RecordedRow) -> bool:
    """Return whether a fault needs the GPU reset or replaced; other XIDs are faults of programs."""
    return fault["fault"] in ("ecc", "row-remap") or (fault["fault"] == "xid" and fault["code"] in FATAL_XIDS)


def _faults(records: ClusterRecords, settings: Hygiene) -> Iterator[_Loss]:
    of_device: dict[str, list[HeldGpus]] = defaultdict(list)
    on_node: dict[str, list[HeldGpus]] = defaultdict(list)
    for held in records.held:
        of_device[held.device].append(held)
        on_node[held.node].append(held)
    groups: dict[tuple[str, str], list[tuple[RecordedRow, list[LostSpan]]]] = defaultdict(list)
    for fault in records.faults:
        node = str(fault["node"])
        if node not in records.shapes:
            continue
        match fault["fault"]:
            case "cordoned" | "not-ready":
                spans = _out_of_service(fault, records, settings)
            case "thermal-throttle" | "power-throttle":
                holders = of_device[str(fault["device"])] if fault["device"] else on_node[node]
                spans = _slowed(fault, holders, records, settings)
            case _:
                spans = _dead(fault, of_device, records) if is_fatal(fault) and fault["device"] else []
        if spans:
            groups[node, _fault_words(fault)].append((fault, spans))
    for (node, what), faults in groups.items():
        spans_of_all = tuple(span for _, parts in faults for span in parts)
        yield _Loss(breakage=_of_faults(node, what, faults, records), spans=spans_of_all)


def _of_faults(
    node: str, what: str, faults: Sequence[tuple[RecordedRow, list[LostSpan]]], records: ClusterRecords
) -> Breakage:
    devices = distinct(str(fault["device"]) for fault, _ in faults if fault["device"])
    hours = sum(span.end_s - span.start_s for _, parts in faults for span in parts) / S_PER_HR
    slowed = [float(fault["lost_frac"]) for fault, _ in faults if isinstance(fault["lost_frac"], float)]
    of_speed = f", {max(slowed):.0%} slower at worst" if slowed else ""
    ongoing = any(seconds(fault["end"], records.end_s) >= records.end_s for fault, _ in faults)
    by_people = faults[0][0]["fault"] in ("cordoned", "not-ready")
    return Breakage(
        kind=WasteKind.FAULTY_NODES,
        what=what,
        subject=node,
        nodes=(node,),
        items=devices,
        call=Call.PLATFORM if by_people else _vendor(node, records),
        evidence=f"{what} on {', '.join(devices[:_NAMED]) or node}{of_speed}: {hours:,.1f} h"
        f"{', of which only time that no workload held counts' if by_people else ''}, first on {_day(faults[0][0]['start'])}",
        ongoing=ongoing,
    )


def _out_of_service(fault: RecordedRow, records: ClusterRecords, settings: Hygiene) -> list[LostSpan]:
    start_s, end_s = _stretch(fault, records)
    if end_s - start_s < settings.cordoned_hr * S_PER_HR:
        return []
    node = str(fault["node"])
    gpus = float(records.shapes[node].gpu_count)
    return [LostSpan(node=node, holder=NOBODY, gpus=gpus, start_s=start_s, end_s=end_s)]


def _slowed(
    fault: RecordedRow, holders: Iterable[HeldGpus], records: ClusterRecords, settings: Hygiene
) -> list[LostSpan]:
    lost = fault["lost_frac"]
    if not isinstance(lost, float) or lost < settings.throttled_frac:
        return []
    start_s, end_s = _stretch(fault, records)
    return lost_spans([held for held in holders if held.node == fault["node"]], start_s, end_s, lost)


def _dead(fault: RecordedRow, of_device: Mapping[str, Sequence[HeldGpus]], records: ClusterRecords) -> list[LostSpan]:
    """Return the time from a fault until the GPU worked again: a span for each holder, and for each gap between them."""
    device = str(fault["device"])
    start_s, end_s = _stretch(fault, records)
    works = records.gpus.active(device)
    next_hour = int(start_s // S_PER_HR) + 1
    again = min((hour for hour in works if hour >= next_hour), default=None)
    if again is not None and end_s >= (again + 1) * S_PER_HR:
        # an end that is stated within the hour is more exact than the hour's beginning
        end_s = again * float(S_PER_HR)
    if again == next_hour:
        return []
    node = str(fault["node"])
    spans, free_s = [], start_s
    for held in sorted(of_device.get(device, ()), key=lambda held: held.start_s):
        begin_s, until_s = max(held.start_s, free_s), min(held.end_s, end_s)
        if until_s <= begin_s:
            continue
        if begin_s > free_s:
            spans.append(LostSpan(node=node, holder=NOBODY, gpus=1.0, start_s=free_s, end_s=begin_s))
        spans.append(LostSpan(node=node, holder=held.workload, gpus=1.0, start_s=begin_s, end_s=until_s))
        free_s = until_s
    if free_s < end_s:
        spans.append(LostSpan(node=node, holder=NOBODY, gpus=1.0, start_s=free_s, end_s=end_s))
    return spans


def _fault_words(fault: RecordedRow) -> str:
    kind = str(fault["fault"])
    if kind == "xid":
        return f"XID {fault['code']}"
    return {
        "ecc": "uncorrectable ECC error",
        "row-remap": "failed row remap",
        "thermal-throttle": "thermal throttling",
        "power-throttle": "power throttling",
        "not-ready": "not ready",
    }.get(kind, kind)


def _faults_by_node(faults: Iterable[RecordedRow]) -> dict[str, list[RecordedRow]]:
    found: dict[str, list[RecordedRow]] = defaultdict(list)
    for fault in faults:
        if fault["fault"] in ("xid", "ecc", "row-remap", "not-ready"):
            found[str(fault["node"])].append(fault)
    return found


def _vendor(node: str, records: ClusterRecords) -> Call:
    shape = records.shapes.get(node)
    return Call.PLATFORM if shape is None or shape.provider in _OWN else Call.PROVIDER


def _stretch(fault: RecordedRow, records: ClusterRecords) -> tuple[float, float]:
    return seconds(fault["start"], records.start_s), seconds(fault["end"], records.end_s)


def _nodes_of(job: RecordedRow) -> tuple[str, ...]:
    return distinct(name.strip() for name in str(job["node"] or "").split(","))


def _day(cell: object) -> str:
    return f"{cell:%Y-%m-%d %H:%M}" if isinstance(cell, datetime) else "an unknown day"

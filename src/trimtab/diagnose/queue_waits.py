"""Runs that wait in a queue while GPUs that would hold them stand free: what a quota, a partition or an order keeps idle.

A queue's GPUs are those of the types that its runs have run on; of a Slurm partition, the nodes themselves. A GPU counts as
free in an hour in which no workload held it at any moment, on a node that stood the whole hour and was neither cordoned nor
broken. A run counts in hours that it waited through, and only where it would have fitted: on one node, or, if it is larger than
any, on nodes that were free as a whole. What it lacked besides GPUs (CPUs, memory, a licence) is not known, so that the free
GPU time is an upper bound on what the queue held back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.diagnose.cluster_records import (
    NOBODY,
    Call,
    ClusterRecords,
    LostSpan,
    counted,
    distinct,
    number,
    seconds,
)
from trimtab.diagnose.findings import Found, Offence, OffenceKind, WasteKind
from trimtab.fleet.settings import Hygiene
from trimtab.ledger.arrays import FloatArray
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.workloads import cluster_of, local_name
from trimtab.units import S_PER_HR

_SLACK = 1e-6
_OUT_OF_SERVICE = frozenset({"cordoned", "not-ready", "ecc", "row-remap"})
_OURS = "trimtab-"
"""Queues that a plan's own timetable holds, which are meant to wait."""
_SLURM, _VOLCANO = "Partition", "Queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """A run's wait in a queue, in seconds since 1970."""

    job: str
    gpus: float
    start_s: float
    end_s: float
    lasts: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Free:
    """Nodes with GPUs, and what of them stood free in each hour of the history (n_nodes, n_hours)."""

    names: Sequence[str]
    types: Sequence[str]
    sizes: FloatArray
    gpus: FloatArray
    first_hour: int
    """Hour since 1970."""


def waiting_beside_free_gpus(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield the queues whose runs waited for as long as `pending_hr` or more while GPUs that would have held them were free."""
    waits: dict[str, list[_Wait]] = defaultdict(list)
    ran_on: dict[str, set[str]] = defaultdict(set)
    local = {(row["namespace"], local_name(str(row["name"]))) for row in records.queues if row["kind"] == "LocalQueue"}
    for job in records.jobs:
        queue = _queue_of(job, local)
        if not queue:
            continue
        ran_on[queue].update(name for name in str(job["node"] or "").split(",") if name)
        wait = _wait(job, records)
        if wait is not None and wait.end_s - wait.start_s >= settings.pending_hr * S_PER_HR:
            waits[queue].append(wait)
    if not waits:
        return
    free = _free_gpus(records)
    for queue, runs in sorted(waits.items()):
        held, fitted_hr = _could_have_held(runs, free, _usable(queue, ran_on[queue], free, records))
        if fitted_hr < settings.pending_hr:
            continue
        spans = list(_spans(held, free))
        yield (
            Offence(
                kind=OffenceKind.QUEUED,
                subject=queue,
                owner_kind="",
                nodes=distinct(span.node for span in spans),
                items=distinct(wait.job for wait in runs),
                call=Call.PLATFORM,
                evidence=_words(queue, runs, fitted_hr, float(held.sum()), records),
                counted_in=_kind(spans, records),
                ongoing=any(wait.lasts for wait in runs),
            ),
            spans,
        )


def _queue_of(job: RecordedRow, local: Collection[tuple[object, str]]) -> str:
    """Return the queue that a run names, with its namespace where queues have one; empty for none, and for a plan's own."""
    queue = str(job["queue"] or "")
    if not queue or queue.startswith(_OURS):
        return ""
    namespace = str(job["workload"]).partition("/")[0]
    return f"{namespace}/{queue}" if (namespace, queue) in local else queue


def _wait(job: RecordedRow, records: ClusterRecords) -> _Wait | None:
    submit, gpus = job["submit"], number(job["gpus"])
    lasts = job["start"] is None and job["end"] is None
    if submit is None or not gpus or (job["start"] is None and not lasts):
        return None
    start_s = max(seconds(submit, records.end_s), records.start_s)
    end_s = min(seconds(job["start"], records.end_s), records.end_s)
    return _Wait(job=str(job["job"]), gpus=gpus, start_s=start_s, end_s=end_s, lasts=lasts)


def _free_gpus(records: ClusterRecords) -> _Free:
    first = int(records.start_s // S_PER_HR)
    hours = max(int(records.end_s // S_PER_HR) - first, 0)
    names = list(distinct(str(row["node"]) for row in records.nodes))
    place = {name: at for at, name in enumerate(names)}
    gpus, sizes, types = np.zeros((len(names), hours)), np.zeros(len(names)), [""] * len(names)

    def put(node: str, start_s: float, end_s: float, amount: float, *, whole: bool) -> None:
        """Add an amount in the hours that a stretch touches, or fills."""
        begin, end = (start_s / S_PER_HR - first, end_s / S_PER_HR - first)
        low, high = (np.ceil(begin), np.floor(end)) if whole else (np.floor(begin), np.ceil(end))
        gpus[place[node], max(int(low), 0) : max(int(high), 0)] += amount

    for row in records.nodes:
        name = str(row["node"])
        sizes[place[name]], types[place[name]] = number(row["gpu_count"]), str(row["gpu"] or "")
        start_s, end_s = seconds(row["start"], records.start_s), seconds(row["end"], records.end_s)
        put(name, max(start_s, records.start_s), min(end_s, records.end_s), number(row["gpu_count"]), whole=True)
    for hold in records.held:
        if hold.node in place:
            put(hold.node, hold.start_s, hold.end_s, -hold.gpus, whole=False)
    for fault in records.faults:
        if fault["fault"] in _OUT_OF_SERVICE and str(fault["node"]) in place:
            start_s, end_s = seconds(fault["start"], records.start_s), seconds(fault["end"], records.end_s)
            put(str(fault["node"]), start_s, end_s, -sizes[place[str(fault["node"])]], whole=False)
    return _Free(names=names, types=types, sizes=sizes, gpus=np.maximum(gpus, 0.0), first_hour=first)


def _usable(queue: str, ran_on: set[str], free: _Free, records: ClusterRecords) -> FloatArray:
    """Return 1 for each node that a queue's runs may go to (n_nodes,), else 0; none where no run of it ever ran."""
    types = {kind for name, kind in zip(free.names, free.types, strict=True) if name in ran_on and kind}
    of_slurm = any(row["kind"] == _SLURM and local_name(str(row["name"])) == queue for row in records.queues)
    return np.array(
        [
            float(name in ran_on or (not of_slurm and kind in types))
            for name, kind in zip(free.names, free.types, strict=True)
        ]
    )


def _could_have_held(runs: Sequence[_Wait], free: _Free, usable: FloatArray) -> tuple[FloatArray, float]:
    """Return the free GPUs that waiting runs would have held (n_nodes, n_hours), and in how many of their hours they fitted."""
    held, fitted_hr = np.zeros_like(free.gpus), 0.0
    largest = float((free.sizes * usable).max(initial=0.0))
    if not largest:
        return held, 0.0
    by_hour: dict[int, list[_Wait]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.start_s, run.job)):
        for hour in range(-int(-run.start_s // S_PER_HR), int(run.end_s // S_PER_HR)):
            by_hour[hour - free.first_hour].append(run)
    for hour, waiting in by_hour.items():
        if not 0 <= hour < free.gpus.shape[1]:
            continue
        left = free.gpus[:, hour] * usable
        refused: set[float] = set()
        for run in waiting:
            if run.gpus in refused:
                continue
            taken = _placed(run.gpus, left, free.sizes, largest)
            if taken is None:
                refused.add(run.gpus)
                continue
            left -= taken
            held[:, hour] += taken
            fitted_hr += 1.0
    return held, fitted_hr


def _placed(gpus: float, left: FloatArray, sizes: FloatArray, largest: float) -> FloatArray | None:
    """Return what a run takes of each node (n_nodes,): of the fullest that holds it, or of several free ones; None if it fits
    on none."""
    taken = np.zeros_like(left)
    if gpus <= largest + _SLACK:
        fits = np.flatnonzero(left >= gpus - _SLACK)
        if not len(fits):
            return None
        taken[fits[np.argmin(left[fits])]] = gpus
        return taken
    for node in np.flatnonzero((left >= sizes - _SLACK) & (sizes >= largest - _SLACK)):
        taken[node] = min(gpus - taken.sum(), left[node])
        if taken.sum() >= gpus - _SLACK:
            return taken
    return None


def _spans(held: FloatArray, free: _Free) -> Iterator[LostSpan]:
    """Yield stretches of hours on end in which one node would have held the same number of GPUs."""
    for node in np.flatnonzero(held.any(axis=1)).tolist():
        row = held[node]
        edges = np.flatnonzero(np.diff(row, prepend=0.0, append=0.0))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if row[begin] > 0:
                yield LostSpan(
                    node=free.names[node],
                    holder=NOBODY,
                    gpus=float(row[begin]),
                    start_s=(free.first_hour + begin) * S_PER_HR,
                    end_s=(free.first_hour + end) * S_PER_HR,
                )


def _kind(spans: Sequence[LostSpan], records: ClusterRecords) -> WasteKind:
    used = {hold.node for hold in records.held}
    return WasteKind.HOURS_NOT_USED if any(span.node in used for span in spans) else WasteKind.UNALLOCATED_NODES


def _words(queue: str, runs: Sequence[_Wait], fitted_hr: float, gpu_hr: float, records: ClusterRecords) -> str:
    waited = [(run.end_s - run.start_s) / S_PER_HR for run in runs]
    return (
        f"{counted(len(runs), 'run')} waited {sum(waited):,.0f} h in all ({np.median(waited):,.1f} h in the middle); in "
        f"{fitted_hr:,.0f} of these hours GPUs that would have held them stood free, {gpu_hr:,.0f} GPU-hours"
        f"{_quota_words(queue, records.queues)}"
    )


def _quota_words(queue: str, rows: Sequence[RecordedRow]) -> str:
    """Say what quota stands behind a queue and what of it was used, where that was read, and what others keep from it."""
    namespace, _, name = queue.rpartition("/")
    parents = {
        row["parent"]
        for row in rows
        if (row["kind"], row["namespace"], local_name(str(row["name"]))) == ("LocalQueue", namespace, name)
        and row["parent"]
    }
    behind = _with_ancestors(queue, rows) or [row for row in rows if row["name"] in parents]
    told = [*dict.fromkeys(words for row in behind if (words := _limits_words(row))), *_kept_by_others(behind, rows)]
    return f"; quota: {', '.join(told)}" if told else ""


def _with_ancestors(queue: str, rows: Sequence[RecordedRow]) -> list[RecordedRow]:
    """Return the rows of a Volcano queue and of the queues above it, each of which limits it as well."""
    found: list[RecordedRow] = []
    names = {queue}
    while names:
        level = [
            row
            for row in rows
            if row["kind"] == _VOLCANO and local_name(str(row["name"])) in names and row not in found
        ]
        found += level
        names = {local_name(str(row["parent"])) for row in level if row["parent"]}
    return found


def _limits_words(row: RecordedRow) -> str:
    """Say what a queue has and may use at most; empty where neither is stated."""
    name = f"{row['name']} {row['flavor'] or ''}".strip()
    own, most = row["quota_gpus"], row["limit_gpus"]
    stated = [f"{number(own):g} GPUs"] if own is not None else []
    stated += (
        [f"{number(most):g} GPUs at most" if own is None else f"{number(most):g} at most"] if most is not None else []
    )
    if not stated:
        return ""
    used = [] if row["used_gpus"] is None else [f"{number(row['used_gpus']):g} in use when it was read"]
    return f"{name} {', '.join([*stated, *used])}"


def _kept_by_others(behind: Sequence[RecordedRow], rows: Sequence[RecordedRow]) -> Iterator[str]:
    """Yield what other Volcano queues keep free for themselves, or do not give back.

    A guarantee is for its queue alone, whether it uses it or not; of what a queue uses beyond its own, none can be reclaimed
    where it is not reclaimable (Volcano, "Queue": `guarantee`, `reclaimable`).
    """
    mine = {row["name"] for row in behind if row["kind"] == _VOLCANO}
    clusters = {cluster_of(str(name)) for name in mine}
    for row in rows:
        if row["kind"] != _VOLCANO or row["name"] in mine or cluster_of(str(row["name"])) not in clusters:
            continue
        used, own, kept = row["used_gpus"], row["quota_gpus"], row["guaranteed_gpus"]
        if used is None:
            continue
        if kept is not None and number(kept) > number(used):
            yield f"{row['name']} keeps {number(kept) - number(used):g} GPUs that it does not use (guarantee)"
        if row["reclaimable"] is False and own is not None and number(used) > number(own):
            beyond = number(used) - number(own)
            yield f"{row['name']} gives none of {beyond:g} GPUs beyond its own back (reclaimable: false)"

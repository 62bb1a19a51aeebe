"""A fleet bundle's tables from runs that held GPUs, laid on machines that a trace does not name.

A trace says how many GPUs a run held and when, not where. The fleet is as many nodes as were ever needed at once: the fewest
that best fit gets along with.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trimtab.catalog import BuyingOption, Catalog, load_catalog
from trimtab.errors import InputError, UnknownName
from trimtab.sources.collected import Collected
from trimtab.tables.arrow import Row, table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.units import DAYS_PER_WEEK, HR_PER_YEAR, S_PER_DAY, S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMachine:
    """One instance type in one region, and its boards."""

    provider: str
    instance_type: str
    region: str
    gpu: str
    gpu_count: int
    memory_gib: float

    @property
    def words(self) -> str:
        """Return what it is, for people."""
        return f"{self.provider} {self.instance_type} in {self.region} ({self.gpu_count} x {self.gpu})"


def machine_of(text: str) -> TraceMachine:
    """Return the machine that `TYPE` or `PROVIDER:TYPE[:REGION]` names; without a region the first that has a rate.

    Raises UnknownName with near matches, InputError where a type is not a whole number of boards or has no rate on demand.
    """
    facts = load_catalog()
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise InputError(
            f"{text!r} is not a machine; write TYPE or PROVIDER:TYPE:REGION, as aws:p4d.24xlarge:us-east-1"
        )
    provider, name = (parts[0], parts[1]) if len(parts) > 1 else (_provider_of(parts[0], facts), parts[0])
    instance = facts.instance_type(provider, name)
    if instance.gpu_frac < 1:
        raise InputError(f"{text!r} holds a part of a board; name a type with whole ones")
    regions = [key[2] for key in facts.prices.keys if key[:2] == (provider, name) and key[3] is BuyingOption.ON_DEMAND]
    region = (
        parts[2]
        if len(parts) == 3
        else next(iter(sorted(regions, key=lambda region: (region != "us-east-1", region))), "")
    )
    if region not in regions:
        raise InputError(
            f"{text!r}: no rate on demand there; it has one in {', '.join(sorted(regions)) or 'no region'}"
        )
    gpu = facts.gpu_of(instance)
    return TraceMachine(
        provider=provider,
        instance_type=name,
        region=region,
        gpu=gpu.name,
        gpu_count=instance.gpu_count,
        memory_gib=gpu.memory_gib,
    )


def _provider_of(name: str, facts: Catalog) -> str:
    owners = [provider for provider, other in facts.instance_table if other == name]
    if not owners:
        raise UnknownName("instance type", name, (other for _, other in facts.instance_table))
    return owners[0]


_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPiece:
    """What a run holds of one node."""

    run: int
    node: int
    gpus: float


def pack(runs: Sequence[tuple[float, float, float]], gpus_per_node: int) -> tuple[list[RunPiece], int]:
    """Place runs `(start_s, end_s, gpus)` and return their pieces and the number of nodes.

    A run goes to the node with the least free GPUs that still hold it; ties go to the lowest number. One larger than a node
    takes whole free nodes, and the rest of it goes as a smaller run would.
    """
    size = gpus_per_node * _MILLI
    free: list[tuple[int, int]] = []
    held: list[tuple[float, list[tuple[int, int]]]] = []
    room: list[int] = []
    pieces: list[RunPiece] = []

    def take(node: int, milli: int) -> None:
        free.pop(bisect_left(free, (room[node], node)))
        room[node] -= milli
        insort(free, (room[node], node))

    def place(milli: int) -> tuple[int, int]:
        at = bisect_left(free, (milli, -1))
        if at == len(free):
            room.append(size)
            insort(free, (size, len(room) - 1))
            at = bisect_left(free, (milli, -1))
        node = free[at][1]
        take(node, milli)
        return node, milli

    for run in sorted(range(len(runs)), key=lambda index: (runs[index][0], index)):
        start_s, end_s, gpus = runs[run]
        while held and held[0][0] <= start_s:
            for node, milli in heapq.heappop(held)[1]:
                take(node, -milli)
        wanted = round(gpus * _MILLI)
        parts = [size] * (wanted // size) + ([wanted % size] if wanted % size else [])
        mine = [place(part) for part in parts]
        pieces += [RunPiece(run=run, node=node, gpus=milli / _MILLI) for node, milli in mine]
        heapq.heappush(held, (end_s, mine))
    return pieces, len(room)


LATEST = datetime(2026, 9, 28, tzinfo=UTC)
"""The Monday before which a trace without dates is assumed to end."""
_MOST_NODES = 20_000
MOST_YEARS = 10
"""A run or a trace that is longer is a mistaken moment."""
_IMPOSSIBLE = f"runs of more than {MOST_YEARS} years or {_MOST_NODES:,} GPUs, left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRun:
    """A run in seconds from the start of its trace; `start_s` is None where it never started, `end_s` while it runs."""

    name: str
    workload: str
    team: str
    owner_kind: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    gpus: float
    state: str = "completed"

    @property
    def is_job(self) -> bool:
        """Return whether it runs to an end, so that it is a row of `jobs`."""
        return self.owner_kind == "Job"


def fleet_of(
    runs: Sequence[TraceRun],
    machine: TraceMachine,
    length_s: float,
    *,
    source: str,
    notes: Sequence[str],
    counts: Mapping[str, int],
    start: datetime | None = None,
) -> Collected:
    """Return the tables of runs over `[0, length_s)`. Raises InputError if none held a GPU within it."""
    if not 0 < length_s <= MOST_YEARS * HR_PER_YEAR * S_PER_HR:
        raise InputError(
            f"{source}: spans {length_s:g} s; a trace spans up to {MOST_YEARS} years: correct its timestamps"
        )
    hours = math.ceil(length_s / S_PER_HR)
    start = start or start_of(length_s)
    given = len(runs)
    runs = [run for run in runs if _is_possible(run)]
    counts = {**counts, _IMPOSSIBLE: given - len(runs)}
    held = [run for run in runs if run.start_s is not None and _within(run, length_s)]
    if not held:
        raise InputError(f"{source}: no run held a GPU within {hours} hours; is it the file that was meant?")
    spans = [(run.start_s or 0.0, length_s if run.end_s is None else run.end_s, run.gpus) for run in held]
    pieces, count = pack(spans, machine.gpu_count)
    if count > _MOST_NODES:
        raise InputError(
            f"{source}: {count} nodes of {machine.words} would be needed; is the GPU column in whole GPUs?"
        )
    allocations: list[Row] = [_allocation(held[piece.run], piece.node, piece.gpus, start) for piece in pieces]
    tables: dict[str, list[Row]] = {
        "devices": [],
        "nodes": _nodes(spans, pieces, machine, start, length_s),
        "allocations": allocations,
        "gpu_usage": [],
        "jobs": [_job(run, start) for run in runs if run.is_job],
    }
    if not tables["jobs"]:
        del tables["jobs"]
    laid = f"assumed: {count} nodes of {machine.words}, each up from the first run that it held to the last"
    meta = BundleMeta(
        start=start,
        end=start + timedelta(hours=hours),
        sources=(source,),
        notes=(laid, *notes, "no readings of GPU activity: only who held what and what it cost can be judged"),
        counts={reason: number for reason, number in counts.items() if number},
    )
    return Collected(tables={name: table_from_rows(name, rows) for name, rows in tables.items()}, meta=meta)


def _is_possible(run: TraceRun) -> bool:
    """Return whether its moments and GPUs are numbers that a cluster can have."""
    most_s = MOST_YEARS * HR_PER_YEAR * S_PER_HR
    times = [time_s for time_s in (run.submit_s, run.start_s, run.end_s) if time_s is not None]
    return all(abs(time_s) <= most_s for time_s in times) and 0 <= run.gpus <= _MOST_NODES


def start_of(length_s: float) -> datetime:
    """Return the Monday on which a trace without dates is assumed to begin: whole weeks before `LATEST`, as few as hold it."""
    return LATEST - timedelta(weeks=max(math.ceil(length_s / (S_PER_DAY * DAYS_PER_WEEK)), 1))


def _nodes(
    spans: Sequence[tuple[float, float, float]],
    pieces: Sequence[RunPiece],
    machine: TraceMachine,
    start: datetime,
    length_s: float,
) -> list[Row]:
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for piece in pieces:
        start_s, end_s, _ = spans[piece.run]
        first[piece.node] = min(first.get(piece.node, start_s), start_s)
        last[piece.node] = max(last.get(piece.node, end_s), end_s)
    return [
        node_row(node, machine, start + timedelta(seconds=math.floor(first[node])))
        | {"end": None if last[node] >= length_s else at(start, math.ceil(last[node]))}
        for node in sorted(first)
    ]


def _within(run: TraceRun, length_s: float) -> bool:
    start_s, end_s = run.start_s or 0.0, math.inf if run.end_s is None else run.end_s
    return start_s < length_s and end_s > max(start_s, 0.0) and run.gpus > 0


def node_name(index: int) -> str:
    """Return the name of a node that is laid under a trace."""
    return f"node-{index:05d}"


def node_row(index: int, machine: TraceMachine, start: datetime) -> Row:
    """Return the row of a node that is up from the start on."""
    return {
        "node": node_name(index),
        "provider": machine.provider,
        "instance_type": machine.instance_type,
        "region": machine.region,
        "capacity_type": "on-demand",
        "start": start,
        "gpu": machine.gpu,
        "gpu_count": machine.gpu_count,
    }


def at(start: datetime, offset_s: float | None) -> datetime | None:
    """Return the moment so many seconds after the start, or None."""
    return None if offset_s is None else start + timedelta(seconds=round(offset_s))


def _allocation(run: TraceRun, node: int, gpus: float, start: datetime) -> Row:
    return {
        "workload": run.workload,
        "namespace": run.workload.partition("/")[0],
        "owner_kind": run.owner_kind,
        "team": run.team,
        "pod": run.name,
        "node": node_name(node),
        "gpus": gpus,
        "start": at(start, run.start_s),
        "end": at(start, run.end_s),
    }


def _job(run: TraceRun, start: datetime) -> Row:
    return {
        "job": run.name,
        "workload": run.workload,
        "submit": at(start, run.submit_s),
        "start": at(start, run.start_s),
        "end": at(start, run.end_s),
        "gpus": run.gpus,
        "state": run.state,
    }

"""A fleet bundle's tables from dumps of Slurm: runs and their waits, who held which GPUs, and the nodes one owns.

Accounting tells who held how many GPUs of which nodes, not which boards and not what they did: devices and readings are not
there. A requeued job has a record for each run (sacct -D); a step repeats what its job holds and is left out; a waiting array
is one record for all its tasks. A line that cannot be understood is named and left out, never guessed. A node is taken as up
for the whole window, because owned hardware costs whether it is up or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import assert_never
from zoneinfo import ZoneInfo

from trimtab.catalog import CapacityType, Catalog, load_catalog
from trimtab.errors import Fault, InputError, UnknownName, near_matches
from trimtab.sources.collected import Collected
from trimtab.sources.kubernetes.objects import at, listed, number, text
from trimtab.sources.kubernetes.owners import name_of_family
from trimtab.sources.slurm.dumps import (
    NODES,
    SACCT,
    Account,
    Dump,
    Gpus,
    cells,
    gres_gpus,
    hosts,
    kind_of,
    moment_of,
    moment_of_seconds,
    parsed_json,
    read_text,
    tres_gpus,
)
from trimtab.tables.arrow import Row, table_from_rows
from trimtab.tables.bundle import BundleMeta

STATES = {
    "PENDING": "queued", "CONFIGURING": "running", "RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running",
    "STAGE_OUT": "running", "SIGNALING": "running", "STOPPED": "running", "RESIZING": "running",
    "COMPLETED": "completed", "FAILED": "failed", "OUT_OF_MEMORY": "failed", "BOOT_FAIL": "failed", "LAUNCH_FAILED": "failed",
    "CANCELLED": "cancelled", "REVOKED": "cancelled", "TIMEOUT": "timeout", "DEADLINE": "timeout",
    "PREEMPTED": "preempted", "REQUEUED": "requeued", "REQUEUE_HOLD": "queued", "REQUEUE_FED": "queued",
    "SPECIAL_EXIT": "queued", "RESV_DEL_HOLD": "queued", "NODE_FAIL": "node_fail",
}  # fmt: skip
"""State as sacct writes it -> state in the `jobs` table (slurm.schedmd.com/sacct.html, JOB STATE CODES)."""
_NEEDED = ("STATE", "SUBMIT", "START", "END")
_TASKS = re.compile(r"_\[(?P<tasks>[^\]]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlurmJob:
    """One run of a job."""

    job: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    submit: datetime
    start: datetime | None
    end: datetime | None
    gpus: Gpus
    nodes: tuple[str, ...]


def jobs_of_text(path: Path, content: str, zone: ZoneInfo, account: Account) -> Iterator[SlurmJob]:
    """Read `sacct --parsable2`. Raises InputError if columns that are needed are not there."""
    lines = [line.rstrip("\r") for line in content.split("\n")]
    first = next(index for index, line in enumerate(lines) if line.strip())
    header = [name.strip().upper() for name in lines[first].split("|")]
    header = header[:-1] if header[-1] == "" else header
    missing = [name for name in _NEEDED if name not in header]
    if not {"ALLOCTRES", "ALLOCGRES", "REQTRES"} & set(header):
        missing.append("ALLOCTRES")
    if missing:
        raise InputError(f"{path} line {first + 1}: no column {', '.join(missing)}; write it with:\n  {SACCT}")
    for index in range(first + 1, len(lines)):
        if lines[index].strip():
            account.read += 1
            job = _of_line(lines[index], header, f"{path.name} line {index + 1}", zone, account)
            if job is not None:
                yield job


def _of_line(line: str, header: list[str], where: str, zone: ZoneInfo, account: Account) -> SlurmJob | None:
    row = cells(line, header)
    if row is None:
        seen = line if len(line) < 80 else line[:77] + "..."
        cure = "a line break or a | within a cell? write it without Comment and AdminComment"
        account.bad(Fault(what="not as many cells as columns", where=where, value=seen, cure=cure))
        return None
    job = row.get("JOBID") or row.get("JOBIDRAW", "")
    if "." in job:
        account.ignore("steps, whose job holds the same GPUs")
        return None
    try:
        times = {name: moment_of(row[name.upper()], zone) for name in ("submit", "start", "end")}
        nodes = hosts(row.get("NODELIST", ""))
    except ValueError as error:
        account.bad(Fault(what="a moment or a host list is none", where=where, value=str(error), cure="write it again"))
        return None
    held = row.get("ALLOCTRES") or row.get("ALLOCGRES") or ""
    return checked(
        job,
        row["STATE"],
        where,
        account,
        name=row.get("JOBNAME", ""),
        user=row.get("USER", ""),
        group=row.get("ACCOUNT", ""),
        partition=row.get("PARTITION", ""),
        times=times,
        gpus=tres_gpus(held) if "gres/" in held else tres_gpus(row.get("REQTRES", "")),
        nodes=nodes,
    )


def checked(
    job: str,
    state: str,
    where: str,
    account: Account,
    *,
    name: str,
    user: str,
    group: str,
    partition: str,
    times: Mapping[str, datetime | None],
    gpus: Gpus,
    nodes: tuple[str, ...],
) -> SlurmJob | None:
    """Return the run that a record tells, or None and the reason in the account."""
    word = state.split()[0].split("+")[0].upper() if state.split() else ""
    submit, start, end = times["submit"], times["start"], times["end"]
    if not job or word not in STATES:
        what = "an unknown state" if job else "no JobID"
        near = near_matches(word, STATES)
        cure = (
            f"did you mean {near[0]}?" if near else "write it with -o State, in English (JOB STATE CODES of man sacct)"
        )
        account.bad(Fault(what=what, where=where, value=state, cure=cure))
        return None
    if submit is None or (start is not None and end is not None and end < start):
        what = "no moment of submission" if submit is None else "it ends before it starts"
        account.bad(Fault(what=what, where=where, value=f"{start} .. {end}", cure="check the clock and --timezone"))
        return None
    if not (gpus.boards or gpus.shards or gpus.mps):
        account.ignore("jobs without GPUs")
        return None
    if STATES[word] == "queued":
        start = end = None
    if start is None and end is not None:
        account.ignore("jobs that ended while they waited")
        return None
    account.kept += 1
    return SlurmJob(
        job=job, name=name or "job", user=user, account=group, partition=partition, state=STATES[word],
        submit=min(submit, start or submit), start=start, end=end, gpus=_of_tasks(job, gpus), nodes=nodes,
    )  # fmt: skip


def _of_tasks(job: str, gpus: Gpus) -> Gpus:
    """Multiply what a waiting array asks for by its tasks: `77_[0-9%4]` is ten of them."""
    found = _TASKS.search(job)
    if found is None:
        return gpus
    try:
        tasks = len(hosts("t[" + re.sub(r"%\d+|\.\.\.$|:\d+", "", found["tasks"]) + "]"))
    except ValueError:
        tasks = 1
    return replace(gpus, boards=gpus.boards * tasks, shards=gpus.shards * tasks, mps=gpus.mps * tasks)


def jobs_of_json(path: Path, content: str, account: Account) -> Iterator[SlurmJob]:
    """Read `sacct --json`; its moments are seconds since 1970, so no zone is needed."""
    for index, record in enumerate(listed(parsed_json(path, content), "jobs")):
        account.read += 1
        job = _of_record(record, f"{path.name} jobs[{index}]", account)
        if job is not None:
            yield job


def _of_record(record: Mapping[str, object], where: str, account: Account) -> SlurmJob | None:
    try:
        times = {
            name: moment_of_seconds(seconds(record, "time", key))
            for name, key in (("submit", "submission"), ("start", "start"), ("end", "end"))
        }
        nodes = hosts(text(record, "nodes"))
    except ValueError as error:
        account.bad(Fault(what="a moment or a host list is none", where=where, value=str(error), cure="write it again"))
        return None
    held = _tres(record, "allocated")
    return checked(
        _job_id(record),
        _state(record),
        where,
        account,
        name=text(record, "name"),
        user=text(record, "user") or text(record, "association", "user"),
        group=text(record, "account"),
        partition=text(record, "partition"),
        times=times,
        gpus=tres_gpus(held) if "gres/" in held else tres_gpus(_tres(record, "requested")),
        nodes=nodes,
    )


def seconds(record: object, *path: str) -> float:
    """Return a number that Slurm writes plainly or as {"set": true, "number": n}; 0 if it is not set."""
    plain = number(record, *path)
    if plain is not None:
        return plain
    return (number(record, *path, "number") or 0.0) if at(record, *path, "set") is not False else 0.0


def _job_id(record: Mapping[str, object]) -> str:
    array, task = seconds(record, "array", "job_id"), at(record, "array", "task_id")
    numbered = number(task) if not isinstance(task, Mapping) else number(task, "number")
    unset = isinstance(task, Mapping) and task.get("set") is False
    if array and numbered is not None and not unset:
        return f"{array:.0f}_{numbered:.0f}"
    waiting = text(record, "array", "task")
    if array and waiting:
        return f"{array:.0f}_[{waiting}]"
    plain = number(record, "job_id")
    return "" if plain is None else f"{plain:.0f}"


def _state(record: Mapping[str, object]) -> str:
    found = at(record, "state", "current")
    found = at(record, "state") if found is None else found
    if isinstance(found, list):
        found = found[0] if found else ""
    return found if isinstance(found, str) else ""


def _tres(record: Mapping[str, object], which: str) -> str:
    """Return a JSON record's TRES as sacct writes them in text."""
    parts = []
    for item in listed(record, "tres", which):
        kind, name, count = text(item, "type"), text(item, "name"), number(item, "count")
        if kind == "gres" and count is not None and count >= 0:
            parts.append(f"gres/{name}={count:.0f}")
    return ",".join(parts)


PROVIDER, REGION = "owned", "on-prem"
MOST_WORKLOADS = 200
"""Distinct names of jobs that stay workloads of their own, the largest; the others are their account's `other`."""
_MOST_BAD_FRAC = 0.5
NO_READINGS = (
    "accounting has no readings of GPU activity: who held what and what it cost can be judged, not how busy it was"
)


@dataclass(slots=True, kw_only=True)
class SlurmDump:
    """What some dumps of Slurm hold."""

    jobs: list[SlurmJob] = field(default_factory=list)
    nodes: dict[str, SlurmNode] = field(default_factory=dict)
    jobs_account: Account = field(default_factory=Account)
    nodes_account: Account = field(default_factory=Account)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Return the first and the last moment that any job tells."""
        times = [time for job in self.jobs for time in (job.submit, job.start, job.end) if time is not None]
        return min(times), max(times)


def read_slurm(paths: Iterable[Path], zone: ZoneInfo) -> SlurmDump:
    """Read dumps of jobs and nodes, in any order; `zone` is that of the cluster's clock, for moments that state none.

    Raises InputError if a file is none of Slurm's, most lines cannot be understood, or no job holds a GPU.
    """
    dump = SlurmDump()
    nodes: list[SlurmNode] = []
    for path in paths:
        content = read_text(path)
        match kind_of(path, content):
            case Dump.SACCT_TEXT:
                dump.jobs += jobs_of_text(path, content, zone, dump.jobs_account)
            case Dump.SACCT_JSON:
                dump.jobs += jobs_of_json(path, content, dump.jobs_account)
            case Dump.NODES_TEXT:
                nodes += nodes_of_text(path, content, dump.nodes_account)
            case Dump.SINFO_TEXT:
                nodes += nodes_of_sinfo(path, content, dump.nodes_account)
            case Dump.NODES_JSON | Dump.SINFO_JSON:
                nodes += nodes_of_json(path, content, dump.nodes_account)
            case other:
                assert_never(other)
    dump.nodes = merged(nodes)
    _refuse_rubbish(dump)
    dump.jobs = _distinct(dump.jobs, dump.jobs_account)
    return dump


def _refuse_rubbish(dump: SlurmDump) -> None:
    for account in (dump.jobs_account, dump.nodes_account):
        bad = sum(number for reason, number in account.ignored.items() if reason.startswith("bad lines"))
        if bad > _MOST_BAD_FRAC * max(account.read, 1):
            raise InputError(f"{bad} of {account.read} lines cannot be understood:\n{_named(account.faults)}")
    if not dump.jobs:
        why = (
            "; ".join(f"{number} x {reason}" for reason, number in dump.jobs_account.ignored.items())
            or "no jobs at all"
        )
        raise InputError(f"no job of these dumps held a GPU ({why}); write jobs with:\n  {SACCT}")


def _named(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  - {fault}" for fault in faults)


def _distinct(jobs: Sequence[SlurmJob], account: Account) -> list[SlurmJob]:
    """Drop records that came twice; of two states of one run the later stands (a dump that overlaps an older one)."""
    by_run: dict[tuple[str, datetime | None, datetime], SlurmJob] = {}
    for job in jobs:
        run = (job.job, job.start, job.submit)
        before = by_run.get(run)
        if before is not None:
            account.kept -= 1
            account.ignore("records that came twice")
        if before is None or before.end is None:
            by_run[run] = job
    return sorted(by_run.values(), key=lambda job: (job.submit, job.job, job.start or job.submit))


def collect_slurm(
    dump: SlurmDump,
    start: datetime,
    end: datetime,
    *,
    gpu_names: Mapping[str, str],
    source: str,
    catalog: Catalog | None = None,
) -> Collected:
    """Return the tables over `[start, end)`; `gpu_names` says which board a GRES type means (`a100` alone leaves it open)."""
    facts = catalog or load_catalog()
    counts = _counts(dump)
    within = [job for job in dump.jobs if job.submit < end and (job.end is None or job.end > start)]
    counts["jobs outside the window"] = len(dump.jobs) - len(within)
    nodes = dump.nodes or _nodes_of_jobs(within)
    names = workload_names(within, counts)
    for node in nodes.values():
        if facts_gpu(node.gpus.kind, gpu_names, facts) is None:
            kind = node.gpus.kind or "(no type)"
            reason = f"nodes whose GPU type {kind} names no one board; say which with --gpu {kind}=A100-SXM4-80GB"
            counts[reason] = counts.get(reason, 0) + 1
    tables: dict[str, list[Row]] = {
        "devices": [],
        "nodes": [_node_row(node, start, gpu_names, facts) for node in nodes.values()],
        "allocations": [row for job in within for row in _allocations(job, names[job], nodes, end, counts)],
        "gpu_usage": [],
        "jobs": _job_rows(within, names, nodes),
        "queues": _queue_rows(nodes, within),
    }
    meta = BundleMeta(
        start=start,
        end=end,
        sources=(source,),
        notes=tuple(_notes(dump)),
        counts={reason: number for reason, number in sorted(counts.items()) if number},
    )
    return Collected(tables={name: table_from_rows(name, rows) for name, rows in tables.items()}, meta=meta)


def _notes(dump: SlurmDump) -> list[str]:
    notes = [NO_READINGS]
    for what, account in (("jobs", dump.jobs_account), ("nodes", dump.nodes_account)):
        if account.read:
            left_out = account.read - account.kept
            notes.append(f"{what}: {account.kept} of {account.read} lines kept, {left_out} left out with a reason")
    if not dump.nodes:
        notes.append(
            f"no dump of nodes: only nodes and GPUs that jobs held are seen, none that stood idle; add: {NODES}"
        )
    return [*notes, *(str(fault) for fault in (*dump.jobs_account.faults[:5], *dump.nodes_account.faults[:5]))]


def _counts(dump: SlurmDump) -> dict[str, int]:
    return {
        f"{what}: {reason}": number
        for what, account in (("Slurm jobs", dump.jobs_account), ("Slurm nodes", dump.nodes_account))
        for reason, number in (*account.ignored.items(), *account.notes.items())
    }


def facts_gpu(kind: str, gpu_names: Mapping[str, str], catalog: Catalog) -> str | None:
    """Return the catalog's name of a GRES type: as the user says, else as the catalog knows it; None if it is open."""
    try:
        return catalog.gpu(gpu_names.get(kind, kind)).name if gpu_names.get(kind, kind) else None
    except UnknownName:
        return None


def instance_type_of(node: SlurmNode, gpu: str | None) -> str:
    """Return what an owned node is called in the price file: `8x-A100-SXM4-80GB`."""
    return f"{max(round(node.gpus.boards), 1)}x-{gpu or node.gpus.kind or 'gpu'}"


def _node_row(node: SlurmNode, start: datetime, gpu_names: Mapping[str, str], catalog: Catalog) -> Row:
    gpu = facts_gpu(node.gpus.kind, gpu_names, catalog)
    return {
        "node": node.name,
        "provider": PROVIDER,
        "instance_type": instance_type_of(node, gpu),
        "region": REGION,
        "capacity_type": CapacityType.OWNED.value,
        "start": start,
        "gpu": gpu or node.gpus.kind or None,
        "gpu_count": max(round(node.gpus.boards), 1),
        "labels": {"slurm/partitions": node.partitions, "slurm/state": node.state},
        "taints": {},
    }


def _nodes_of_jobs(jobs: Sequence[SlurmJob]) -> dict[str, SlurmNode]:
    """Return the nodes that jobs name, each with the most GPUs that jobs held on it at once."""
    changes: dict[str, list[tuple[datetime, int, float]]] = {}
    kinds: dict[str, str] = {}
    for job in jobs:
        if job.start is None or not job.nodes:
            continue
        each = max(job.gpus.boards, 1.0) / len(job.nodes)
        for node in job.nodes:
            changes.setdefault(node, []).append((job.start, 1, each))
            kinds[node] = job.gpus.kind or kinds.get(node, "")
            if job.end is not None:
                changes[node].append((job.end, 0, -each))
    found = {}
    for node, events in sorted(changes.items()):
        most = now = 0.0
        for _, _, gpus in sorted(events):
            now += gpus
            most = max(most, now)
        count = float(max(-int(-most // 1), 1))
        by_type = {kinds[node]: count} if kinds[node] else {}
        found[node] = SlurmNode(name=node, gpus=Gpus(boards=count, by_type=by_type), state="", partitions="")
    return found


def workload_names(jobs: Sequence[SlurmJob], counts: dict[str, int]) -> dict[SlurmJob, str]:
    """Return each job's workload: account/user-name without its number; beyond the 200 largest, account/other."""
    names = {job: _workload(job) for job in jobs}
    size: dict[str, float] = {}
    for job, name in names.items():
        ran_s = (job.end - job.start).total_seconds() if job.start and job.end else 0.0
        size[name] = size.get(name, 0.0) + job.gpus.boards * ran_s
    kept = set(sorted(size, key=lambda name: (-size[name], name))[:MOST_WORKLOADS])
    small = {name for name in size if name not in kept}
    counts["names of jobs beyond the 200 largest, taken together as their account's other"] = len(small)
    return {job: name if name in kept else f"{name.partition('/')[0]}/other" for job, name in names.items()}


def _workload(job: SlurmJob) -> str:
    family = name_of_family(job.name.strip().partition(" ")[0]) or "job"
    user = f"{job.user}-" if job.user else ""
    return f"{_plain(job.account) or 'slurm'}/{_plain(user + family)}"


def _plain(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name.strip())


def _allocations(
    job: SlurmJob, workload: str, nodes: Mapping[str, SlurmNode], end: datetime, counts: dict[str, int]
) -> list[Row]:
    """Return what a run held, split evenly over its nodes that are known."""
    if job.start is None or job.start >= end or (job.end is not None and job.end <= job.start):
        return []
    if not job.nodes:
        counts["runs without a list of nodes"] = counts.get("runs without a list of nodes", 0) + 1
        return []
    known = [nodes[name] for name in job.nodes if name in nodes]
    missing = len(job.nodes) - len(known)
    counts["nodes of runs that the dump of nodes does not hold"] = (
        counts.get("nodes of runs that the dump of nodes does not hold", 0) + missing
    )
    return [
        {
            "workload": workload,
            "namespace": job.partition or None,
            "owner_kind": "slurm",
            "team": job.account or None,
            "pod": job.job,
            "node": node.name,
            "gpus": job.gpus.held(node.shards_per_gpu) / len(job.nodes),
            "start": job.start,
            "end": job.end,
        }
        for node in known
    ]


def _job_rows(jobs: Sequence[SlurmJob], names: Mapping[SlurmJob, str], nodes: Mapping[str, SlurmNode]) -> list[Row]:
    """Return a row for each run; the second run of a job on is `ID.r1`, `ID.r2` ..."""
    runs: dict[str, int] = {}
    rows: list[Row] = []
    for job in jobs:
        earlier = runs.get(job.job, 0)
        runs[job.job] = earlier + 1
        first = next((nodes[name] for name in job.nodes if name in nodes), None)
        rows.append(
            {
                "job": f"{job.job}.r{earlier}" if earlier else job.job,
                "workload": names[job],
                "submit": job.submit,
                "start": job.start,
                "end": job.end,
                "gpus": job.gpus.held(first.shards_per_gpu if first else 0.0),
                "state": job.state,
                "node": ",".join(job.nodes) or None,
                "queue": job.partition or None,
            }
        )
    return rows


def _queue_rows(nodes: Mapping[str, SlurmNode], jobs: Sequence[SlurmJob]) -> list[Row]:
    partitions = {name for node in nodes.values() for name in node.partitions.split(",") if name}
    partitions |= {job.partition for job in jobs if job.partition}
    return [
        {
            "kind": "Partition",
            "name": name,
            "resource": "gres/gpu",
            "quota_gpus": sum(node.gpus.boards for node in nodes.values() if name in node.partitions.split(","))
            or None,
            "pending": sum(job.partition == name and job.start is None for job in jobs),
            "admitted": sum(job.partition == name and job.state == "running" for job in jobs),
        }
        for name in sorted(partitions)
    ]


_PAIR = re.compile(r"(?:^|\s)(?P<key>NodeName|Gres|State|Partitions)=(?P<value>\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node: its GPUs, its state when it was read, its partitions."""

    name: str
    gpus: Gpus
    state: str
    partitions: str

    @property
    def shards_per_gpu(self) -> float:
        """Return how many shards it makes of a board; 0 if it makes none."""
        return self.gpus.shards / self.gpus.boards if self.gpus.boards else 0.0


def nodes_of_text(path: Path, content: str, account: Account) -> Iterator[SlurmNode]:
    """Read `scontrol show node`, one block or (-o) one line per node."""
    for index, block in enumerate(re.split(r"(?m)^(?=NodeName=)", content)):
        if not block.strip():
            continue
        account.read += 1
        pairs = {found["key"]: found["value"] for found in _PAIR.finditer(block)}
        if not pairs.get("NodeName"):
            account.bad(Fault(what="no NodeName", where=f"{path.name} block {index}", value=block.strip()[:60]))
            continue
        gpus = gres_gpus(pairs.get("Gres", ""))
        yield from _all((pairs["NodeName"],), gpus, pairs.get("State", ""), pairs.get("Partitions", ""), account)


def nodes_of_sinfo(path: Path, content: str, account: Account) -> Iterator[SlurmNode]:
    """Read `sinfo -N -o "%N|%G|%T|%P"`: a header with NODELIST and GRES, cells apart by | or spaces."""
    lines = [line for line in content.splitlines() if line.strip()]
    separator = "|" if "|" in lines[0] else None
    header = [name.strip().upper() for name in lines[0].split(separator)]
    for index, line in enumerate(lines[1:], start=2):
        account.read += 1
        values = [value.strip() for value in line.split(separator)]
        row = dict(zip(header, values, strict=False))
        where = f"{path.name} line {index}"
        try:
            names = hosts(row.get("NODELIST") or row.get("HOSTNAMES") or "")
        except ValueError as error:
            account.bad(Fault(what="a host list is none", where=where, value=str(error)))
            continue
        if len(values) != len(header) or not names:
            account.bad(
                Fault(what="not as many cells as columns", where=where, value=line[:60], cure="write it with |")
            )
            continue
        yield from _all(names, gres_gpus(row["GRES"]), row.get("STATE", ""), row.get("PARTITION", ""), account)


def nodes_of_json(path: Path, content: str, account: Account) -> Iterator[SlurmNode]:
    """Read `scontrol show node --json`, or the groups of nodes of `sinfo --json`."""
    parsed = parsed_json(path, content)
    for index, node in enumerate([*listed(parsed, "nodes"), *listed(parsed, "sinfo")]):
        account.read += 1
        names = at(node, "nodes", "nodes")
        gres = text(node, "gres") or text(node, "gres", "total")
        state = at(node, "state") or at(node, "node", "state")
        words = "+".join(str(word) for word in state) if isinstance(state, list) else str(state or "")
        partitions = at(node, "partitions")
        within = ",".join(map(str, partitions)) if isinstance(partitions, list) else text(node, "partition", "name")
        plain = (text(node, "name") or text(node, "hostname"),)
        listed_names = tuple(str(name) for name in names) if isinstance(names, list) else plain
        if not any(listed_names):
            account.bad(Fault(what="no name of a node", where=f"{path.name} record {index}"))
            continue
        yield from _all(listed_names, gres_gpus(gres), words, within, account)


def _all(names: tuple[str, ...], gpus: Gpus, state: str, partitions: str, account: Account) -> Iterator[SlurmNode]:
    """Keep one line's nodes; it counts once however many it names."""
    if not gpus.boards:
        account.ignore("nodes without GPUs")
        return
    account.kept += 1
    for name in names:
        yield SlurmNode(name=name, gpus=gpus, state=state, partitions=partitions.rstrip("*"))


def merged(nodes: Iterable[SlurmNode]) -> dict[str, SlurmNode]:
    """Return nodes by name; one that is in several partitions is one."""
    found: dict[str, SlurmNode] = {}
    for node in nodes:
        before = found.get(node.name)
        if before is None or before.gpus.boards < node.gpus.boards:
            found[node.name] = node
    return found

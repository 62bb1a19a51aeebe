"""Jobs of Slurm's accounting: `sacct --parsable2` and `sacct --json`, one record a run.

A requeued job has a record for each run (sacct -D); a step repeats what its job holds and is left out; a waiting array is one
record for all its tasks. A line that cannot be understood is named and left out, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from trimtab.errors import Fault, InputError, near_matches
from trimtab.sources.kubernetes.objects import at, listed, number, text
from trimtab.sources.slurm.dumps import (
    SACCT,
    Account,
    Gpus,
    cells,
    hosts,
    moment_of,
    moment_of_seconds,
    parsed_json,
    tres_gpus,
)

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

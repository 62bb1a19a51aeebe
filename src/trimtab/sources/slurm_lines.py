"""Slurm's dumps as files: which of its tools wrote one, its lines and cells, its moments, and the account of every line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.errors import Fault, InputError, UsageError
from trimtab.inputs import files
from trimtab.inputs.json_text import load_json
from trimtab.units import as_utc

SACCT = (
    "sacct -a -X -P -D -S now-30days -o "
    "JobID,JobName,User,Account,Partition,QOS,State,Submit,Start,End,AllocTRES,ReqTRES,NodeList > jobs.txt"
)
NODES = "scontrol show node -o > nodes.txt"
_ABSENT = frozenset({"", "unknown", "none", "n/a", "(null)", "invalid"})
_MOST_NAMED = 20


class Dump(Enum):
    """Which tool wrote a file."""

    SACCT_TEXT = "sacct --parsable2"
    SACCT_JSON = "sacct --json"
    NODES_TEXT = "scontrol show node"
    NODES_JSON = "scontrol show node --json"
    SINFO_TEXT = "sinfo -N -o"
    SINFO_JSON = "sinfo --json"


@dataclass(slots=True, kw_only=True)
class Account:
    """Every line or record that was read: kept, or left out with a reason; the first bad ones are named."""

    read: int = 0
    kept: int = 0
    ignored: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    """What had to be assumed about lines that were kept -> how many."""

    def ignore(self, reason: str) -> None:
        """Leave a line out."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def bad(self, fault: Fault) -> None:
        """Leave a line out because it cannot be understood."""
        self.ignore(f"bad lines: {fault.what}")
        if len(self.faults) < _MOST_NAMED:
            self.faults.append(fault)

    def note(self, reason: str, number: int = 1) -> None:
        """Count an assumption."""
        self.notes[reason] = self.notes.get(reason, 0) + number


def read_text(path: Path) -> str:
    """Read a dump; raises InputError where it cannot be read or is empty."""
    content = files.read_text(path, errors="replace")
    if not content.strip():
        raise InputError(f"{path}: the file is empty; write it again with: {SACCT}")
    return content


def kind_of(path: Path, content: str) -> Dump:
    """Tell which tool wrote a dump, by its first line; raises InputError with the commands that write one."""
    first = content.lstrip().splitlines()[0]
    if first.startswith("{"):
        return _kind_of_json(path, content)
    if first.startswith("NodeName="):
        return Dump.NODES_TEXT
    words = {word.strip().upper() for word in (first.split("|") if "|" in first else first.split())}
    if "|" in first and words & {"JOBID", "JOBIDRAW"}:
        return Dump.SACCT_TEXT
    if words & {"NODELIST", "HOSTNAMES"} and "GRES" in words:
        return Dump.SINFO_TEXT
    raise InputError(
        f"{path} line 1: no dump of Slurm that is known (saw {first[:60]!r}); "
        f"write jobs with\n  {SACCT}\nand nodes with\n  {NODES}"
    )


def _kind_of_json(path: Path, content: str) -> Dump:
    parsed = parsed_json(path, content)
    kinds = {"jobs": Dump.SACCT_JSON, "nodes": Dump.NODES_JSON, "sinfo": Dump.SINFO_JSON}
    for key, kind in kinds.items():
        if isinstance(parsed.get(key), list):
            return kind
    raise InputError(f"{path}: JSON without a list of jobs, nodes or sinfo; write it with: sacct --json, or {NODES}")


def parsed_json(path: Path, content: str) -> Mapping[str, object]:
    """Return a JSON object; raises InputError."""
    parsed = load_json(content, str(path))
    if not isinstance(parsed, dict):
        raise InputError(f"{path}: JSON, but no object; write it with: sacct --json")
    return parsed


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone; raises UsageError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"--timezone {name!r} is no time zone; write one such as UTC or Europe/Berlin") from error


def moment_of(text: str, zone: ZoneInfo) -> datetime | None:
    """Return a moment that Slurm wrote (its own zone's wall clock, or seconds since 1970); None where there is none.

    Raises ValueError where the text is no moment.
    """
    plain = text.strip()
    if plain.casefold() in _ABSENT:
        return None
    if plain.isdigit():
        return moment_of_seconds(int(plain))
    return as_utc(datetime.fromisoformat(plain), zone)


def moment_of_seconds(seconds: float) -> datetime | None:
    """Return seconds since 1970 as a moment; None for 0, which means that there is none. Raises ValueError."""
    if seconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{seconds} is no moment") from error


def cells(line: str, header: Sequence[str]) -> dict[str, str] | None:
    """Return a line's cells by column; None where there are too few. A separator within a job's name is put back."""
    values = line.split("|")
    over = len(values) - len(header)
    if over > 0 and values[-1] == "":
        values, over = values[:-1], over - 1
    if over > 0 and "JOBNAME" in header:
        at = header.index("JOBNAME")
        values[at : at + over + 1] = ["|".join(values[at : at + over + 1])]
        over = 0
    return dict(zip(header, values, strict=True)) if over == 0 else None

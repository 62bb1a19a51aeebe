"""Slurm's dumps as files: which of its tools wrote one, its lines and moments, its spellings of GPUs and hosts.

Sources: slurm.schedmd.com/tres.html, gres.html (shards and MPS), sacct.html and scontrol.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.errors import Fault, InputError, UsageError
from trimtab.inputs import files
from trimtab.inputs.documents import load_json
from trimtab.sources.kubernetes.holds import mig_share
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
    """Read a dump. Raises InputError if it cannot be read or is empty."""
    content = files.read_text(path, errors="replace")
    if not content.strip():
        raise InputError(f"{path}: the file is empty; write it again with: {SACCT}")
    return content


def kind_of(path: Path, content: str) -> Dump:
    """Tell which tool wrote a dump, by its first line. Raises InputError with the commands that write one."""
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
    """Return a JSON object. Raises InputError."""
    parsed = load_json(content, str(path))
    if not isinstance(parsed, dict):
        raise InputError(f"{path}: JSON, but no object; write it with: sacct --json")
    return parsed


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone. Raises UsageError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"--timezone {name!r} is not a time zone; write one such as UTC or Europe/Berlin") from error


def moment_of(text: str, zone: ZoneInfo) -> datetime | None:
    """Return a moment that Slurm wrote (its own zone's wall clock, or seconds since 1970); None if there is none.

    Raises ValueError if the text is not a moment.
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
    """Return a line's cells by column; None if there are too few. A separator within a job's name is put back."""
    values = line.split("|")
    over = len(values) - len(header)
    if over > 0 and values[-1] == "":
        values, over = values[:-1], over - 1
    if over > 0 and "JOBNAME" in header:
        at = header.index("JOBNAME")
        values[at : at + over + 1] = ["|".join(values[at : at + over + 1])]
        over = 0
    return dict(zip(header, values, strict=True)) if over == 0 else None


_TRES = re.compile(r"gres/(?P<kind>gpu|shard|mps)(:(?P<type>[^=,]+))?=(?P<count>\d{1,6}(\.\d+)?)(?=,|$)")
_GRES_KINDS = frozenset({"gpu", "shard", "mps"})
_PROFILE = re.compile(r"\d+g\.\d+gb")
_RANGE = re.compile(r"^(?P<first>[0-9]{1,12})(-(?P<last>[0-9]{1,12}))?$")
MPS_PER_GPU = 100
"""Pieces of one board under gres/mps, unless a site counts them otherwise (slurm.schedmd.com/gres.html)."""
MOST_HOSTS = 100_000
_MOST_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs as Slurm counts them: whole boards by type ("" = no type stated), and pieces of shared ones."""

    boards: float
    """Boards, MIG instances as their share of one."""
    by_type: dict[str, float] = field(default_factory=dict)
    shards: float = 0.0
    mps: float = 0.0

    @property
    def kind(self) -> str:
        """Return the type that most boards have; empty if none is stated."""
        return max(sorted(self.by_type), key=lambda name: self.by_type[name], default="")

    def held(self, shards_per_gpu: float) -> float:
        """Return the boards' worth held; `shards_per_gpu` is how many shards the node makes of a board (0 = unknown)."""
        shared = self.shards / shards_per_gpu if shards_per_gpu else 0.0
        return self.boards + shared + self.mps / MPS_PER_GPU


def tres_gpus(text: str) -> Gpus:
    """Read a TRES list such as `billing=32,cpu=32,gres/gpu:a100=4,gres/gpu=4,node=1`.

    The typed entries say the same boards again as the entry without a type: they do not add up.
    """
    typed: dict[str, float] = {}
    total, shards, mps = 0.0, 0.0, 0.0
    for found in _TRES.finditer(text):
        count = float(found["count"])
        if found["kind"] == "shard":
            shards = max(shards, count) if not found["type"] else shards or count
        elif found["kind"] == "mps":
            mps = max(mps, count) if not found["type"] else mps or count
        elif found["type"]:
            typed[found["type"]] = typed.get(found["type"], 0.0) + count
        else:
            total = count
    return _gpus(typed, max(total - sum(typed.values()), 0.0), shards, mps)


def gres_gpus(text: str) -> Gpus:
    """Read a node's GRES such as `gpu:a100:4(S:0-1),shard:a100:32`; a count left out is 1."""
    typed: dict[str, float] = {}
    bare, shards, mps = 0.0, 0.0, 0.0
    for part in _outside_brackets(text):
        kind, *rest = part.partition("(")[0].strip().split(":")
        if kind not in _GRES_KINDS:
            continue
        stated = rest[-1] if rest and rest[-1].isdecimal() and len(rest[-1]) <= _MOST_DIGITS else ""
        count = float(stated or 1)
        name = ":".join(rest[:-1] if stated else rest)
        if kind == "shard":
            shards += count
        elif kind == "mps":
            mps += count
        elif name:
            typed[name] = typed.get(name, 0.0) + count
        else:
            bare += count
    return _gpus(typed, bare, shards, mps)


def _gpus(typed: dict[str, float], untyped: float, shards: float, mps: float) -> Gpus:
    boards = untyped + sum(count * _share(name) for name, count in typed.items())
    return Gpus(boards=boards, by_type=typed, shards=shards, mps=mps)


def _share(name: str) -> float:
    """Return the share of a board that one piece of a type is: types of MIG instances hold their profile (a100_1g.10gb)."""
    profile = _PROFILE.search(name)
    return mig_share(profile[0], name) if profile else 1.0


def _outside_brackets(text: str) -> Iterator[str]:
    """Split at commas that are in no bracket."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth = max(depth - 1, 0)
        elif sign == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of a host list such as `gpu[01-03,7],login1`; () if none was assigned.

    Raises ValueError if it is not a host list, or names more than a hundred thousand.

    >>> hosts("gpu[08-10],a1")
    ('gpu08', 'gpu09', 'gpu10', 'a1')
    """
    if text.strip() in ("", "None assigned", "(null)", "None", "N/A"):
        return ()
    found: list[str] = []
    for part in _outside_brackets(text.strip()):
        found += _expanded(part, MOST_HOSTS - len(found))
    return tuple(dict.fromkeys(found))


def _expanded(part: str, room: int) -> list[str]:
    names = [""]
    while part:
        plain, bracket, rest = part.partition("[")
        names = [name + plain for name in names]
        if not bracket:
            break
        inside, closed, part = rest.partition("]")
        if not closed:
            raise ValueError(f"{inside!r}: a bracket is not closed")
        numbers = [number for piece in inside.split(",") for number in _numbers(piece, room)]
        if len(names) * len(numbers) > room:
            raise ValueError(f"more than {MOST_HOSTS} hosts")
        names = [name + number for name in names for number in numbers]
    return [name for name in names if name]


def _numbers(piece: str, room: int) -> list[str]:
    matched = _RANGE.match(piece.strip())
    if matched is None:
        raise ValueError(f"{piece!r} is not a range of numbers")
    first, last = matched["first"], matched["last"] or matched["first"]
    if int(last) - int(first) >= room:
        raise ValueError(f"more than {MOST_HOSTS} hosts")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]

"""Slurm's spellings of GPUs and hosts: `gres/gpu:a100=4` (TRES), `gpu:a100:4(S:0-1)` (GRES), `gpu[01-04,7]` (host lists).

Sources: slurm.schedmd.com/tres.html, gres.html (shards and MPS), sacct.html and scontrol.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trimtab.sources.kubernetes.holds import mig_share

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
        """Return the type that most boards have; empty where none is stated."""
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
    """Split at commas that stand in no bracket."""
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
    """Return the hosts of a host list such as `gpu[01-03,7],login1`; () where nobody was assigned.

    Raises ValueError where it is no host list, or names more than a hundred thousand.

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
        raise ValueError(f"{piece!r} is no range of numbers")
    first, last = matched["first"], matched["last"] or matched["first"]
    if int(last) - int(first) >= room:
        raise ValueError(f"more than {MOST_HOSTS} hosts")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]

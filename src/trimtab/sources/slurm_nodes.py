"""Nodes of a Slurm cluster: `scontrol show node` (text or JSON) and `sinfo` with its GRES column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import Fault
from trimtab.sources.kubernetes.objects import at, listed, text
from trimtab.sources.slurm_lines import Account, parsed_json
from trimtab.sources.slurm_tres import Gpus, gres_gpus, hosts

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
        """Return how many shards it makes of a board; 0 where it makes none."""
        return self.gpus.shards / self.gpus.boards if self.gpus.boards else 0.0


def nodes_of_text(path: Path, content: str, account: Account) -> Iterator[SlurmNode]:
    """Read `scontrol show node`, a block a node or (-o) a line a node."""
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
    for index, one in enumerate([*listed(parsed, "nodes"), *listed(parsed, "sinfo")]):
        account.read += 1
        names = at(one, "nodes", "nodes")
        gres = text(one, "gres") or text(one, "gres", "total")
        state = at(one, "state") or at(one, "node", "state")
        words = "+".join(str(word) for word in state) if isinstance(state, list) else str(state or "")
        partitions = at(one, "partitions")
        within = ",".join(map(str, partitions)) if isinstance(partitions, list) else text(one, "partition", "name")
        plain = (text(one, "name") or text(one, "hostname"),)
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
    """Return nodes by name; one that stands in several partitions is one."""
    found: dict[str, SlurmNode] = {}
    for node in nodes:
        before = found.get(node.name)
        if before is None or before.gpus.boards < node.gpus.boards:
            found[node.name] = node
    return found

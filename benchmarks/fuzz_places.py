"""Damaged dumps of Slurm and Kubernetes for `benchmarks.fuzz`: each is read into a bundle that is then checked whole.

No line may be lost: what was kept and what was left out with a reason must add up to what was read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from trimtab.errors import BundleError
from trimtab.sources.collected import Collected
from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, snapshot_moment
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

JOBS = (
    "JobID|JobName|User|Account|Partition|State|Submit|Start|End|AllocTRES|NodeList\n"
    "1|train-1|ana|vision|gpu|COMPLETED|2026-09-01T08:00:00|2026-09-01T08:30:00|2026-09-03T08:30:00|gres/gpu:a100=8|gpu[01-02]\n"
    "1.batch|batch||||COMPLETED|2026-09-01T08:30:00|2026-09-01T08:30:00|2026-09-03T08:30:00|gres/gpu:a100=8|gpu01\n"
    "2_[0-3%2]|sweep|ben|nlp|gpu|PENDING|2026-09-02T00:00:00|Unknown|Unknown|gres/gpu=2|None assigned\n"
    "3|llm|ben|nlp|gpu|PREEMPTED|2026-09-02T00:00:00|2026-09-02T01:00:00|2026-09-04T00:00:00|gres/shard=4|gpu01\n"
)
NODES = "NodeName=gpu01 Gres=gpu:a100:8(S:0-1),shard:a100:32 State=MIXED\nNodeName=gpu02 Gres=gpu:a100:8 State=IDLE\n"
_OLD = "2026-09-01T00:00:00Z"
_NODE = {
    "apiVersion": "v1", "kind": "Node",
    "metadata": {
        "name": "a", "creationTimestamp": _OLD,
        "labels": {"node.kubernetes.io/instance-type": "p4d.24xlarge", "nvidia.com/gpu.count": "8"},
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
    "status": {"capacity": {"nvidia.com/gpu": "8"}, "images": [{"names": ["r/i:1"], "sizeBytes": 1}]},
}  # fmt: skip
_POD = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
        "name": "p-7d9f8b6c5d-abcde", "namespace": "n", "creationTimestamp": _OLD,
        "ownerReferences": [{"kind": "Job", "name": "p"}],
    },
    "spec": {"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}}}]},
    "status": {"phase": "Failed", "startTime": "2026-09-02T00:00:00Z"},
}  # fmt: skip
DUMP = json.dumps({"kind": "List", "items": [_NODE, _POD]})

Damage = Callable[[str, random.Random], str]
Reader = Callable[[random.Random], None]


def place_readers(folder: Path, damaged: Damage) -> dict[str, Reader]:
    """Return a reader of each kind of dump, which damages it first; `damaged` says how."""
    jobs, nodes, dump = folder / "jobs.txt", folder / "nodes.txt", folder / "dump.json"

    def slurm(rng: random.Random) -> None:
        _write(jobs, damaged(JOBS, rng))
        _write(nodes, damaged(NODES, rng) if rng.random() < 0.5 else NODES)
        found = read_slurm([jobs, nodes], ZoneInfo("Europe/Berlin"))
        for account in (found.jobs_account, found.nodes_account):
            _adds_up(account.kept, sum(account.ignored.values()), account.read)
        first, last = found.span
        if first < last:
            _check(collect_slurm(found, first, last, gpu_names={}, source="fuzz"))

    def kubernetes(rng: random.Random) -> None:
        _write(dump, damaged(DUMP, rng))
        objects = read_dumps([dump])
        _adds_up(objects.kept, sum(objects.counts.values()), objects.read)
        end = snapshot_moment(objects)
        _check(collect_snapshot(objects, end - timedelta(days=14), end, source="fuzz"))

    return {"slurm": slurm, "kubernetes": kubernetes}


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="replace")


def _adds_up(kept: int, left_out: int, read: int) -> None:
    if kept + left_out != read:
        raise ArithmeticError(f"{kept} kept + {left_out} left out are not {read} read")


def _check(made: Collected) -> None:
    """Check the bundle whole: what a reader made must stand the check of what it writes."""
    try:
        check_bundle(memory_bundle(made.tables, made.meta))
    except BundleError as error:
        raise ArithmeticError(f"the reader made what the check refuses: {error}") from error

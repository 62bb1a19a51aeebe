"""Read large generated dumps of Slurm and Kubernetes: CPU seconds, peak memory, and the account of every line.

python -m benchmarks.places [--lines 300000] [--nodes 1250] [--pods 20000]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from zoneinfo import ZoneInfo

from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, snapshot_moment
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.units import MIB_PER_GIB, S_PER_DAY

START = datetime(2026, 8, 1, tzinfo=UTC)
_KIB_PER_MIB = MIB_PER_GIB
_HEADER = "JobID|JobName|User|Account|Partition|State|Submit|Start|End|AllocTRES|NodeList"
_DAYS = 30


def main() -> None:
    """Generate, read, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=300_000)
    parser.add_argument("--nodes", type=int, default=1_250)
    parser.add_argument("--pods", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answer = {
            "benchmark": "places",
            "slurm": _slurm(Path(folder), asked.lines, asked.nodes),
            "kubernetes": _kubernetes(Path(folder), asked.nodes, asked.pods),
        }
    print(json.dumps(answer))


def _slurm(folder: Path, lines: int, nodes: int) -> dict[str, float]:
    jobs, hosts = folder / "jobs.txt", folder / "nodes.txt"
    jobs.write_text("\n".join([_HEADER, *_job_lines(lines, nodes)]), encoding="utf-8")
    hosts.write_text(
        "\n".join(f"NodeName=gpu{index:05d} Gres=gpu:a100:8 State=MIXED Partitions=gpu" for index in range(nodes)),
        encoding="utf-8",
    )
    begun_s = process_time()
    dump = read_slurm([jobs, hosts], ZoneInfo("Europe/Berlin"))
    read_s = process_time()
    made = collect_slurm(dump, *dump.span, gpu_names={"a100": "A100-SXM4-80GB"}, source="generated")
    account = dump.jobs_account
    return {
        "lines": lines,
        "kept": account.kept,
        "left_out_with_a_reason": sum(account.ignored.values()),
        "read_cpu_s": round(read_s - begun_s, 2),
        "build_cpu_s": round(process_time() - read_s, 2),
        "allocations": made.tables["allocations"].num_rows,
        "peak_gib": _peak_gib(),
    }


def _job_lines(lines: int, nodes: int) -> Iterator[str]:
    """Return lines of accounting: one in ten a step, one in a hundred damaged."""
    rng = random.Random(7)
    for index in range(lines):
        if index % 100 == 99:
            yield f"{index}|cut off"
            continue
        submit = START + timedelta(seconds=rng.randrange(_DAYS * S_PER_DAY))
        start = submit + timedelta(seconds=rng.randrange(7_200))
        end = start + timedelta(seconds=rng.randrange(60, 40_000))
        gpus = rng.choice((1, 1, 2, 4, 8))
        job = f"{index}.batch" if index % 10 == 0 else str(index)
        times = "|".join(moment.strftime("%Y-%m-%dT%H:%M:%S") for moment in (submit, start, end))
        who = f"job-{index % 900}|user{index % 300}|group{index % 20}|gpu|COMPLETED"
        yield f"{job}|{who}|{times}|cpu=8,gres/gpu:a100={gpus},gres/gpu={gpus}|gpu{index % nodes:05d}"


def _kubernetes(folder: Path, nodes: int, pods: int) -> dict[str, float]:
    file = folder / "dump.json"
    items = [*(_node(index) for index in range(nodes)), *(_pod(index, nodes) for index in range(pods))]
    file.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    begun_s = process_time()
    objects = read_dumps([file])
    end = snapshot_moment(objects)
    read_s = process_time()
    made = collect_snapshot(objects, end - timedelta(days=14), end, source="generated")
    return {
        "objects": objects.read,
        "kept": objects.kept,
        "read_cpu_s": round(read_s - begun_s, 2),
        "build_cpu_s": round(process_time() - read_s, 2),
        "allocations": made.tables["allocations"].num_rows,
        "peak_gib": _peak_gib(),
    }


def _node(index: int) -> dict[str, object]:
    labels = {
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.count": "8",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{index}", "labels": labels, "creationTimestamp": START.isoformat()},
        "spec": {"providerID": f"aws:///us-east-1a/i-{index:08x}"},
        "status": {"capacity": {"nvidia.com/gpu": "8"}},
    }


def _pod(index: int, nodes: int) -> dict[str, object]:
    owner = {"kind": "StatefulSet", "name": f"service-{index % 2000}", "controller": True}
    created = (START + timedelta(minutes=index)).isoformat()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"service-{index % 2000}-{index}",
            "namespace": "prod",
            "creationTimestamp": created,
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{index % nodes}",
            "containers": [{"image": "server:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Running", "startTime": created},
    }


def _peak_gib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB / MIB_PER_GIB, 2)


if __name__ == "__main__":
    main()

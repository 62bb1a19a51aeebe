"""Who holds which part of which board: documented examples and generated clusters whose truth is drawn before they are written.

python -m benchmarks.holders --clusters 300
python -m benchmarks.holders --dra-specs k8s-dra-driver-gpu/demo/specs    # a checkout of NVIDIA/k8s-dra-driver-gpu

The examples are those of HAMi (examples/nvidia) and KAI (docs/gpu-sharing), written anew with their amounts; their truth is
worked by hand. Each cluster is read twice: as a dump alone, and laid over a fleet whose telemetry knows the boards and names no
pod. A pod is right where its part of every board is, within 0.5 %: amounts in MiB are rounded.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.holders_specs import example_worlds, spec_worlds
from benchmarks.holders_world import World, drawn, of_other_makers
from trimtab.sources.collected import Collected
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot, with_snapshot
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

START, END = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 9, 15, tzinfo=UTC)
_CLOSE_FRAC = 0.005

Held = dict[str, dict[str, float]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--dra-specs", type=Path)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.clusters)
    parts: dict[str, Iterator[World]] = {
        "documented examples": iter(example_worlds()),
        "generated clusters": (drawn(seed) for seed in seeds),
        "other makers' boards": (of_other_makers(seed) for seed in seeds),
    }
    if given.dra_specs:
        parts["demo specs of NVIDIA's DRA driver"] = spec_worlds(given.dra_specs)
    summary: dict[str, object] = {}
    for name, worlds in parts.items():
        counts: Counter[str] = Counter()
        for world in worlds:
            counts.update(judged(world))
        right = min(counts["right in a dump"], counts["right beside telemetry"])
        print(
            f"{name}: {counts['clusters']} clusters, {counts['pods']} pods, {right / max(counts['pods'], 1):.2%} right"
        )
        summary[name] = {**counts, "right_frac": right / max(counts["pods"], 1)}
    print(json.dumps(summary, sort_keys=True))


def judged(world: World) -> Mapping[str, int]:
    """Return how many pods of a cluster there are, and how many are read right, alone and beside telemetry."""
    objects = Objects()
    objects.take({"kind": "List", "items": world.objects})
    dump = collect_snapshot(objects, START, END, source="a dump")
    beside = with_snapshot(_telemetry(world, dump), objects, source="a dump")
    check_bundle(memory_bundle(beside.tables, beside.meta))
    alone, named = _held(dump), _held(beside)
    right = Counter({"clusters": 1, "pods": len(world.truth)})
    for pod, shares in world.truth.items():
        right["right in a dump"] += _same({"": sum(alone.get(pod, {}).values())}, {"": sum(shares.values())})
        right["right beside telemetry"] += _same(named.get(pod, {}), shares)
    right["boards wrong"] = sum(
        row["gpu_count"] != len([board for board in world.boards.values() if board == row["node"]])
        for row in dump.tables["nodes"].to_pylist()
    )
    return right


def _telemetry(world: World, dump: Collected) -> Collected:
    """Return what telemetry tells of the same cluster: its nodes and boards, and no pod."""
    boards = [
        {"device": board, "node": node, "gpu": "H100-SXM5-80GB", "memory_gib": 80.0}
        for board, node in world.boards.items()
    ]
    tables = {
        "nodes": dump.tables["nodes"],
        "devices": table_from_rows("devices", boards),
        "gpu_usage": table_from_rows("gpu_usage", []),
        "allocations": table_from_rows("allocations", []),
    }
    return replace(dump, tables=tables)


def _held(found: Collected) -> Held:
    held: Held = {}
    for row in found.tables["allocations"].to_pylist():
        mine = held.setdefault(row["pod"], {})
        mine[row["device"] or ""] = mine.get(row["device"] or "", 0.0) + row["gpus"]
    return held


def _same(found: Mapping[str, float], truth: Mapping[str, float]) -> bool:
    boards = {board for board, share in (*found.items(), *truth.items()) if share}
    return all(
        abs(found.get(board, 0.0) - truth.get(board, 0.0)) <= _CLOSE_FRAC * max(truth.get(board, 0.0), 0.05)
        for board in boards
    )


if __name__ == "__main__":
    main()

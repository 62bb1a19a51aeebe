"""Start-ups of generated clusters: how well phases are read off pods, nodes and events, as a live cluster shows them.

    python -m benchmarks.startup --clusters 200

No public log of events with known phases was found, so that these are generated, and labelled so: pods come on nodes that were
up or that began for them, pull images or find them, load, and are read once, up to six hours later. The trouble is that of real
snapshots: moments in whole seconds, events kept for an hour, containers that were started again, readiness that changed later,
kubelets whose clocks are behind, pods of queues, a StatefulSet's earlier pods of the same name.
The constants of `fleet.starts` were fixed before the first run; reported are all seeds.

In a third of the services of each cluster 3 of 10 loads take a quarter, as where weights and compiled kernels are there before:
scored is whether these services, and no others, are said to have such loads (`MeasuredStarts.short_loads_s`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import click
import numpy as np

from trimtab.fleet.starts import (
    FEWEST,
    IMAGE_COLUMNS,
    NODE_COLUMNS,
    PLANNED_FRAC,
    POD_COLUMNS,
    MeasuredStarts,
    measured_starts,
)
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot
from trimtab.units import BYTES_PER_GIB, S_PER_HR

READ = datetime(2026, 9, 15, 12, tzinfo=UTC)
PHASES = ("node", "pull", "setup", "load")
WITHIN_FRAC = 0.10
_PODS = 60
_READ_S = 6.0 * S_PER_HR
"""When a cluster is read, from its first moment on."""
_EVENTS_KEPT_S = S_PER_HR
_WARM_FRAC, _WARM_LOAD_FRAC = 0.3, 0.25
"""Loads of the warm service that find all there, and what they take of a usual one."""
_SERVICES = {"chat": (55.0, 90.0, 9.0), "embed": (8.0, 12.0, 2.0), "vision": (25.0, 35.0, 5.0)}
"""Service -> mean seconds of its pull, its load, and GiB of its image."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """What a cluster shows, and what is true of it."""

    objects: list[Mapping[str, object]] = field(default_factory=list)
    truth: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Phase -> workload -> seconds, of all starts that there were; a node's wait under ``."""
    warm: str = ""
    """The service some of whose loads find all there."""


def _at(seconds: float) -> str:
    """Return a moment as the API shows it, cut to whole seconds."""
    return (READ - timedelta(seconds=_READ_S) + timedelta(seconds=int(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def drawn(seed: int) -> Cluster:
    """Draw a cluster of three services over six hours, read at their end."""
    rng = np.random.default_rng(seed)
    # of its own, so that the other draws are those of former figures
    warm = np.random.default_rng([seed, 1])
    made = Cluster(warm=list(_SERVICES)[int(warm.integers(len(_SERVICES)))])
    for number in range(_PODS):
        service = list(_SERVICES)[int(rng.integers(len(_SERVICES)))]
        # half of the pods come in the last hour, whose events are still there
        came_s = float(rng.uniform(4.9, 5.7) if rng.random() < 0.5 else rng.uniform(0.2, 4.9)) * S_PER_HR
        _pod(made, rng, number, service, came_s, warm=service == made.warm and warm.random() < _WARM_FRAC)
    return made


def _pod(made: Cluster, rng: np.random.Generator, number: int, service: str, came_s: float, *, warm: bool) -> None:
    mean_pull_s, mean_load_s, gib = _SERVICES[service]
    new_node, queued, behind_s = rng.random() < 0.5, rng.random() < 0.1, 30.0 if rng.random() < 0.05 else 0.0
    node_s = float(rng.lognormal(np.log(240.0), 0.25)) if new_node else float(rng.uniform(0.1, 1.0))
    held_s = float(rng.uniform(0, 1800)) if queued else 0.0
    cached = not new_node and rng.random() < 0.7
    pull_s = 0.0 if cached else float(rng.lognormal(np.log(mean_pull_s), 0.2))
    setup_s = pull_s + float(rng.uniform(1.0, 4.0))
    load_s = float(rng.lognormal(np.log(mean_load_s), 0.15)) * (_WARM_LOAD_FRAC if warm else 1.0)
    placed_s = came_s + held_s + node_s
    if placed_s + setup_s + load_s > _READ_S:
        return
    name, node = f"{service}-{number}", f"node-{number}"
    if new_node and not queued:
        made.truth["node"][""].append(node_s)
    for phase, took_s in (("pull", pull_s), ("setup", setup_s), ("load", load_s)):
        made.truth[phase][service].append(took_s)
    begun_s = placed_s - 0.6 * node_s if new_node else -S_PER_HR
    made.objects.append(_node(node, begun_s))
    restarted, flapped = rng.random() < 0.05, rng.random() < 0.05
    started_s = placed_s + setup_s - behind_s
    ready_s = placed_s + setup_s + load_s
    ready_s = (float(rng.uniform(ready_s, _READ_S)) if flapped else ready_s) - behind_s
    status = {"restartCount": int(restarted), "state": {"running": {"startedAt": _at(started_s)}}}
    made.objects.append(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "prod", "uid": f"u{number}", "creationTimestamp": _at(came_s),
                "labels": {"kueue.x-k8s.io/queue-name": "q"} if queued else {},
                "ownerReferences": [{"kind": "StatefulSet", "name": service, "controller": True}],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"image": service, "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [status],
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": _at(placed_s)},
                    {"type": "Ready", "status": "True", "lastTransitionTime": _at(ready_s)},
                ],
            },
        }
    )  # fmt: skip
    pulled_s = placed_s + setup_s
    if _READ_S - pulled_s < _EVENTS_KEPT_S:
        made.objects.append(_event(f"e{number}", name, f"u{number}", service, pull_s, gib))
    if rng.random() < 0.1:
        made.objects.append(_event(f"old{number}", name, f"before{number}", service, 999.0, gib))


def _node(name: str, begun_s: float) -> Mapping[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name, "creationTimestamp": _at(begun_s),
            "labels": {"node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/region": "us-east-1"},
        },
        "spec": {"providerID": "aws:///us-east-1a/i-0"},
        "status": {"capacity": {"nvidia.com/gpu": "1", "cpu": "4", "memory": "16Gi"}},
    }  # fmt: skip


def _event(name: str, pod: str, uid: str, image: str, pull_s: float, gib: float) -> Mapping[str, object]:
    took = f"{int(pull_s // 60)}m{pull_s % 60:.3f}s" if pull_s >= 60 else f"{pull_s:.3f}s"
    size = f"Image size: {int(gib * BYTES_PER_GIB)} bytes."
    pulled = f'Successfully pulled image "{image}" in {took} ({took} including waiting). {size}'
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "prod"},
        "reason": "Pulled",
        "message": pulled if pull_s else f'Container image "{image}" already present on machine',
        "involvedObject": {"kind": "Pod", "namespace": "prod", "name": pod, "uid": uid},
    }


def measured(cluster: Cluster) -> MeasuredStarts:
    """Read a cluster as `trimtab collect --context` does, and what it tells of starts."""
    objects = Objects()
    for item in cluster.objects:
        objects.take(item)
    tables = collect_snapshot(objects, READ - timedelta(seconds=_READ_S), READ, source="generated").tables
    pods, nodes, images = tables["pods"], tables["nodes"], tables["images"]
    return measured_starts(pods.select(POD_COLUMNS), nodes.select(NODE_COLUMNS), images.select(IMAGE_COLUMNS))


def phases(found: MeasuredStarts) -> dict[str, dict[str, list[float]]]:
    """Return what was measured by phase and workload."""
    told: dict[str, dict[str, list[float]]] = {phase: defaultdict(list) for phase in PHASES}
    told["node"][""] = list(found.node_s)
    for name, starts in found.own.items():
        for start in starts:
            parts = {"pull": start.pull_s, "setup": start.setup_s, "load": start.load_s}
            for phase, took_s in parts.items():
                if took_s is not None:
                    told[phase][name.removeprefix("prod/")].append(took_s)
    return told


@click.command()
@click.option("--clusters", default=200, show_default=True, help="How many clusters.")
def main(clusters: int) -> None:
    """Print a line for each phase, then one JSON line."""
    true: dict[str, list[float]] = defaultdict(list)
    said: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    short = Counter[str]()
    for seed in range(clusters):
        cluster = drawn(seed)
        found = measured(cluster)
        told = phases(found)
        for service in _SERVICES:
            if len(told["load"][service]) >= FEWEST:
                said_warm = bool(found.short_loads_s(f"prod/{service}"))
                short[f"{'warm' if service == cluster.warm else 'usual'} {'said' if said_warm else 'not said'}"] += 1
        for phase in PHASES:
            for workload, truth in cluster.truth[phase].items():
                true[phase] += truth
                said[phase] += told[phase][workload]
                if len(told[phase][workload]) >= 10 and (level := np.quantile(truth, PLANNED_FRAC)) > 1.0:
                    errors[phase].append(abs(np.quantile(told[phase][workload], PLANNED_FRAC) / level - 1))
    result: dict[str, object] = {"clusters": clusters, "generated": True}
    for phase in PHASES:
        mean_off = float(np.mean(said[phase]) / np.mean(true[phase]) - 1)
        level_off = float(np.quantile(said[phase], PLANNED_FRAC) / np.quantile(true[phase], PLANNED_FRAC) - 1)
        print(
            f"{phase:6} {len(said[phase]):6} of {len(true[phase]):6} starts told; mean {mean_off:+.1%}, three of four "
            f"{level_off:+.1%}; by workload and cluster, of ten starts or more: median error {np.median(errors[phase]):.1%}"
        )
        result[phase] = {
            "told": len(said[phase]), "starts": len(true[phase]), "mean_off_frac": round(mean_off, 4),
            "planned_off_frac": round(level_off, 4), "median_error_frac": round(float(np.median(errors[phase])), 4),
            "within": abs(level_off) <= WITHIN_FRAC,
        }  # fmt: skip
    print(f"services with loads that find all there: {dict(sorted(short.items()))}")
    result["short_loads"] = dict(sorted(short.items()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()

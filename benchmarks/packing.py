"""GPUs allocated when pods of the openb trace come until they ask for 130 % of a cluster: best fit, FGD and expected fill.

The nodes and pods are those of kubernetes-scheduler-simulator (github.com/hkust-adsl, folder `data/csv`, Apache-2.0; from a
cluster of Alibaba), and so is the way to 130 %: all pods of the workload in random order, then pods drawn from it at random.
Each rule gets the same pods in the same order. Its authors state 93.1 % (best fit) and 95.4 % (FGD) for the default workload.
With `--bound`, beside each rule the most that any rule could allocate that placed as many pods of at most one GPU before it
turned the first of them away (`benchmarks/reference/packing_bound.py`).

    python -m benchmarks.packing --data FOLDER [--orders 10] [--workloads default,multigpu50] [--bound]
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.reference.packing import BEST_FIT, EXPECTED_FILL, FGD, Cluster, place_all
from benchmarks.reference.packing_bound import most_allocated_milli
from trimtab.ledger.arrays import IntArray
from trimtab.replay.job_nodes import ANY_MODEL, GPU_MILLI, PodAsk, PodMix, pod_mix

_RULES = {"best_fit": BEST_FIT, "fgd": FGD, "expected_fill": EXPECTED_FILL}
_DEVICES = 8
_DEMAND_FRAC = 1.3
_TYPICAL_FRAC = 0.95
"""FGD knows the commonest kinds that make up so much of all pods."""
_FIRST_SEED = 42
Row = Mapping[str, str]


def main() -> None:
    """Pack each workload in several orders by each rule, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workloads", default="default")
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--demand", type=float, default=_DEMAND_FRAC)
    parser.add_argument("--bound", action="store_true", help="also what no rule like these can exceed")
    options = parser.parse_args()
    nodes = _rows(options.data / "openb_node_list_gpu_node.csv")
    models = sorted({row["model"] for row in nodes})
    cluster = _cluster(nodes, models)
    figures = {}
    for workload in options.workloads.split(","):
        pods = [_pod(row, models) for row in _rows(options.data / f"openb_pod_list_{workload}.csv")]
        figures[workload] = _measured(cluster, pods, options.orders, options.demand, options.bound)
    print(json.dumps({"benchmark": "packing", "demand_frac": options.demand, "allocated_pct": figures}))


def _rows(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _cluster(nodes: Sequence[Row], models: Sequence[str]) -> Cluster:
    gpus = np.array([int(row["gpu"]) for row in nodes])
    return Cluster(
        cpu_milli=np.array([float(row["cpu_milli"]) for row in nodes]),
        memory_mib=np.array([float(row["memory_mib"]) for row in nodes]),
        gpu_milli=np.where(np.arange(_DEVICES) < gpus[:, None], GPU_MILLI, 0),
        model=np.array([models.index(row["model"]) for row in nodes]),
    )


def _pod(row: Row, models: Sequence[str]) -> PodAsk:
    accepted = [name for name in (row.get("gpu_spec") or "").split("|") if name]
    bits = sum(1 << models.index(name) for name in accepted if name in models) if accepted else ANY_MODEL
    return PodAsk(
        float(row["cpu_milli"]), float(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]), bits
    )  # fmt: skip


def _measured(
    cluster: Cluster, pods: Sequence[PodAsk], orders: int, demand_frac: float, bound: bool
) -> dict[str, object]:
    kinds = pod_mix(list(pods))
    number = {_kind(kinds, index): index for index in range(len(kinds.gpus))}
    each = np.array([number[pod] for pod in pods])
    total_milli = int(cluster.gpu_milli.sum())
    found: dict[str, list[float]] = {name: [] for name in _RULES}
    for seed in range(_FIRST_SEED, _FIRST_SEED + orders):
        order = _arrivals(each, kinds, demand_frac * total_milli, seed)
        for name, rule in _RULES.items():
            packed = place_all(rule, cluster, kinds, order, _typical(kinds))
            found[name].append(100 * (1 - int(packed.cluster.gpu_milli.sum()) / total_milli))
            if bound:
                most_milli = most_allocated_milli(total_milli // GPU_MILLI, kinds, order, packed.first_turned_away)
                # what was placed fits, so there is a bound
                found.setdefault(f"{name}_bound", []).append(100 * (most_milli or 0.0) / total_milli)
    return {
        name: {"mean": round(float(np.mean(of)), 2), "least": round(min(of), 2), "most": round(max(of), 2)}
        for name, of in found.items()
    }


def _kind(kinds: PodMix, index: int) -> PodAsk:
    return PodAsk(
        float(kinds.cpu_milli[index]), float(kinds.memory_mib[index]), int(kinds.gpus[index]),
        int(kinds.gpu_milli[index]), int(kinds.models[index]),
    )  # fmt: skip


def _arrivals(each: IntArray, kinds: PodMix, most_milli: float, seed: int) -> IntArray:
    """Return the kinds of pods in the order of their coming: all in random order, then some at random up to the demand."""
    random = np.random.default_rng(seed)
    size = kinds.gpus * kinds.gpu_milli
    order = random.permutation(each).tolist()
    asked = int(size[each].sum())
    while True:
        kind = int(random.choice(each))
        # the simulator stops at the first pod that one GPU of would be too much
        if asked + kinds.gpu_milli[kind] > most_milli:
            return np.array(order)
        order.append(kind)
        asked += int(size[kind])


def _typical(kinds: PodMix) -> PodMix:
    """Return the commonest kinds, as FGD knows them: those alike but for memory are one, the larger first of equals."""
    shares: dict[tuple[float, int, int, int], float] = {}
    for index, share in enumerate(kinds.share.tolist()):
        kind = _kind(kinds, index)
        key = (kind.cpu_milli, kind.gpu_milli, kind.gpus, kind.models)
        shares[key] = shares.get(key, 0.0) + share
    common: list[tuple[float, int, int, int]] = []
    known = 0.0
    for key in sorted(shares, key=lambda key: (shares[key], key), reverse=True):
        if known >= _TYPICAL_FRAC:
            break
        common.append(key)
        known += shares[key]
    columns = list(zip(*common, strict=True))
    return PodMix(
        cpu_milli=np.array(columns[0], dtype=np.float64),
        memory_mib=np.zeros(len(common)),
        gpus=np.array(columns[2], dtype=np.int64),
        gpu_milli=np.array(columns[1], dtype=np.int64),
        models=np.array(columns[3], dtype=np.int64),
        share=np.array([shares[key] / known for key in common]),
    )


if __name__ == "__main__":
    main()

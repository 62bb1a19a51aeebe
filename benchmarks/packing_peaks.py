"""How few GPUs of 80 GB hold a day of the GenTD26 pods, if no memory peak is ever violated and no pod slows down by over 10 %.

92 pods of an image service, each on a GPU of its own, with its duty cycle and memory every 57 s for 23 h (Alibaba,
cluster-trace-v2026-GenAI; it states no licence and is not shipped). Pods may share a GPU if their peaks fit together, whenever
they come, and if each is expected to lose 10 % of its speed at most: `EXPECTED_SPEED` minute by minute, weighed by what it does
in that minute, with the others' duty cycles added up. That law was fitted on pairs of training jobs on another GPU.

Every set that may share is listed, and the fewest sets that hold all pods are found by HiGHS, with its bound. Once with 72 GB
for the pods, as the first-fit that is to be beaten has it, and once by the rule of plans: peaks and 10 % fit into 81,559 MiB.

    python -m benchmarks.packing_peaks --data PODS.parquet
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from trimtab.fleet.settings import Assumptions
from trimtab.physics.colocation import EXPECTED_SPEED, SAFE_LOSS_FRAC
from trimtab.units import BYTES_PER_GB, BYTES_PER_MIB

_SAMPLE_S = 57
_REFEREE_BYTES = 72 * BYTES_PER_GB
_H100_BYTES = 81_559 * BYTES_PER_MIB
"""What an H100 with 80 GB shows of its memory."""
_LIMIT_S = 120.0
FloatArray = npt.NDArray[np.float64]


def main() -> None:
    """Pack the pods into both memories, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    duty, memory = _minutes(parser.parse_args().data)
    headroom = 1 + Assumptions().memory_headroom_frac
    answer: dict[str, object] = {"benchmark": "packing_peaks", "pods": len(duty)}
    for name, most_bytes in (
        ("in_72_gb", float(_REFEREE_BYTES)),
        ("in_81559_mib_with_headroom", _H100_BYTES / headroom),
    ):
        answer[name] = _packed(duty, memory, most_bytes)
    print(json.dumps(answer))


def _minutes(path: Path) -> tuple[FloatArray, FloatArray]:
    """Return duty cycles (0..1) and memory in bytes, (pods, minutes); a minute without a sample counts as idle and empty."""
    table = pq.read_table(path)
    pods, pod = np.unique(table["pod"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    minute = table["t_s"].to_numpy() // _SAMPLE_S
    shape = (len(pods), int(minute.max()) + 1)
    duty, memory = np.zeros(shape), np.zeros(shape)
    # some samples lack one of the two
    np.fmax.at(duty, (pod, minute), table["gpu_util_pct"].to_numpy().astype(np.float64) / 100)
    np.fmax.at(memory, (pod, minute), table["gpu_mem_used_bytes"].to_numpy())
    return duty, memory


def _packed(duty: FloatArray, memory: FloatArray, most_bytes: float) -> dict[str, object]:
    peak = memory.max(axis=1)
    sets = _sets(duty, peak, most_bytes)
    rows = np.concatenate([np.array(each) for each in sets])
    columns = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    holds = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(peak), len(sets)))
    found = milp(
        np.ones(len(sets)),
        constraints=LinearConstraint(holds, 1, np.inf),
        integrality=np.ones(len(sets)),
        bounds=Bounds(0, 1),
        options={"time_limit": _LIMIT_S},
    )
    chosen = [list(sets[index]) for index in np.flatnonzero(found.x > 0.5)]
    return {
        "gpus": len(chosen),
        "bound": round(float(found.mip_dual_bound), 2),
        "bound_by_total_memory": int(np.ceil(peak.sum() / most_bytes)),
        "pods_over_half": int((peak > most_bytes / 2).sum()),
        "worst_slow_down": round(max(_slow_down(duty, each) for each in chosen) - 1, 4),
        "most_peaks_over_memory": round(max(float(peak[each].sum()) for each in chosen) / most_bytes, 4),
    }


def _sets(duty: FloatArray, peak: FloatArray, most_bytes: float) -> list[tuple[int, ...]]:
    """Return every set of pods that may share a GPU; each larger one grows from a smaller one that may."""
    sets: list[tuple[int, ...]] = [(pod,) for pod in range(len(peak))]
    grown = sets
    while grown:
        grown = [
            (*each, pod)
            for each in grown
            for pod in range(each[-1] + 1, len(peak))
            if peak[[*each, pod]].sum() <= most_bytes and _slow_down(duty, [*each, pod]) <= 1 + SAFE_LOSS_FRAC
        ]
        sets = sets + grown
    return sets


def _slow_down(duty: FloatArray, pods: list[int]) -> float:
    """Return how much longer the work takes of the pod that is slowed down most; 1 where none is."""
    together = duty[pods].sum(axis=0)
    worst = 1.0
    for pod in pods:
        own = duty[pod]
        others = np.minimum(together - own, 1.0)
        longer = 1 + EXPECTED_SPEED.weight * own**EXPECTED_SPEED.own_power * others**EXPECTED_SPEED.other_power
        if own.any():
            worst = max(worst, float((longer * own).sum() / own.sum()))
    return worst


if __name__ == "__main__":
    main()

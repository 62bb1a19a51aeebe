"""How many `nvidia.com/gpu` the nodes of a cluster advertise, as far as a fleet's tables tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from trimtab.catalog import Catalog
from trimtab.diagnose.cluster_records import number, pairs
from trimtab.sources.kubernetes.pods import shares_of_a_board
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.workloads import cluster_of

_BOARD = "nvidia.com/gpu"
_PARTS = ("nvidia.com/mig-", "cloud.google.com/gke-gpu-partition-size")
"""How labels begin of nodes that hand out parts of boards (MIG): feature discovery's, and GKE's."""
_SLACK = 1e-6


def whole_boards(nodes: Sequence[RecordedRow], pods: Sequence[RecordedRow], catalog: Catalog) -> dict[str, float]:
    """Return how many `nvidia.com/gpu` each cluster's nodes advertise, by cluster, from rows of `nodes` and `pods`.

    A cluster is left out where that is not known: boards of an unknown type, shared boards, or devices that pods claim, which
    no node advertises by this name.
    """
    found: dict[str, float] = defaultdict(float)
    unknown = {cluster_of(str(pod["workload"])) for pod in pods if _tells_of_other_boards(pod)}
    vendors = {gpu.name: gpu.vendor for gpu in catalog.gpus}
    for node in nodes:
        if node["end"] is not None or not node["gpu_count"]:
            continue
        cluster, labels, gpu = cluster_of(str(node["node"])), pairs(node["labels"]), str(node["gpu"] or "")
        if gpu not in vendors or _is_shared(labels):
            unknown.add(cluster)
        elif vendors[gpu] == "NVIDIA":
            found[cluster] += number(node["gpu_count"])
    return {cluster: boards for cluster, boards in found.items() if cluster not in unknown}


def _tells_of_other_boards(pod: RecordedRow) -> bool:
    """Return whether a pod shows that its nodes advertise other amounts than they have boards."""
    pieces = pod["gpu_pieces"]
    whole = pieces is None or abs(number(pieces) - number(pod["gpus"])) < _SLACK
    return bool(pod["gpu_claims"]) or (pod["gpu_resource"] == _BOARD and not whole)


def _is_shared(labels: Mapping[str, str]) -> bool:
    parts = any(name.startswith(_PARTS) for name in labels) or "-MIG-" in labels.get("nvidia.com/gpu.product", "")
    return parts or shares_of_a_board(labels) > 1

"""What an offence is, and what is known of a cluster when one is looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from trimtab.catalog import InstanceType
from trimtab.diagnose.broken import Call, HeldGpus, Row
from trimtab.diagnose.findings import WasteKind
from trimtab.diagnose.lost_time import LostSpan

POD_COLUMNS = (
    "pod", "namespace", "workload", "owner_kind", "node", "phase", "gpus", "cpu_request", "memory_request_gib",
    "memory_limit_gib", "created", "scheduled", "ready", "ended", "queue", "tolerations", "restarts", "waiting",
    "last_exit", "last_ended", "last_life_s", "unschedulable", "node_selector", "affinity",
)  # fmt: skip
SCALER_COLUMNS = ("kind", "namespace", "name", "target", "min_replicas", "max_replicas", "triggers", "limits")
BUDGET_COLUMNS = ("namespace", "name", "workload", "allowed", "healthy", "expected")
NODE_COLUMNS = ("node", "provider", "instance_type", "gpu_count", "start", "end", "labels", "taints")
_GROUP_LABELS = (
    "karpenter.sh/nodepool", "karpenter_sh_nodepool", "eks.amazonaws.com/nodegroup", "eks_amazonaws_com_nodegroup",
    "cloud.google.com/gke-nodepool", "cloud_google_com_gke_nodepool", "kubernetes.azure.com/agentpool",
    "kubernetes_azure_com_agentpool", "agentpool",
)  # fmt: skip


class OffenceKind(Enum):
    """What is untidy."""

    STRAY = "pods without GPUs on GPU nodes"
    NO_TAINT = "GPU nodes without a taint"
    PENDING = "pods with GPUs that wait for a node"
    STUCK = "pods that hold GPUs and do not start"
    UNUSED = "pods that hold GPUs and do nothing"
    NOTEBOOK = "notebooks left open"
    OVER_ASKED = "pods that ask for more GPUs than they use"
    SCATTERED = "nodes that moving pods would empty"
    SCALER = "autoscalers that cannot work"
    UNLIMITED = "node pools without limits"
    BUDGET = "disruption budgets missing or too strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """One offender: a workload or a group of nodes."""

    kind: OffenceKind
    subject: str
    owner_kind: str
    nodes: tuple[str, ...]
    items: tuple[str, ...]
    """Pods, or nodes where these are the offenders; pods to move, in their order."""
    call: Call
    evidence: str
    counted_in: WasteKind | None
    """The kind of waste that its dollars are part of; None where it costs nothing."""
    unschedulable: tuple[str, ...] = ()
    """Workloads that its patch would keep off their nodes until they tolerate the taint."""
    daemons: tuple[str, ...] = ()
    """DaemonSets on these nodes, which belong there."""
    ongoing: bool = False
    """Whether it costs without a break, up to the end of the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HygieneRecords:
    """What is known of a history: rows of tables, who held what, and what each GPU did."""

    start_s: float
    end_s: float
    nodes: Sequence[Row]
    pods: Sequence[Row]
    scalers: Sequence[Row]
    budgets: Sequence[Row]
    """Pod disruption budgets."""
    others: Sequence[HeldGpus]
    """Pods without GPUs on GPU nodes, `gpus` 0."""
    held: Sequence[HeldGpus]
    owner_kinds: Mapping[str, str]
    notebooks: frozenset[str]
    """Workloads that are notebooks."""
    used_of: Mapping[tuple[str, float], float]
    """(workload, GPUs of a pod) -> the most GPUs that any pod of that size used."""
    active_hours: Mapping[str, Mapping[int, float]]
    """Device -> the hours since 1970 in which it did anything -> its mean activity there, 0..1."""
    seen_hours: Mapping[str, frozenset[int]]
    """Device -> the hours since 1970 in which it was read."""
    partitioned: frozenset[str] = frozenset()
    """Nodes with MIG instances."""
    machines: Sequence[InstanceType] = ()
    """Machine types, for the CPUs and memory of nodes; those of others count as enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offences:
    """Every offender, and the GPU time that each took; spans name offences by their number."""

    offences: tuple[Offence, ...]
    spans: tuple[LostSpan, ...]


Found = tuple[Offence, list[LostSpan]]


def group_of(row: Row) -> str:
    """Return the node pool or node group that made a node, by its labels; else its machine type."""
    labels = pairs(row["labels"])
    name = next((labels[key] for key in _GROUP_LABELS if labels.get(key)), None)
    return name or str(row["instance_type"])


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return names without empty ones, each once, in order."""
    return tuple(dict.fromkeys(name for name in names if name))


def pairs(cell: object) -> dict[str, str]:
    """Return a cell of labels, which Arrow gives as pairs."""
    pairs = cell.items() if isinstance(cell, Mapping) else cell if isinstance(cell, list) else ()
    return {str(key): str(value) for key, value in pairs}


def counted(count: int, what: str) -> str:
    """Say so many of something: `1 pod`, `2 pods`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def number(cell: object) -> float:
    """Return a cell as a number; 0 where it is empty."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def seconds(cell: object, absent_s: float) -> float:
    """Return a moment as seconds since 1970, and `absent_s` where the cell is empty."""
    return cell.timestamp() if isinstance(cell, datetime) else absent_s

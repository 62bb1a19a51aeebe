"""What a diagnosis says: waste that sums to the bill, a verdict on each workload, offences and what each costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from trimtab.diagnose.cluster_records import Call, ClusterRecords, LostSpan, distinct, number, pairs
from trimtab.fleet.owner_kinds import DEPLOYED
from trimtab.provenance import Evidence
from trimtab.tables.arrow import RecordedRow


class WasteKind(Enum):
    """Where money went that bought nothing; `USEFUL` is the rest, so that all kinds together are the bill."""

    FAILED_RUNS = "failed or repeated work"
    FAULTY_NODES = "broken or slowed hardware"
    UNUSED_COMMITMENT = "unused commitment"
    UNALLOCATED_NODES = "unallocated nodes"
    UNKNOWN_HOLDER = "holder unknown"
    HOURS_NOT_USED = "held hours not used"
    NON_GPU_PODS = "non-GPU pods hold GPU nodes"
    IDLE = "allocated but idle"
    OVER_PARALLEL = "more GPUs than used"
    OVER_PROVISIONED = "over-provisioned replicas"
    OVER_SIZED = "over-sized GPU"
    BUYING_OPTION = "wrong buying option"
    UNMEASURED = "not measured"
    USEFUL = "useful work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """One kind of waste over the fit window, in micro-dollars, with the workloads that carry most of it."""

    kind: WasteKind
    micro_usd: int
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a workload's activity says, with the evidence."""

    workload: str
    headline: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A workload that no plan was made for: it stays in the report with its cost and the reason."""

    workload: str
    micro_usd: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductForm:
    """GPU-hours paid that did work, as allocation x busy x efficiency (shares 0..1; None where not measured)."""

    allocation_frac: float
    busy_frac: float | None
    efficiency_frac: float | None

    @property
    def product_frac(self) -> float | None:
        """Return the product of the three."""
        if self.busy_frac is None or self.efficiency_frac is None:
            return None
        return self.allocation_frac * self.busy_frac * self.efficiency_frac


UNALLOCATED = "unallocated"
"""Whose spend the time is in which no workload held a node, in every split of a bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A share of the bill, for a table."""

    name: str
    micro_usd: int
    gpu_hours: float
    activity_frac: float | None
    team: str | None = None
    """Of a workload's share."""
    kind: str | None = None
    """Of a workload's share."""


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
    QUEUED = "queues that wait beside free GPUs"
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
class Offences:
    """Every offender, and the GPU time that each took; spans name offences by their number."""

    offences: tuple[Offence, ...]
    spans: tuple[LostSpan, ...]


Found = tuple[Offence, list[LostSpan]]


def group_of(row: RecordedRow) -> str:
    """Return the node pool or node group that made a node, by its labels; else its machine type."""
    labels = pairs(row["labels"])
    name = next((labels[key] for key in _GROUP_LABELS if labels.get(key)), None)
    return name or str(row["instance_type"])


# Offences that cost nothing by themselves


def _free(
    kind: OffenceKind, subject: str, items: Iterable[str], call: Call, evidence: str, owner_kind: str = ""
) -> Found:
    offence = Offence(
        kind=kind,
        subject=subject,
        owner_kind=owner_kind,
        nodes=(),
        items=distinct(items),
        call=call,
        evidence=evidence,
        counted_in=None,
    )
    return offence, []


def scaler_offences(records: ClusterRecords) -> Iterator[Found]:
    """Yield the workloads with GPUs whose autoscalers fight, cannot move, or look at CPU alone."""
    with_gpus = {held.workload for held in records.held}
    by_target: dict[str, list[RecordedRow]] = defaultdict(list)
    for scaler in records.scalers:
        if scaler["target"] in with_gpus:
            by_target[str(scaler["target"])].append(scaler)
    for target, scalers in sorted(by_target.items()):
        # KEDA makes an HPA of its own for each ScaledObject, named after it
        made = {f"keda-hpa-{scaler['name']}" for scaler in scalers if scaler["kind"] == "ScaledObject"}
        own = [scaler for scaler in scalers if scaler["name"] not in made]
        faults = [fault for scaler in own for fault in _scaler_faults(scaler)]
        if len(own) > 1:
            faults.append(f"{' and '.join(str(scaler['name']) for scaler in own)} both scale it")
        if faults:
            names = (f"{scaler['kind']}/{scaler['name']}" for scaler in own)
            kind = records.owner_kinds.get(target, "")
            yield _free(OffenceKind.SCALER, target, names, Call.OWNER, "; ".join(faults), kind)


def _scaler_faults(scaler: RecordedRow) -> Iterator[str]:
    least, most = scaler["min_replicas"], scaler["max_replicas"]
    if isinstance(least, float) and least == most:
        yield f"{scaler['name']} has {least:g} replicas as floor and as ceiling"
    triggers = [trigger.strip() for trigger in str(scaler["triggers"] or "").split(";") if trigger.strip()]
    if triggers and all(trigger.partition(" ")[0] in ("cpu", "memory") for trigger in triggers):
        yield f"{scaler['name']} scales on {', '.join(triggers)}, which says nothing of its GPUs"


def unlimited_pools(records: ClusterRecords) -> Iterator[Found]:
    """Yield the Karpenter pools with GPUs that may buy without end."""
    groups = {group_of(row) for row in records.nodes}
    for scaler in records.scalers:
        if scaler["kind"] == "NodePool" and scaler["name"] in groups and not pairs(scaler["limits"]):
            said = "a Karpenter pool with GPUs and without `limits`: one wrong replica count buys without end"
            yield _free(OffenceKind.UNLIMITED, str(scaler["name"]), (), Call.PLATFORM, said)


def budget_offences(records: ClusterRecords) -> Iterator[Found]:
    """Yield budgets that allow no eviction though all pods are healthy, and services of several replicas that have none."""
    budgeted = {str(budget["workload"]) for budget in records.budgets}
    for budget in records.budgets:
        healthy, expected = number(budget["healthy"]), number(budget["expected"])
        if (
            budget["allowed"] == 0
            and expected
            and healthy >= expected
            and str(budget["workload"]) in records.owner_kinds
        ):
            said = f"{budget['name']} allows no eviction though all {expected:g} are healthy: its nodes can never be drained"
            yield _free(OffenceKind.BUDGET, str(budget["workload"]), (str(budget["name"]),), Call.OWNER, said)
    replicas: dict[str, set[str]] = defaultdict(set)
    for pod in records.pods:
        if number(pod["gpus"]) and pod["owner_kind"] in DEPLOYED and pod["phase"] == "Running":
            replicas[str(pod["workload"])].add(str(pod["pod"]))
    for workload, pods in sorted(replicas.items()):
        # where no budget was read at all it is unknown whether there are any
        if records.budgets and len(pods) > 1 and workload not in budgeted | records.notebooks:
            said = f"{len(pods)} replicas and no disruption budget: a drain may take them all at once"
            yield _free(OffenceKind.BUDGET, workload, sorted(pods), Call.OWNER, said, "Deployment")

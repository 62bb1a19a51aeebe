"""What is untidy in a cluster, offender by offender: what it is, what it costs, and who must know before it is changed.

Dollars are of waste that the bill's split has counted already, and each line says under which kind; lines share GPU time that
several claim, so that they never add up to more than was paid. What an offender costs:

- pods without GPUs on a GPU node cost nothing by themselves: only the hours count in which nobody held a GPU of the node, for
  in those they alone kept it from being given back. Several such pods share them;
- a missing taint costs what the pods cost that it let in, which is counted with them;
- a pod that waits for a node costs nothing; one that waits on its node for an image costs the GPUs that it holds;
- a pod that does nothing, and a notebook left open, cost the GPUs that they hold while these do nothing;
- a pod that asks for more GPUs than it ever used costs the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from trimtab.diagnose.broken import Call, HeldGpus, Row, is_crash_looping
from trimtab.diagnose.findings import WasteKind
from trimtab.diagnose.lost_time import NOBODY, LostSpan
from trimtab.fleet.settings import Hygiene
from trimtab.units import S_PER_HR

POD_COLUMNS = (
    "pod", "namespace", "workload", "owner_kind", "node", "phase", "gpus", "cpu_request", "memory_request_gib",
    "memory_limit_gib", "created", "scheduled", "ready", "ended", "queue", "tolerations", "restarts", "waiting",
    "last_exit", "last_ended", "last_life_s", "unschedulable",
)  # fmt: skip
SCALER_COLUMNS = ("kind", "namespace", "name", "target", "min_replicas", "max_replicas", "triggers", "limits")
BUDGET_COLUMNS = ("namespace", "name", "workload", "allowed", "healthy", "expected")
NODE_COLUMNS = ("node", "provider", "instance_type", "gpu_count", "start", "end", "labels", "taints")
_FOLLOWS_NODES = frozenset({"DaemonSet", "Node"})
_GROUP_LABELS = (
    "karpenter.sh/nodepool", "karpenter_sh_nodepool", "eks.amazonaws.com/nodegroup", "eks_amazonaws_com_nodegroup",
    "cloud.google.com/gke-nodepool", "cloud_google_com_gke_nodepool", "kubernetes.azure.com/agentpool",
    "kubernetes_azure_com_agentpool", "agentpool",
)  # fmt: skip
GPU_TAINT = "nvidia.com/gpu"
_KEEPS_OUT = ("NoSchedule", "NoExecute")


class OffenceKind(Enum):
    """What is untidy."""

    STRAY = "pods without GPUs on GPU nodes"
    NO_TAINT = "GPU nodes without a taint"
    PENDING = "pods with GPUs that wait for a node"
    STUCK = "pods that hold GPUs and do not start"
    UNUSED = "pods that hold GPUs and do nothing"
    NOTEBOOK = "notebooks left open"
    OVER_ASKED = "pods that ask for more GPUs than they use"
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
    """Pods, or nodes where these are the offenders."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Offences:
    """Every offender, and the GPU time that each took; spans name offences by their number."""

    offences: tuple[Offence, ...]
    spans: tuple[LostSpan, ...]


Found = tuple[Offence, list[LostSpan]]


def offences(records: HygieneRecords, settings: Hygiene) -> Offences:
    """Return what is untidy in a history, whatever it costs."""
    found: list[Found] = []
    rules: tuple[Callable[[HygieneRecords, Hygiene], Iterable[Found]], ...] = (
        _strays, _waiting, _notebooks, _unused, _over_asked, _scalers, _unlimited, _budgets,
    )  # fmt: skip
    for rule in rules:
        found += rule(records, settings)
    strays = {node for offence, _ in found if offence.kind is OffenceKind.STRAY for node in offence.nodes}
    found += _untainted(records, strays)
    return Offences(
        offences=tuple(offence for offence, _ in found),
        spans=tuple(replace(span, finding=number) for number, (_, spans) in enumerate(found) for span in spans),
    )


# Pods without GPUs


def _strays(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    holders = {held.workload for held in records.held}
    lives: dict[str, list[HeldGpus]] = defaultdict(list)
    for other in records.others:
        if records.owner_kinds.get(other.workload, "") not in _FOLLOWS_NODES and other.workload not in holders:
            lives[other.workload].append(other)
    shape = {str(row["node"]): float(_number(row["gpu_count"])) for row in records.nodes}
    free = _free_stretches(records)
    for workload, pods in sorted(lives.items()):
        here_s = sum(pod.end_s - pod.start_s for pod in pods)
        if here_s < settings.stray_hr * S_PER_HR:
            continue
        spans = [
            LostSpan(
                finding=0, node=pod.node, holder=NOBODY, gpus=shape.get(pod.node, 0.0), start_s=start_s, end_s=end_s
            )
            for pod in pods
            for start_s, end_s in _both(free.get(pod.node, ()), pod.start_s, pod.end_s)
        ]
        yield (
            Offence(
                kind=OffenceKind.STRAY,
                subject=workload,
                owner_kind=records.owner_kinds.get(workload, ""),
                nodes=_names(pod.node for pod in pods),
                items=_names(pod.pod for pod in pods),
                call=Call.OWNER,
                evidence=_stray_evidence(pods, spans, records),
                counted_in=_idle_kind(pods, records) if spans else None,
            ),
            spans,
        )


def _free_stretches(records: HygieneRecords) -> dict[str, list[tuple[float, float]]]:
    """Return, by node, the stretches of its life in which nobody held any of its GPUs."""
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for hold in records.held:
        held[hold.node].append((hold.start_s, hold.end_s))
    free: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in records.nodes:
        name = str(row["node"])
        at_s, end_s = _seconds(row["start"], records.start_s), _seconds(row["end"], records.end_s)
        for start_s, until_s in sorted(held.get(name, ())):
            if start_s > at_s:
                free[name].append((at_s, min(start_s, end_s)))
            at_s = max(at_s, until_s)
        if at_s < end_s:
            free[name].append((at_s, end_s))
    return free


def _both(stretches: Iterable[tuple[float, float]], start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    for first_s, last_s in stretches:
        if first_s < end_s and last_s > start_s:
            yield max(first_s, start_s), min(last_s, end_s)


def _idle_kind(pods: Sequence[HeldGpus], records: HygieneRecords) -> WasteKind:
    used = {held.node for held in records.held}
    return WasteKind.HOURS_NOT_USED if any(pod.node in used for pod in pods) else WasteKind.NON_GPU_PODS


def _stray_evidence(pods: Sequence[HeldGpus], spans: Sequence[LostSpan], records: HygieneRecords) -> str:
    hours = sum(span.end_s - span.start_s for span in spans) / S_PER_HR
    where = f"{_counted(len(_names(pod.pod for pod in pods)), 'pod')} on {', '.join(_names(pod.node for pod in pods))}"
    asks = [pod for pod in records.pods if pod["workload"] == pods[0].workload and pod["cpu_request"]]
    cpu = f", {sum(_number(pod['cpu_request']) for pod in asks):g} CPUs asked for" if asks else ""
    if not spans:
        return (
            f"{where}{cpu}; GPUs there were held all the time, so that it costs nothing now, and keeps the node later"
        )
    return (
        f"{where}{cpu}; for {hours:,.0f} node-hours nobody held a GPU there, and it kept the node from being given back"
    )


# Nodes without a taint


def _untainted(records: HygieneRecords, strays: set[str]) -> Iterator[Found]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in records.nodes:
        if row["end"] is None or _seconds(row["end"], records.end_s) >= records.end_s:
            groups[group_of(row)].append(row)
    read = any(_pairs(row["taints"]) or _pairs(row["labels"]) for row in records.nodes)
    for group, rows in sorted(groups.items()):
        bare = [str(row["node"]) for row in rows if not keeps_others_out(_pairs(row["taints"]))]
        let_in = [name for name in bare if name in strays]
        if not bare or not (let_in or (read and records.pods)):
            continue
        here = set(bare)
        daemons = _names(
            str(pod["workload"]) for pod in records.pods if pod["node"] in here and pod["owner_kind"] in _FOLLOWS_NODES
        )
        let = f"; it let in {', '.join(_strays_on(here, records))}" if let_in else "; no stray pod stands there yet"
        yield (
            Offence(
                kind=OffenceKind.NO_TAINT,
                subject=group,
                owner_kind="",
                nodes=tuple(bare),
                items=tuple(bare),
                call=Call.PLATFORM,
                evidence=f"{len(bare)} of {_counted(len(rows), 'node')} keep no pod out{let}; its cost is that of those pods",
                counted_in=None,
                unschedulable=_kept_off(here, records),
                daemons=daemons,
            ),
            [],
        )


def group_of(row: Row) -> str:
    """Return the node pool or node group that made a node, by its labels; else its machine type."""
    labels = _pairs(row["labels"])
    name = next((labels[key] for key in _GROUP_LABELS if labels.get(key)), None)
    return name or str(row["instance_type"])


def keeps_others_out(taints: Mapping[str, str]) -> bool:
    """Tell whether taints (key -> `value:effect`) keep pods away that do not ask for the node."""
    return any(effect.rpartition(":")[2] in _KEEPS_OUT for effect in taints.values())


def _strays_on(nodes: set[str], records: HygieneRecords) -> tuple[str, ...]:
    follows = {name for name, kind in records.owner_kinds.items() if kind in _FOLLOWS_NODES}
    holders = {held.workload for held in records.held}
    return _names(
        other.workload for other in records.others if other.node in nodes and other.workload not in follows | holders
    )


def _kept_off(nodes: set[str], records: HygieneRecords) -> tuple[str, ...]:
    """Return the workloads with GPUs on these nodes that do not tolerate the taint, or of which nobody knows."""
    tolerate = {str(pod["workload"]) for pod in records.pods if tolerates_gpu_taint(_pairs(pod["tolerations"]))}
    held = {hold.workload for hold in records.held if hold.node in nodes and hold.end_s >= records.end_s}
    return tuple(sorted(held - tolerate))


def tolerates_gpu_taint(tolerations: Mapping[str, str]) -> bool:
    """Tell whether tolerations (key, `*` = any -> `value:effect`) allow a node with the taint nvidia.com/gpu:NoSchedule."""
    for key, stated in tolerations.items():
        effects = [text.partition(" for ")[0].rpartition(":")[2] for text in stated.split(", ")]
        if key in ("*", GPU_TAINT) and any(effect in ("", "NoSchedule") for effect in effects):
            return True
    return False


# Pods with GPUs


def _waiting(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield the pods with GPUs that wait for a node, and those that wait on their node to start."""
    held = _pods(hold for hold in records.held if hold.end_s >= records.end_s)
    groups: dict[tuple[str, bool], list[Row]] = defaultdict(list)
    for pod in records.pods:
        since = pod["scheduled"] or pod["created"]
        long = records.end_s - _seconds(since, records.end_s) >= settings.pending_hr * S_PER_HR
        if not _number(pod["gpus"]) or pod["phase"] != "Pending" or pod["ended"] is not None or not long:
            continue
        if not is_crash_looping(pod, records.end_s, settings) and not (pod["queue"] and pod["node"] is None):
            groups[str(pod["workload"]), pod["node"] is not None].append(pod)
    for (workload, placed), pods in sorted(groups.items()):
        mine = [hold for pod in pods for hold in held.get((workload, str(pod["pod"])), ())]
        spans = _idle_spans(mine, records.start_s, records.end_s) if placed else []
        measured = all(records.seen_hours.get(hold.device) for hold in mine)
        yield (
            Offence(
                kind=OffenceKind.STUCK if placed else OffenceKind.PENDING,
                subject=workload,
                owner_kind=str(pods[0]["owner_kind"] or ""),
                nodes=_names(str(pod["node"]) for pod in pods if pod["node"]),
                items=_names(str(pod["pod"]) for pod in pods),
                call=Call.OWNER if placed else Call.PLATFORM,
                evidence="; ".join(_wait_words(pod, records) for pod in pods[:3]),
                counted_in=(WasteKind.IDLE if measured else WasteKind.UNMEASURED) if spans else None,
                ongoing=placed,
            ),
            spans,
        )


def _wait_words(pod: Row, records: HygieneRecords) -> str:
    hours = (records.end_s - _seconds(pod["scheduled"] or pod["created"], records.end_s)) / S_PER_HR
    why = pod["waiting"] if pod["node"] is not None else pod["unschedulable"]
    what = "holds" if pod["node"] is not None else "asks for"
    return f"{pod['pod']} {what} {_number(pod['gpus']):g} GPUs and waits for {hours:,.1f} h{f': {why}' if why else ''}"


def _pods(held: Iterable[HeldGpus]) -> dict[tuple[str, str], list[HeldGpus]]:
    """Return what each pod held."""
    pods: dict[tuple[str, str], list[HeldGpus]] = defaultdict(list)
    for hold in held:
        pods[hold.workload, hold.pod].append(hold)
    return pods


def idle_hours(held: Sequence[HeldGpus], records: HygieneRecords) -> list[int]:
    """Return the hours since 1970 in which GPUs held together were all read and none did anything, in order."""
    if any(not hold.device for hold in held):
        return []
    there: set[int] = set()
    not_idle: set[int] = set()
    for hold in held:
        first_s, last_s = max(hold.start_s, records.start_s), min(hold.end_s, records.end_s)
        hours = set(range(int(first_s // S_PER_HR), int(-(-last_s // S_PER_HR))))
        idle = records.seen_hours.get(hold.device, frozenset()) - records.active_hours.get(hold.device, {}).keys()
        there |= hours
        not_idle |= hours - idle
    return sorted(there - not_idle)


def _runs_of(hours: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches of hours on end, as the first and the one after the last."""
    start = previous = None
    for hour in hours:
        if previous is None or hour != previous + 1:
            if start is not None and previous is not None:
                yield start, previous + 1
            start = hour
        previous = hour
    if start is not None and previous is not None:
        yield start, previous + 1


def _rest_hr(held: Sequence[HeldGpus], hour: int, beside: int, records: HygieneRecords) -> float:
    """Return how much of the hour next to an idle stretch was idle too, 0..1.

    Work that stopped (or began) within the hour shows there as less activity than in the hour `beside` it, on the other side;
    where that one has none, the hour counts as worked through.
    """
    devices = {hold.device for hold in held if hold.start_s <= hour * S_PER_HR and hold.end_s >= (hour + 1) * S_PER_HR}
    worked = 0.0
    for device in devices:
        here, there = (records.active_hours.get(device, {}).get(at) for at in (hour, beside))
        if here is not None:
            worked = max(worked, min(here / there, 1.0) if there else 1.0)
    return 1.0 - worked if worked else 0.0


def _idle_spans(held: Iterable[HeldGpus], start_s: float, end_s: float) -> list[LostSpan]:
    return [
        LostSpan(
            finding=0,
            node=hold.node,
            holder=hold.workload,
            gpus=hold.gpus,
            start_s=max(start_s, hold.start_s),
            end_s=min(end_s, hold.end_s),
        )
        for hold in held
        if hold.start_s < end_s and hold.end_s > start_s
    ]


def _notebooks(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    spans: dict[str, list[LostSpan]] = defaultdict(list)
    longest: dict[str, int] = defaultdict(int)
    pods = _pods(hold for hold in records.held if hold.workload in records.notebooks)
    for (workload, _), held in pods.items():
        for first, after in _runs_of(idle_hours(held, records)):
            if after - first > settings.notebook_open_hr:
                from_hr = first - _rest_hr(held, first - 1, first - 2, records)
                until_hr = after + _rest_hr(held, after, after + 1, records)
                open_s = (from_hr + settings.notebook_open_hr) * S_PER_HR
                spans[workload] += _idle_spans(held, open_s, until_hr * S_PER_HR)
                longest[workload] = max(longest[workload], after - first)
    for workload, mine in sorted(spans.items()):
        hours = sum(span.gpus * (span.end_s - span.start_s) for span in mine) / S_PER_HR
        yield (
            Offence(
                kind=OffenceKind.NOTEBOOK,
                subject=workload,
                owner_kind=records.owner_kinds.get(workload, ""),
                nodes=_names(span.node for span in mine),
                items=_names(pod for name, pod in pods if name == workload),
                call=Call.OWNER,
                evidence=f"{hours:,.0f} GPU-hours idle beyond {settings.notebook_open_hr:g} h at a stretch, the longest "
                f"stretch {longest[workload]} h",
                counted_in=WasteKind.IDLE,
            ),
            mine,
        )


def _unused(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    broken = {
        (str(pod["workload"]), str(pod["pod"]))
        for pod in records.pods
        if pod["phase"] == "Pending" or is_crash_looping(pod, records.end_s, settings)
    }
    last = int(-(-records.end_s // S_PER_HR))
    spans: dict[str, list[LostSpan]] = defaultdict(list)
    pods: dict[str, list[tuple[str, int]]] = defaultdict(list)
    lasting = _pods(
        hold for hold in records.held if hold.end_s >= records.end_s and hold.workload not in records.notebooks
    )
    for (workload, pod), held in lasting.items():
        stretches = list(_runs_of(idle_hours(held, records)))
        if (workload, pod) in broken or not stretches or stretches[-1][1] < last:
            continue
        first = stretches[-1][0]
        if last - first >= settings.unused_hr:
            spans[workload] += _idle_spans(held, float(first * S_PER_HR), records.end_s)
            pods[workload].append((pod, last - first))
    for workload, mine in sorted(spans.items()):
        told = ", ".join(f"{pod} for {hours} h" for pod, hours in pods[workload][:3])
        yield (
            Offence(
                kind=OffenceKind.UNUSED,
                subject=workload,
                owner_kind=records.owner_kinds.get(workload, ""),
                nodes=_names(span.node for span in mine),
                items=_names(pod for pod, _ in pods[workload]),
                call=Call.OWNER,
                evidence=f"none of its GPUs did anything up to the end of the history: {told}",
                counted_in=WasteKind.IDLE,
                ongoing=True,
            ),
            mine,
        )


def _over_asked(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    del settings  # what was used is measured: no threshold
    spans: dict[tuple[str, float, float], list[LostSpan]] = defaultdict(list)
    pods: dict[tuple[str, float, float], list[str]] = defaultdict(list)
    for (workload, pod), held in _pods(records.held).items():
        gpus = _at_once(held)
        used = records.used_of.get((workload, round(gpus, 3)))
        if used is None or used >= gpus or workload in records.notebooks:
            continue
        key = (workload, gpus, used)
        pods[key].append(pod)
        spans[key] += [
            replace(span, lost_frac=1.0 - used / gpus) for span in _idle_spans(held, records.start_s, records.end_s)
        ]
    for (workload, gpus, used), mine in sorted(spans.items()):
        yield (
            Offence(
                kind=OffenceKind.OVER_ASKED,
                subject=workload,
                owner_kind=records.owner_kinds.get(workload, ""),
                nodes=_names(span.node for span in mine),
                items=tuple(pods[workload, gpus, used]),
                call=Call.OWNER,
                evidence=f"{_counted(len(pods[workload, gpus, used]), 'pod')} held {gpus:g} GPUs each; none ever had more "
                f"than {used:g} at work",
                counted_in=WasteKind.OVER_PARALLEL,
            ),
            mine,
        )


def _at_once(held: Sequence[HeldGpus]) -> float:
    """Return the most GPUs that one pod held at one moment."""
    changes = sorted([(hold.end_s, -hold.gpus) for hold in held] + [(hold.start_s, hold.gpus) for hold in held])
    now = most = 0.0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


# Autoscalers, pools and budgets: they cost nothing by themselves


def _free(
    kind: OffenceKind, subject: str, items: Iterable[str], call: Call, evidence: str, owner_kind: str = ""
) -> Found:
    offence = Offence(
        kind=kind,
        subject=subject,
        owner_kind=owner_kind,
        nodes=(),
        items=_names(items),
        call=call,
        evidence=evidence,
        counted_in=None,
    )
    return offence, []


def _scalers(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield the workloads with GPUs whose autoscalers fight, cannot move, or look at CPU alone."""
    del settings  # what an autoscaler says needs no threshold
    with_gpus = {held.workload for held in records.held}
    by_target: dict[str, list[Row]] = defaultdict(list)
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


def _scaler_faults(scaler: Row) -> Iterator[str]:
    least, most = scaler["min_replicas"], scaler["max_replicas"]
    if isinstance(least, float) and least == most:
        yield f"{scaler['name']} has {least:g} replicas as floor and as ceiling"
    triggers = [trigger.strip() for trigger in str(scaler["triggers"] or "").split(";") if trigger.strip()]
    if triggers and all(trigger.partition(" ")[0] in ("cpu", "memory") for trigger in triggers):
        yield f"{scaler['name']} scales on {', '.join(triggers)}, which says nothing of its GPUs"


def _unlimited(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    del settings
    groups = {group_of(row) for row in records.nodes}
    for scaler in records.scalers:
        if scaler["kind"] == "NodePool" and scaler["name"] in groups and not _pairs(scaler["limits"]):
            said = "a Karpenter pool with GPUs and without `limits`: one wrong replica count buys without end"
            yield _free(OffenceKind.UNLIMITED, str(scaler["name"]), (), Call.PLATFORM, said)


def _budgets(records: HygieneRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield budgets that let no pod go though all are healthy, and services of several replicas that have none."""
    del settings
    budgeted = {str(budget["workload"]) for budget in records.budgets}
    for budget in records.budgets:
        healthy, expected = _number(budget["healthy"]), _number(budget["expected"])
        if (
            budget["allowed"] == 0
            and expected
            and healthy >= expected
            and str(budget["workload"]) in records.owner_kinds
        ):
            said = (
                f"{budget['name']} lets no pod go though all {expected:g} are healthy: its nodes can never be drained"
            )
            yield _free(OffenceKind.BUDGET, str(budget["workload"]), (str(budget["name"]),), Call.OWNER, said)
    replicas: dict[str, set[str]] = defaultdict(set)
    for pod in records.pods:
        if _number(pod["gpus"]) and pod["owner_kind"] == "Deployment" and pod["phase"] == "Running":
            replicas[str(pod["workload"])].add(str(pod["pod"]))
    for workload, pods in sorted(replicas.items()):
        # where no budget was read at all nobody knows whether there are any
        if records.budgets and len(pods) > 1 and workload not in budgeted | records.notebooks:
            said = f"{len(pods)} replicas and no disruption budget: a drain may take them all at once"
            yield _free(OffenceKind.BUDGET, workload, sorted(pods), Call.OWNER, said, "Deployment")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


def _pairs(cell: object) -> dict[str, str]:
    """Return a cell of labels, which Arrow gives as pairs."""
    pairs = cell.items() if isinstance(cell, Mapping) else cell if isinstance(cell, list) else ()
    return {str(key): str(value) for key, value in pairs}


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _number(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _seconds(cell: object, absent_s: float) -> float:
    return cell.timestamp() if isinstance(cell, datetime) else absent_s

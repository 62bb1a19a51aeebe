"""What is untidy in a cluster, offender by offender: what it is, what it costs, and who must know before it is changed.

Dollars are of waste that the bill's split has counted already, and each line says under which kind; lines share GPU time that
several claim, so that they never add up to more than was paid. What an offender costs:

- pods without GPUs on a GPU node cost nothing by themselves: only the hours count in which no workload held a GPU of the node,
  because in those they alone kept it from being given back. Several such pods share them;
- a missing taint costs what the pods cost that it let in, which is counted with them;
- a pod that waits for a node costs nothing; one that waits on its node for an image costs the GPUs that it holds;
- a queue whose runs wait beside free GPUs costs as many of these as the runs would have held;
- a pod that does nothing, and a notebook left open, cost the GPUs that they hold while these do nothing;
- a pod that asks for more GPUs than it ever used costs the others;
- nodes that would be empty if pods stood closer together cost what is free of them and of those that would take their pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab.diagnose.broken import is_crash_looping
from trimtab.diagnose.cluster_records import (
    NOBODY,
    Call,
    ClusterRecords,
    HeldGpus,
    LostSpan,
    counted,
    distinct,
    gpus_words,
    lost_spans,
    number,
    pairs,
    seconds,
)
from trimtab.diagnose.findings import (
    Found,
    Offence,
    OffenceKind,
    Offences,
    WasteKind,
    budget_offences,
    group_of,
    scaler_offences,
    unlimited_pools,
)
from trimtab.diagnose.packing import scattered
from trimtab.diagnose.queue_waits import waiting_beside_free_gpus
from trimtab.fleet.settings import Hygiene
from trimtab.tables.arrow import RecordedRow
from trimtab.units import S_PER_HR

_FOLLOWS_NODES = frozenset({"DaemonSet", "Node"})
GPU_TAINT = "nvidia.com/gpu"
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_FOR_A_WHILE = (
    "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler", "cloud.google.com/impending-node-termination", "aws-node-termination-handler/",
)  # fmt: skip
"""Keys of taints that come and go: kubernetes.io, "Well-Known Labels, Annotations and Taints"; Karpenter v1 (`disrupted`,
`unregistered`); Cluster Autoscaler, utils/taints; GKE; aws-node-termination-handler."""


def offences(records: ClusterRecords, settings: Hygiene) -> Offences:
    """Return what is untidy in a history, whatever it costs."""
    found: list[Found] = []
    rules: tuple[Callable[[ClusterRecords, Hygiene], Iterable[Found]], ...] = (
        _strays, _waiting, waiting_beside_free_gpus, _notebooks, _unused, scattered,
    )  # fmt: skip
    for rule in rules:
        found += rule(records, settings)
    for plain in (_over_asked, scaler_offences, unlimited_pools, budget_offences):
        found += plain(records)
    strays = {node for offence, _ in found if offence.kind is OffenceKind.STRAY for node in offence.nodes}
    found += _untainted(records, strays)
    return Offences(
        offences=tuple(offence for offence, _ in found),
        spans=tuple(replace(span, finding=number) for number, (_, spans) in enumerate(found) for span in spans),
    )


# Pods without GPUs


def _strays(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
    holders = {held.workload for held in records.held}
    lives: dict[str, list[HeldGpus]] = defaultdict(list)
    for other in records.others:
        if records.owner_kinds.get(other.workload, "") not in _FOLLOWS_NODES and other.workload not in holders:
            lives[other.workload].append(other)
    shape = {str(row["node"]): float(number(row["gpu_count"])) for row in records.nodes}
    free = _free_stretches(records)
    for workload, pods in sorted(lives.items()):
        here_s = sum(pod.end_s - pod.start_s for pod in pods)
        if here_s < settings.stray_hr * S_PER_HR:
            continue
        spans = [
            LostSpan(node=pod.node, holder=NOBODY, gpus=shape.get(pod.node, 0.0), start_s=start_s, end_s=end_s)
            for pod in pods
            for start_s, end_s in _both(free.get(pod.node, ()), pod.start_s, pod.end_s)
        ]
        yield (
            Offence(
                kind=OffenceKind.STRAY,
                subject=workload,
                owner_kind=records.owner_kinds.get(workload, ""),
                nodes=distinct(pod.node for pod in pods),
                items=distinct(pod.pod for pod in pods),
                call=Call.OWNER,
                evidence=_stray_evidence(pods, spans, records),
                counted_in=_idle_kind(pods, records) if spans else None,
            ),
            spans,
        )


def _free_stretches(records: ClusterRecords) -> dict[str, list[tuple[float, float]]]:
    """Return, by node, the stretches of its life in which no workload held any of its GPUs."""
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for hold in records.held:
        held[hold.node].append((hold.start_s, hold.end_s))
    free: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in records.nodes:
        name = str(row["node"])
        at_s, end_s = seconds(row["start"], records.start_s), seconds(row["end"], records.end_s)
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


def _idle_kind(pods: Sequence[HeldGpus], records: ClusterRecords) -> WasteKind:
    used = {held.node for held in records.held}
    return WasteKind.HOURS_NOT_USED if any(pod.node in used for pod in pods) else WasteKind.NON_GPU_PODS


def _stray_evidence(pods: Sequence[HeldGpus], spans: Sequence[LostSpan], records: ClusterRecords) -> str:
    hours = sum(span.end_s - span.start_s for span in spans) / S_PER_HR
    where = (
        f"{counted(len(distinct(pod.pod for pod in pods)), 'pod')} on {', '.join(distinct(pod.node for pod in pods))}"
    )
    asks = [pod for pod in records.pods if pod["workload"] == pods[0].workload and pod["cpu_request"]]
    cpu = f", {sum(number(pod['cpu_request']) for pod in asks):g} CPUs asked for" if asks else ""
    if not spans:
        return (
            f"{where}{cpu}; GPUs there were held all the time, so that it costs nothing now, and keeps the node later"
        )
    return f"{where}{cpu}; for {hours:,.0f} node-hours no workload held a GPU there, and it kept the node from being given back"


# Nodes without a taint


def _untainted(records: ClusterRecords, strays: set[str]) -> Iterator[Found]:
    groups: dict[str, list[RecordedRow]] = defaultdict(list)
    for row in records.nodes:
        if row["end"] is None or seconds(row["end"], records.end_s) >= records.end_s:
            groups[group_of(row)].append(row)
    read = any(pairs(row["taints"]) or pairs(row["labels"]) for row in records.nodes)
    for group, rows in sorted(groups.items()):
        bare = [str(row["node"]) for row in rows if not keeps_others_out(pairs(row["taints"]))]
        let_in = [name for name in bare if name in strays]
        if not bare or not (let_in or (read and records.pods)):
            continue
        here = set(bare)
        daemons = distinct(
            str(pod["workload"]) for pod in records.pods if pod["node"] in here and pod["owner_kind"] in _FOLLOWS_NODES
        )
        let = (
            f"it let in {', '.join(_strays_on(here, records))}, whose cost is theirs"
            if let_in
            else "no stray pod stands there yet"
        )
        yield (
            Offence(
                kind=OffenceKind.NO_TAINT,
                subject=group,
                owner_kind="",
                nodes=tuple(bare),
                items=tuple(bare),
                call=Call.PLATFORM,
                evidence=f"no taint keeps pods off {len(bare)} of {counted(len(rows), 'node')}; {let}",
                counted_in=None,
                unschedulable=_kept_off(here, records),
                daemons=daemons,
            ),
            [],
        )


def keeps_others_out(taints: Mapping[str, str]) -> bool:
    """Return whether taints (key -> `value:effect`) keep pods away that do not ask for the node.

    What Kubernetes and autoscalers set for a while (a cordon, a node not ready or about to go) keeps none away for good.
    """
    return any(
        effect.rpartition(":")[2] in _KEEPS_OUT and not key.startswith(_FOR_A_WHILE) for key, effect in taints.items()
    )


def _strays_on(nodes: set[str], records: ClusterRecords) -> tuple[str, ...]:
    follows = {name for name, kind in records.owner_kinds.items() if kind in _FOLLOWS_NODES}
    holders = {held.workload for held in records.held}
    return distinct(
        other.workload for other in records.others if other.node in nodes and other.workload not in follows | holders
    )


def _kept_off(nodes: set[str], records: ClusterRecords) -> tuple[str, ...]:
    """Return the workloads with GPUs on these nodes that do not tolerate the taint, or whose tolerations are unknown."""
    tolerate = {str(pod["workload"]) for pod in records.pods if tolerates_gpu_taint(pairs(pod["tolerations"]))}
    held = {hold.workload for hold in records.held if hold.node in nodes and hold.end_s >= records.end_s}
    return tuple(sorted(held - tolerate))


def tolerates_gpu_taint(tolerations: Mapping[str, str]) -> bool:
    """Return whether tolerations (key, `*` = any -> `value:effect`) allow a node with the taint nvidia.com/gpu:NoSchedule."""
    for key, stated in tolerations.items():
        effects = [text.partition(" for ")[0].rpartition(":")[2] for text in stated.split(", ")]
        if key in ("*", GPU_TAINT) and any(effect in ("", "NoSchedule") for effect in effects):
            return True
    return False


# Pods with GPUs


def _waiting(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield the pods with GPUs that wait for a node, and those that wait on their node to start."""
    held = _pods(hold for hold in records.held if hold.end_s >= records.end_s)
    groups: dict[tuple[str, bool], list[RecordedRow]] = defaultdict(list)
    for pod in records.pods:
        since = pod["scheduled"] or pod["created"]
        long = records.end_s - seconds(since, records.end_s) >= settings.pending_hr * S_PER_HR
        if not number(pod["gpus"]) or pod["phase"] != "Pending" or pod["ended"] is not None or not long:
            continue
        if not is_crash_looping(pod, records.end_s, settings) and not (pod["queue"] and pod["node"] is None):
            groups[str(pod["workload"]), pod["node"] is not None].append(pod)
    for (workload, placed), pods in sorted(groups.items()):
        mine = [hold for pod in pods for hold in held.get((workload, str(pod["pod"])), ())]
        spans = lost_spans(mine, records.start_s, records.end_s) if placed else []
        measured = all(records.gpus.seen(hold.device) for hold in mine)
        yield (
            Offence(
                kind=OffenceKind.STUCK if placed else OffenceKind.PENDING,
                subject=workload,
                owner_kind=str(pods[0]["owner_kind"] or ""),
                nodes=distinct(str(pod["node"]) for pod in pods if pod["node"]),
                items=distinct(str(pod["pod"]) for pod in pods),
                call=Call.OWNER if placed else Call.PLATFORM,
                evidence="; ".join(_wait_words(pod, records) for pod in pods[:3]),
                counted_in=(WasteKind.IDLE if measured else WasteKind.UNMEASURED) if spans else None,
                ongoing=placed,
            ),
            spans,
        )


def _wait_words(pod: RecordedRow, records: ClusterRecords) -> str:
    hours = (records.end_s - seconds(pod["scheduled"] or pod["created"], records.end_s)) / S_PER_HR
    why = str((pod["waiting"] if pod["node"] is not None else pod["unschedulable"]) or "").rstrip(".")
    what = "holds" if pod["node"] is not None else "asks for"
    return (
        f"{pod['pod']} {what} {gpus_words(number(pod['gpus']))} and waits for {hours:,.1f} h{f': {why}' if why else ''}"
    )


def _pods(held: Iterable[HeldGpus]) -> dict[tuple[str, str], list[HeldGpus]]:
    """Return what each pod held."""
    pods: dict[tuple[str, str], list[HeldGpus]] = defaultdict(list)
    for hold in held:
        pods[hold.workload, hold.pod].append(hold)
    return pods


def idle_hours(held: Sequence[HeldGpus], records: ClusterRecords) -> list[int]:
    """Return the hours since 1970 in which GPUs held together were all read and none did anything, in order."""
    if any(not hold.device for hold in held):
        return []
    there: set[int] = set()
    not_idle: set[int] = set()
    for hold in held:
        first_s, last_s = max(hold.start_s, records.start_s), min(hold.end_s, records.end_s)
        hours = set(range(int(first_s // S_PER_HR), int(-(-last_s // S_PER_HR))))
        idle = records.gpus.seen(hold.device) - records.gpus.active(hold.device).keys()
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


def _rest_hr(held: Sequence[HeldGpus], hour: int, beside: int, records: ClusterRecords) -> float:
    """Return how much of the hour next to an idle stretch was idle too, 0..1.

    Work that stopped (or began) within the hour shows there as less activity than in the hour `beside` it, on the other side;
    where that one has none, the hour counts as worked through.
    """
    devices = {hold.device for hold in held if hold.start_s <= hour * S_PER_HR and hold.end_s >= (hour + 1) * S_PER_HR}
    worked = 0.0
    for device in devices:
        works = records.gpus.active(device)
        here, there = works.get(hour), works.get(beside)
        if here is not None:
            worked = max(worked, min(here / there, 1.0) if there else 1.0)
    return 1.0 - worked if worked else 0.0


def _notebooks(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
    spans: dict[str, list[LostSpan]] = defaultdict(list)
    longest: dict[str, int] = defaultdict(int)
    pods = _pods(hold for hold in records.held if hold.workload in records.notebooks)
    for (workload, _), held in pods.items():
        for first, after in _runs_of(idle_hours(held, records)):
            if after - first > settings.notebook_open_hr:
                from_hr = first - _rest_hr(held, first - 1, first - 2, records)
                until_hr = after + _rest_hr(held, after, after + 1, records)
                open_s = (from_hr + settings.notebook_open_hr) * S_PER_HR
                spans[workload] += lost_spans(held, open_s, until_hr * S_PER_HR)
                longest[workload] = max(longest[workload], after - first)
    for workload, mine in sorted(spans.items()):
        hours = sum(span.gpus * (span.end_s - span.start_s) for span in mine) / S_PER_HR
        evidence = (
            f"{hours:,.0f} GPU-hours idle beyond {settings.notebook_open_hr:g} h at a stretch, the longest stretch "
            f"{longest[workload]} h"
        )
        items = (pod for name, pod in pods if name == workload)
        yield _of_workload(OffenceKind.NOTEBOOK, workload, mine, items, evidence, records)


def _unused(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
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
            spans[workload] += lost_spans(held, float(first * S_PER_HR), records.end_s)
            pods[workload].append((pod, last - first))
    for workload, mine in sorted(spans.items()):
        told = ", ".join(f"{pod} for {hours} h" for pod, hours in pods[workload][:3])
        evidence = f"none of its GPUs did anything up to the end of the history: {told}"
        items = (pod for pod, _ in pods[workload])
        yield _of_workload(OffenceKind.UNUSED, workload, mine, items, evidence, records, ongoing=True)


def _over_asked(records: ClusterRecords) -> Iterator[Found]:
    spans: dict[tuple[str, float, float], list[LostSpan]] = defaultdict(list)
    pods: dict[tuple[str, float, float], list[str]] = defaultdict(list)
    for (workload, pod), held in _pods(records.held).items():
        gpus = _at_once(held)
        used = records.used_of.get((workload, round(gpus, 3)))
        if used is None or used >= gpus or workload in records.notebooks:
            continue
        key = (workload, gpus, used)
        pods[key].append(pod)
        spans[key] += lost_spans(held, records.start_s, records.end_s, 1.0 - used / gpus)
    for (workload, gpus, used), mine in sorted(spans.items()):
        items = pods[workload, gpus, used]
        evidence = f"{counted(len(items), 'pod')} held {gpus_words(gpus)} each; none ever had more than {used:g} busy"
        yield _of_workload(
            OffenceKind.OVER_ASKED, workload, mine, items, evidence, records, counted_in=WasteKind.OVER_PARALLEL
        )


def _of_workload(
    kind: OffenceKind,
    workload: str,
    spans: Sequence[LostSpan],
    items: Iterable[str],
    evidence: str,
    records: ClusterRecords,
    *,
    counted_in: WasteKind = WasteKind.IDLE,
    ongoing: bool = False,
) -> Found:
    """Return an offence that a workload's owner can end, with the GPU time that it took."""
    offence = Offence(
        kind=kind,
        subject=workload,
        owner_kind=records.owner_kinds.get(workload, ""),
        nodes=distinct(span.node for span in spans),
        items=distinct(items),
        call=Call.OWNER,
        evidence=evidence,
        counted_in=counted_in,
        ongoing=ongoing,
    )
    return offence, list(spans)


def _at_once(held: Sequence[HeldGpus]) -> float:
    """Return the most GPUs that one pod held at one moment."""
    changes = sorted([(hold.end_s, -hold.gpus) for hold in held] + [(hold.start_s, hold.gpus) for hold in held])
    now = most = 0.0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most

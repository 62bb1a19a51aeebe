"""Nodes that would be empty if pods stood closer together: which pods to move, in which order, and what that frees.

Nodes of one group (a node pool, or a machine type) are looked at as they stood at the end of a history. The node that holds
least is emptied first, if each of its pods finds room on the others that hold some: the largest first, each where least use is
lost to pods still to come (`replay.job_nodes`). Then the next. Nothing goes to a node that holds no GPU, for such a node can
go as it is.

Only what is safe to say is said:

- a pod is moved only if a Deployment, ReplicaSet or StatefulSet makes it again, and only once its node and the others have not
  changed for a day. Runs lose work and notebooks their state; they keep their nodes;
- a node takes a pod only if its taints are the same, and the labels that the pod asks for; two pods of a workload come together
  only where some already stand together, for what keeps them apart is not known;
- CPUs and memory are counted by what pods ask for against what the machine type has, less a share for kubelet and DaemonSets;
- a node with MIG instances, or of which some holder's device is unknown, neither gives nor takes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from trimtab.catalog import InstanceType
from trimtab.diagnose.cluster_records import (
    NOBODY,
    Call,
    ClusterRecords,
    HeldGpus,
    LostSpan,
    counted,
    distinct,
    gpus_words,
    number,
    pairs,
    seconds,
)
from trimtab.diagnose.findings import Found, Offence, OffenceKind, WasteKind, group_of
from trimtab.fleet.owner_kinds import DEPLOYED
from trimtab.fleet.settings import Hygiene
from trimtab.replay.job_nodes import (
    ANY_MODEL,
    GPU_MILLI,
    OFFERS,
    ExpectedFill,
    NodeRoom,
    PodAsk,
    PodMix,
    expected_fill,
    fits,
    least_lost,
    left_after,
    pod_mix,
    usable_milli,
)
from trimtab.tables.arrow import RecordedRow
from trimtab.units import MIB_PER_GIB, S_PER_HR

_MADE_ANEW = DEPLOYED | {"ReplicaSet", "StatefulSet"}
_CPU_MILLI = 1000
_ONE_MODEL = 0
"""Nodes of a group have GPUs of one model."""
_LOOKED_AT = 32
"""Nodes with room that are weighed for a pod, the fullest of them: more would take long in groups of hundreds."""
_NAMED = 3


@dataclass(slots=True, kw_only=True)
class _Pod:
    name: str
    workload: str
    owner_kind: str
    ask: PodAsk
    devices: tuple[int, ...]
    """The GPUs that it holds, by their place on the node."""
    needs: tuple[str, ...]
    """Keys of labels that its node must have."""
    start_s: float | None
    """How long it took to start, where that was seen."""


@dataclass(slots=True, kw_only=True)
class _Node:
    name: str
    taints: Mapping[str, str]
    labels: Mapping[str, str]
    room: NodeRoom
    settled_s: float
    """Since when no pod came or went, seconds since 1970."""
    pods: list[_Pod] = field(default_factory=list)

    @property
    def held_milli(self) -> int:
        return len(self.room.gpu_milli) * GPU_MILLI - int(self.room.gpu_milli.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Emptied:
    node: _Node
    moves: tuple[tuple[_Pod, _Node], ...]


def scattered(records: ClusterRecords, settings: Hygiene) -> Iterator[Found]:
    """Yield the groups in which moving pods would empty nodes."""
    groups: dict[str, list[RecordedRow]] = defaultdict(list)
    for row in records.nodes:
        if row["end"] is None or seconds(row["end"], records.end_s) >= records.end_s:
            groups[group_of(row)].append(row)
    for group, rows in sorted(groups.items()):
        nodes = _settled(rows, records, settings)
        if len(nodes) < 2:
            continue
        before = {node.name: int(node.room.gpu_milli.sum()) for node in nodes}
        emptied = _emptied(nodes)
        if emptied:
            yield _found(group, len(rows), nodes, emptied, before, records)


def _settled(rows: Sequence[RecordedRow], records: ClusterRecords, settings: Hygiene) -> list[_Node]:
    """Return the nodes of a group that hold something, whose holders are all known and have stayed for long enough."""
    asked = {str(pod["pod"]): pod for pod in records.pods}
    shape = {(machine.provider, machine.name): machine for machine in records.machines}
    holds: dict[str, list[HeldGpus]] = defaultdict(list)
    for hold in records.held:
        holds[hold.node].append(hold)
    found = []
    for row in rows:
        mine = holds[str(row["node"])]
        node = _node(row, mine, asked, shape.get((str(row["provider"]), str(row["instance_type"]))), records, settings)
        if node is not None and node.pods and records.end_s - node.settled_s >= settings.scattered_hr * S_PER_HR:
            found.append(node)
    return found


def _node(
    row: RecordedRow,
    holds: Sequence[HeldGpus],
    asked: Mapping[str, RecordedRow],
    machine: InstanceType | None,
    records: ClusterRecords,
    settings: Hygiene,
) -> _Node | None:
    """Return a node as it stood at the end; None where it is not known which GPU somebody holds."""
    name = str(row["node"])
    lasting = [hold for hold in holds if hold.end_s >= records.end_s]
    devices = {device: place for place, device in enumerate(sorted({hold.device for hold in holds}))}
    if (
        name in records.partitioned
        or any(not hold.device for hold in lasting)
        or len(devices) > number(row["gpu_count"])
    ):
        return None
    free = np.full(int(number(row["gpu_count"])), GPU_MILLI, dtype=np.int64)
    pods: dict[str, list[HeldGpus]] = defaultdict(list)
    for hold in lasting:
        free[devices[hold.device]] -= round(hold.gpus * GPU_MILLI)
        pods[hold.pod].append(hold)
    if (free < 0).any():
        return None
    here = [pod for pod in asked.values() if pod["node"] == name and pod["ended"] is None]
    usable = settings.allocatable_frac
    most_cpu, most_memory = (None, None) if machine is None else (machine.vcpus, machine.memory_gib)
    cpu = inf if most_cpu is None else usable * most_cpu - sum(number(pod["cpu_request"]) for pod in here)
    memory = (
        inf if most_memory is None else usable * most_memory - sum(number(pod["memory_request_gib"]) for pod in here)
    )
    changes = [hold.start_s for hold in holds] + [hold.end_s for hold in holds if hold.end_s < records.end_s]
    return _Node(
        name=name,
        taints=pairs(row["taints"]),
        labels=pairs(row["labels"]),
        room=NodeRoom(max(0.0, cpu) * _CPU_MILLI, max(0.0, memory) * MIB_PER_GIB, free, _ONE_MODEL),
        settled_s=max(changes, default=seconds(row["start"], records.start_s)),
        pods=[_pod(pod, mine, asked.get(pod), devices, records) for pod, mine in sorted(pods.items())],
    )


def _pod(
    name: str, holds: Sequence[HeldGpus], row: RecordedRow | None, devices: Mapping[str, int], records: ClusterRecords
) -> _Pod:
    milli = [round(hold.gpus * GPU_MILLI) for hold in holds]
    workload = holds[0].workload
    cpu = memory = 0.0
    needs: tuple[str, ...] = ()
    start_s = None
    if row is not None:
        cpu, memory = number(row["cpu_request"]), number(row["memory_request_gib"])
        needs = distinct((*pairs(row["node_selector"]), *str(row["affinity"] or "").replace(" ", "").split(",")))
        if row["ready"] is not None and row["scheduled"] is not None:
            start_s = seconds(row["ready"], 0.0) - seconds(row["scheduled"], 0.0)
    return _Pod(
        name=name,
        workload=workload,
        # without its row it is unknown what the pod asks for
        owner_kind=records.owner_kinds.get(workload, "") if row is not None else "",
        ask=PodAsk(cpu * _CPU_MILLI, memory * MIB_PER_GIB, len(milli), min(milli), ANY_MODEL),
        devices=tuple(devices[hold.device] for hold in holds),
        needs=needs,
        start_s=start_s,
    )


def _emptied(nodes: Sequence[_Node]) -> list[_Emptied]:
    """Empty one node after another, the least held first, as long as all its pods find room; `nodes` change with it."""
    mix = pod_mix([pod.ask for node in nodes for pod in node.pods])
    fill = expected_fill(mix, _ONE_MODEL, OFFERS)
    together = {
        workload
        for node in nodes
        for workload, count in Counter(pod.workload for pod in node.pods).items()
        if count > 1
    }
    left = sorted(nodes, key=lambda node: (node.held_milli, node.name))
    done: list[_Emptied] = []
    # a node that took a pod is not emptied any more: no pod moves twice
    taken: set[str] = set()
    for node in left:
        if node.name in taken or not all(_is_movable(pod) for pod in node.pods):
            continue
        gone = {each.node.name for each in done}
        others = sorted(
            (other for other in nodes if other is not node and other.name not in gone),
            key=lambda other: (-other.held_milli, other.name),
        )
        moves = _moves(node, others, together, mix, fill)
        if moves is not None:
            done.append(_Emptied(node=node, moves=moves))
            taken |= {target.name for _, target in moves}
    return done


def _is_movable(pod: _Pod) -> bool:
    whole = pod.ask.gpu_milli == GPU_MILLI
    return pod.owner_kind in _MADE_ANEW and (whole or pod.ask.gpus == 1)


def _moves(
    node: _Node, others: Sequence[_Node], together: set[str], mix: PodMix, fill: ExpectedFill
) -> tuple[tuple[_Pod, _Node], ...] | None:
    """Return where each pod of a node goes, and put it there; None, and nothing changes, where one finds no room."""
    rooms = {other.name: other.room for other in others}
    guests: dict[str, list[_Pod]] = defaultdict(list)
    moves = []
    for pod in sorted(node.pods, key=lambda pod: (-pod.ask.gpus * pod.ask.gpu_milli, -pod.ask.cpu_milli, pod.name)):
        best: tuple[float, _Node, int] | None = None
        looked_at = 0
        for other in others:
            room = rooms[other.name]
            if not fits(room, pod.ask) or not _may_stand(pod, node, other, guests[other.name], together):
                continue
            looked_at += 1
            if looked_at > _LOOKED_AT:
                break
            score = least_lost(room, pod.ask, mix, fill, usable_milli(room, mix, fill))
            if best is None or score.value > best[0]:
                best = (score.value, other, score.gpu)
        if best is None:
            return None
        _, target, gpu = best
        rooms[target.name] = left_after(rooms[target.name], pod.ask, gpu)
        guests[target.name].append(pod)
        moves.append((pod, target))
    for other in others:
        other.room = rooms[other.name]
        other.pods += guests[other.name]
    return tuple(moves)


def _may_stand(pod: _Pod, node: _Node, other: _Node, guests: Sequence[_Pod], together: set[str]) -> bool:
    alike = other.taints == node.taints and all(other.labels.get(key) == node.labels.get(key) for key in pod.needs)
    return alike and (
        pod.workload in together or all(there.workload != pod.workload for there in (*other.pods, *guests))
    )


def _found(
    group: str,
    count: int,
    nodes: Sequence[_Node],
    emptied: Sequence[_Emptied],
    before: Mapping[str, int],
    records: ClusterRecords,
) -> Found:
    gone = [each.node for each in emptied]
    moves = [move for each in emptied for move in each.moves]
    # the GPUs of the nodes that go are free today: some on these nodes, the others where the pods will stand
    freed = {node.name: before[node.name] for node in gone}
    for pod, target in moves:
        freed[target.name] = freed.get(target.name, 0) + pod.ask.gpus * pod.ask.gpu_milli
    since_s = max(max(node.settled_s for node in nodes if node.name in freed), records.start_s)
    spans = [
        LostSpan(node=name, holder=NOBODY, gpus=milli / GPU_MILLI, start_s=since_s, end_s=records.end_s)
        for name, milli in freed.items()
        if milli
    ]
    offence = Offence(
        kind=OffenceKind.SCATTERED,
        subject=group,
        owner_kind="",
        nodes=tuple(node.name for node in gone),
        items=tuple(pod.name for pod, _ in moves),
        call=Call.PLATFORM,
        evidence=_evidence(count, gone, moves, sum(before.values()) / GPU_MILLI),
        counted_in=WasteKind.HOURS_NOT_USED,
        ongoing=True,
    )
    return offence, spans


def _evidence(count: int, gone: Sequence[_Node], moves: Sequence[tuple[_Pod, _Node]], free_gpus: float) -> str:
    gpus = sum(pod.ask.gpus * pod.ask.gpu_milli for pod, _ in moves) / GPU_MILLI
    told = "; ".join(f"{pod.name} to {target.name}" for pod, target in moves[:_NAMED])
    more = f" and {len(moves) - _NAMED} more" if len(moves) > _NAMED else ""
    return (
        f"{gpus_words(free_gpus)} free in parts of its {counted(count, 'node')}: {', '.join(node.name for node in gone)} "
        f"would be empty after {counted(len(moves), 'move')} ({gpus_words(gpus)}): {told}{more}. {_cost(moves)}"
    )


def _cost(moves: Sequence[tuple[_Pod, _Node]]) -> str:
    known = [pod for pod, _ in moves if pod.start_s is not None]
    if len(known) < len(moves):
        return "Each of them starts again; how long that takes was not seen"
    hours = sum((pod.start_s or 0.0) * pod.ask.gpus * pod.ask.gpu_milli / GPU_MILLI for pod in known) / S_PER_HR
    return f"They start again, which took them {hours:,.2f} GPU-hours"

"""Who held which node and GPU when: node lifetimes and allocations per hour, and GPUs per pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.pools import Pool
from trimtab.fleet.activity import DeviceHours
from trimtab.fleet.columns import numbers, seconds_from, text
from trimtab.fleet.model import Node, PodSize, Window
from trimtab.ledger import IDLE, Holdings, Usage
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """Nodes, their seconds per hour, their holders, and inconsistent records."""

    nodes: tuple[Node, ...]
    node_seconds: IntArray
    usage: Usage
    holdings: Holdings
    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HourCells:
    """Intervals cut at hour boundaries (n_cells,): which interval, which hour, how many seconds."""

    index: IntArray
    hour: IntArray
    seconds: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldNodes:
    """The nodes (n,) that one workload held, the seconds that it held of each, and its share of what workloads held there."""

    nodes: IntArray
    seconds: FloatArray
    share: FloatArray

    def by_hour(self, node_seconds: IntArray) -> FloatArray:
        """Return its share of what the nodes (n_nodes, n_hours) were up, summed (n_hours,)."""
        return np.asarray(self.share @ node_seconds[self.nodes], dtype=np.float64)


def held_nodes(cells: Holdings, nodes: int, owners: int) -> list[HeldNodes]:
    """Return what each workload held, out of so many nodes; the cells are gone through once for all workloads."""
    taken = (cells.owner != IDLE) & (cells.node_seconds > 0)
    node, owner, weight = cells.node[taken], cells.owner[taken], cells.node_seconds[taken]
    total = np.bincount(node, weights=weight, minlength=nodes)
    # a number names both; those of one owner stand together
    pair, which = np.unique(owner.astype(np.int64) * nodes + node, return_inverse=True)
    seconds = np.asarray(np.bincount(which, weights=weight, minlength=len(pair)), dtype=np.float64)
    held = pair % max(nodes, 1)
    ends = np.searchsorted(pair, np.arange(owners + 1) * nodes)
    return [
        HeldNodes(nodes=held[mine], seconds=seconds[mine], share=seconds[mine] / total[held[mine]])
        for mine in (slice(first, end) for first, end in pairwise(ends.tolist()))
    ]


def cut_by_hour(start_s: FloatArray, end_s: FloatArray, window: Window) -> HourCells:
    """Cut intervals `[start, end)` (n,) at hour boundaries, within the window."""
    start = np.clip(start_s, 0, window.seconds)
    end = np.clip(end_s, 0, window.seconds)
    first = np.floor(start / S_PER_HR).astype(np.int64)
    count = np.where(end > start, np.ceil(end / S_PER_HR).astype(np.int64) - first, 0)
    index = np.repeat(np.arange(len(start)), count)
    # 0, 1, 2, ... again for each interval: the place of a cell less the place of its interval's first one
    offset = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    hour = first[index] + offset
    seconds = np.minimum(end[index], (hour + 1) * S_PER_HR) - np.maximum(start[index], hour * S_PER_HR)
    return HourCells(index=index, hour=hour, seconds=seconds)


def occupancy(nodes: pa.Table, allocations: pa.Table, workloads: Mapping[str, int], window: Window) -> Occupancy:
    """Build node lives and holdings over a window.

    A node row that repeats a node's name is another life of that node. CPU-only nodes are counted and left out: they are no GPU
    cost. GPUs held beyond what there are, of a named one or of a node (sharing, or records that overlap), are scaled down to
    it and counted.
    """
    lives, kept, counts = _lives(nodes)
    node_seconds = _seconds_per_hour(nodes, kept, lives, window)
    alive = node_seconds.any(axis=1)
    counts["a node that was up only outside the days planned on: in neither the bill nor the plan"] = int(
        (~alive).sum()
    )
    lives = [lives[index] for index in np.flatnonzero(alive)]
    node_seconds = node_seconds[alive]
    pools = tuple(sorted({life.pool for life in lives}))
    row = {pool: index for index, pool in enumerate(pools)}
    pool_of_node = np.array([row[life.pool] for life in lives], dtype=np.int64)
    billed = np.zeros((len(pools), window.hours), dtype=np.int64)
    np.add.at(billed, pool_of_node, node_seconds)
    elsewhere = pa.array(sorted(set(text(nodes["node"])) - {life.name for life in lives}), pa.string())
    allocations = allocations.filter(pc.invert(pc.is_in(allocations["node"], value_set=elsewhere)))
    holdings = _holdings(lives, node_seconds, pool_of_node, allocations, workloads, window, counts)
    return Occupancy(
        nodes=tuple(lives),
        node_seconds=node_seconds,
        usage=Usage(pools=pools, node_seconds=billed),
        holdings=holdings,
        counts={reason: number for reason, number in counts.items() if number},
    )


def _lives(nodes: pa.Table) -> tuple[list[Node], list[int], dict[str, int]]:
    rows = nodes.select(
        ["node", "provider", "instance_type", "region", "capacity_type", "gpu", "gpu_count"]
    ).to_pylist()
    kept = [index for index, row in enumerate(rows) if row["gpu_count"] > 0]
    lives = [
        Node(
            name=rows[index]["node"],
            pool=Pool(
                rows[index]["provider"],
                rows[index]["instance_type"],
                rows[index]["region"],
                rows[index]["capacity_type"],
            ),
            gpu=rows[index]["gpu"],
            gpu_count=rows[index]["gpu_count"],
        )
        for index in kept
    ]
    return lives, kept, {"nodes without GPUs, left out": len(rows) - len(kept)}


def _seconds_per_hour(nodes: pa.Table, kept: Sequence[int], lives: Sequence[Node], window: Window) -> IntArray:
    start = seconds_from(nodes["start"], window, absent=0.0)[kept]
    end = seconds_from(nodes["end"], window, absent=float(window.seconds))[kept]
    cells = cut_by_hour(start, end, window)
    seconds = np.zeros((len(lives), window.hours))
    np.add.at(seconds, (cells.index, cells.hour), cells.seconds)
    return np.minimum(np.rint(seconds), S_PER_HR).astype(np.int64)


def _holdings(
    lives: Sequence[Node],
    node_seconds: IntArray,
    pool_of_node: IntArray,
    allocations: pa.Table,
    workloads: Mapping[str, int],
    window: Window,
    counts: dict[str, int],
) -> Holdings:
    node, hour, owner, gpu_seconds = _held_cells(lives, node_seconds, allocations, workloads, window, counts)
    gpus = np.array([life.gpu_count for life in lives], dtype=np.float64)
    held = gpu_seconds / gpus[node]
    total = np.zeros(node_seconds.shape)
    np.add.at(total, (node, hour), held)
    # shares of GPUs are floats: a sum a little above the whole is the whole
    over = total > node_seconds * (1 + 1e-9)
    counts["node-hours held beyond the node's GPUs, scaled down"] = int(over.sum())
    fits = np.where(over, node_seconds / np.where(total > 0, total, 1.0), 1.0)
    held = held * fits[node, hour]
    idle = np.maximum(node_seconds - np.minimum(total, node_seconds), 0.0)
    # an hour without any holder has a cell too, however short: its cost must have somewhere to go
    idle_node, idle_hour = np.nonzero((idle > 0) | ((node_seconds > 0) & (total == 0)))
    every_node = np.concatenate([node, idle_node])
    return Holdings(
        pool=pool_of_node[every_node],
        hour=np.concatenate([hour, idle_hour]),
        node=every_node,
        owner=np.concatenate([owner, np.full(len(idle_node), IDLE, dtype=np.int64)]),
        node_seconds=np.concatenate([held, idle[idle_node, idle_hour]]),
    )


def _held_cells(
    lives: Sequence[Node],
    node_seconds: IntArray,
    allocations: pa.Table,
    workloads: Mapping[str, int],
    window: Window,
    counts: dict[str, int],
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Sum GPU-seconds per (node life, hour, workload)."""
    number = {name: index for index, name in enumerate(dict.fromkeys(life.name for life in lives))}
    name_of_row = np.array([number.get(name, -1) for name in text(allocations["node"])], dtype=np.int64)
    counts["allocations on unknown nodes"] = int((name_of_row < 0).sum())
    gpus = numbers(allocations["gpus"])
    start = seconds_from(allocations["start"], window, absent=0.0)
    end = seconds_from(allocations["end"], window, absent=float(window.seconds))
    useful = np.flatnonzero((name_of_row >= 0) & (gpus > 0))
    cells = cut_by_hour(start[useful], end[useful], window)
    source = useful[cells.index]
    node = _life_in_hour(lives, node_seconds, number)[name_of_row[source], cells.hour]
    lived = node >= 0
    counts["held hours outside the node's life"] = int((~lived).sum())
    owner = np.array([workloads[name] for name in text(allocations["workload"])], dtype=np.int64)[source]
    amount = _held_once(cells.seconds * gpus[source], allocations["device"], source, cells.hour, window, counts)
    return _summed(node[lived], cells.hour[lived], owner[lived], amount[lived], window.hours, len(workloads))


def _held_once(
    amount: FloatArray,
    devices: pa.ChunkedArray,
    source: IntArray,
    hour: IntArray,
    window: Window,
    counts: dict[str, int],
) -> FloatArray:
    """Share the GPU-seconds (n_cells,) of a named GPU that several rows hold in one hour, so that it is held once."""
    encoded = devices.combine_chunks().dictionary_encode()
    device = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)[source]
    key = np.where(device >= 0, device * window.hours + hour, -1)
    unique, inverse = np.unique(key, return_inverse=True)
    held = np.bincount(inverse, weights=amount, minlength=len(unique))
    over = (held > S_PER_HR * (1 + 1e-9)) & (unique >= 0)
    counts["device-hours that several held at once, shared between them"] = int(over.sum())
    return np.where(over, S_PER_HR / np.where(over, held, 1.0), 1.0)[inverse] * amount


def _life_in_hour(lives: Sequence[Node], node_seconds: IntArray, number: Mapping[str, int]) -> IntArray:
    """Return which life a node name had in each hour (n_names, n_hours); -1 if none. The first wins a shared hour."""
    life_at = np.full((len(number), node_seconds.shape[1]), -1, dtype=np.int64)
    # the last to write an hour stays in it
    for index in reversed(range(len(lives))):
        life_at[number[lives[index].name], node_seconds[index] > 0] = index
    return life_at


def _summed(
    node: IntArray, hour: IntArray, owner: IntArray, amount: FloatArray, hours: int, owners: int
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    key = (node * hours + hour) * max(owners, 1) + owner
    unique, inverse = np.unique(key, return_inverse=True)
    summed = np.bincount(inverse, weights=amount, minlength=len(unique))
    rest, owner_of = np.divmod(unique, max(owners, 1))
    node_of, hour_of = np.divmod(rest, hours)
    return node_of, hour_of, owner_of, np.asarray(summed, dtype=np.float64)


_SAME_SIZE = 1e-6
"""Of a GPU: sizes are sums of shares."""
_FAR_S = 1e12
"""An end that is not known, as a moment that differences can be taken of."""
_SAME_TIME_S = 60.0
"""Pods of a run start and end within so much of one another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pods:
    """Pods that held GPUs (n_pods,). Seconds are from the window's start; an end of infinity: it still holds them."""

    workload: IntArray
    gpus: FloatArray
    """GPUs held at once, at most: a pod that was restarted elsewhere holds no more than before."""
    start_s: FloatArray
    end_s: FloatArray
    used_gpus: FloatArray
    """GPUs of it that did anything in an hour in which any did, the 95th percentile of hours on the high side. One without
    readings in an hour counts as busy, unless it was read in others and never worked while the pod did. NaN where no GPU did
    anything, or if its GPUs are not known."""
    gpu: tuple[str, ...]
    """Their type of GPU; "" where it is not known, or where a pod held several types."""

    def sizes(self, workload: int) -> tuple[PodSize, ...]:
        """Return a workload's pods by size, the smallest first."""
        mine = np.flatnonzero(self.workload == workload)
        found = []
        for gpus in np.unique(np.round(self.gpus[mine], 6)):
            alike = mine[np.abs(self.gpus[mine] - gpus) <= _SAME_SIZE]
            used = self.used_gpus[alike]
            known = used[~np.isnan(used)]
            found.append(
                PodSize(gpus=float(gpus), pods=len(alike), used_gpus=float(known.max()) if len(known) else None)
            )
        return tuple(found)

    def types_of_runs(self, workload: int, start_s: FloatArray, end_s: FloatArray) -> tuple[str, ...]:
        """Return the type of GPU of each run (n_runs,): that of the pods whose time is most nearly its own; NaN: no end yet."""
        mine = np.flatnonzero(self.workload == workload)
        types = [self.gpu[pod] for pod in mine.tolist()]
        if len(set(types)) <= 1:
            return tuple((types or [""])[:1] * len(start_s))
        begin, last = self.start_s[mine], np.minimum(self.end_s[mine], _FAR_S)
        found = []
        for start, end in zip(
            start_s.tolist(), np.minimum(np.nan_to_num(end_s, nan=_FAR_S), _FAR_S).tolist(), strict=True
        ):
            away_s = np.abs(begin - start) + np.abs(last - end)
            found.append(one_type(types[pod] for pod in np.flatnonzero(away_s <= away_s.min() + _SAME_TIME_S).tolist()))
        return tuple(found)

    def usual_gpus(self, workload: int) -> float:
        """Return the GPUs of the median pod of a workload; 1 if none held any."""
        mine = self.workload == workload
        return float(np.median(self.gpus[mine])) if mine.any() else 1.0


def pods_of(
    allocations: pa.Table,
    gpus_of_node: Mapping[str, int],
    type_of_node: Mapping[str, str],
    workloads: Mapping[str, int],
    rows: DeviceHours,
    active_frac: float,
    window: Window,
) -> Pods:
    """Return the pods that held GPUs at any time.

    A row never counts for more GPUs than there are: one where it names its device, else those of its node.
    """
    names, nodes, devices = (np.array(text(allocations[name]), dtype=object) for name in ("pod", "node", "device"))
    owner = np.array([workloads.get(name, -1) for name in text(allocations["workload"])], dtype=np.int64)
    most = [1.0 if device else gpus_of_node.get(node, np.inf) for node, device in zip(nodes, devices, strict=True)]
    gpus = np.minimum(numbers(allocations["gpus"]), np.array(most, dtype=np.float64))
    held = np.flatnonzero((gpus > 0) & (owner >= 0))
    start_s = seconds_from(allocations["start"], window, absent=-np.inf)[held]
    end_s = seconds_from(allocations["end"], window, absent=np.inf)[held]
    keys: dict[tuple[int, str], int] = {}
    pod = np.array([keys.setdefault((int(owner[row]), names[row]), len(keys)) for row in held], dtype=np.int64)
    places: dict[tuple[int, str, str], int] = {}
    place = np.array(
        [places.setdefault((pod[at], nodes[row], devices[row]), len(places)) for at, row in enumerate(held)],
        dtype=np.int64,
    )
    first, last = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(first, pod, start_s)
    np.maximum.at(last, pod, end_s)
    return Pods(
        workload=np.array([index for index, _ in keys], dtype=np.int64),
        gpus=_most_at_once(pod, place, gpus[held], start_s, end_s, len(keys)),
        start_s=first,
        end_s=last,
        used_gpus=_used(pod, owner[held], devices[held], start_s, end_s, rows, active_frac, window, len(keys)),
        gpu=_types(pod, [type_of_node.get(nodes[row], "") for row in held], len(keys)),
    )


def one_type(types: Iterable[str]) -> str:
    """Return the common type of these GPUs; "" if they differ or none is known."""
    known = set(types)
    return known.pop() if len(known) == 1 else ""


def _types(pod: IntArray, type_of_row: Sequence[str], pods: int) -> tuple[str, ...]:
    types: list[set[str]] = [set() for _ in range(pods)]
    for index, name in zip(pod.tolist(), type_of_row, strict=True):
        types[index].add(name)
    return tuple(one_type(names) for names in types)


def pods_of_runs(run_gpus: FloatArray, sizes: tuple[PodSize, ...], usual_gpus: float) -> IntArray:
    """Return how many pods each run (n_runs,) consists of, by the GPUs that it held in all.

    A run as wide as some pod is that pod; a wider one consists of the most usual pods that divide it, else of so many of the
    usual ones as come closest.
    """
    pods = np.maximum(1, np.rint(run_gpus / usual_gpus)).astype(np.int64)
    for size in sorted(sizes, key=lambda size: size.pods):
        times = np.rint(run_gpus / size.gpus)
        even = (times >= 1) & (np.abs(times * size.gpus - run_gpus) <= _SAME_SIZE * np.maximum(times, 1))
        pods = np.where(even, times.astype(np.int64), pods)
    for size in sizes:
        pods = np.where(np.abs(run_gpus - size.gpus) <= _SAME_SIZE, 1, pods)
    return np.asarray(pods, dtype=np.int64)


def nodes_with_unknown_holders(
    allocations: pa.Table, devices: pa.Table, rows: DeviceHours, active_frac: float, window: Window
) -> frozenset[str]:
    """Return the nodes with a busy GPU but no known holder: a process outside of the scheduler.

    An hour next to one with a holder may belong to that holder. A pod whose GPUs are not named may hold any of its node's.
    """
    node_of = dict(zip(text(devices["device"]), text(devices["node"]), strict=True))
    at_work = np.nan_to_num(rows.best) >= active_frac
    number = {name: index for index, name in enumerate(rows.names)}
    nodes = {name: index for index, name in enumerate(dict.fromkeys(node_of.values()))}
    node_of_device = np.array([nodes.get(node_of.get(name, ""), -1) for name in rows.names], dtype=np.int64)
    held = numbers(allocations["gpus"]) > 0
    device = np.array([number.get(name, -1) for name in text(allocations["device"])], dtype=np.int64)[held]
    node = np.array([nodes.get(name, -1) for name in text(allocations["node"])], dtype=np.int64)[held]
    named = np.array([bool(name) for name in text(allocations["device"])], dtype=np.bool_)[held]
    cells = cut_by_hour(
        seconds_from(allocations["start"], window, absent=0.0)[held] - S_PER_HR,
        seconds_from(allocations["end"], window, absent=float(window.seconds))[held] + S_PER_HR,
        window,
    )
    of_device = named[cells.index] & (device[cells.index] >= 0)
    known = (device[cells.index] * window.hours + cells.hour)[of_device]
    unnamed = (node[cells.index] * window.hours + cells.hour)[~named[cells.index]]
    hour, at = rows.hour[at_work], rows.device[at_work]
    on = node_of_device[at]
    alone = ~np.isin(at * window.hours + hour, known) & ~np.isin(on * window.hours + hour, unnamed) & (on >= 0)
    names = tuple(nodes)
    return frozenset(names[index] for index in np.unique(on[alone]))


def nodes_never_looked_into(
    nodes: Iterable[str], pods: pa.Table, allocations: pa.Table, devices: pa.Table, rows: DeviceHours
) -> frozenset[str]:
    """Return the nodes without readings of pods or GPU activity: they may not be empty.

    A node runs pods of its own as long as it is there (kube-proxy, the device plugin), so that a snapshot which has pods of
    others and none of it is half a snapshot. If no pod of any node was read, no holdings are known at all.
    """
    node_of = dict(zip(text(devices["device"]), text(devices["node"]), strict=True))
    read = {rows.names[index] for index in np.unique(rows.device[~np.isnan(rows.best)]).tolist()}
    seen = {node_of.get(name, "") for name in read} | set(text(allocations["node"])) | set(text(pods["node"]))
    some = pods.num_rows or not allocations.num_rows
    return frozenset(nodes) - seen if some else frozenset()


def _most_at_once(
    pod: IntArray, place: IntArray, gpus: FloatArray, start_s: FloatArray, end_s: FloatArray, pods: int
) -> FloatArray:
    """Return the most GPUs that each pod held at one moment; rows that repeat a place count once."""
    if not len(pod):
        return np.zeros(pods)
    moment = np.concatenate([start_s, end_s])
    change = np.concatenate([gpus, -gpus])
    whose = np.concatenate([pod, pod])
    # by pod, then by moment, what ends before what starts: a pod that moves holds its GPUs once
    order = np.lexsort((change, moment, whose))
    # all that a pod took it gives back, so that the sum is 0 again where the next pod begins
    level = np.cumsum(change[order])
    starts = np.flatnonzero(np.diff(whose[order], prepend=-1))
    most = np.maximum.reduceat(level, starts)
    largest = np.zeros(int(place.max()) + 1)
    np.maximum.at(largest, place, gpus)
    pod_of_place = np.zeros(len(largest), dtype=np.int64)
    pod_of_place[place] = pod
    return np.minimum(most, np.bincount(pod_of_place, weights=largest, minlength=pods))


def _used(
    pod: IntArray,
    owner: IntArray,
    devices: np.ndarray[tuple[int], np.dtype[np.object_]],
    start_s: FloatArray,
    end_s: FloatArray,
    rows: DeviceHours,
    active_frac: float,
    window: Window,
    pods: int,
) -> FloatArray:
    """Return how many of each pod's GPUs did anything (`Pods.used_gpus`)."""
    used = np.full(pods, np.nan)
    number = {name: index for index, name in enumerate(rows.names)}
    named = np.array([bool(device) for device in devices], dtype=np.bool_)
    device = np.array([number.get(name, -1) for name in devices], dtype=np.int64)
    cells = cut_by_hour(start_s, end_s, window)
    if not len(cells.index) or not len(rows.hour):
        return used
    known_devices = len(rows.names) + 1
    # a number names pod, hour and device
    key = (pod[cells.index] * window.hours + cells.hour) * known_devices + device[cells.index] + 1
    unique, at = np.unique(key, return_index=True)
    pod_hour, device_of = unique // known_devices, unique % known_devices - 1
    worked, seen = _peaks(rows, device_of, pod_hour % window.hours, owner[cells.index][at], active_frac, window.hours)
    pod_hours, inverse = np.unique(pod_hour, return_inverse=True)
    busy = np.bincount(inverse, weights=worked) > 0
    idle = _never_worked(pod_hour // window.hours * known_devices + device_of + 1, worked, seen & busy[inverse])
    at_work = np.bincount(inverse, weights=worked | (~seen & ~idle))
    of_pod, count = (pod_hours // window.hours)[busy], at_work[busy]
    order = np.lexsort((count, of_pod))
    of_pod, count = of_pod[order], count[order]
    present, first, hours = np.unique(of_pod, return_index=True, return_counts=True)
    used[present] = count[first + np.ceil(0.95 * (hours - 1)).astype(np.int64)]
    # of a pod with GPUs that are not named, the rest may have worked unseen
    used[np.unique(pod[~named])] = np.nan
    return used


def _never_worked(gpu_of_pod: IntArray, worked: Flags, seen: Flags) -> Flags:
    """Return for hours of a pod's GPUs (n,) whether that GPU was `seen` in some hour and `worked` in none."""
    _, at = np.unique(gpu_of_pod, return_inverse=True)
    ever_seen, ever_worked = (np.bincount(at, weights=flags)[at] > 0 for flags in (seen, worked))
    return np.asarray(ever_seen & ~ever_worked, dtype=np.bool_)


def _peaks(
    rows: DeviceHours, device: IntArray, hour: IntArray, owner: IntArray, active_frac: float, hours: int
) -> tuple[Flags, Flags]:
    """Return for device-hours (n,) whether the device did anything for that owner, and whether that was measured."""
    owners = int(max(rows.owner.max(initial=0), owner.max(initial=0))) + 2

    def key(of_device: IntArray, of_hour: IntArray, of_owner: IntArray) -> IntArray:
        return np.asarray((of_device * hours + of_hour) * owners + of_owner + 1, dtype=np.int64)

    measured = ~np.isnan(rows.peak)
    known, inverse = np.unique(key(rows.device, rows.hour, rows.owner)[measured], return_inverse=True)
    peak = np.zeros(len(known))
    np.maximum.at(peak, inverse, rows.peak[measured])
    asked = key(device, hour, owner)
    at = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    seen = (known[at] == asked) & (device >= 0) if len(known) else np.zeros(len(asked), dtype=np.bool_)
    return seen & (peak[at] >= active_frac) if len(known) else seen, seen

"""Who held which node when: node lives and allocations -> node-seconds and holdings per hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.pools import Pool
from trimtab.fleet.columns import numbers, seconds_from, text
from trimtab.fleet.model import FloatArray, IntArray, Node, Window
from trimtab.ledger import IDLE, Holdings, Usage
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """Nodes, their seconds per hour, who held them, and what did not fit."""

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


def cut_by_hour(start_s: FloatArray, end_s: FloatArray, window: Window) -> HourCells:
    """Cut intervals `[start, end)` (n,) at hour boundaries, within the window."""
    start = np.clip(start_s, 0, window.seconds)
    end = np.clip(end_s, 0, window.seconds)
    first = np.floor(start / S_PER_HR).astype(np.int64)
    count = np.where(end > start, np.ceil(end / S_PER_HR).astype(np.int64) - first, 0)
    index = np.repeat(np.arange(len(start)), count)
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
    counts["nodes up on other days only"] = int((~alive).sum())
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
    over = total > node_seconds * (1 + 1e-9)
    counts["node-hours held beyond the node's GPUs, scaled down"] = int(over.sum())
    fits = np.where(over, node_seconds / np.where(total > 0, total, 1.0), 1.0)
    held = held * fits[node, hour]
    idle = np.maximum(node_seconds - np.minimum(total, node_seconds), 0.0)
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
    """Return which life a node name had in each hour (n_names, n_hours); -1 where none. The first wins a shared hour."""
    life_at = np.full((len(number), node_seconds.shape[1]), -1, dtype=np.int64)
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

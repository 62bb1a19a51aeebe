"""Profiles of one run: what a Chrome trace of torch.profiler shows, and a profile as a fleet bundle of one node.

Events are those that `export_chrome_trace` writes: complete ones ("ph": "X") whose category is kernel, gpu_memcpy, gpu_memset,
user_annotation or cpu_op, times in microseconds. The loader's wait is the event that torch.utils.data names
`enumerate(DataLoader)#...__next__`.

What was not measured is stated as an assumption in the bundle's notes: the machine is taken for a shape on sale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path

import pyarrow as pa

from trimtab.diagnose.profiled import TraceSigns
from trimtab.errors import InputError
from trimtab.inputs.documents import load_json
from trimtab.inputs.files import read_packed
from trimtab.physics.offers import NodeOffer
from trimtab.sources.collected import Collected
from trimtab.tables.arrow import Row, arrow_schema, columns_of, empty_table
from trimtab.tables.bundle import BundleMeta
from trimtab.tables.profile_file import MetricSpread, ProfileDevice, ProfileFile, ProfileHour
from trimtab.units import S_PER_HR, US_PER_S, floor_hour

Span = tuple[float, float]
"""Start and end, microseconds."""


def read_torch_trace(path: Path) -> TraceSigns:
    """Read a trace, gzipped or not. Raises InputError if it is damaged or holds no GPU work."""
    events = [event for event in _events(path) if event.get("ph") == "X"]
    kernels = _spans(event for event in events if event.get("cat") in ("kernel", "gpu_memset"))
    copies = _spans(event for event in events if event.get("cat") == "gpu_memcpy" and "HtoD" in str(event.get("name")))
    waits = _spans(
        event for event in events if "DataLoader" in str(event.get("name")) and "__next__" in str(event.get("name"))
    )
    if not kernels:
        raise InputError(
            f"{path}: no GPU kernels in it; record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    everything = [*kernels, *copies, *waits]
    start, end = min(span[0] for span in everything), max(span[1] for span in everything)
    length = end - start
    busy = _union(kernels)
    exposed = _length(_union([*copies, *busy])) - _length(busy)
    return TraceSigns(
        length_s=length / US_PER_S,
        gap_frac=1 - _length(busy) / length if length > 0 else None,
        h2d_exposed_frac=exposed / length if length > 0 else None,
        loader_wait_frac=_length(_union(waits)) / length if waits and length > 0 else None,
        kernels=len(kernels),
    )


def _events(path: Path) -> Sequence[Mapping[str, object]]:
    document = load_json(read_packed(path), f"the trace {path}")
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError(f"{path} is no Chrome trace: it has no list of traceEvents")
    return [event for event in events if isinstance(event, dict)]


def _spans(events: Iterable[Mapping[str, object]]) -> list[Span]:
    found = []
    for event in events:
        begin, length = event.get("ts"), event.get("dur")
        if isinstance(begin, int | float) and isinstance(length, int | float) and length >= 0:
            found.append((float(begin), float(begin + length)))
    return found


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


_ACTIVITY = ("gpu_util", "sm_active", "tensor_active", "dram_active")


def bundle_of(profile: ProfileFile, gpu: str, offer: NodeOffer | None, *, workload: str) -> Collected:
    """Return the tables of a profile; `gpu` is the catalog's name, `offer` the shape that the machine is taken for."""
    start = datetime.fromtimestamp(profile.started_epoch_s, UTC)
    end = start + timedelta(seconds=profile.wall_s)
    devices = [device for device in profile.devices if not device.has_mig_instances]
    node = "profiled"
    rows: dict[str, list[Row]] = {
        "devices": [_device(device, node, gpu) for device in devices],
        "nodes": [
            _node(node, gpu, len([board for board in profile.devices if board.parent is None]), offer, start, end)
        ],
        "allocations": [_allocation(device, node, workload, start, end) for device in profile.used],
        "gpu_usage": [_usage(device, hour, profile, workload) for device in devices for hour in device.hours],
    }
    held = "no shape on sale carries these GPUs: the node is owned hardware" if offer is None else offer.where
    notes = (
        f"one machine, profiled; taken for {held}",
        *(f"{trouble.device}: {trouble.what}: {trouble.answer}" for trouble in profile.troubles),
    )
    window_end = floor_hour(end) + timedelta(hours=ceil((end - floor_hour(end)).total_seconds() / S_PER_HR) or 1)
    meta = BundleMeta(start=floor_hour(start), end=window_end, sources=("trimtab profile",), notes=notes)
    return Collected(tables={name: _table(name, table) for name, table in rows.items()}, meta=meta)


def _table(name: str, rows: list[Row]) -> pa.Table:
    if not rows:
        return empty_table(name)
    names = [column.name for column in columns_of(name)]
    return pa.Table.from_pylist(
        [{column: row.get(column) for column in names} for row in rows], schema=arrow_schema(name, names)
    )


def _device(device: ProfileDevice, node: str, gpu: str) -> Row:
    return {
        "device": device.uuid,
        "node": node,
        "gpu": gpu,
        "mig_profile": device.mig_profile,
        "memory_gib": device.memory_gib,
    }


def _node(node: str, gpu: str, count: int, offer: NodeOffer | None, start: datetime, end: datetime) -> Row:
    return {
        "node": node,
        "provider": offer.provider if offer else "owned",
        "instance_type": offer.instance_type if offer else f"{count}x{gpu}",
        "region": offer.region if offer else "here",
        "capacity_type": "on-demand" if offer else "owned",
        "start": start,
        "end": end,
        "gpu": gpu,
        "gpu_count": offer.gpus if offer else count,
    }


def _allocation(device: ProfileDevice, node: str, workload: str, start: datetime, end: datetime) -> Row:
    return {
        "workload": workload,
        "namespace": workload.partition("/")[0],
        "owner_kind": "process",
        "pod": workload.rpartition("/")[2],
        "node": node,
        "device": device.uuid,
        "gpus": 1.0,
        "start": start,
        "end": end,
    }


def _usage(device: ProfileDevice, hour: ProfileHour, profile: ProfileFile, workload: str) -> Row:
    used = any(board.uuid == device.uuid for board in profile.used)
    row: Row = {
        "device": device.uuid,
        "workload": workload if used else None,
        "hour": datetime.fromtimestamp(round(hour.start_epoch_s), UTC),
        "samples": hour.samples,
        "samples_expected": round(S_PER_HR / profile.interval_s),
        "memory_used_gib_mean": hour.memory_mean_gib,
        "memory_used_gib_max": hour.memory_max_gib,
        "power_w_mean": hour.power_mean_w,
        "energy_kwh": hour.energy_kwh,
        "basis": "raw samples",
    }
    for name in _ACTIVITY:
        spread: MetricSpread | None = getattr(hour, f"{name}_frac")
        if spread is not None:
            row |= {f"{name}_mean": spread.mean, f"{name}_p50": spread.p50}
            row |= {f"{name}_p95": spread.p95, f"{name}_max": spread.max}
    return row

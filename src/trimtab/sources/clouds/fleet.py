"""The tables of a bundle from what a cloud's monitor reported.

A monitor rarely says who held a board. Where it does not, the machine's group (or the machine) counts as one workload, and
the bundle says so. Where power is reported but no activity, power over the board's own limit is used instead, and `basis`
says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from trimtab.catalog import Catalog
from trimtab.errors import SourceError, UnknownName
from trimtab.sources.clouds import SHARES, STATISTICS, CloudMachine, CloudReading
from trimtab.sources.collected import Collected
from trimtab.sources.hour_grid import moment
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.sources.prometheus.client import Floats
from trimtab.tables.arrow import conform, empty_table, table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.units import S_PER_HR, US_PER_S, W_PER_KW

AT_LIMIT_FRAC = 0.98
"""Mean power of an hour above this share of a board's limit: its clocks were held down by power for much of it."""
_BASIS = "hourly average"
_POWER_BASIS = "power over the board's limit"
_COLUMNS = (*(f"{share}_{statistic}" for share in SHARES for statistic in STATISTICS),
            "memory_used_gib_mean", "memory_used_gib_max", "power_w_mean")  # fmt: skip
_POWER = (("mean", "power_w_mean"), ("p50", "power_w_p50"), ("p95", "power_w_p95"), ("max", "power_w_max"))


def cloud_fleet(reading: CloudReading, catalog: Catalog) -> Collected:
    """Return a bundle's tables; raises SourceError where the monitor reported no GPU."""
    seen = _seen(reading)
    if not seen:
        raise SourceError(
            f"{reading.source} has no GPU metrics in the window: is the agent set up to send them (docs/how-to/collect.md), "
            "and is this the region, project or workspace?"
        )
    names = {device: _gpu_name(reading, device, catalog) for device in seen}
    limits = {device: _limit_w(names[device], catalog) for device in seen}
    usage = _usage(reading, limits)
    tables = {
        "devices": table_from_rows(
            "devices", [_device_row(reading, device, names[device], catalog) for device in seen]
        ),
        "nodes": table_from_rows("nodes", list(_node_rows(reading, seen, names))),
        "allocations": table_from_rows("allocations", [_allocation_row(reading, device, seen) for device in seen]),
        "gpu_usage": usage,
        "demand": empty_table("demand", None),
        "jobs": empty_table("jobs", None),
    }
    return Collected(tables=tables, meta=_meta(reading, usage))


def _seen(reading: CloudReading) -> dict[str, tuple[int, int]]:
    """Return the first and last hour in which each device reported anything."""
    hours: dict[str, tuple[int, int]] = {}
    for (device, _), row in reading.values.items():
        told = np.flatnonzero(~np.isnan(row))
        if len(told) and device in reading.gpus:
            first, last = hours.get(device, (int(told[0]), int(told[-1])))
            hours[device] = (min(first, int(told[0])), max(last, int(told[-1])))
    return dict(sorted(hours.items()))


def _gpu_name(reading: CloudReading, device: str, catalog: Catalog) -> str:
    """Return the catalog's name of a board: by its product, else by the machine that holds it."""
    gpu = reading.gpus[device]
    machine = reading.machines[gpu.machine]
    try:
        if gpu.product:
            return catalog.gpu(gpu.product).name
        return catalog.instance_type(machine.provider, machine.instance_type).gpu
    except UnknownName:
        reading.counts[f"boards that the catalog does not know ({gpu.product or machine.instance_type})"] += 1
        return gpu.product or UNKNOWN


def _limit_w(name: str, catalog: Catalog) -> float | None:
    try:
        limit_w = catalog.gpu(name).tdp_w
    except UnknownName:
        return None
    return None if math.isnan(limit_w) else limit_w


def _device_row(reading: CloudReading, device: str, name: str, catalog: Catalog) -> dict[str, object]:
    memory_gib = reading.memory_gib.get(device)
    if memory_gib is None and name != UNKNOWN:
        try:
            memory_gib = catalog.gpu(name).memory_gib
        except UnknownName:
            memory_gib = None
    return {
        "device": device,
        "node": reading.gpus[device].machine,
        "gpu": name,
        "mig_profile": None,
        "memory_gib": memory_gib,
    }


def _node_rows(
    reading: CloudReading, seen: Mapping[str, tuple[int, int]], names: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    """Yield a row per machine: there from the first hour in which a board of it reported anything to the last."""
    boards: dict[str, list[str]] = {}
    for device in seen:
        boards.setdefault(reading.gpus[device].machine, []).append(device)
    for name, devices in sorted(boards.items()):
        machine = reading.machines[name]
        first, last = min(seen[board][0] for board in devices), max(seen[board][1] for board in devices)
        yield {
            "node": name,
            "provider": machine.provider,
            "instance_type": machine.instance_type,
            "region": machine.region,
            "zone": machine.zone,
            "capacity_type": machine.capacity_type.value,
            "start": _hour(reading, first),
            "end": _end(reading, last),
            "gpu": names[devices[0]],
            "gpu_count": len(devices),
            "labels": {"group": machine.group} if machine.group else {},
            "taints": {},
        }


def _hour(reading: CloudReading, hour: int) -> object:
    return moment(reading.grid.start_s + hour * S_PER_HR)


def _end(reading: CloudReading, last: int) -> object:
    """Return the end of the last hour reported; None where that is the end of the window, because it may go on."""
    return None if last + 1 >= reading.grid.hours else _hour(reading, last + 1)


def workload_of(reading: CloudReading, device: str) -> str:
    """Return who held a board: the pod's workload where the monitor names it, else the machine's group or the machine."""
    holder = reading.holders.get(device)
    return holder.workload if holder else _machine_workload(reading.machines[reading.gpus[device].machine])


def _machine_workload(machine: CloudMachine) -> str:
    return f"{machine.provider}/{machine.group or machine.name}"


def _allocation_row(reading: CloudReading, device: str, seen: Mapping[str, tuple[int, int]]) -> dict[str, object]:
    gpu, holder = reading.gpus[device], reading.holders.get(device)
    first, last = seen[device]
    return {
        "workload": workload_of(reading, device),
        "namespace": holder.namespace if holder else None,
        "owner_kind": None if holder else "machines",
        "team": None,
        "pod": holder.pod if holder else gpu.machine,
        "node": gpu.machine,
        "device": device,
        "gpus": 1.0,
        "start": _hour(reading, first),
        "end": _end(reading, last),
    }


def _usage(reading: CloudReading, limits: Mapping[str, float | None]) -> pa.Table:
    """Return a row for each board and hour in which it reported anything."""
    pieces = [_device_usage(reading, device, limit_w) for device, limit_w in limits.items()]
    return conform("gpu_usage", pa.concat_tables(pieces))


def _device_usage(reading: CloudReading, device: str, limit_w: float | None) -> pa.Table:
    columns = {name: reading.of(device, name) for name in _COLUMNS}
    basis, columns = _with_power(reading, device, columns, limit_w)
    samples = reading.of(device, "samples")
    expected = max(1, int(np.nanmax(samples))) if np.any(~np.isnan(samples)) else 1
    hours = np.flatnonzero(~np.all([np.isnan(row) for row in columns.values()], axis=0))
    power_w = columns["power_w_mean"][hours]
    if limit_w:
        at_limit = int(np.sum(power_w > limit_w * AT_LIMIT_FRAC))
        reading.counts["GPU-hours at the board's power limit: its clocks were throttled"] += at_limit
    seen = np.where(np.isnan(samples[hours]), 1, samples[hours]).astype(np.int64)
    starts_us = (reading.grid.start_s + hours * S_PER_HR) * US_PER_S
    named = {"device": device, "workload": workload_of(reading, device), "basis": basis}
    return pa.table(
        {
            **{name: pa.repeat(pa.scalar(text, pa.string()), len(hours)) for name, text in named.items()},
            "hour": pa.array(starts_us, type=pa.timestamp("us", tz="UTC")),
            "samples": pa.array(seen),
            "samples_expected": pa.array(np.full(len(hours), expected, dtype=np.int64)),
            **{name: pa.array(row[hours], from_pandas=True) for name, row in columns.items()},
            "energy_kwh": pa.array(power_w / W_PER_KW, from_pandas=True),
        }
    )


def _with_power(
    reading: CloudReading, device: str, columns: dict[str, Floats], limit_w: float | None
) -> tuple[str, dict[str, Floats]]:
    """Use power over the limit as activity where none is reported."""
    if any(np.any(~np.isnan(columns[f"{share}_mean"])) for share in SHARES):
        return _BASIS, columns
    if not limit_w or np.all(np.isnan(columns["power_w_mean"])):
        reading.counts["GPUs without activity, and without power and a known limit to use instead"] += 1
        return _BASIS, columns
    shares = {f"gpu_util_{part}": np.clip(reading.of(device, power) / limit_w, 0.0, 1.0) for part, power in _POWER}
    reading.counts["GPUs judged by power over the board's limit, because no activity is reported"] += 1
    return _POWER_BASIS, {**columns, **shares}


def _meta(reading: CloudReading, usage: pa.Table) -> BundleMeta:
    machines = len({gpu.machine for gpu in reading.gpus.values() if gpu.device not in reading.holders})
    notes = list(reading.notes)
    if machines:
        notes.append(
            f"who held a GPU is not known for {machines} machine(s): each group of machines stands as one workload; a cluster "
            "knows more (trimtab collect -p URL --context NAME)"
        )
    missing = [share for share in SHARES if usage[f"{share}_mean"].null_count == usage.num_rows]
    if missing:
        notes.append(f"not reported: {', '.join(missing)}; what they would show is missing, not 0")
    return BundleMeta(
        start=moment(reading.grid.start_s),
        end=moment(reading.grid.end_s),
        sources=(reading.source,),
        notes=tuple(notes),
        counts={reason: number for reason, number in sorted(reading.counts.items()) if number},
    )

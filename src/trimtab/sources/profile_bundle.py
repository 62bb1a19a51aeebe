"""A profile as a fleet bundle: one node, its devices, the run that held them, a row per device and hour of the clock.

What nobody measured is stated as an assumption in the bundle's notes: the machine is taken for a shape on sale.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil

import pyarrow as pa

from trimtab.physics.offers import Offer
from trimtab.sources.collected import Collected
from trimtab.tables.arrow import arrow_schema, columns_of, empty_table
from trimtab.tables.bundle import BundleMeta
from trimtab.tables.profile_file import MetricSpread, ProfileDevice, ProfileFile, ProfileHour
from trimtab.units import S_PER_HR, floor_hour

_ACTIVITY = ("gpu_util", "sm_active", "tensor_active", "dram_active")
Row = dict[str, object]


def bundle_of(profile: ProfileFile, gpu: str, offer: Offer | None, *, workload: str) -> Collected:
    """Return the tables of a profile; `gpu` is the catalog's name, `offer` the shape that the machine is taken for."""
    start = datetime.fromtimestamp(profile.started_epoch_s, UTC)
    end = start + timedelta(seconds=profile.wall_s)
    devices = [device for device in profile.devices if not device.has_mig_instances]
    node = "profiled"
    rows: dict[str, list[Row]] = {
        "devices": [_device(device, node, gpu) for device in devices],
        "nodes": [_node(node, gpu, len([one for one in profile.devices if one.parent is None]), offer, start, end)],
        "allocations": [_allocation(device, node, workload, start, end) for device in profile.used],
        "gpu_usage": [_usage(device, hour, profile, workload) for device in devices for hour in device.hours],
    }
    held = "no shape on sale carries these GPUs: the node is owned hardware" if offer is None else offer.where
    notes = (
        f"one machine, profiled; taken for {held}",
        *(f"{one.device}: {one.what}: {one.answer}" for one in profile.troubles),
    )
    window_end = floor_hour(end) + timedelta(hours=ceil((end - floor_hour(end)).total_seconds() / S_PER_HR) or 1)
    meta = BundleMeta(start=floor_hour(start), end=window_end, sources=("trimtab profile",), notes=notes)
    return Collected(tables={name: _table(name, table) for name, table in rows.items()}, meta=meta)


def _table(name: str, rows: list[Row]) -> pa.Table:
    if not rows:
        return empty_table(name)
    names = [column.name for column in columns_of(name)]
    return pa.Table.from_pylist(
        [{one: row.get(one) for one in names} for row in rows], schema=arrow_schema(name, names)
    )


def _device(device: ProfileDevice, node: str, gpu: str) -> Row:
    return {
        "device": device.uuid,
        "node": node,
        "gpu": gpu,
        "mig_profile": device.mig_profile,
        "memory_gib": device.memory_gib,
    }


def _node(node: str, gpu: str, count: int, offer: Offer | None, start: datetime, end: datetime) -> Row:
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
    used = any(one.uuid == device.uuid for one in profile.used)
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

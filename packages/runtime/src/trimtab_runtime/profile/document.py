"""A profile as plain values, as stored in JSON and used by every reader of a profile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from trimtab_runtime.profile.device import Device
from trimtab_runtime.profile.metrics import Metric
from trimtab_runtime.profile.nvml import THROTTLE_REASONS
from trimtab_runtime.profile.record import HourRow, Spread
from trimtab_runtime.profile.sampler import Sampler
from trimtab_runtime.units import BYTES_PER_GIB, MJ_PER_KWH

SCHEMA_VERSION = 1
_ACTIVITY = (Metric.GPU_UTIL, Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE)


def device_document(sampler: Sampler, device: Device, now_s: float) -> dict[str, object]:
    """Return everything known of one device; None if nothing was read, never 0."""
    record, identity = device.record, device.identity
    spreads = record.so_far()
    return {
        **asdict(identity),
        "state": "lost" if device.lost_at_s is not None else "present",
        "lost_times": device.lost_times,
        "lost_s": _round(sampler.lost_s(device, now_s)),
        "has_mig_instances": device.has_instances,
        "metrics": {metric.value: _spread(spreads.get(metric)) for metric in Metric},
        "energy_kwh": record.energy_mj / MJ_PER_KWH if record.energy_s > 0 else None,
        "energy_seen_s": _round(record.energy_s),
        "throttled_frac": _throttled(device),
        "processes": [
            {"pid": pid, "memory_peak_gib": None if used is None else used / BYTES_PER_GIB}
            for pid, used in record.process_peak_bytes.items()
        ],
        "absent": _absent(device),
        "counter_resets": record.counter_resets,
        "readings_clamped": record.clamped,
        "hours_dropped": record.hours_dropped,
        "timeline": [{key: _round(value) for key, value in row.items()} for row in record.timeline.rows()],
        "hours": [_hour(row) for row in record.hours],
    }


def troubles_document(sampler: Sampler) -> list[dict[str, object]]:
    """Return every call that failed, and every device that could not be opened."""
    failed = [{"device": key[0], **asdict(trouble)} for key, trouble in sampler.troubles.items()]
    closed = [{"device": f"GPU {board.index}", "what": "open", "answer": board.reason} for board in sampler.unreadable]
    return [*closed, *failed]


def gpu_name(sampler: Sampler) -> str | None:
    """Return the product that most GPUs are."""
    names = Counter(device.identity.name for device in sampler.devices if device.parent is None)
    return names.most_common(1)[0][0] if names else None


def _absent(device: Device) -> dict[str, str]:
    """Return why a metric has no reading; what another counter gives all the same is not absent."""
    found = dict(device.readings.absent)
    if device.processes_absent:
        found["processes"] = device.processes_absent
    return found


def _spread(one: Spread | None) -> dict[str, float | None] | None:
    if one is None:
        return None
    named = {"mean": one.mean, "p50": one.p50, "p95": one.p95, "min": one.low, "max": one.high, "seen_s": one.seconds}
    return {key: _round(value) for key, value in named.items()}


def _throttled(device: Device) -> dict[str, float] | None:
    record = device.record
    if record.reasons_s <= 0:
        return None
    return {THROTTLE_REASONS[bit]: held_s / record.reasons_s for bit, held_s in sorted(record.throttled_s.items())}


def _hour(row: HourRow) -> dict[str, object]:
    activity: Mapping[str, object] = {
        metric.value: _spread(one) for metric, one in zip(_ACTIVITY, row.activity, strict=True)
    }
    return {
        "start_epoch_s": row.start_s,
        "samples": row.samples,
        **activity,
        "memory_mean_gib": row.memory_mean_gib,
        "memory_max_gib": row.memory_high_gib,
        "power_mean_w": row.power_mean_w,
        "energy_kwh": None if row.energy_mj is None else row.energy_mj / MJ_PER_KWH,
    }


def _round(value: float | None) -> float | None:
    """Round to six significant digits; more are not meaningful."""
    if value is None or value == 0 or not math.isfinite(value):
        return value if value is None or math.isfinite(value) else None
    return round(value, 5 - math.floor(math.log10(abs(value))))

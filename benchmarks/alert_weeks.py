"""Weeks of a small cluster for promtool: days and nights, rollouts, short excursions, and one planted fault.

Four nodes of one board each hold a service of two replicas, a training run, and a board that two services share (as MIG
instances or by time). Excursions are shorter than what an alert waits for, so that nothing but the planted fault may fire. How
exporters spell things, and how often they are scraped, is drawn anew each week.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from tests.monitor.fleet import NEW_NAMES, OLD_NAMES

from trimtab.monitor.watched import Thresholds
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

Floats = npt.NDArray[np.float64]
WEEK_S = HR_PER_WEEK * S_PER_HR
SCRAPES_S = (10, 15, 30, 60)
LIMIT_W = 400.0
_BOARD_MIB = 40_000
_WHERE = 'label_node_kubernetes_io_instance_type="p4d.24xlarge",label_topology_kubernetes_io_region="us-east-1"'
_INTERRUPTIONS = 'karpenter_interruption_received_messages_total{message_type="spot_interrupted"}'
_SLOWDOWNS = (0x08, 0x20, 0x40, 0x80)
_POWER_CAP = 0x04


@dataclass(slots=True, kw_only=True)
class Device:
    """A GPU or a part of one, held by a pod; readings by name, each (scrapes,), NaN where nothing is exported."""

    node: str
    namespace: str
    pod: str
    mig: str = ""
    mib: float = _BOARD_MIB
    is_run: bool = False
    readings: dict[str, Floats] = field(default_factory=dict)

    @property
    def workload(self) -> str:
        """Return what the pod belongs to, as its name tells."""
        return self.pod.split("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault: which alert it is for, about whom, from when to when (seconds), and after how many minutes it must fire."""

    alert: str
    subjects: Sequence[Mapping[str, str]]
    """Labels of each alert that is to fire."""
    start_s: float
    end_s: float
    wait_min: float


@dataclass(slots=True, kw_only=True)
class Week:
    """One week before it is written down."""

    interval_s: int
    names: Mapping[str, str]
    node_label: str
    exported: bool
    devices: list[Device]
    standing: dict[str, Floats]
    """By node, (scrapes,): 1 while Kubernetes knows it, NaN while it does not."""
    interruptions: Floats

    def during(self, start_s: float, length_s: float) -> slice:
        """Return the scrapes of a time."""
        return slice(round(start_s / self.interval_s), round((start_s + length_s) / self.interval_s))

    def of(self, *workloads: str) -> list[Device]:
        """Return the devices of workloads."""
        return [device for device in self.devices if device.workload in workloads]


def drawn_week(random: np.random.Generator, alert: str, limits: Thresholds) -> tuple[Week, Planted]:
    """Return a week with one fault for an alert; all else is as it should be, though not all the time."""
    interval_s = int(random.choice(SCRAPES_S))
    week = Week(
        interval_s=interval_s,
        names=OLD_NAMES if random.random() < 0.5 else NEW_NAMES,
        node_label=str(random.choice(["Hostname", "hostname"])),
        exported=bool(random.random() < 0.5),
        devices=[],
        standing={f"n{number}": np.ones(WEEK_S // interval_s) for number in range(4)},
        interruptions=np.zeros(WEEK_S // interval_s),
    )
    week.devices += _holders(random)
    for device in week.devices:
        device.readings |= _healthy(random, device, interval_s)
    start_s = float(random.uniform(24, 132)) * S_PER_HR
    length_s = float(random.uniform(4, 10)) * S_PER_HR
    _excursions(random, week, quiet=(start_s - 3 * S_PER_HR, start_s + length_s + 3 * S_PER_HR), limits=limits)
    return week, FAULTS[alert](random, week, start_s, length_s, limits)


def _holders(random: np.random.Generator) -> Iterator[Device]:
    for node in ("n0", "n1"):
        yield Device(node=node, namespace="prod", pod=f"chat-7d4b9c6f5-x2x{node[1]}k")
    yield Device(node="n2", namespace="ml", pod="train-x2x9k", is_run=True)
    if random.random() < 0.5:
        yield Device(node="n3", namespace="prod", pod="embed-0", mig="1", mib=_BOARD_MIB / 2)
        yield Device(node="n3", namespace="prod", pod="rerank-0", mig="2", mib=_BOARD_MIB / 4)
    else:
        yield Device(node="n3", namespace="prod", pod="embed-0")
        yield Device(node="n3", namespace="prod", pod="rerank-0")


def _healthy(random: np.random.Generator, device: Device, interval_s: int) -> dict[str, Floats]:
    """Return readings within every limit: services by day and night, a run at a steady height, all with noise by the hour."""
    hours = np.arange(HR_PER_WEEK)
    noise = random.normal(0, 0.02, HR_PER_WEEK)
    if device.is_run:
        activity = np.clip(random.uniform(0.75, 0.97) + noise, 0.6, 0.99)
    else:
        day = 0.5 + 0.5 * np.sin(2 * np.pi * (hours % 24 - 8) / 24)
        activity = np.clip(random.uniform(0.5, 0.55) + random.uniform(0.1, 0.3) * day + noise, 0.48, 0.9)
    used = device.mib * random.uniform(0.4, 0.8)
    by_hour = {
        "sm_active": activity,
        "sm_occupancy": np.clip(random.uniform(0.6, 0.8) + noise, 0.55, 0.9),
        "used_mib": np.full(HR_PER_WEEK, used),
        "free_mib": np.full(HR_PER_WEEK, device.mib - used),
        "temperature_c": np.round(52 + 24 * activity + 40 * noise),
        "power_w": LIMIT_W * (0.3 + 0.5 * activity),
        "reasons": np.where(random.random(HR_PER_WEEK) < 0.1, _POWER_CAP, 0),
    }
    return {
        name: np.repeat(np.round(values.astype(float), 3), S_PER_HR // interval_s) for name, values in by_hour.items()
    }


def _excursions(random: np.random.Generator, week: Week, quiet: tuple[float, float], limits: Thresholds) -> None:
    """Let readings leave their limits for less than alerts wait, once a kind, outside the planted fault's time."""
    minute = S_PER_MIN
    for device in week.of("chat", "train"):
        for name, value, at_most_min in (
            ("sm_active", 0.05, 4),
            ("sm_active", 0.99, limits.saturated_min * 0.45),
            ("temperature_c", 90.0, limits.hot_min * 0.8),
            ("power_w", 0.96 * LIMIT_W, limits.power_min * 0.8),
            ("used_mib", 0.93 * device.mib, limits.memory_min * 0.45),
        ):
            place = week.during(_outside(random, quiet), float(random.uniform(1, at_most_min)) * minute)
            device.readings[name][place] = value
            if name == "used_mib":
                device.readings["free_mib"][place] = device.mib - value
    silent = week.during(_outside(random, quiet), float(random.uniform(1, limits.absent_min * 0.7)) * minute)
    for device in week.of("train"):
        _silence(device, silent)
    gone = week.during(_outside(random, quiet), float(random.uniform(5, limits.commitment_min * 0.7)) * minute)
    _take_away(week, "n3", gone)
    _interrupt(week, _outside(random, quiet), limits.interruptions - 1, 20 * minute)
    _roll_out(random, week, _outside(random, quiet))


def _outside(random: np.random.Generator, quiet: tuple[float, float]) -> float:
    """Return a moment (seconds) with some hours to both ends of the week, and none in the quiet time."""
    while True:
        moment = float(random.uniform(4 * S_PER_HR, WEEK_S - 6 * S_PER_HR))
        if not quiet[0] - 2 * S_PER_HR < moment < quiet[1]:
            return moment


def _silence(device: Device, place: slice) -> None:
    for values in device.readings.values():
        values[place] = np.nan


def _take_away(week: Week, node: str, place: slice) -> None:
    week.standing[node][place] = np.nan
    for device in week.devices:
        if device.node == node:
            _silence(device, place)


def _interrupt(week: Week, start_s: float, times: int, within_s: float) -> None:
    for number in range(times):
        week.interruptions[week.during(start_s + number * within_s / times, WEEK_S).start :] += 1


def _roll_out(random: np.random.Generator, week: Week, start_s: float) -> None:
    """Replace the pods of a service, one after another; each loads its model for some minutes, and its GPU does nothing."""
    for number, device in enumerate(week.of("chat")):
        moment = start_s + number * 10 * S_PER_MIN
        after = week.during(moment, WEEK_S).start
        fresh = Device(node=device.node, namespace=device.namespace, pod=f"chat-5c9f8d7b6-{number}b7dk")
        for name, values in device.readings.items():
            fresh.readings[name] = values.copy()
            fresh.readings[name][:after] = np.nan
            values[after:] = np.nan
        loading = week.during(moment, float(random.uniform(2, 6)) * S_PER_MIN)
        fresh.readings["sm_active"][loading] = 0.0
        week.devices.append(fresh)


Fault = Callable[[np.random.Generator, Week, float, float, Thresholds], Planted]


def _reading_fault(
    alert: str,
    workloads: Sequence[str],
    values: Callable[[np.random.Generator], Mapping[str, float]],
    by: Sequence[str],
    wait_min: Callable[[Thresholds], float],
) -> Fault:
    """Return a fault that sets readings of a workload's (or of one of its) devices; fractions of memory are of the device's."""

    def plant(random: np.random.Generator, week: Week, start_s: float, length_s: float, limits: Thresholds) -> Planted:
        chosen = week.of(str(random.choice(list(workloads))))
        place = week.during(start_s, length_s)
        if "gpu" in by:  # a fault of one board: of that which the pod is on at the time
            chosen = [device for device in chosen if np.isfinite(device.readings["power_w"][place]).any()][:1]
        for name, value in values(random).items():
            for device in chosen:
                _set(device, name, place, value)
        return Planted(
            alert=alert,
            subjects=[dict(subject) for subject in {tuple(_named(device, by).items()) for device in chosen}],
            start_s=start_s,
            end_s=start_s + length_s,
            wait_min=wait_min(limits),
        )

    return plant


def _named(device: Device, by: Sequence[str]) -> dict[str, str]:
    known = {"namespace": device.namespace, "workload": device.workload, "node": device.node, "gpu": _uuid(device)}
    return {label: known[label] for label in by}


def _set(device: Device, name: str, place: slice, value: float) -> None:
    there = np.isfinite(device.readings["sm_active"][place])
    share = value * device.mib if name == "used_mib" else value
    device.readings[name][place] = np.where(there, share, np.nan)
    if name == "used_mib":
        device.readings["free_mib"][place] = np.where(there, device.mib - share, np.nan)


def _interruption_fault(
    random: np.random.Generator, week: Week, start_s: float, length_s: float, limits: Thresholds
) -> Planted:
    within_s = 25 * S_PER_MIN
    _interrupt(week, start_s, limits.interruptions + int(random.integers(1, 4)), within_s)
    return Planted(
        alert="TrimtabSpotInterruptionBurst", subjects=({},), start_s=start_s, end_s=start_s + S_PER_HR, wait_min=25
    )


def _commitment_fault(
    _random: np.random.Generator, week: Week, start_s: float, length_s: float, limits: Thresholds
) -> Planted:
    _take_away(week, "n3", week.during(start_s, length_s))
    return Planted(
        alert="TrimtabCommitmentUnused",
        subjects=({},),
        start_s=start_s,
        end_s=start_s + length_s,
        wait_min=limits.commitment_min,
    )


def _silent_fault(
    random: np.random.Generator, week: Week, start_s: float, length_s: float, limits: Thresholds
) -> Planted:
    node = f"n{random.integers(0, 4)}"
    for device in week.devices:
        if device.node == node:
            _silence(device, week.during(start_s, length_s))
    return Planted(
        alert="TrimtabGpuTelemetryAbsent",
        subjects=({"node": node},),
        start_s=start_s,
        end_s=start_s + length_s,
        wait_min=limits.absent_min,
    )


_SERVICES = ("chat", "embed", "rerank")
_ALL = (*_SERVICES, "train")
_BY_WORKLOAD = ("namespace", "workload")
_BY_BOARD = ("node", "gpu")
FAULTS: Mapping[str, Fault] = {
    "TrimtabGpuUnderused": _reading_fault(
        "TrimtabGpuUnderused", _ALL, lambda random: {"sm_active": float(random.uniform(0.08, 0.3))}, _BY_WORKLOAD,
        lambda limits: limits.underused_min + 10,
    ),
    "TrimtabGpuSaturated": _reading_fault(
        "TrimtabGpuSaturated", _SERVICES, lambda random: {"sm_active": float(random.uniform(0.96, 1.0))}, _BY_WORKLOAD,
        lambda limits: limits.saturated_min,
    ),
    "TrimtabGpuMemoryNearlyFull": _reading_fault(
        "TrimtabGpuMemoryNearlyFull", _ALL, lambda random: {"used_mib": float(random.uniform(0.87, 0.98))},
        _BY_WORKLOAD, lambda limits: limits.memory_min,
    ),
    "TrimtabGpuHot": _reading_fault(
        "TrimtabGpuHot", _ALL, lambda random: {"temperature_c": float(random.integers(84, 93))}, _BY_BOARD,
        lambda limits: limits.hot_min,
    ),
    "TrimtabGpuThrottled": _reading_fault(
        "TrimtabGpuThrottled", _ALL, lambda random: {"reasons": float(random.choice(_SLOWDOWNS))}, _BY_BOARD,
        lambda limits: 2 * limits.throttled_min,
    ),
    "TrimtabGpuPower": _reading_fault(
        "TrimtabGpuPower", _ALL, lambda random: {"power_w": LIMIT_W * float(random.uniform(0.92, 1.0))}, _BY_BOARD,
        lambda limits: limits.power_min,
    ),
    "TrimtabTrainingOccupancyLow": _reading_fault(
        "TrimtabTrainingOccupancyLow", ("train",), lambda random: {"sm_occupancy": float(random.uniform(0.1, 0.4))},
        _BY_WORKLOAD, lambda limits: limits.occupancy_min + 10,
    ),
    "TrimtabGpuIdle": _reading_fault(
        "TrimtabGpuIdle", _ALL, lambda random: {"sm_active": float(random.uniform(0, 0.01)), "sm_occupancy": 0.0},
        (*_BY_WORKLOAD, "node"), lambda limits: limits.idle_min + 5,
    ),
    "TrimtabSpotInterruptionBurst": _interruption_fault,
    "TrimtabCommitmentUnused": _commitment_fault,
    "TrimtabGpuTelemetryAbsent": _silent_fault,
}  # fmt: skip
"""How each alert's fault is planted; that on spend needs weeks before it, and is scored apart."""


def week_series(week: Week) -> Iterator[dict[str, str]]:
    """Yield the series in promtool's notation."""
    for device in week.devices:
        labels = _labels(week, device)
        for name, values in device.readings.items():
            yield {"series": f"{week.names[name]}{{{labels}}}", "values": run_lengths(values)}
        if device.is_run:
            owned = f'namespace="{device.namespace}",pod="{device.pod}",owner_kind="Job",owner_name="x"'
            yield {
                "series": f"kube_pod_owner{{{owned}}}",
                "values": run_lengths(np.ones(len(week.interruptions))),
            }
    for node, values in week.standing.items():
        text = run_lengths(values)
        yield {"series": f'kube_node_labels{{node="{node}",{_WHERE}}}', "values": text}
        yield {"series": f'kube_node_status_allocatable{{node="{node}",resource="nvidia_com_gpu"}}', "values": text}
    yield {"series": _INTERRUPTIONS, "values": run_lengths(week.interruptions)}


def _labels(week: Week, device: Device) -> str:
    if week.exported:
        holder = (
            'pod="dcgm-exporter-x7k2p",namespace="gpu-operator",'
            f'exported_pod="{device.pod}",exported_namespace="{device.namespace}"'
        )
    else:
        holder = f'pod="{device.pod}",namespace="{device.namespace}"'
    part = f',GPU_I_ID="{device.mig}",GPU_I_PROFILE="3g.20gb"' if device.mig else ""
    return (
        f'gpu="0",UUID="{_uuid(device)}",modelName="NVIDIA A100-SXM4-40GB",{week.node_label}="{device.node}",'
        f'instance="10.0.0.1:9400"{part},{holder}'
    )


def _uuid(device: Device) -> str:
    return f"GPU-{device.node}-0"


def run_lengths(values: Floats) -> str:
    """Return samples (scrapes,) as promtool writes runs: `0.5x9` is ten of 0.5, `_x3` three that are missing."""
    known = np.where(np.isnan(values), -1.0, values)
    edges = np.flatnonzero(np.diff(known)) + 1
    places = [0, *edges.tolist(), len(values)]
    runs = ((float(known[start]), end - start) for start, end in pairwise(places))
    return " ".join(f"_x{length}" if value < 0 else f"{value:g}x{length - 1}" for value, length in runs)

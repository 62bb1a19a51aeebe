"""The GPUs and MIG instances of this machine: who they are, and what can be read of them."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field

from trimtab_runtime.profile.block import BLOCK_BYTES, Prober, Readings
from trimtab_runtime.profile.nvml import MIG_ENABLED, NO_VALUE_U64, Nvml, NvmlError, ProcessRow, answer_words
from trimtab_runtime.profile.record import DeviceRecord
from trimtab_runtime.units import BYTES_PER_GIB, MW_PER_W, PCIE_LANE_GB_S

MOST_PROCESS_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a device is; None if the driver does not say."""

    index: int
    uuid: str
    name: str
    memory_gib: float | None
    power_limit_w: float | None = None
    pcie_gb_s: float | None = None
    """The most that its link carries, per direction."""
    mig_profile: str | None = None
    parent: str | None = None
    """UUID of the GPU that a MIG instance is a part of."""


@dataclass(slots=True, eq=False)
class Device:
    """A device under observation."""

    identity: Identity
    handle: ctypes.c_void_p
    readings: Readings
    record: DeviceRecord
    parent: Device | None = None
    is_mig: bool = False
    has_instances: bool = False
    lost_at_s: float | None = None
    """When it went; None while it is there."""
    lost_s: float = 0.0
    lost_times: int = 0
    processes_absent: str = ""
    rows: ctypes.Array[ProcessRow] = field(default_factory=lambda: (ProcessRow * MOST_PROCESS_ROWS)())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A device that the driver counts and does not let us open."""

    index: int
    reason: str


@dataclass(slots=True, kw_only=True)
class OpenedDevices:
    """All devices, those that cannot be opened, and the buffer that their readings go to."""

    devices: list[Device]
    unreadable: list[Unreadable]
    buffer: ctypes.Array[ctypes.c_char]


@dataclass(frozen=True, slots=True)
class _Opened:
    identity: Identity
    handle: ctypes.c_void_p
    parent: int | None
    gpu_instance: int | None


def find_devices(nvml: Nvml, slot_s: float) -> OpenedDevices:
    """Open every GPU and MIG instance. Raises ProfileError if the driver does not even count them."""
    opened, unreadable = _open_all(nvml)
    buffer = ctypes.create_string_buffer(max(1, len(opened)) * BLOCK_BYTES)
    devices: list[Device] = []
    for place, one in enumerate(opened):
        prober = Prober(nvml, buffer, place * BLOCK_BYTES, one.handle)
        parent = None if one.parent is None else devices[one.parent]
        if parent is None or one.gpu_instance is None:
            readings = prober.gpu() if parent is None else prober.memory()
        else:
            prober.memory()
            readings = prober.profiling(
                ("nvmlGpmMigSampleGet",), (parent.handle, ctypes.c_uint(one.gpu_instance)), parent.handle
            )
        if parent is not None:
            parent.has_instances = True
            readings.absent.setdefault("utilization, power, clocks", "those of the whole GPU, not of an instance")
        devices.append(
            Device(one.identity, one.handle, readings, DeviceRecord(slot_s), parent, is_mig=parent is not None)
        )
    return OpenedDevices(devices=devices, unreadable=unreadable, buffer=buffer)


def _open_all(nvml: Nvml) -> tuple[list[_Opened], list[Unreadable]]:
    opened: list[_Opened] = []
    unreadable = []
    for index in range(nvml.device_count()):
        try:
            handle = nvml.handle(index)
        except NvmlError as error:
            unreadable.append(Unreadable(index=index, reason=answer_words(error.code)))
            continue
        opened.append(_Opened(_identity(nvml, index, handle), handle, None, None))
        opened.extend(_instances(nvml, index, handle, len(opened) - 1))
    return opened, unreadable


def _identity(nvml: Nvml, index: int, handle: ctypes.c_void_p, parent: str | None = None) -> Identity:
    name = nvml.text("nvmlDeviceGetName", handle) or "unknown GPU"
    profile = re.search(r"MIG (\S+)$", name)
    limit_mw = None if parent else nvml.number("nvmlDeviceGetEnforcedPowerLimit", handle)
    return Identity(
        index=index,
        uuid=nvml.text("nvmlDeviceGetUUID", handle) or f"unknown-{index}",
        name=name,
        memory_gib=_memory_gib(nvml, handle),
        power_limit_w=None if limit_mw is None else limit_mw / MW_PER_W,
        pcie_gb_s=None if parent else _pcie_gb_s(nvml, handle),
        mig_profile=profile.group(1) if profile and parent else None,
        parent=parent,
    )


def _instances(nvml: Nvml, index: int, handle: ctypes.c_void_p, place: int) -> list[_Opened]:
    """Return the MIG instances of a GPU in MIG mode."""
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    if nvml.ask("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending)) or mode.value != MIG_ENABLED:
        return []
    parent = nvml.text("nvmlDeviceGetUUID", handle) or f"unknown-{index}"
    found = []
    for number in range(nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = ctypes.c_void_p()
        if nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(number), ctypes.byref(instance)):
            continue
        gpu_instance = nvml.number("nvmlDeviceGetGpuInstanceId", instance)
        found.append(_Opened(_identity(nvml, index, instance, parent), instance, place, gpu_instance))
    return found


def _memory_gib(nvml: Nvml, handle: ctypes.c_void_p) -> float | None:
    sizes = (ctypes.c_ulonglong * 3)()
    code = nvml.ask("nvmlDeviceGetMemoryInfo", handle, sizes)
    return None if code or sizes[0] in (0, NO_VALUE_U64) else sizes[0] / BYTES_PER_GIB


def _pcie_gb_s(nvml: Nvml, handle: ctypes.c_void_p) -> float | None:
    generation = nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = nvml.number("nvmlDeviceGetMaxPcieLinkWidth", handle)
    lane = PCIE_LANE_GB_S.get(generation or 0)
    return None if lane is None or not width else lane * width


def read_processes(nvml: Nvml, device: Device) -> None:
    """Note the memory of every process on a device; where that cannot be read, why."""
    count = ctypes.c_uint(MOST_PROCESS_ROWS)
    names = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    function = nvml.call(*names)
    code = 13 if function is None else function(device.handle, ctypes.byref(count), device.rows)
    device.processes_absent = answer_words(code) if code else ""
    if code:
        return
    for row in device.rows[: count.value]:
        used = int(row.used_bytes)
        device.record.saw_process(int(row.pid), None if used == NO_VALUE_U64 else used)

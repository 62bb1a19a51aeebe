"""Samples of all devices: one round of calls and one copy each; worked into statistics 64 at a time.

A reading stands for the time since the one before it: NVML's utilization and profiling metrics are averages of the past. What
lies further back than four intervals is unobserved time, and is reported as such.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_runtime.profile.block import BLANK, FIRST, REASONS, Probe
from trimtab_runtime.profile.device import Device, Unreadable, find_devices, read_processes
from trimtab_runtime.profile.metrics import Column, Metric
from trimtab_runtime.profile.nvml import (
    GONE,
    NO_VALUE_U32,
    NO_VALUE_U64,
    PCIE_RX,
    PCIE_TX,
    UNSUPPORTED,
    Answer,
    Nvml,
    NvmlCall,
    answer_words,
)
from trimtab_runtime.units import BYTES_PER_KIB, S_PER_HR

BATCH = 64
FIRST_BATCH = 8
FIRST_ROUNDS = 512
"""So many rounds are worked in by eights, so that the timeline of a short run is fine."""
SLOW_EVERY_S = 5.0
"""Processes, lost devices and PCIe rates that take 20 ms are looked at this often."""
HOLD_INTERVALS = 4
_NO_VALUE = {"I": NO_VALUE_U32, "Q": NO_VALUE_U64}
_WIDTH = {"I": 4, "Q": 8, "d": 8}


@dataclass(slots=True)
class Trouble:
    """A call that failed: how often, first and last, seconds into the run."""

    what: str
    answer: str
    times: int
    first_s: float
    last_s: float


class Sampler:
    """Takes samples when told to, at moments it is told. Raises ProfileError if no device can be counted."""

    def __init__(self, nvml: Nvml, *, now_s: float, epoch_s: float, interval_s: float) -> None:
        self.interval_s = interval_s
        self.started_s = self.last_s = now_s
        self.unobserved_s = 0.0
        self.rounds = 0
        self.troubles: dict[tuple[str, str, int], Trouble] = {}
        self._nvml, self._epoch_s = nvml, epoch_s - now_s
        found = find_devices(nvml, interval_s * FIRST_BATCH)
        self.devices, self.unreadable = found.devices, tuple[Unreadable, ...](found.unreadable)
        self._buffer = found.buffer
        self._block = memoryview(found.buffer).cast("B")
        self._size = len(self._block)
        self._ring = memoryview(bytearray(self._size * BATCH))
        self._casts: dict[str, memoryview[int] | memoryview[float]] = {
            "I": self._ring.cast("I"),
            "Q": self._ring.cast("Q"),
            "d": self._ring.cast("d"),
        }
        self._seconds: list[float] = []
        self._slow_due_s = now_s
        self._slow_last_s = now_s
        self._hour_ends_s = self._next_hour(now_s)
        self._plan()

    def _plan(self) -> None:
        """Lay out the calls of a round: those of the devices that are there."""
        present = [device for device in self.devices if device.lost_at_s is None]
        self._calls = [
            (probe.function, probe.arguments, device, probe) for device in present for probe in device.readings.probes
        ]
        self._profilers = [(device.readings.gpm, device) for device in present if device.readings.gpm is not None]
        self._slow_rates = [
            device
            for device in present
            if device.parent is None
            and not device.readings.has(Metric.PCIE_RX)
            and "PCIe" not in device.readings.absent
        ]

    def round(self, now_s: float) -> None:
        """Take one sample of all devices."""
        if now_s >= self._hour_ends_s:
            self.close_hour(now_s)
        for call, arguments, device, probe in self._calls:
            if code := call(*arguments):
                self._refused(device, probe, code, now_s)
        for gpm, device in self._profilers:
            if code := gpm.take():
                self._gpm_refused(device, code, now_s)
        elapsed_s = now_s - self.last_s
        held_s = min(elapsed_s, HOLD_INTERVALS * self.interval_s)
        self.unobserved_s += elapsed_s - held_s
        self.last_s = now_s
        filled = len(self._seconds)
        self._ring[filled * self._size : (filled + 1) * self._size] = self._block
        self._seconds.append(held_s)
        if filled + 1 == (BATCH if self.rounds >= FIRST_ROUNDS else FIRST_BATCH):
            self.flush()
        if now_s >= self._slow_due_s:
            self._slow_round(now_s)

    def unobserved_until(self, now_s: float) -> float:
        """Return the seconds of which no reading tells, those since the last sample included."""
        return self.unobserved_s + max(0.0, now_s - self.last_s - HOLD_INTERVALS * self.interval_s)

    def flush(self) -> None:
        """Work the samples taken so far into the statistics."""
        if not self._seconds:
            return
        seconds, self._seconds = self._seconds, []
        self.rounds += len(seconds)
        at_s = max(0.0, self.last_s - self.started_s - sum(seconds) / 2)
        for device in self.devices:
            self._work_in(device, seconds, at_s)

    def _work_in(self, device: Device, seconds: Sequence[float], at_s: float) -> None:
        record, readings, seen = device.record, device.readings, 0
        for column in tuple(readings.columns):
            values, held = self._column(device, column, seconds)
            seen = max(seen, len(values))
            if not values and column.answer_at is not None:
                self._drop_if_unsupported(device, column, len(seconds))
            steps = column.scale(values) if values else []
            if column.counter and steps:
                steps, held = record.rates(column.metric, steps, held, column.per_count)
            if steps:
                record.add(at_s, column.metric, steps, held)
        if readings.energy is not None:
            counts, held = self._column(device, readings.energy, seconds)
            record.add_energy([int(count) for count in counts], held)
        if readings.reasons:
            offset = Column(metric=Metric.SM_CLOCK, kind="Q", at=REASONS)
            bits, held = self._column(device, offset, seconds)
            record.add_reasons([int(value) for value in bits], held)
        record.count(seen)

    def _drop_if_unsupported(self, device: Device, column: Column, count: int) -> None:
        """Stop looking at a reading of a shared call that the board does not have."""
        answers = self._raw(device, "I", column.answer_at or 0, count)
        if int(answers[-1]) in UNSUPPORTED and len(set(answers[1:])) <= 1:
            device.readings.columns.remove(column)
            device.readings.absent[column.metric.value] = answer_words(int(answers[-1]))

    def _column(
        self, device: Device, column: Column, seconds: Sequence[float]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return a reading of every sample of the ring that has it, and the seconds of these samples."""
        values = self._raw(device, column.kind, column.at, len(seconds))
        answers = None if column.answer_at is None else self._raw(device, "I", column.answer_at, len(seconds))
        if answers is not None and any(answers):
            self._note_answers(device, column, answers)
            kept = [place for place, answer in enumerate(answers) if not answer]
            if column.kind == "d":
                # an H200 answered "success" with a value that is not a number, in the first second of a program
                kept = [place for place in kept if math.isfinite(values[place])]
        elif column.kind == "d":
            if math.isfinite(sum(values)):
                return values, seconds
            kept = [place for place, value in enumerate(values) if math.isfinite(value)]
        else:
            absent = _NO_VALUE[column.kind]
            if absent not in values:
                return values, seconds
            kept = [place for place, value in enumerate(values) if value != absent]
        return [values[place] for place in kept], [seconds[place] for place in kept]

    def _note_answers(self, device: Device, column: Column, answers: Sequence[float]) -> None:
        """Note the readings of a shared call that failed by themselves; blanked ones are those of a call that failed whole."""
        what = "energy" if column is device.readings.energy else column.metric.value
        known = column is device.readings.energy or column.metric in device.record.latest
        for answer in answers:
            if answer not in (0, NO_VALUE_U32) and (known or answer not in UNSUPPORTED):
                self._trouble(device, what, int(answer), self.last_s)

    def _raw(self, device: Device, kind: str, at: int, count: int) -> Sequence[float]:
        width = _WIDTH[kind]
        start, step = (device.readings.base + at) // width, self._size // width
        found: Sequence[float] = self._casts[kind][start : start + (count - 1) * step + 1 : step].tolist()
        return found

    def _refused(self, device: Device, probe: Probe, code: int, now_s: float) -> None:
        """Note a failed call; drop it where it will fail for ever; take the device as lost where it is gone."""
        self._blank(device, probe.blanks)
        if device.lost_at_s is not None:
            return
        self._trouble(device, probe.what, code, now_s)
        if code in GONE:
            self._lost(device, now_s)
        elif code in UNSUPPORTED:
            device.readings.absent[probe.what] = f"{answer_words(code)} since {now_s - self.started_s:.0f} s"
            device.readings.probes.remove(probe)
            self._plan()

    def _gpm_refused(self, device: Device, code: int, now_s: float) -> None:
        gpm = device.readings.gpm
        if gpm is None:
            return
        self._blank(device, gpm.blanks)
        if code == FIRST or device.lost_at_s is not None:
            return
        self._trouble(device, gpm.what, code, now_s)
        if code in GONE:
            self._lost(device, now_s)
        elif code in UNSUPPORTED:
            device.readings.absent["SM, tensor and DRAM activity"] = answer_words(code)
            device.readings.gpm = None
            self._plan()

    def _trouble(self, device: Device, what: str, code: int, now_s: float) -> None:
        at_s = now_s - self.started_s
        key = (device.identity.uuid, what, code)
        if key in self.troubles:
            self.troubles[key].times += 1
            self.troubles[key].last_s = at_s
        else:
            self.troubles[key] = Trouble(what, answer_words(code), 1, at_s, at_s)

    def _lost(self, device: Device, now_s: float) -> None:
        device.lost_at_s = now_s
        device.lost_times += 1
        if device.readings.gpm is not None:
            device.readings.gpm.ready = False
            self._blank(device, device.readings.gpm.blanks)
        for probe in device.readings.probes:
            self._blank(device, probe.blanks)
        device.record.forget_counters()
        self._plan()

    def _blank(self, device: Device, spots: Sequence[tuple[int, int]]) -> None:
        for offset, length in spots:
            ctypes.memset(ctypes.addressof(self._buffer) + device.readings.base + offset, BLANK, length)

    def _slow_round(self, now_s: float) -> None:
        """Look for lost devices, at processes, and at PCIe rates that the driver measures for 20 ms."""
        held_s = now_s - self._slow_last_s
        self._slow_last_s, self._slow_due_s = now_s, now_s + max(SLOW_EVERY_S, self.interval_s)
        for device in self.devices:
            if device.lost_at_s is not None:
                self._seek(device, now_s)
            elif not device.has_instances:
                read_processes(self._nvml, device)
        if held_s > 0:
            for device in self._slow_rates:
                self._slow_rate(device, held_s, now_s)

    def _seek(self, device: Device, now_s: float) -> None:
        """Take a lost device back where the driver knows its UUID again and answers."""
        handle = self._nvml.handle_of(device.identity.uuid)
        if handle is None:
            return
        sizes = (ctypes.c_ulonglong * 3)()
        if self._nvml.ask("nvmlDeviceGetMemoryInfo", handle, sizes):
            return
        device.handle.value = handle.value  # the object that every prepared call passes
        device.lost_s += now_s - (device.lost_at_s or now_s)
        device.lost_at_s = None
        self._plan()

    def _slow_rate(self, device: Device, held_s: float, now_s: float) -> None:
        function: NvmlCall | None = self._nvml.call("nvmlDeviceGetPcieThroughput")
        value = ctypes.c_uint()
        for direction, metric in ((PCIE_TX, Metric.PCIE_TX), (PCIE_RX, Metric.PCIE_RX)):
            code = (
                Answer.FUNCTION_NOT_FOUND
                if function is None
                else function(device.handle, ctypes.c_uint(direction), ctypes.byref(value))
            )
            if code in UNSUPPORTED:
                device.readings.absent["PCIe"] = answer_words(code)
                self._plan()
                return
            if code:
                self._trouble(device, "PCIe rate", code, now_s)
                continue
            at_s = max(0.0, now_s - self.started_s - held_s / 2)
            device.record.add(at_s, metric, [value.value * BYTES_PER_KIB], [held_s])

    def close_hour(self, now_s: float) -> None:
        """End the hour of the clock: its statistics become a row."""
        self.flush()
        begun_s = self._hour_ends_s - S_PER_HR + self._epoch_s
        for device in self.devices:
            device.record.close_hour(begun_s)
        self._hour_ends_s = self._next_hour(now_s)

    def _next_hour(self, now_s: float) -> float:
        return (math.floor((now_s + self._epoch_s) / S_PER_HR) + 1) * S_PER_HR - self._epoch_s

    def lost_s(self, device: Device, now_s: float) -> float:
        """Return for how long a device was away so far."""
        return device.lost_s + (0.0 if device.lost_at_s is None else now_s - device.lost_at_s)

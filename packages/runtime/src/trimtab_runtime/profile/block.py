"""The block of memory that NVML fills for one device, and the calls that fill it: found once, repeated at every sample.

All structures of all devices lie in one buffer, so that taking a sample is calls and one copy. A reading that a call did not
give is overwritten by the values that mean "not there", never left as it was and never 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trimtab_runtime.profile.metrics import Column, Metric, bytes_of_mib, mib_of_bytes, steps_of_percent
from trimtab_runtime.profile.nvml import (
    ALL_LINKS,
    CLOCK_SM,
    GPM_VERSION,
    UNSUPPORTED,
    Answer,
    Field,
    FieldValue,
    Gpm,
    GpmHead,
    GpmMetric,
    GpmSupport,
    Nvml,
    NvmlCall,
    answer_words,
)
from trimtab_runtime.units import BYTES_PER_KIB

UTILIZATION, MEMORY, CLOCK, REASONS, POWER = 0, 8, 32, 40, 48
"""Offsets in a device's block, in bytes."""
GPM_HEAD = 56
GPM_METRICS = GPM_HEAD + ctypes.sizeof(GpmHead)
FIELDS = GPM_METRICS + len(Gpm) * ctypes.sizeof(GpmMetric)
BLOCK_BYTES = FIELDS + len(Field) * ctypes.sizeof(FieldValue)
BLANK = 0xFF
FIRST = -1
"""No answer of NVML's: there is no earlier sample to compare with."""
_KINDS = {0: "d", 1: "I", 2: "Q", 3: "Q"}
"""nvmlValueType_t as formats."""

_GPM_METRICS = {
    Gpm.SM_UTIL: Metric.SM_ACTIVE,
    Gpm.SM_OCCUPANCY: Metric.SM_OCCUPANCY,
    Gpm.ANY_TENSOR_UTIL: Metric.TENSOR_ACTIVE,
    Gpm.DRAM_BW_UTIL: Metric.DRAM_ACTIVE,
    Gpm.PCIE_TX_PER_SEC: Metric.PCIE_TX,
    Gpm.PCIE_RX_PER_SEC: Metric.PCIE_RX,
    Gpm.NVLINK_TOTAL_RX_PER_SEC: Metric.NVLINK_RX,
    Gpm.NVLINK_TOTAL_TX_PER_SEC: Metric.NVLINK_TX,
}
_COUNTERS = {
    Field.PCIE_COUNT_TX_BYTES: (Metric.PCIE_TX, 1),
    Field.PCIE_COUNT_RX_BYTES: (Metric.PCIE_RX, 1),
    Field.NVLINK_THROUGHPUT_DATA_TX: (Metric.NVLINK_TX, BYTES_PER_KIB),
    Field.NVLINK_THROUGHPUT_DATA_RX: (Metric.NVLINK_RX, BYTES_PER_KIB),
}
_FIELD_NAMES = {
    Field.TOTAL_ENERGY_CONSUMPTION: "energy",
    Field.POWER_INSTANT: "instantaneous power",
    **{one: metric.value for one, (metric, _) in _COUNTERS.items()},
}


@dataclass(slots=True, eq=False)
class Probe:
    """One repeated call: its name for people, and the bytes to blank where it fails."""

    what: str
    function: NvmlCall
    arguments: tuple[object, ...]
    blanks: tuple[tuple[int, int], ...]
    """(offset, length) in the device's block."""


@dataclass(slots=True, eq=False)
class GpmReader:
    """Takes profiling samples of a device in turns: the metrics are those between the last two."""

    what: str
    get: NvmlCall
    before_sample: tuple[object, ...]
    metrics: NvmlCall
    head: GpmHead
    pointer: object
    samples: list[ctypes.c_void_p]
    blanks: tuple[tuple[int, int], ...]
    ready: bool = False

    def take(self) -> int:
        """Take a sample and the metrics since the one before; return NVML's answer, or FIRST where there is none before."""
        before, after = self.samples
        if code := self.get(*self.before_sample, after):
            self.ready = False
            return code
        self.samples = [after, before]
        if not self.ready:
            self.ready = True
            return FIRST
        self.head.before, self.head.after = before.value, after.value
        return self.metrics(self.pointer)


@dataclass(slots=True, eq=False)
class Readings:
    """What can be read of one device: the calls, where their readings lie, and why others are absent."""

    base: int
    probes: list[Probe] = field(default_factory=list)
    gpm: GpmReader | None = None
    columns: list[Column] = field(default_factory=list)
    energy: Column | None = None
    reasons: bool = False
    absent: dict[str, str] = field(default_factory=dict)
    """What cannot be read -> why."""

    def has(self, metric: Metric) -> bool:
        """Return whether a metric has a column."""
        return any(column.metric is metric for column in self.columns)


class Prober:
    """Finds out what one device can be asked, into one part of the buffer."""

    def __init__(self, nvml: Nvml, buffer: ctypes.Array[ctypes.c_char], base: int, handle: ctypes.c_void_p) -> None:
        self._nvml, self._buffer, self._handle = nvml, buffer, handle
        self._address = ctypes.addressof(buffer) + base
        self.found = Readings(base=base)
        ctypes.memset(self._address, BLANK, BLOCK_BYTES)

    def gpu(self) -> Readings:
        """Ask for everything that a whole GPU may have."""
        self.memory()
        self._utilization()
        self._clock()
        self._reasons()
        self.profiling(("nvmlGpmSampleGet",), (self._handle,), self._handle)
        self._fields()
        if not self.found.has(Metric.POWER):
            self._power()
        return self.found

    def memory(self) -> Readings:
        """Ask for memory in use."""
        used = MEMORY + 16
        if self._adopt("memory", ("nvmlDeviceGetMemoryInfo",), (self._at(MEMORY),), ((MEMORY, 24),)):
            self.found.columns.append(Column(metric=Metric.MEMORY_USED, kind="Q", at=used, scale=mib_of_bytes))
        return self.found

    def _utilization(self) -> None:
        names = ("nvmlDeviceGetUtilizationRates",)
        if self._adopt("utilization", names, (self._at(UTILIZATION),), ((UTILIZATION, 8),)):
            self.found.columns += [
                Column(metric=Metric.GPU_UTIL, kind="I", at=UTILIZATION),
                Column(metric=Metric.MEMORY_BUSY, kind="I", at=UTILIZATION + 4),
            ]

    def _clock(self) -> None:
        arguments = (ctypes.c_uint(CLOCK_SM), self._at(CLOCK))
        if self._adopt("SM clock", ("nvmlDeviceGetClockInfo",), arguments, ((CLOCK, 4),)):
            self.found.columns.append(Column(metric=Metric.SM_CLOCK, kind="I", at=CLOCK))

    def _reasons(self) -> None:
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        self.found.reasons = self._adopt("throttle reasons", names, (self._at(REASONS),), ((REASONS, 8),))

    def _power(self) -> None:
        if self._adopt("power", ("nvmlDeviceGetPowerUsage",), (self._at(POWER),), ((POWER, 4),)):
            self.found.columns.append(Column(metric=Metric.POWER, kind="I", at=POWER))

    def _fields(self) -> None:
        """Ask for all field values, keep those that this board has, and ask for these from then on."""
        function = self._nvml.call("nvmlDeviceGetFieldValues")
        if function is None:
            self.found.absent["energy and link counters"] = answer_words(Answer.FUNCTION_NOT_FOUND)
            return
        fields = list(Field)
        code = self._ask_fields(function, fields)
        if code:
            self.found.absent["energy and link counters"] = answer_words(code)
            return
        answers = {one: self._field(place).answer for place, one in enumerate(fields)}
        kept = [name for name in fields if not answers[name] and not self._measured_already(name)]
        for one, answer in answers.items():
            if answer and not self._measured_already(one):
                self.found.absent[_FIELD_NAMES[one]] = answer_words(answer)
        if not kept:
            return
        self._ask_fields(function, kept)
        for place, one in enumerate(kept):
            self._field_column(one, place)
        arguments = (self._handle, ctypes.c_int(len(kept)), self._at(FIELDS))
        size = ctypes.sizeof(FieldValue)
        blanks = tuple((FIELDS + place * size + FieldValue.answer.offset, 4) for place in range(len(kept)))
        self.found.probes.append(Probe("energy and link counters", function, arguments, blanks))

    def _measured_already(self, one: Field) -> bool:
        """Return whether the profiling metrics give the same rate, averaged by the hardware."""
        return one in _COUNTERS and self.found.has(_COUNTERS[one][0])

    def _ask_fields(self, function: NvmlCall, fields: Sequence[Field]) -> int:
        for place, one in enumerate(fields):
            value = self._field(place)
            value.field_id = one
            value.scope_id = ALL_LINKS if "NVLINK" in one.name else 0
        return function(self._handle, ctypes.c_int(len(fields)), self._at(FIELDS))

    def _field(self, place: int) -> FieldValue:
        return FieldValue.from_address(self._address + FIELDS + place * ctypes.sizeof(FieldValue))

    def _field_column(self, one: Field, place: int) -> None:
        start = FIELDS + place * ctypes.sizeof(FieldValue)
        kind = _KINDS.get(self._field(place).value_type, "Q")
        at, answer_at = start + FieldValue.value.offset, start + FieldValue.answer.offset
        if one is Field.TOTAL_ENERGY_CONSUMPTION:
            self.found.energy = Column(metric=Metric.POWER, kind=kind, at=at, answer_at=answer_at, counter=True)
        elif one is Field.POWER_INSTANT:
            self.found.columns.append(Column(metric=Metric.POWER, kind=kind, at=at, answer_at=answer_at))
        else:
            metric, per_count = _COUNTERS[one]
            self.found.columns.append(
                Column(metric=metric, kind=kind, at=at, answer_at=answer_at, counter=True, per_count=per_count)
            )

    def profiling(self, names: tuple[str, ...], before: tuple[object, ...], board: ctypes.c_void_p) -> Readings:
        """Ask for the profiling metrics that the board has: none before Hopper."""
        support = GpmSupport(GPM_VERSION, 0)
        code = self._nvml.ask("nvmlGpmQueryDeviceSupport", board, ctypes.byref(support))
        get, metrics = self._nvml.call(*names), self._nvml.call("nvmlGpmMetricsGet")
        samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        if code or not support.supported or get is None or metrics is None:
            self.found.absent["SM, tensor and DRAM activity"] = (
                answer_words(code) if code else "NVML gives them on Hopper and newer only"
            )
            return self.found
        for sample in samples:
            if code := self._nvml.ask("nvmlGpmSampleAlloc", ctypes.byref(sample)):
                self.found.absent["SM, tensor and DRAM activity"] = answer_words(code)
                return self.found
        self._gpm_columns()
        head = GpmHead.from_buffer(self._buffer, self.found.base + GPM_HEAD)
        head.version, head.count = GPM_VERSION, len(Gpm)
        blanks = tuple((at, 4) for at in self._gpm_answers())
        self.found.gpm = GpmReader("profiling metrics", get, before, metrics, head, self._at(GPM_HEAD), samples, blanks)
        return self.found

    def _gpm_answers(self) -> Iterator[int]:
        for place in range(len(Gpm)):
            yield GPM_METRICS + place * ctypes.sizeof(GpmMetric) + GpmMetric.answer.offset

    def _gpm_columns(self) -> None:
        size = ctypes.sizeof(GpmMetric)
        for place, one in enumerate(Gpm):
            start = GPM_METRICS + place * size
            GpmMetric.from_address(self._address + start).metric_id = one
            rate = one.name.endswith("PER_SEC")
            self.found.columns.append(
                Column(
                    metric=_GPM_METRICS[one],
                    kind="d",
                    at=start + GpmMetric.value.offset,
                    answer_at=start + GpmMetric.answer.offset,
                    scale=bytes_of_mib if rate else steps_of_percent,
                )
            )

    def _adopt(
        self, what: str, names: tuple[str, ...], arguments: tuple[object, ...], blanks: tuple[tuple[int, int], ...]
    ) -> bool:
        """Try a call once and keep it, unless its answer will never change: then it is absent, with the reason."""
        function = self._nvml.call(*names)
        code = Answer.FUNCTION_NOT_FOUND if function is None else function(self._handle, *arguments)
        if function is None or code in UNSUPPORTED:
            self.found.absent[what] = answer_words(code)
            return False
        self.found.probes.append(Probe(what, function, (self._handle, *arguments), blanks))
        return True

    def _at(self, offset: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._address + offset)

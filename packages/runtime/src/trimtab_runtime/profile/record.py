"""What was read of one device, in bounded memory: distributions over the run, a timeline, and rows per hour."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from trimtab_runtime.profile.metrics import HIGHEST, PER_UNIT, Metric
from trimtab_runtime.profile.nvml import THROTTLE_REASONS
from trimtab_runtime.profile.sketch import Sketch
from trimtab_runtime.profile.timeline import Timeline
from trimtab_runtime.units import HR_PER_DAY

MOST_HOURS = 31 * HR_PER_DAY
"""Hours whose own statistics are kept; of a longer run the oldest go, and the report says how many."""
MOST_PROCESSES = 64
_HOURLY = (Metric.GPU_UTIL, Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in the metric's unit."""

    mean: float
    p50: float
    p95: float
    low: float
    high: float
    seconds: float


@dataclass(frozen=True, slots=True)
class HourRow:
    """One hour of one device; None if nothing was read."""

    start_s: float
    """Seconds since the epoch."""
    samples: int
    activity: tuple[Spread | None, ...]
    """Of GPU_UTIL, SM, tensor and DRAM activity."""
    memory_mean_gib: float | None
    memory_high_gib: float | None
    power_mean_w: float | None
    energy_mj: float | None


def spread(sketch: Sketch, metric: Metric) -> Spread | None:
    """Return a sketch in the metric's unit; None if nothing was read."""
    mean, middle, high = sketch.mean, sketch.quantile(0.5), sketch.quantile(0.95)
    if mean is None or middle is None or high is None or sketch.low is None or sketch.high is None:
        return None
    per = PER_UNIT[metric]
    return Spread(mean / per, middle / per, high / per, sketch.low / per, sketch.high / per, sketch.seconds)


class DeviceRecord:
    """Everything kept of one device."""

    def __init__(self, slot_s: float) -> None:
        self.hour: dict[Metric, Sketch] = defaultdict(Sketch)
        self.whole: dict[Metric, Sketch] = defaultdict(Sketch)
        self.timeline = Timeline(tuple(Metric), slot_s)
        self.hours: deque[HourRow] = deque(maxlen=MOST_HOURS)
        self.hours_dropped = 0
        self.latest: dict[Metric, float] = {}
        self.energy_mj = 0.0
        self.energy_s = 0.0
        self.counter_resets = 0
        self.clamped = 0
        self.throttled_s: defaultdict[int, float] = defaultdict(float)
        self.reasons_s = 0.0
        self.process_peak_bytes: dict[int, int | None] = {}
        self._samples = 0
        self._hour_energy_mj: float | None = None
        self._counters: dict[Metric | None, int] = {}

    def add(self, at_s: float, metric: Metric, values: Sequence[int], seconds: Sequence[float]) -> None:
        """Add readings in steps of the metric, each with the seconds it stands for."""
        most = HIGHEST.get(metric)
        if most is not None and max(values) > most:
            self.clamped += sum(value > most for value in values)
            values = [min(value, most) for value in values]
        per, held_s, moment = PER_UNIT[metric], sum(seconds), sum(map(mul, values, seconds))
        self.hour[metric].add(values, seconds, held_s, moment)
        self.latest[metric] = values[-1] / per
        self.timeline.add(at_s, metric, moment / per, held_s)

    def rates(
        self, metric: Metric, counts: Sequence[int], seconds: Sequence[float], per_count: int
    ) -> tuple[list[int], list[float]]:
        """Turn a growing counter into rates per second; a step back is a reset: counted, and its reading left out."""
        values, held = [], []
        last = self._counters.get(metric)
        for count, span_s in zip(counts, seconds, strict=True):
            if last is not None and span_s > 0:
                if count >= last:
                    values.append(round((count - last) * per_count / span_s))
                    held.append(span_s)
                else:
                    self.counter_resets += 1
            last = count
        if last is not None:
            self._counters[metric] = last
        return values, held

    def add_energy(self, counts_mj: Sequence[int], seconds: Sequence[float]) -> None:
        """Add the growth of the energy counter; a step back is a reset: counted, and that span is not known."""
        last = self._counters.get(None)
        grown_mj = 0.0
        for count, span_s in zip(counts_mj, seconds, strict=True):
            if last is not None:
                if count >= last:
                    grown_mj += count - last
                    self.energy_s += span_s
                else:
                    self.counter_resets += 1
            last = count
        if last is not None:
            self._counters[None] = last
        self.energy_mj += grown_mj
        self._hour_energy_mj = (self._hour_energy_mj or 0.0) + grown_mj

    def forget_counters(self) -> None:
        """Start counters afresh: the device was away, and may have been reset."""
        self._counters.clear()

    def add_reasons(self, bits: Sequence[int], seconds: Sequence[float]) -> None:
        """Add throttle reasons, several of which can hold at once."""
        self.reasons_s += sum(seconds)
        for value, held_s in zip(bits, seconds, strict=True):
            if value & ~0x3:
                for bit in THROTTLE_REASONS:
                    if value & bit:
                        self.throttled_s[bit] += held_s

    def count(self, samples: int) -> None:
        """Count samples that gave anything."""
        self._samples += samples

    def saw_process(self, pid: int, used_bytes: int | None) -> None:
        """Keep a process's peak of memory; of more than 64 processes the first."""
        if pid in self.process_peak_bytes or len(self.process_peak_bytes) < MOST_PROCESSES:
            before = self.process_peak_bytes.get(pid)
            known = [amount for amount in (before, used_bytes) if amount is not None]
            self.process_peak_bytes[pid] = max(known) if known else None

    def close_hour(self, start_s: float) -> None:
        """Turn the hour's readings into a row, and add them to the whole run."""
        if self._samples:
            self.hours_dropped += len(self.hours) == MOST_HOURS
            self.hours.append(self._row(start_s))
        for metric, sketch in self.hour.items():
            self.whole[metric].merge(sketch)
            self.hour[metric] = Sketch(self.whole[metric].shift)  # an hour finer than the run would be coarsened anyway
        self._samples, self._hour_energy_mj = 0, None

    def _row(self, start_s: float) -> HourRow:
        found: Mapping[Metric, Spread | None] = {metric: spread(sketch, metric) for metric, sketch in self.hour.items()}
        memory, power = found.get(Metric.MEMORY_USED), found.get(Metric.POWER)
        return HourRow(
            start_s=start_s,
            samples=self._samples,
            activity=tuple(found.get(metric) for metric in _HOURLY),
            memory_mean_gib=memory.mean if memory else None,
            memory_high_gib=memory.high if memory else None,
            power_mean_w=power.mean if power else None,
            energy_mj=self._hour_energy_mj,
        )

    def so_far(self) -> dict[Metric, Spread]:
        """Return the distribution of every metric over the run, the unfinished hour included."""
        found = {}
        for metric in Metric:
            joined = Sketch()
            joined.merge(self.whole[metric])
            joined.merge(self.hour[metric])
            if (one := spread(joined, metric)) is not None:
                found[metric] = one
        return found

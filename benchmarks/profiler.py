"""What one sample of eight GPUs costs, how much memory thirty days take, and how near peak and p95 are to the script.

    python -m benchmarks.profiler [--samples 50000] [--days 30]

Through a fake driver library compiled here (a C compiler is needed), whose readings change at every sample. CPU is that of the
sampling thread, statistics included. Beside it in the same run: the same calls made bare through ctypes with prepared
arguments, and through nvidia-ml-py. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trimtab.units import MIB_PER_GIB, S_PER_DAY, US_PER_S
from trimtab_runtime.profile.metrics import Metric
from trimtab_runtime.profile.nvml import Nvml
from trimtab_runtime.profile.sampler import Sampler

GPUS = 8
SOURCE = Path(__file__).resolve().parent.parent / "packages" / "runtime" / "tests" / "profile" / "fake_nvml.c"
INTERVAL_S = 0.2
DAYS_INTERVAL_S = 15.0
MOMENTS = 256
"""Different moments, which follow one another for ever: every reading of every GPU changes at every sample."""
WORST_MOMENTS = 9973
"""Uniformly random readings, more of them than a distribution keeps apart: worse than any program."""
_KEYS = {
    "util": 100,
    "sm": 100,
    "tensor": 100,
    "dram": 100,
    "occ": 100,
    "power": 700_000,
    "used": 81_920,
    "pcie_rx": 60_000,
}


class Script:
    """Changes the fake library's readings at every sample, outside of what is timed."""

    def __init__(self, library: str, moments: int) -> None:
        self._fake = ctypes.CDLL(library)
        self.moments = moments
        rng = random.Random(7)
        self._values = {
            (gpu, key): [float(rng.randrange(most)) for _ in range(moments)]
            for gpu in range(GPUS)
            for key, most in _KEYS.items()
        }
        self.util = self._values[0, "util"]

    def play(self, sample: int) -> None:
        """Set all readings to those of a sample."""
        for (gpu, key), values in self._values.items():
            self._fake.fake_set(gpu, key.encode(), ctypes.c_double(values[sample % self.moments]))


def compiled(folder: Path) -> str:
    """Compile the fake library and give it its script."""
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    script = folder / "script.txt"
    script.write_text(f"gpus {GPUS}\n", encoding="utf-8")
    os.environ["TRIMTAB_FAKE_NVML"] = str(script)
    return str(library)


def cpu_us(script: Script, once: Callable[[int], None], samples: int) -> float:
    """Return CPU microseconds a sample of this thread; the best of five parts, since other work shares the host."""
    parts = []
    for part in range(5):
        spent = 0.0
        for sample in range(part * samples // 5, (part + 1) * samples // 5):
            script.play(sample)
            begun = time.thread_time()
            once(sample)
            spent += time.thread_time() - begun
        parts.append(spent * US_PER_S / (samples // 5))
    return min(parts)


def sampled(library: str, script: Script, samples: int) -> tuple[float, Sampler]:
    """Return what a sample costs with all its statistics, and the sampler."""
    sampler = Sampler(Nvml(library), now_s=0.0, epoch_s=0.0, interval_s=INTERVAL_S)
    cost = cpu_us(script, lambda sample: sampler.round((sample + 1) * INTERVAL_S), samples)
    sampler.flush()
    return cost, sampler


def bare_ctypes(sampler: Sampler) -> Callable[[int], None]:
    """Return a sample that only makes the calls, with arguments made beforehand."""
    calls = [(probe.function, probe.arguments) for device in sampler.devices for probe in device.readings.probes]
    readers = [device.readings.gpm for device in sampler.devices]

    def once(_sample: int) -> None:
        for call, arguments in calls:
            call(*arguments)
        for reader in readers:
            if reader is not None:
                reader.take()

    return once


def through_pynvml() -> Callable[[int], None] | None:
    """Return the same readings through nvidia-ml-py; None where it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(GPUS)]

    def once(_sample: int) -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetUtilizationRates(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            pynvml.nvmlDeviceGetFieldValues(handle, [83, 186])

    return once


def thirty_days(library: str, script: Script, days: int) -> dict[str, float]:
    """Run the sampler over simulated days; return what it keeps, and how memory grew after the first fifth."""
    sampler = Sampler(Nvml(library), now_s=0.0, epoch_s=0.0, interval_s=DAYS_INTERVAL_S)
    samples = int(days * S_PER_DAY / DAYS_INTERVAL_S)
    early_mib = 0.0
    for sample in range(1, samples + 1):
        script.play(sample)
        sampler.round(sample * DAYS_INTERVAL_S)
        if sample == samples // 5:
            early_mib = rss_mib()
    sampler.flush()
    record = sampler.devices[0].record
    return {
        "days": days,
        "samples": samples,
        "rss_mib_at_a_fifth": early_mib,
        "rss_mib_at_the_end": rss_mib(),
        "hour_rows": len(record.hours),
        "timeline_slots": record.timeline.slots,
        "most_bins": max(len(sketch.bins) for sketch in record.whole.values()),
    }


def rss_mib() -> float:
    """Return the highest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB_PER_GIB


def statistics_error(sampler: Sampler, script: Script, samples: int) -> float:
    """Return how many of the script's samples lie between our p95 of utilization and the exact one, at most."""
    exact = sorted(script.util[sample % script.moments] for sample in range(samples))
    p95 = round(sampler.devices[0].record.so_far()[Metric.GPU_UTIL].p95 * 100)
    rank = -int(-0.95 * samples // 1) - 1
    below, upto = sum(value < p95 for value in exact), sum(value <= p95 for value in exact)
    return float(max(0, below - rank, rank - (upto - 1)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        worst_script = Script(library, WORST_MOMENTS)
        worst, _ = sampled(library, worst_script, asked.samples)
        script = Script(library, MOMENTS)
        ours, sampler = sampled(library, script, asked.samples)
        error = statistics_error(sampler, script, asked.samples)
        bare = cpu_us(script, bare_ctypes(sampler), asked.samples // 5)
        peer = through_pynvml()
        theirs = None if peer is None else cpu_us(script, peer, asked.samples // 5)
        print(
            f"CPU a sample of {GPUS} GPUs: {ours:.1f} us (at worst {worst:.1f}); "
            f"bare ctypes calls {bare:.1f}; nvidia-ml-py {theirs}"
        )
        kept = thirty_days(library, worst_script, asked.days)
        print(kept)
    answer = {
        "benchmark": "profiler",
        "data": None,
        "gpus": GPUS,
        "us_per_sample": round(ours, 2),
        "us_per_sample_worst": round(worst, 2),
        "bare_ctypes_us": round(bare, 2),
        "nvidia_ml_py_us": None if theirs is None else round(theirs, 2),
        "ratio_to_bare_ctypes": round(ours / bare, 2),
        "ratio_to_nvidia_ml_py": None if theirs is None else round(ours / theirs, 2),
        "p95_off_by_samples": error,
        "long_run": kept,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

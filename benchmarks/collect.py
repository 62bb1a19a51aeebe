"""Aggregation pushed down to a real Prometheus server against a raw pull of the same readings.

    python -m benchmarks.collect [--gpus 400] [--hours 24] [--step 15] [--data FOLDER]

Needs `prometheus` and `promtool`. One metric (SM activity) is generated (seeded), backfilled and served on loopback; then mean,
p50, p95 and maximum by GPU-hour are had in two ways: computed here from every raw sample, and asked from the server. Then
`collect_prometheus` runs whole, in a process of its own for its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from benchmarks.rollup import peak_gib
from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey, moment
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.sources.prometheus.dcgm import METRICS
from trimtab.sources.prometheus.gpu_readings import collect_statistics
from trimtab.sources.prometheus.gpu_series import Scale, Tally
from trimtab.units import BYTES_PER_MIB, MIB_PER_GIB, S_PER_HR

START_S = 1_788_220_800
NAMES = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE")
SM = next(metric for metric in METRICS if metric.name == NAMES[0])
_READY_TRIES = 600


def main() -> None:
    """Serve the readings, have the statistics both ways, compare, then collect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=400)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--step", type=int, default=15)
    parser.add_argument("--metrics", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("build/benchmarks"))
    parser.add_argument("--no-raw", action="store_true", help="Collect only: for fleets too large for a raw pull.")
    parser.add_argument("--collect-from", help=argparse.SUPPRESS)
    options = parser.parse_args()
    grid = HourGrid(start_s=START_S, hours=options.hours)
    if options.collect_from:
        print(json.dumps(_collect(options.collect_from, grid)))
        return
    blocks = options.data / f"prometheus-{options.gpus}-{options.hours}-{options.step}-{options.metrics}"
    if not blocks.is_dir():
        _backfill(blocks, options.gpus, options.hours, options.step, NAMES[: options.metrics])
    with _serving(blocks) as (url, pid):
        compared = {} if options.no_raw else _compared(url, grid, options.step)
        before_s = _cpu_s(pid)
        collected = _collected_apart(url, options.hours)
        collected["server_cpu_s"] = round(_cpu_s(pid) - before_s, 2)
        collected["load_average"] = os.getloadavg()[0]
    shape = {"gpus": options.gpus, "hours": options.hours, "step_s": options.step, "metrics": options.metrics}
    print(json.dumps({"benchmark": "collect", "data": str(blocks), **shape, **compared, **collected}))


def _backfill(blocks: Path, gpus: int, hours: int, step: int, names: tuple[str, ...]) -> None:
    """Write two days of OpenMetrics text at a time, and turn each into storage."""
    print("generating and backfilling ...", flush=True)
    blocks.parent.mkdir(parents=True, exist_ok=True)
    fresh = blocks.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for first in range(0, hours, 48):
        page = blocks.with_suffix(".om")
        _write_page(page, gpus, first, min(48, hours - first), step, names)
        command = ["promtool", "tsdb", "create-blocks-from", "--quiet", "--max-block-duration=48h", "openmetrics"]
        subprocess.run([*command, str(page), str(fresh)], check=True, stdout=subprocess.DEVNULL)
        page.unlink()
        print(f"  {first + 48} of {hours} hours", flush=True)
    fresh.rename(blocks)


def _write_page(page: Path, gpus: int, first_hr: int, hours: int, step: int, names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(first_hr)
    start_s = START_S + first_hr * S_PER_HR
    times = [str(start_s + at) for at in range(0, hours * S_PER_HR, step)]
    with page.open("w", encoding="utf-8") as stream:
        for gpu in range(gpus):
            labels = (
                f'UUID="GPU-{gpu:08x}",gpu="{gpu % 8}",Hostname="node-{gpu // 8}",modelName="NVIDIA A100-SXM4-40GB"'
            )
            labels += f',namespace="team-{gpu % 7}",pod="train-{gpu}"'
            for name in names:
                values = np.round(rng.beta(2, 3, len(times)), 4).tolist()
                prefix = f"{name}{{{labels}}} "
                stream.write("".join(f"{prefix}{value} {at}\n" for value, at in zip(values, times, strict=True)))
        stream.write("# EOF\n")


@contextmanager
def _serving(blocks: Path) -> Iterator[tuple[str, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = blocks.with_suffix(".yml")
    config.write_text("global: {}\n", encoding="utf-8")
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={blocks}", "--log.level=error"]
    command += ["--storage.tsdb.retention.time=20y", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(_READY_TRIES):
            try:
                if httpx.get(f"{url}/-/ready").status_code == httpx.codes.OK:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _compared(url: str, grid: HourGrid, step: int) -> dict[str, float]:
    """Have the statistics in both ways."""
    with Prometheus(url) as server:
        began = time.monotonic()
        raw = _raw(server, grid, step)
        raw_s, raw_bytes = time.monotonic() - began, server.received_bytes
    with Prometheus(url) as server:
        began = time.monotonic()
        cube = Cube(grid=grid)
        collect_statistics(server, SM, Scale(usual=1.0), cube, Tally())
        pushed_s, pushed_bytes = time.monotonic() - began, server.received_bytes
    difference = max(
        float(np.abs(cube.of(f"sm_active_{statistic}", key) - values).max()) for (statistic, key), values in raw.items()
    )
    result = {
        "raw_s": round(raw_s, 2),
        "pushed_down_s": round(pushed_s, 2),
        "wall_ratio": round(raw_s / pushed_s, 2),
        "raw_mib": round(raw_bytes / BYTES_PER_MIB, 2),
        "pushed_down_mib": round(pushed_bytes / BYTES_PER_MIB, 3),
        "bytes_ratio": round(raw_bytes / pushed_bytes, 1),
        "largest_difference": difference,
    }
    print(result, flush=True)
    return result


def _raw(server: Prometheus, grid: HourGrid, step: int) -> dict[tuple[str, UsageKey], Floats]:
    """Pull every sample, and make the hourly statistics here."""
    parts: dict[UsageKey, list[Floats]] = {}
    tally = Tally()
    for series in server.range(SM.name, grid.start_s, grid.end_s - step, step):
        found = tally.key_of(series)
        if found is not None:
            parts.setdefault(found[0], []).append(series.values)
    statistics: dict[tuple[str, UsageKey], Floats] = {}
    for key, pieces in parts.items():
        by_hour = np.concatenate(pieces).reshape(grid.hours, -1)
        statistics["mean", key] = by_hour.mean(axis=1)
        statistics["max", key] = by_hour.max(axis=1)
        statistics["p50", key] = np.quantile(by_hour, 0.5, axis=1)
        statistics["p95", key] = np.quantile(by_hour, 0.95, axis=1)
    return statistics


def _collected_apart(url: str, hours: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.collect", "--collect-from", url, "--hours", str(hours)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _collect(url: str, grid: HourGrid) -> dict[str, float]:
    """Collect whole; without histograms, as a fleet of that size is collected."""
    began = time.monotonic()
    with Prometheus(url) as server:
        found = collect_prometheus(server, moment(grid.start_s), moment(grid.end_s), raw_sample_limit=0)
        wall_s = time.monotonic() - began
        return {
            "collect_s": round(wall_s, 2),
            "collect_cpu_s": round(time.process_time(), 2),
            "collect_rss_mib": round(peak_gib() * MIB_PER_GIB, 1),
            "collect_requests": server.requests,
            "collect_mib": round(server.received_bytes / BYTES_PER_MIB, 2),
            "usage_rows": found.tables["gpu_usage"].num_rows,
        }


if __name__ == "__main__":
    main()

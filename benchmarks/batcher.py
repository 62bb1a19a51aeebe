"""The dynamic batcher beside its limits and peers, all in one run, interleaved and repeated.

    python -m benchmarks.batcher            # about five minutes; prints tables, one JSON line last
    python -m benchmarks.batcher --quick    # about one minute
    python -m benchmarks.batcher storm      # the million-request storm (python -m benchmarks.batcher_storm)

Measured: CPU time a request on a device that takes no time; throughput of closed loops against the arithmetic limit and against
the device alone; latency of Poisson arrivals against greedy batching without overhead; a model slower than usual windows; the
same over HTTP. Generator and batcher share an event loop, so `cpu_us` holds both. The figures move with the host: compare
within a run. `over_us` is what a round costs beyond the device's own measured time, which moves least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from statistics import median

from benchmarks import batcher_http, batcher_storm
from benchmarks.batcher_device import (
    BASE_S,
    Device,
    capacity_req_s,
    closed_limit_req_s,
    greedy_latencies_s,
    quantile,
)
from benchmarks.batcher_peers import PEERS, Peer, build, installed
from trimtab.units import MS_PER_S

LOADS_FRAC = (0.02, 0.10, 0.50, 0.80, 0.95)
CLIENTS = (1, 32, 256)
SLOW_BASE_S = 0.020
SLOW_REQ_S = 800.0
WARM_S = 0.5
US_PER_S = 1e6
Row = dict[str, float]


async def closed_loop(peer: Peer, device: Device, clients: int, seconds: float) -> Row:
    """Measure clients that each submit again as soon as they are answered."""
    running = True
    latencies: list[float] = []

    async def client(number: int) -> None:
        while running:
            began_s = time.perf_counter()
            await peer.submit(number)
            latencies.append(time.perf_counter() - began_s)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.sleep(WARM_S)
    device.reset()
    latencies.clear()
    cpu_s, began_s = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    items, batches, busy_s, seen = device.items, device.batches, device.busy_s, sorted(latencies)
    running = False
    await asyncio.gather(*tasks)
    return {
        "req_s": items / wall_s,
        "p50_ms": quantile(seen, 0.5) * MS_PER_S,
        "cpu_us": cpu_s / items * US_PER_S,
        "over_us": (wall_s - busy_s) / batches * US_PER_S,
        "mean_batch": items / batches,
    }


async def open_loop(peer: Peer, device: Device, rate_req_s: float, seconds: float) -> Row:
    """Measure Poisson arrivals; latency counts from the scheduled arrival, so that a late generator hides nothing."""
    rng = random.Random(1)
    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def request(scheduled_s: float, recorded: bool) -> None:
        await peer.submit(0)
        if recorded:
            latencies.append(time.perf_counter() - scheduled_s)

    began_s = scheduled_s = time.perf_counter()
    while scheduled_s < began_s + WARM_S + seconds:
        scheduled_s += rng.expovariate(rate_req_s)
        ahead_s = scheduled_s - time.perf_counter()
        if ahead_s > 0.0002:
            await asyncio.sleep(ahead_s)
        elif len(tasks) % 64 == 0:
            await asyncio.sleep(0)
        task = asyncio.create_task(request(scheduled_s, scheduled_s > began_s + WARM_S))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.wait(tasks, timeout=20)
    seen = sorted(latencies)
    return {f"p{share}_ms": quantile(seen, share / 100) * MS_PER_S for share in (50, 95, 99)}


def measure(name: str, device: Device, load: Load) -> Row:
    """Run one peer under one load on a fresh event loop."""

    async def run() -> Row:
        peer = build(name, device)
        await peer.start()
        await asyncio.gather(*[_submit(peer, number) for number in range(4)])
        row = await load(peer, device)
        await peer.stop()
        return row

    return asyncio.run(run())


async def _submit(peer: Peer, number: int) -> object:
    return await peer.submit(number)


Load = Callable[[Peer, Device], Coroutine[object, object, Row]]


def interleaved(names: Sequence[str], repeats: int, make: Callable[[], Device], load: Load) -> dict[str, list[Row]]:
    """Measure peers in turn, several times over, so that a busy minute of the host hits all of them."""
    rows: dict[str, list[Row]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            rows[name].append(measure(name, make(), load))
    return rows


def best(rows: list[Row], key: str, *, least: bool = True) -> float:
    """Return the repeat that the host disturbed least."""
    return round((min if least else max)(row[key] for row in rows), 3)


def device_alone_req_s(batch: int, seconds: float = 1.0) -> float:
    """Return the throughput of the device itself, called back to back without any batcher."""
    device = Device()
    began_s = time.perf_counter()
    while time.perf_counter() < began_s + seconds:
        device.run([0] * batch)
    return device.items / (time.perf_counter() - began_s)


def cpu_figures(names: Sequence[str], repeats: int, seconds: float) -> dict[str, object]:
    """CPU time a request at 256 clients on a device that takes no time."""
    rows = interleaved(
        names, repeats, lambda: Device(blocks=False), lambda peer, device: closed_loop(peer, device, 256, seconds)
    )
    return {
        name: {"best": best(found, "cpu_us"), "median": round(median(row["cpu_us"] for row in found), 3)}
        for name, found in rows.items()
    }


def closed_figures(names: Sequence[str], repeats: int, seconds: float) -> dict[str, object]:
    """Throughput of closed loops, beside the arithmetic limit and the device alone."""
    figures: dict[str, object] = {}
    for clients in CLIENTS:
        alone = max(device_alone_req_s(min(clients, 64)) for _ in range(2))
        rows = interleaved(names, repeats, Device, partial(closed_loop, clients=clients, seconds=seconds))
        limit = closed_limit_req_s(clients)
        figures[str(clients)] = {"limit_req_s": round(limit), "device_alone_req_s": round(alone)} | {
            name: {
                "req_s": round(best(found, "req_s", least=False)),
                "limit_frac": round(best(found, "req_s", least=False) / limit, 4),
                "device_alone_frac": round(best(found, "req_s", least=False) / alone, 4),
                "over_us": round(best(found, "over_us")),
                "p50_ms": best(found, "p50_ms"),
            }
            for name, found in rows.items()
        }
    return figures


def open_figures(names: Sequence[str], repeats: int, seconds: float) -> dict[str, object]:
    """Latency of Poisson arrivals, beside greedy batching without overhead: over two minutes, and of the very same arrivals."""
    figures: dict[str, object] = {}
    for load in LOADS_FRAC:
        rate = load * capacity_req_s()
        rows = interleaved(names, repeats, Device, partial(open_loop, rate_req_s=rate, seconds=seconds))
        theory = _quantiles_ms(greedy_latencies_s(rate))
        same = _quantiles_ms(greedy_latencies_s(rate, horizon_s=WARM_S + seconds, warm_s=WARM_S))
        figures[f"{load:.2f}"] = {"greedy_theory": theory, "greedy_theory_same_arrivals": same} | {
            name: {key: best(found, key) for key in same}
            | {"p99_over_theory_ms": round(best(found, "p99_ms") - same["p99_ms"], 2)}
            for name, found in rows.items()
        }
    return figures


def _quantiles_ms(ordered: Sequence[float]) -> Row:
    return {f"p{share}_ms": round(quantile(ordered, share / 100) * MS_PER_S, 2) for share in (50, 95, 99)}


def slow_figures(names: Sequence[str], repeats: int, seconds: float) -> dict[str, object]:
    """p95 of a model whose 20 ms exceed a 10 ms window, at 800 requests a second (a third of its capacity)."""
    rows = interleaved(
        names,
        repeats,
        lambda: Device(base_s=SLOW_BASE_S),
        lambda peer, device: open_loop(peer, device, SLOW_REQ_S, seconds),
    )
    theory = greedy_latencies_s(SLOW_REQ_S, base_s=SLOW_BASE_S)
    figures: dict[str, object] = {"greedy_theory": round(quantile(theory, 0.95) * MS_PER_S, 2)}
    return figures | {name: best(found, "p95_ms") for name, found in rows.items()}


def import_ms() -> dict[str, float]:
    """Return the best of five imports in fresh interpreters without site packages."""
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    figures = {}
    for statement in ("import trimtab_runtime", "from trimtab_runtime import batch"):
        line = [sys.executable, "-S", "-c", code.format(statement)]
        times = [float(subprocess.run(line, capture_output=True, text=True, check=True).stdout) for _ in range(5)]
        figures[statement] = round(min(times) * MS_PER_S, 1)
    return figures


def run(*, quick: bool) -> dict[str, object]:
    """Measure everything; say each part when it is done."""
    logging.disable(logging.WARNING)  # the storm's planned failures
    names = [name for name in PEERS if installed(name)]
    fast = [name for name in names if name in ("trimtab", "greedy")]
    repeats, seconds = (2, 0.7) if quick else (3, 1.5)
    figures: dict[str, object] = {"benchmark": "batcher", "data": None, "base_ms": BASE_S * MS_PER_S}
    parts: dict[str, Callable[[], object]] = {
        "import_ms": import_ms,
        "cpu_us": lambda: cpu_figures(names, repeats + 2, seconds / 2),
        "closed": lambda: closed_figures(names, repeats, seconds),
        "open": lambda: open_figures(fast, repeats - 1, 2 * seconds),
        "slow_model_p95_ms": lambda: slow_figures(fast, repeats - 1, 2 * seconds),
        "http": lambda: batcher_http.measure(seconds=1 if quick else 3, runs=repeats),
        "storm": lambda: batcher_storm.storm(30_000),
    }
    for name, part in parts.items():
        figures[name] = part()
        print(f"{name} (load average {os.getloadavg()[0]:.1f}): {json.dumps(figures[name], indent=1)}", flush=True)
    figures["load_average"] = round(os.getloadavg()[0], 1)
    return figures


def main() -> None:
    if sys.argv[1:2] == ["storm"]:
        del sys.argv[1]
        batcher_storm.main()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="not needed: the device is simulated")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter cells")
    arguments = parser.parse_args()
    print(json.dumps(run(quick=arguments.quick)))


if __name__ == "__main__":
    main()

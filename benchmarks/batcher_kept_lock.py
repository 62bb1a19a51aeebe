"""A batch function that keeps the interpreter's lock, as eager PyTorch does.

    python -m benchmarks.batcher_kept_lock [--busy 2]

The simulated devices of the other benchmarks sleep, which frees the lock. Here the function works on the processor for 16 ms
whatever the batch. Callers are threads or tasks, in closed loops and as Poisson arrivals. Beside the batcher, in the same run:
the batcher that gives the lock to no caller between runs (as it was), the one that sees a kept lock by time on a processor
alone, and the bound that run time and batch size alone set. `--busy` programs keep processors busy beside it.
`benchmarks.gpu_measure` asks the same of a real GPU. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.batcher_callers import Tasks, Threads
from benchmarks.batcher_device import MAX_BATCH
from trimtab.units import MS_PER_S
from trimtab_runtime import batch
from trimtab_runtime.batcher import threads

RUN_S = 0.016
CLIENTS = 64
RATES_REQ_S = (350.0, 1700.0, 2800.0)
SECONDS = 3.0


def launches(items: list[int]) -> list[int]:
    """Keep the lock for the time of a run."""
    began_s = time.thread_time()
    while time.thread_time() - began_s < RUN_S:
        pass
    return items


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Keep so many processors busy."""
    programs = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.terminate()
            program.join()


def measured(given_frac: float, ready_s: Callable[[], float] = threads._ready_s) -> dict[str, float]:
    """Return all figures with this share of a run given to other threads, and this clock to see whether it kept the lock."""
    items = range(CLIENTS)
    kept = threads.GIVEN_FRAC, threads._ready_s
    threads.GIVEN_FRAC, threads._ready_s = given_frac, ready_s
    try:
        found: dict[str, float] = {}
        ways: dict[str, Callable[[Any], Threads | Tasks]] = {"threads": lambda one: Threads(one.call), "tasks": Tasks}
        for name, callers in ways.items():
            batched = batch(max_batch=MAX_BATCH)(launches)
            asking = callers(batched)
            found[f"{name}_closed_req_s"] = round(asking.closed_req_s(items, clients=CLIENTS, seconds=SECONDS))
            for rate in RATES_REQ_S:
                latency_s = statistics.median(asking.latencies_s(items, rate, SECONDS))
                found[f"{name}_p50_ms_at_{rate:.0f}"] = round(latency_s * MS_PER_S, 1)
            batched.close()
    finally:
        threads.GIVEN_FRAC, threads._ready_s = kept
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="programs that keep processors busy beside it")
    busy = parser.parse_args().busy
    with busy_programs(busy):
        ours = measured(threads.GIVEN_FRAC)
        on_processor = measured(threads.GIVEN_FRAC, time.thread_time)
        before = measured(0.0)
    print(f"{'':<24} {'now':>10} {'on a CPU':>10} {'no turns':>10}")
    for name, figure in ours.items():
        print(f"{name:<24} {figure:>10} {on_processor[name]:>10} {before[name]:>10}")
    bound_req_s = CLIENTS / RUN_S
    print(f"bound of closed loops    {bound_req_s:>10.0f}; no wait is shorter than {RUN_S * MS_PER_S:.0f} ms")
    found = {"ours": ours, "by_time_on_processor": on_processor, "without_turns": before}
    print(json.dumps({"benchmark": "batcher_kept_lock", "busy": busy, "bound_req_s": bound_req_s, **found}))


if __name__ == "__main__":
    main()

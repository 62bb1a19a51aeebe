"""A batch function that keeps the interpreter's lock, as eager PyTorch does: `python -m benchmarks.batcher_kept_lock`.

The simulated devices of the other benchmarks sleep, which frees the lock. Here the function works on the processor for 16 ms
whatever the batch. Callers are threads or tasks, in closed loops and as Poisson arrivals. Beside the batcher, in the same run:
the batcher that gives the lock to nobody between runs (as it was), and the bound that run time and batch size alone set.
`benchmarks.gpu_measure` asks the same of a real GPU. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


def closed_threads(batched: Any) -> float:
    """Return requests a second of clients in threads that each wait for their answer."""
    counts = [0] * CLIENTS
    start_s = time.perf_counter() + 1.0

    def client(which: int) -> None:
        while (now_s := time.perf_counter()) < start_s + SECONDS:
            batched.call(which)
            counts[which] += now_s > start_s

    clients = [threading.Thread(target=client, args=(which,)) for which in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return sum(counts) / SECONDS


def closed_tasks(batched: Any) -> float:
    """Return the same of clients that are tasks on one event loop."""
    start_s = time.perf_counter() + 1.0

    async def client(which: int) -> int:
        count = 0
        while (now_s := time.perf_counter()) < start_s + SECONDS:
            await batched(which)
            count += now_s > start_s
        return count

    async def everyone() -> int:
        return sum(await asyncio.gather(*(client(which) for which in range(CLIENTS))))

    return asyncio.run(everyone()) / SECONDS


def arrivals_s(rate_req_s: float) -> list[float]:
    """Return moments of Poisson arrivals."""
    rng, at_s, found = random.Random(5), 0.0, []
    while at_s < SECONDS:
        at_s += rng.expovariate(rate_req_s)
        found.append(at_s)
    return found


def open_threads(batched: Any, rate_req_s: float) -> float:
    """Return the median latency of Poisson arrivals that threads carry."""
    took_s: list[float] = []
    began_s = time.perf_counter()

    def one(due_s: float) -> None:
        batched.call(1)
        took_s.append(time.perf_counter() - began_s - due_s)

    with ThreadPoolExecutor(256) as pool:
        for due_s in arrivals_s(rate_req_s):
            time.sleep(max(0.0, began_s + due_s - time.perf_counter()))
            pool.submit(one, due_s)
    return statistics.median(took_s)


def open_tasks(batched: Any, rate_req_s: float) -> float:
    """Return the same where tasks carry them."""
    took_s: list[float] = []

    async def everyone() -> None:
        began_s = time.perf_counter()

        async def one(due_s: float) -> None:
            await batched(1)
            took_s.append(time.perf_counter() - began_s - due_s)

        tasks = []
        for due_s in arrivals_s(rate_req_s):
            await asyncio.sleep(max(0.0, began_s + due_s - time.perf_counter()))
            tasks.append(asyncio.create_task(one(due_s)))
        await asyncio.gather(*tasks)

    asyncio.run(everyone())
    return statistics.median(took_s)


def measured(given_frac: float) -> dict[str, float]:
    """Return all figures with this share of a run given to other threads."""
    kept, threads.GIVEN_FRAC = threads.GIVEN_FRAC, given_frac
    try:
        found: dict[str, float] = {}
        for callers, closed, opened in (("threads", closed_threads, open_threads), ("tasks", closed_tasks, open_tasks)):
            batched = batch(max_batch=MAX_BATCH)(launches)
            found[f"{callers}_closed_req_s"] = round(closed(batched))
            for rate in RATES_REQ_S:
                found[f"{callers}_p50_ms_at_{rate:.0f}"] = round(opened(batched, rate) * MS_PER_S, 1)
            batched.close()
    finally:
        threads.GIVEN_FRAC = kept
    return found


def main() -> None:
    """Run the benchmark."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    ours, before = measured(threads.GIVEN_FRAC), measured(0.0)
    bound_req_s = CLIENTS / RUN_S
    for name, figure in ours.items():
        print(f"{name:<24} {figure:>10} {before[name]:>10}  (without turns)")
    print(f"bound of closed loops    {bound_req_s:>10.0f}; no wait is shorter than {RUN_S * MS_PER_S:.0f} ms")
    print(
        json.dumps(
            {"benchmark": "batcher_kept_lock", "bound_req_s": bound_req_s, "ours": ours, "without_turns": before}
        )
    )


if __name__ == "__main__":
    main()

"""Callers of a batched function, in threads of their own or as tasks on one event loop: closed loops, and Poisson arrivals.

Needs of trimtab only the runtime, so that a machine with a GPU can use it.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WARM_S = 1.0
_MOST_THREADS = 256


def arrivals_s(rate_req_s: float, seconds: float) -> Iterator[float]:
    """Yield moments of Poisson arrivals, the first one after `seconds` too."""
    rng, at_s = random.Random(5), 0.0
    while at_s < seconds:
        at_s += rng.expovariate(rate_req_s)
        yield at_s


class Threads:
    """Callers in threads of their own: each call blocks its thread."""

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call = call

    def closed_req_s(self, items: Sequence[Any], *, clients: int, seconds: float) -> float:
        """Return the requests a second of clients that each wait for their answer, after a second to warm up."""
        counts = [0] * clients
        start_s = time.perf_counter() + WARM_S

        def client(which: int) -> None:
            turn = which
            while (now_s := time.perf_counter()) < start_s + seconds:
                self._call(items[turn % len(items)])
                turn += clients
                counts[which] += now_s > start_s

        threads = [threading.Thread(target=client, args=(which,)) for which in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / seconds

    def latencies_s(self, items: Sequence[Any], rate_req_s: float, seconds: float) -> list[float]:
        """Return the sorted latencies of Poisson arrivals, each from the moment at which it was due."""
        took_s: list[float] = []
        began_s = time.perf_counter()

        def request(due_s: float, item: object) -> None:
            self._call(item)
            took_s.append(time.perf_counter() - began_s - due_s)

        with ThreadPoolExecutor(_MOST_THREADS) as pool:
            for turn, due_s in enumerate(arrivals_s(rate_req_s, seconds)):
                time.sleep(max(0.0, began_s + due_s - time.perf_counter()))
                pool.submit(request, due_s, items[turn % len(items)])
        return sorted(took_s)


class Tasks:
    """Callers that are tasks on one event loop; `batched` is awaited."""

    def __init__(self, batched: Any) -> None:
        self._batched = batched

    def closed_req_s(self, items: Sequence[Any], *, clients: int, seconds: float) -> float:
        """Return what `Threads.closed_req_s` does."""
        start_s = time.perf_counter() + WARM_S

        async def client(which: int) -> int:
            turn, count = which, 0
            while (now_s := time.perf_counter()) < start_s + seconds:
                await self._batched(items[turn % len(items)])
                turn += clients
                count += now_s > start_s
            return count

        async def everyone() -> int:
            return sum(await asyncio.gather(*(client(which) for which in range(clients))))

        return asyncio.run(everyone()) / seconds

    def latencies_s(self, items: Sequence[Any], rate_req_s: float, seconds: float) -> list[float]:
        """Return what `Threads.latencies_s` does."""
        took_s: list[float] = []

        async def everyone() -> None:
            began_s = time.perf_counter()

            async def request(due_s: float, item: object) -> None:
                await self._batched(item)
                took_s.append(time.perf_counter() - began_s - due_s)

            tasks = []
            for turn, due_s in enumerate(arrivals_s(rate_req_s, seconds)):
                await asyncio.sleep(max(0.0, began_s + due_s - time.perf_counter()))
                tasks.append(asyncio.create_task(request(due_s, items[turn % len(items)])))
            await asyncio.gather(*tasks)

        asyncio.run(everyone())
        return sorted(took_s)

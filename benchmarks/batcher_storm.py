"""A storm of requests: cancelled callers, poison items, batches that run out of memory, deadlines, and a drain in full flight.

    python -m benchmarks.batcher_storm [--requests 1000000] [--seed 1] [--workers 1]

Every request must end once: with its own result, its own error, a refusal or its own cancellation. Hung, wrong and reordered
(within a key and priority) must all be 0. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from trimtab.errors import BatcherClosed, DeadlineExceeded
from trimtab_runtime.batcher import Batcher, Options

CANCELLED_FRAC = 0.10
POISON_FRAC = 0.01
OOM_FRAC = 0.001
DEADLINE_FRAC = 0.05
DEADLINES_S = (0.0, 0.0005, 0.005, 1.0)
URGENT_FRAC = 0.1
KEYS = 16
FITS = 8
"""A batch with a heavy item fits into memory up to this many items."""
WAVE = 400
DRAIN_AT_FRAC = 0.98
GRACE_S = 60.0


class Kind(NamedTuple):
    """What is wrong with an item."""

    poison: bool
    heavy: bool


class Item(NamedTuple):
    """One request's payload; `number` counts within its key and priority."""

    key: int
    priority: int
    number: int
    kind: Kind


class Poison(ValueError):
    """Raised by the model for a batch that holds a poison item."""


class Model:
    """Fails as the items tell it to, and notes items that come out of order in runs that succeed."""

    def __init__(self) -> None:
        self.reordered = 0
        self.runs = 0
        self._last: dict[tuple[int, int], int] = {}

    def __call__(self, items: list[Item]) -> list[Item]:
        self.runs += 1
        if len(items) > FITS and any(item.kind.heavy for item in items):
            raise MemoryError(f"{len(items)} items do not fit")
        if any(item.kind.poison for item in items):
            raise Poison
        for item in items:
            lane = (item.key, item.priority)
            self.reordered += item.number <= self._last.get(lane, -1)
            self._last[lane] = item.number
        return items


class Storm:
    """Sends the requests and checks each answer as it comes."""

    def __init__(self, requests: int, seed: int, workers: int) -> None:
        self.requests = requests
        self.rng = random.Random(seed)
        self.model = Model()
        options = Options(
            key=lambda item: item.key,
            size=lambda item: 1,
            max_size=64,
            max_queue=5_000,
            workers=workers,
            ordered=workers > 1,
            on_batch=lambda report: None,
            name="storm",
        )
        self.batcher: Batcher[Item, Item] = Batcher(self.model, options)
        self.ends: Counter[str] = Counter()
        self.wrong = 0
        self.reordered = 0
        self.most_at_once = 0
        self._answered: dict[tuple[int, int], int] = {}
        self._open: dict[asyncio.Future[Item], Item] = {}

    def items(self) -> Iterator[Item]:
        """Yield the payloads."""
        counters: Counter[tuple[int, int]] = Counter()
        rng = self.rng
        for _ in range(self.requests):
            lane = (rng.randrange(KEYS), int(rng.random() < URGENT_FRAC))
            counters[lane] += 1
            yield Item(*lane, counters[lane], Kind(rng.random() < POISON_FRAC, rng.random() < OOM_FRAC))

    async def run(self) -> None:
        """Send in waves, cancel at random, drain before the last ones are in."""
        draining: asyncio.Task[None] | None = None
        for sent, item in enumerate(self.items(), 1):
            self._send(item)
            if sent % WAVE == 0:
                self._cancel_some()
                await asyncio.sleep(0)
                while len(self._open) > 20_000:
                    await asyncio.sleep(0.001)
            if draining is None and sent >= self.requests * DRAIN_AT_FRAC:
                draining = asyncio.create_task(self.batcher.drain())
        deadline_s = time.monotonic() + GRACE_S
        while self._open and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        if draining is not None:
            await asyncio.wait_for(draining, GRACE_S)

    def _send(self, item: Item) -> None:
        within_s = self.rng.choice(DEADLINES_S) if self.rng.random() < DEADLINE_FRAC else None
        try:
            reply = asyncio.ensure_future(self.batcher(item, priority=item.priority, within_s=within_s))
        except BatcherClosed:
            self.ends["refused: closed"] += 1
            return
        self._open[reply] = item
        self.most_at_once = max(self.most_at_once, len(self._open))
        reply.add_done_callback(self._done)

    def _cancel_some(self) -> None:
        """Cancel a share of the newest wave."""
        newest = list(self._open)[-WAVE:]
        for reply in newest:
            if self.rng.random() < CANCELLED_FRAC:
                reply.cancel()

    def _done(self, reply: asyncio.Future[Item]) -> None:
        item = self._open.pop(reply)
        if reply.cancelled():
            self.ends["cancelled"] += 1
            return
        error = reply.exception()
        if error is None:
            self._check(item, reply.result())
        elif isinstance(error, Poison):
            self.ends["poison"] += 1
            self.wrong += not item.kind.poison
        elif isinstance(error, DeadlineExceeded):
            self.ends["refused: deadline"] += 1
        else:
            self.ends[f"unexpected {type(error).__name__}"] += 1
            self.wrong += 1

    def _check(self, item: Item, result: Item) -> None:
        self.ends["answered"] += 1
        self.wrong += result is not item or item.kind.poison
        lane = (item.key, item.priority)
        self.reordered += item.number <= self._answered.get(lane, -1)
        self._answered[lane] = item.number

    def report(self, wall_s: float) -> dict[str, object]:
        """Return the counts."""
        stats = self.batcher.stats()
        return {
            "requests": self.requests,
            "hung": len(self._open),
            "wrong": self.wrong,
            "reordered": self.reordered + self.model.reordered,
            "ends": dict(sorted(self.ends.items())),
            "most_at_once": self.most_at_once,
            "runs": stats.runs,
            "extra_runs": stats.extra_runs,
            "extra_runs_per_fault": round(stats.extra_runs / max(1, stats.poisoned + stats.out_of_memory), 2),
            "out_of_memory": stats.out_of_memory,
            "wall_s": round(wall_s, 1),
        }


def storm(requests: int, seed: int = 1, workers: int = 1) -> dict[str, object]:
    """Run one storm and return what came of it."""
    began_s = time.monotonic()
    raging = Storm(requests, seed, workers)
    asyncio.run(raging.run())
    return raging.report(time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # one line for each of the thousand planned failures
    found = storm(arguments.requests, arguments.seed, arguments.workers)
    print(json.dumps({"benchmark": "batcher_storm", "data": None, **found}))
    if found["hung"] or found["wrong"] or found["reordered"]:
        sys.exit(1)


if __name__ == "__main__":
    main()

"""What the batcher is measured beside: bare greedy asyncio, the hand-written window, and packages where they are installed."""

from __future__ import annotations

import asyncio
import collections
import importlib
import importlib.util
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, cast

from benchmarks.batcher_adapter import Batcher as Trimtab
from benchmarks.batcher_device import Device

WINDOW_S = 0.010
Entry = tuple[object, "asyncio.Future[object]"]


class Peer(Protocol):
    """One batcher on one device."""

    async def start(self) -> None: ...
    def submit(self, item: object, /) -> Awaitable[object]: ...
    async def stop(self) -> None: ...


class Greedy:
    """About what bare asyncio allows, without one safety feature: a reference point, not a product."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._waiting: collections.deque[Entry] = collections.deque()
        self._busy = self._scheduled = False
        self._work: queue.SimpleQueue[list[Entry] | None] = queue.SimpleQueue()

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._device.blocks:
            threading.Thread(target=self._serve, daemon=True).start()

    async def stop(self) -> None:
        self._work.put(None)

    def submit(self, item: object) -> asyncio.Future[object]:
        reply: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append((item, reply))
        self._schedule()
        return reply

    def _schedule(self) -> None:
        if not self._busy and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy or not self._waiting:
            return
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._device.max_batch))]
        if self._device.blocks:
            self._busy = True
            self._work.put(batch)
        else:
            self._finish(batch, self._device.run([item for item, _ in batch]), idle=True)

    def _serve(self) -> None:
        while (batch := self._work.get()) is not None:
            following: list[Entry] | None = batch
            while following is not None:
                batch, following = following, None
                results = self._device.run([item for item, _ in batch])
                if len(self._waiting) >= self._device.max_batch:
                    following = [self._waiting.popleft() for _ in range(self._device.max_batch)]
                self._loop.call_soon_threadsafe(partial(self._finish, batch, results, idle=following is None))

    def _finish(self, batch: list[Entry], results: list[object], *, idle: bool) -> None:
        if idle:
            self._busy = False
        for (_, reply), result in zip(batch, results, strict=True):
            if not reply.done():
                reply.set_result(result)
        if self._waiting:
            self._schedule()


class Handwritten:
    """The batcher that articles print, with the model in a thread: a window, polled each millisecond."""

    def __init__(self, device: Device) -> None:
        self._device = device

    async def start(self) -> None:
        self._queue: asyncio.Queue[Entry] = asyncio.Queue()
        self._task = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        self._task.cancel()

    async def submit(self, item: object) -> object:
        reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        await self._queue.put((item, reply))
        return await reply

    async def _serve(self) -> None:
        while True:
            batch = [await self._queue.get()]
            over_s = time.perf_counter() + WINDOW_S
            while len(batch) < self._device.max_batch and time.perf_counter() < over_s:
                if self._queue.empty():
                    await asyncio.sleep(0.001)
                else:
                    batch.append(self._queue.get_nowait())
            results = await run_async(self._device, [item for item, _ in batch])
            for (_, reply), result in zip(batch, results, strict=True):
                if not reply.done():
                    reply.set_result(result)


class Batched:
    """`batched.aio.dynamically` of the package batched."""

    def __init__(self, device: Device) -> None:
        self._device = device

    async def start(self) -> None:
        aio = importlib.import_module("batched.aio")
        decorate = aio.dynamically(batch_size=self._device.max_batch, timeout_ms=WINDOW_S * 1e3)
        self.submit: Callable[[object], Awaitable[object]] = decorate(partial(run_async, self._device))

    async def stop(self) -> None:
        return None


class AsyncBatcher:
    """The package async-batcher."""

    def __init__(self, device: Device) -> None:
        self._device = device

    async def start(self) -> None:
        base = importlib.import_module("async_batcher.batcher").AsyncBatcher
        device = self._device

        async def process_batch(_: object, batch: list[object]) -> list[object]:
            return await run_async(device, batch)

        kind = type("DeviceBatcher", (base,), {"process_batch": process_batch})
        self._batcher = kind(max_batch_size=device.max_batch, max_queue_time=WINDOW_S)
        self.submit: Callable[[object], Awaitable[object]] = self._batcher.process

    async def stop(self) -> None:
        await self._batcher.stop(force=True)


async def run_async(device: Device, items: list[object]) -> list[object]:
    """Run a batch off the event loop where the device blocks."""
    if not device.blocks:
        return device.run(items)
    return await asyncio.get_running_loop().run_in_executor(None, device.run, items)


PEERS: dict[str, tuple[Callable[[Device], object], str | None]] = {
    "trimtab": (Trimtab, None),
    "greedy": (Greedy, None),
    "handwritten": (Handwritten, None),
    "batched": (Batched, "batched"),
    "async-batcher": (AsyncBatcher, "async_batcher"),
}
"""Name -> (adapter, the package it needs)."""


def installed(name: str) -> bool:
    """Say whether a peer can be measured here."""
    package = PEERS[name][1]
    return package is None or importlib.util.find_spec(package) is not None


def build(name: str, device: Device) -> Peer:
    """Return a peer on a device."""
    return cast(Peer, PEERS[name][0](device))

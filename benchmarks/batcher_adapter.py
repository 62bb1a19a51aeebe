"""The batcher behind the adapter protocol of independent referees: `benchmarks.batcher_adapter:Batcher`.

Every feature is on: keys, sizes with a largest total, a deadline per request, a bounded queue, isolation, metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from trimtab_runtime.batcher import Batcher as TrimtabBatcher, Options

WITHIN_S = 3600.0
MAX_TOTAL = 1 << 20


class Device(Protocol):
    """The simulated accelerator that a referee hands over."""

    blocks: bool
    max_batch: int

    def run(self, items: Sequence[object]) -> list[object]: ...


def key_of(item: object) -> str:
    """Put all items into one lane, through a key function as a user would write it."""
    return "any"


def size_of(item: object) -> int:
    """Return the size of an item, through a size function as a user would write it."""
    return 1


class Batcher:
    """One device behind the batcher: in a thread where its calls block, on the event loop where they do not."""

    def __init__(self, device: Device) -> None:
        self._device = device

    async def start(self) -> None:
        device = self._device

        async def run_here(items: list[object]) -> list[object]:
            return device.run(items)

        options = Options(
            max_batch=device.max_batch, key=key_of, size=size_of, max_size=MAX_TOTAL, max_queue=100_000,
            within_s=WITHIN_S, name="device",
        )  # fmt: skip
        function = device.run if device.blocks else run_here
        self._batcher: TrimtabBatcher[object, object] = TrimtabBatcher(function, options)
        self.submit = self._batcher.__call__

    async def stop(self) -> None:
        await self._batcher.drain(5.0)

    async def device_counts(self, reset: bool) -> tuple[int, int]:
        """Return (batches, items) run so far."""
        counted = cast("tuple[int, int]", (getattr(self._device, "batches", 0), getattr(self._device, "items", 0)))
        if reset:
            getattr(self._device, "reset", lambda: None)()
        return counted

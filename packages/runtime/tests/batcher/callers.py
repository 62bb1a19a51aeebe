"""A model that can be held, and batchers of it, for tests of what callers see."""

import asyncio
import threading
import time

from trimtab_runtime import batch


class Model:
    """A batch function that notes its batches, and can be held until released."""

    def __init__(self, *, held=False):
        self.batches = []
        self.go = threading.Event()
        self.running = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, items):
        self.batches.append(list(items))
        self.running.set()
        assert self.go.wait(10)
        return [item * 10 if isinstance(item, int) else item for item in items]


def wrapped(model, **options):
    def run(items: list) -> list:
        return model(items)

    return batch(**options)(run)


def final_stats(batcher):
    """Return the counters once all books are closed: answers leave before they are counted."""
    batcher.drain_wait(5)
    return batcher.stats()


async def until(condition, timeout_s=5.0):
    ended = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ended, "the condition never came true"
        await asyncio.sleep(0.001)


async def held_batcher(model, **options):
    """Return a batcher whose worker is inside the model with one item, so that the rest queues up."""
    batcher = wrapped(model, **options)
    first = asyncio.ensure_future(batcher(0))
    await until(model.running.is_set)
    return batcher, first

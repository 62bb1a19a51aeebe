"""Batch functions that worker processes import by name."""

import os
import threading
import time

from trimtab_runtime import batch


@batch(worker="process", max_batch=8, name="inverter")
def invert(items: list[float]) -> list[float]:
    return [1 / item for item in items]


@batch(worker="process")
def crash_on_seven(items: list[int]) -> list[int]:
    if 7 in items:
        os._exit(3)
    return [os.getpid() and item for item in items]


@batch(worker="process")
def unpicklable(items: list[int]) -> list[object]:
    return [threading.Lock() for _ in items]


@batch
def double(items: list[int]) -> list[int]:
    time.sleep(0.001)
    return [2 * item for item in items]


@batch(worker="process", run_limit_s=0.5)
def hang_on_seven(items: list[int]) -> list[int]:
    if 7 in items:
        time.sleep(60)
    return items

"""The dynamic batcher: many callers of one item each, few calls of a function of many."""

from trimtab.runtime.batcher.batcher import Batcher, StreamBatcher, metrics_text
from trimtab.runtime.batcher.buckets import buckets
from trimtab.runtime.batcher.decorator import BatchMethod, batch
from trimtab.runtime.batcher.metrics import Stats
from trimtab.runtime.batcher.options import BatchReport, Options, is_out_of_memory
from trimtab.runtime.batcher.streaming import DONE

__all__ = [
    "DONE",
    "BatchMethod",
    "BatchReport",
    "Batcher",
    "Options",
    "Stats",
    "StreamBatcher",
    "batch",
    "buckets",
    "is_out_of_memory",
    "metrics_text",
]

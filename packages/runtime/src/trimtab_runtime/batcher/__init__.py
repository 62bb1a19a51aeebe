"""The dynamic batcher: many callers of one item each, few calls of a function of many."""

from trimtab_runtime.batcher.batcher import Batcher, StreamBatcher, metrics_text
from trimtab_runtime.batcher.bucketing import buckets
from trimtab_runtime.batcher.decorator import BatchMethod, batch
from trimtab_runtime.batcher.metrics import Stats
from trimtab_runtime.batcher.options import BatchReport, Options, is_out_of_memory
from trimtab_runtime.batcher.streaming import DONE

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

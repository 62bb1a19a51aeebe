"""What a person can set on a batcher, checked when it is set."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Literal, NamedTuple

from trimtab_runtime.errors import UsageError
from trimtab_runtime.policies.batching import BatchRule

Workers = Literal["thread", "process"]
WhenFull = Literal["wait", "refuse"]

OOM_NAMES = frozenset({"OutOfMemoryError", "MemoryError"})
OOM_PHRASES = ("out of memory", "RESOURCE_EXHAUSTED", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


class BatchReport(NamedTuple):
    """What the `on_batch` callback is told after each run of the batch function."""

    name: str
    key: Hashable
    items: int
    total_size: int
    waited_s: float
    """Wait of the oldest item before the run."""
    run_s: float
    error: BaseException | None


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that the batch did not fit: by type name (torch, Python) or by message (CUDA, XLA)."""
    if any(kind.__name__ in OOM_NAMES for kind in type(error).__mro__):
        return True
    message = str(error)
    return isinstance(error, RuntimeError) and any(phrase in message for phrase in OOM_PHRASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one batcher; `batch` documents each."""

    max_batch: int = 64
    min_batch: int = 1
    window_s: float = 0.0
    target_s: float = inf
    learn: bool = True
    key: Callable[..., Hashable] | None = None
    pad: Callable[..., object] | None = None
    unpad: Callable[..., object] | None = None
    size: Callable[..., int] | None = None
    max_size: int | None = None
    padded: bool = False
    batch_sizes: tuple[int, ...] = ()
    max_queue: int = 10_000
    when_full: WhenFull = "wait"
    within_s: float | None = None
    isolate: bool | Callable[[BaseException], bool] = True
    is_oom: Callable[[BaseException], bool] = is_out_of_memory
    on_oom: Callable[[], object] | None = None
    worker: Workers = "thread"
    run_limit_s: float | None = None
    workers: int = 1
    ordered: bool = False
    on_batch: Callable[[BatchReport], object] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        positive: dict[str, float] = {
            "max_batch": self.max_batch,
            "min_batch": self.min_batch,
            "max_queue": self.max_queue,
        }
        positive |= {"workers": self.workers, "target_s": self.target_s}
        for name, value in positive.items():
            if not value > 0:
                raise UsageError(f"batch: {name} must be above 0 (saw {value!r})")
        if self.window_s < 0:
            raise UsageError(f"batch: window_s must not be negative (saw {self.window_s!r}); 0 is greedy")
        if self.min_batch > self.max_batch:
            raise UsageError(f"batch: min_batch {self.min_batch} exceeds max_batch {self.max_batch}")
        if (self.size is None) != (self.max_size is None):
            raise UsageError("batch: size and max_size go together: a size function, and the largest total of a batch")
        if self.max_size is not None and self.max_size <= 0:
            raise UsageError(f"batch: max_size must be above 0 (saw {self.max_size!r})")
        if self.batch_sizes:
            self._check_batch_sizes()
        if self.worker not in ("thread", "process"):
            raise UsageError(f"batch: worker must be 'thread' or 'process' (saw {self.worker!r})")
        if self.run_limit_s is not None and (self.worker != "process" or not self.run_limit_s > 0):
            raise UsageError(
                f"batch: run_limit_s must be above 0 and is for worker='process' (saw {self.run_limit_s!r}, "
                f"{self.worker!r}): a thread cannot be ended from outside"
            )
        if self.when_full not in ("wait", "refuse"):
            raise UsageError(f"batch: when_full must be 'wait' or 'refuse' (saw {self.when_full!r})")

    def _check_batch_sizes(self) -> None:
        sizes = self.batch_sizes
        if sizes[0] < 1 or any(late <= early for early, late in pairwise(sizes)):
            raise UsageError(f"batch: batch_sizes must rise from 1 or more (saw {sizes!r})")
        if sizes[-1] != self.max_batch:
            raise UsageError(
                f"batch: the largest of batch_sizes is the largest batch: give max_batch={sizes[-1]} "
                f"(saw {self.max_batch!r}), or end batch_sizes with {self.max_batch!r}"
            )
        if self.max_size is not None:
            raise UsageError("batch: batch_sizes fills batches up, which max_size forbids: give one of the two")

    def filled(self, items: int, most: int) -> int:
        """Return how many items the function gets for a batch of so many: the next of `batch_sizes`, if `most` allows it."""
        return next((size for size in self.batch_sizes if items <= size <= most), items)

    def rule(self) -> BatchRule:
        """Return what the batching policy reads. A window without a least batch waits for a full one."""
        min_batch = self.max_batch if self.window_s > 0 and self.min_batch == 1 else self.min_batch
        return BatchRule(self.max_batch, min_batch, self.window_s, self.target_s, self.learn)

    def isolates(self, error: BaseException) -> bool:
        """Say whether a failed batch is split to find the items at fault."""
        return self.isolate if isinstance(self.isolate, bool) else self.isolate(error)

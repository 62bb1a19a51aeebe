"""Reports a batcher's runs: the user's callbacks, whose failures are contained, and warnings in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trimtab_runtime.batcher.lanes import Lane
from trimtab_runtime.batcher.options import BatchReport, Options
from trimtab_runtime.batcher.recovery import Attempt
from trimtab_runtime.batcher.request import Request
from trimtab_runtime.policies.batching import BatchRule, RunTime, window_exceeds
from trimtab_runtime.units import MS_PER_S

logger = logging.getLogger(__name__)


class BatcherCallbacks:
    """The callbacks and warnings of one batcher."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._on_batch = options.on_batch
        self._on_oom = options.on_oom
        self._warned = False

    def run(
        self, lane: Lane, requests: Sequence[Request], began_s: float, run_s: float, error: Exception | None
    ) -> None:
        """Tell the user's callback of one run."""
        if self._on_batch is None:
            return
        oldest_s = min(request.arrived_s for request in requests)
        total = sum(request.size for request in requests)
        with Attempt() as attempt:
            self._on_batch(BatchReport(self._name, lane.key, len(requests), total, began_s - oldest_s, run_s, error))
        if attempt.error is not None:
            logger.warning("%s: on_batch raised %r; batching goes on", self._name, attempt.error)

    def out_of_memory(self, lane: Lane, items: int) -> None:
        """Say to what a key is held now that a batch of `items` did not fit, and call the user's hook."""
        logger.warning(
            "%s: a batch of %d ran out of memory; key %r is now held to %d",
            self._name, items, lane.key, lane.cap.limit,
        )  # fmt: skip
        if self._on_oom is not None:
            with Attempt() as attempt:
                self._on_oom()
            if attempt.error is not None:
                logger.warning("%s: on_oom raised %r; batching goes on", self._name, attempt.error)

    def window(self, rule: BatchRule, time: RunTime) -> None:
        """Warn once when requests wait longer for company than they run."""
        if rule.window_s > 0 and not self._warned and window_exceeds(rule, time):
            self._warned = True
            logger.warning(
                "%s: the window of %.1f ms is longer than the %.1f ms that a mean batch of %.1f takes, so requests "
                "wait longer than they run; set window_s=0 (greedy, with learned waits), a shorter window, or a target_s",
                self._name,
                rule.window_s * MS_PER_S,
                time.mean_s * MS_PER_S,
                time.mean_size,
            )

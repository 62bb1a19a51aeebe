"""The waiting requests: one lane a key, first come first served within a key and priority. Not thread-safe by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from math import inf
from typing import NamedTuple

from trimtab_runtime.batcher.request import Request
from trimtab_runtime.policies.batching import Cap, RunTime, refusal_s

MOST_IDLE_LANES = 4096
"""Empty lanes kept for what they have learned; beyond it all that are idle and uncapped are forgotten.

Where more than half as many stay, the next time is when their number has doubled, so that each new lane costs the same."""


class Lane:
    """The requests of one key, the cost of its batches, and their memory limit."""

    __slots__ = ("cap", "count", "ended_s", "key", "lines", "running", "time", "total")

    def __init__(self, key: Hashable, max_batch: int) -> None:
        self.key = key
        self.lines: dict[int, deque[Request]] = {}
        self.count = 0
        self.total = 0
        self.running = 0
        self.ended_s = 0.0
        """When its last batch ended, on the monotonic clock."""
        self.time = RunTime()
        self.cap = Cap(max_batch)


class Taken(NamedTuple):
    """A batch taken off a lane, and the requests refused on the way since their deadline cannot be met."""

    lane: Lane
    batch: list[Request]
    late: list[Request]
    total_size: int


class Lanes:
    """All lanes of a batcher, and which of them have work, by priority."""

    def __init__(
        self, *, max_batch: int, max_size: int | None, padded: bool, ordered: bool, batch_sizes: Sequence[int] = ()
    ) -> None:
        self.count = 0
        self._max_batch = max_batch
        self._batch_sizes = batch_sizes
        self._max_total = inf if max_size is None else max_size
        self._sized = max_size is not None
        self._padded = padded
        self._ordered = ordered
        self._lanes: dict[Hashable, Lane] = {}
        self._forget_at = MOST_IDLE_LANES
        self._levels: dict[int, dict[Lane, None]] = {}

    def add(self, request: Request) -> Lane:
        """Queue a request behind those of its key and priority."""
        lane = self._lanes.get(request.key)
        if lane is None:
            lane = self._new_lane(request.key)
        line = lane.lines.get(request.priority)
        if line is None:
            line = lane.lines[request.priority] = deque()
        if not line:
            self._levels.setdefault(request.priority, {})[lane] = None
        line.append(request)
        lane.count += 1
        lane.total += request.size
        self.count += 1
        return lane

    def _new_lane(self, key: Hashable) -> Lane:
        if len(self._lanes) >= self._forget_at:
            kept = {k: lane for k, lane in self._lanes.items() if lane.count or lane.running or lane.cap.reduced}
            self._lanes = kept
            self._forget_at = max(MOST_IDLE_LANES, 2 * len(kept))
        lane = self._lanes[key] = Lane(key, self._max_batch)
        return lane

    def next_lane(self) -> Lane | None:
        """Return the lane to serve: highest priority first, then the one that has waited longest for its turn."""
        for priority in sorted(self._levels, reverse=True):
            for lane in self._levels[priority]:
                if not (self._ordered and lane.running):
                    return lane
        return None

    def only_one(self) -> bool:
        """Say whether a single lane holds all that waits."""
        return sum(map(len, self._levels.values())) == 1

    def is_full(self, lane: Lane) -> bool:
        """Say whether a lane holds a whole batch by count or by size."""
        return lane.count >= self.limit(lane) or (self._sized and lane.total >= self._max_total)

    def limit(self, lane: Lane) -> int:
        """Return how many items fit a batch; memory that ran out leaves the largest of the sizes that still fits."""
        limit = min(lane.cap.limit, self._max_batch)
        if not self._batch_sizes:
            return limit
        return max((size for size in self._batch_sizes if size <= limit), default=limit)

    def take(self, lane: Lane, now_s: float) -> Taken:
        """Take the next batch off a lane; drop the cancelled, set aside those whose deadline cannot be met."""
        limit = self.limit(lane)
        planned = min(lane.total, self._max_total) if self._sized else min(lane.count, limit)
        idle_s = 0.0 if lane.running else now_s - lane.ended_s
        finish_s = now_s + refusal_s(lane.time, planned, idle_s)
        batch: list[Request] = []
        late: list[Request] = []
        total = largest = freed = 0
        before = lane.count
        padded, most = self._padded, self._max_total
        for priority in sorted(lane.lines, reverse=True):
            line = lane.lines[priority]
            while line:
                request = line[0]
                size = request.size
                if request.reply.done():
                    pass
                elif request.deadline_s < finish_s:
                    late.append(request)
                else:
                    if padded:
                        largest = max(largest, size)
                    wanted = largest * (len(batch) + 1) if padded else total + size
                    if len(batch) == limit or (wanted > most and batch):
                        break
                    total = wanted
                    batch.append(request)
                freed += size
                lane.count -= 1
                line.popleft()
            self._tidy(lane, priority)
            if line:
                break
        lane.total -= freed
        self.count -= before - lane.count
        return Taken(lane, batch, late, total)

    def _tidy(self, lane: Lane, priority: int) -> None:
        """Put a lane that still has work behind the others of its level, take one without off it."""
        level = self._levels.get(priority)
        if level is None or lane not in level:
            return
        del level[lane]
        if lane.lines[priority]:
            level[lane] = None
        else:
            del lane.lines[priority]
        if not level:
            del self._levels[priority]

    def sweep(self) -> int:
        """Drop every cancelled request; return how many there were."""
        before = self.count
        for lane in list(self._lanes.values()):
            for priority, line in list(lane.lines.items()):
                kept = deque(request for request in line if not request.reply.done())
                gone = len(line) - len(kept)
                lane.total -= sum(request.size for request in line) - sum(request.size for request in kept)
                lane.count -= gone
                self.count -= gone
                lane.lines[priority] = kept
                if not kept:
                    self._tidy(lane, priority)
        return before - self.count

    def clear(self) -> list[Request]:
        """Take everything off."""
        taken = [request for lane in self._lanes.values() for line in lane.lines.values() for request in line]
        for lane in self._lanes.values():
            lane.lines.clear()
            lane.count = lane.total = 0
        self._levels.clear()
        self.count = 0
        return taken

    def every(self) -> Iterable[Lane]:
        """Return all lanes known."""
        return self._lanes.values()

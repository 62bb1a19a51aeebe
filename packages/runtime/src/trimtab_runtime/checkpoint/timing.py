"""What saves and steps have cost so far in this job, for the rule that decides on the next save."""

from __future__ import annotations

from collections import deque

ASSUMED_DISK_BYTES_S = 125_000_000
"""Until a save has been measured: the baseline throughput of an AWS gp3 volume (docs.aws.amazon.com, EBS volume types)."""
_REMEMBERED = 5


class Timing:
    """The largest of the last few measurements: being late costs more than being early."""

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._stalls_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._saves_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._assumed_save_s = 0.0
        self.upload_s = 0.0
        """What the newest upload took; counted as part of a save, since the disk may go with the machine."""

    def assume_size(self, size_bytes: int) -> None:
        """Estimate the first save from the size of the state."""
        self._assumed_save_s = size_bytes / ASSUMED_DISK_BYTES_S

    def add_step(self, seconds: float) -> None:
        """Record the time between two step boundaries."""
        self._steps_s.append(max(0.0, seconds))

    def add_stall(self, seconds: float) -> None:
        """Record how long a save held the training up."""
        self._stalls_s.append(max(0.0, seconds))

    def add_save(self, seconds: float) -> None:
        """Record how long a save took from its step boundary until it was durable."""
        self._saves_s.append(max(0.0, seconds))

    @property
    def step_s(self) -> float:
        """The time of a step."""
        return max(self._steps_s, default=0.0)

    @property
    def save_s(self) -> float:
        """The time from a step boundary to a checkpoint that outlives the machine."""
        return max(self._saves_s, default=self._assumed_save_s) + self.upload_s

    @property
    def stall_s(self) -> float:
        """The time that a save holds the training up."""
        return max(self._stalls_s, default=self._assumed_save_s)

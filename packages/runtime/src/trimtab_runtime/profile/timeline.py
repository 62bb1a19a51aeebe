"""What a device did over time, in at most 512 slots: when they are full, each two become one."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

MOST_SLOTS = 512


class Timeline:
    """Time-weighted means of some metrics per slot of equal width, from the start of the run."""

    def __init__(self, metrics: Sequence[str], width_s: float) -> None:
        self.width_s = width_s
        self.slots = 0
        self._moment = {metric: array("d") for metric in metrics}
        self._seconds = {metric: array("d") for metric in metrics}

    def add(self, at_s: float, metric: str, moment: float, seconds: float) -> None:
        """Add readings' sum of value x seconds, and of seconds, to the slot that holds a moment."""
        slot = int(at_s / self.width_s)
        while slot >= MOST_SLOTS:
            self._halve()
            slot = int(at_s / self.width_s)
        if slot >= self.slots:
            self._grow(slot + 1)
        self._moment[metric][slot] += moment
        self._seconds[metric][slot] += seconds

    def rows(self) -> list[Mapping[str, float | None]]:
        """Return per slot in which anything was read its start, its width and the mean of each metric, None if absent."""
        rows = self._every_row()
        return [row for row in rows if any(row[metric] is not None for metric in self._moment)]

    def _every_row(self) -> list[Mapping[str, float | None]]:
        return [
            {
                "start_s": slot * self.width_s,
                "width_s": self.width_s,
                **{metric: self._mean(metric, slot) for metric in self._moment},
            }
            for slot in range(self.slots)
        ]

    def _mean(self, metric: str, slot: int) -> float | None:
        seconds = self._seconds[metric][slot]
        return self._moment[metric][slot] / seconds if seconds > 0 else None

    def _grow(self, slots: int) -> None:
        for column in (*self._moment.values(), *self._seconds.values()):
            column.extend([0.0] * (slots - self.slots))
        self.slots = slots

    def _halve(self) -> None:
        """Join each two slots into one twice as wide."""
        for columns in (self._moment, self._seconds):
            for metric, column in columns.items():
                even = column if len(column) % 2 == 0 else column + array("d", [0.0])
                columns[metric] = array("d", map(float.__add__, even[::2], even[1::2]))
        self.slots = (self.slots + 1) // 2
        self.width_s *= 2

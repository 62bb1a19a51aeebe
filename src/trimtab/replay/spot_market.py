"""What spot gives while a service is replayed: zones that are lost at a rate, or zones as probes recorded them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.policies.scaling import SYNC_S
from trimtab.replay.hedged import SpotZones
from trimtab.replay.series import Flags, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probes:
    """One zone's record: whether spot could be had at each moment, in order of time."""

    zone: str
    t_s: FloatArray
    up: Flags

    def at(self, moments_s: FloatArray) -> Flags:
        """Return what the latest probe said at each moment; moments beyond the record begin it anew."""
        first, last = float(self.t_s[0]), float(self.t_s[-1])
        # a record of a single probe has no length of its own
        within = first + np.mod(moments_s, max(last - first, 1.0))
        return self.up[np.searchsorted(self.t_s, within, side="right") - 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedZones:
    """Zones as they were probed; a replay that is longer than the record runs through it again."""

    zones: tuple[Probes, ...]

    def spells(self, steps: int, seed: int) -> Flags:
        """Return which zone gives spot nodes in which step `(zones, steps)`; the seed changes nothing."""
        del seed
        moments_s = np.arange(steps, dtype=np.float64) * SYNC_S
        return np.stack([zone.at(moments_s) for zone in self.zones])


SpotMarket = SpotZones | RecordedZones

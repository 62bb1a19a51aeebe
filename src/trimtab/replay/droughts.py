"""Droughts: stretches of time in which spot of a pool, or any node, cannot be had, drawn from stated odds or recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trimtab.replay.series import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Droughts:
    """Spells without spot `(n_spells,)`, in order and apart, within `length_s`, after which they begin anew."""

    begins_s: FloatArray
    ends_s: FloatArray
    length_s: float
    take_nodes: bool
    """Whether a drought begins by taking all spot nodes of the pool, or only keeps new ones away."""

    def lasts_at(self, at_s: float) -> bool:
        """Tell whether no spot node can be had at a moment."""
        # the record begins anew after its length
        within_s = at_s % self.length_s
        latest = int(np.searchsorted(self.begins_s, within_s, side="right")) - 1
        return latest >= 0 and within_s < float(self.ends_s[latest])

    def next_begin_s(self, at_s: float) -> float:
        """Return when the next drought begins after a moment; never, where there is none."""
        if not len(self.begins_s):
            return math.inf
        rounds, within_s = divmod(at_s, self.length_s)
        following = int(np.searchsorted(self.begins_s, within_s, side="right"))
        # none is left in this round: the first of the next one
        if following == len(self.begins_s):
            rounds, following = rounds + 1, 0
        return rounds * self.length_s + float(self.begins_s[following])


def opens_s(closed_s: tuple[float, float], at_s: float) -> float:
    """Return the first moment from one on at which a node can be had; none can from the first of `closed_s` to the second."""
    begins_s, ends_s = closed_s
    return ends_s if begins_s <= at_s < ends_s else at_s


def draw_droughts(unavailable_frac: float, mean_s: float, length_s: float, *, take_nodes: bool, seed: int) -> Droughts:
    """Draw droughts that last `mean_s` on average and that share of the time, by exponential spells."""
    if not 0 <= unavailable_frac < 1:
        raise ValueError(f"a share of time without spot must be at least 0 and below 1, got {unavailable_frac}")
    begins_s: list[float] = []
    ends_s: list[float] = []
    if unavailable_frac > 0 and mean_s > 0:
        rng = np.random.default_rng((seed, _STREAM))
        # with a share u of the time in droughts, the mean stretch between them is mean * (1 - u) / u
        between_s = mean_s * (1 - unavailable_frac) / unavailable_frac
        # exponential spells have no memory: the window begins within one as often as any other moment lies in one
        at_s = 0.0 if rng.random() < unavailable_frac else float(rng.exponential(between_s))
        while at_s < length_s:
            ends = min(at_s + float(rng.exponential(mean_s)), length_s)
            if ends > at_s:
                begins_s.append(at_s)
                ends_s.append(ends)
            # never touching, so that begins and ends stay in order
            at_s = ends + max(float(rng.exponential(between_s)), 1e-3)
    return Droughts(begins_s=np.array(begins_s), ends_s=np.array(ends_s), length_s=length_s, take_nodes=take_nodes)


_STREAM = 0x5907
"""Keeps these draws apart from those of single losses, which are drawn by seed and job."""

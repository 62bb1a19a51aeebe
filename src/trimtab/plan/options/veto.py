"""What a replay of unseen history forbids a workload: ways that are no safer than one which missed its targets there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.fleet.model import Target
from trimtab.replay.outcomes.outcome import Outcome

_MISSES_LEFT_FRAC = 0.5
"""A safer way leaves at most this share of the misses that the refused one left: fewer rounds than step by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """Refuses ways by what they attained on the *fit* window: nothing of the unseen history but the miss itself comes in.

    `safe_frac` maps each target that was missed to what the refused way attained of it on the fit window under stress.
    """

    safe_frac: Mapping[Target, float]
    keeps: bool = False
    """Refuse every way: the workload stays as it is."""

    def refuses(self, outcome: Outcome) -> bool:
        """Tell whether a way with this outcome on the fit window is no safer than the refused one."""
        return self.keeps or any(
            attained.safe_frac <= self.safe_frac[attained.target]
            or 1 - attained.safe_frac > (1 - self.safe_frac[attained.target]) * _MISSES_LEFT_FRAC
            for attained in outcome.attained
            if attained.target in self.safe_frac
        )

    def stricter(self, other: Veto) -> Veto:
        """Return the veto that refuses what either refuses."""
        targets = {*self.safe_frac, *other.safe_frac}
        safe_frac = {
            target: max(self.safe_frac.get(target, 0.0), other.safe_frac.get(target, 0.0)) for target in targets
        }
        return Veto(safe_frac=safe_frac, keeps=self.keeps or other.keeps)

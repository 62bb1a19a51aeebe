"""Where a number comes from: sources, estimates with an interval, evidence for an action."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum


class Basis(Enum):
    """How a number was had, surest first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    MODELLED = "modelled"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who said a fact, and as of when."""

    name: str
    as_of: date | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.as_of.isoformat()})" if self.as_of else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted value with its 80 % interval, in the unit that the holder's field name states.

    Raises ValueError unless low <= value <= high.
    """

    value: float
    low: float
    high: float
    basis: Basis
    because: str = ""

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate needs low <= value <= high, got {self.low}, {self.value}, {self.high}")

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate times a non-negative factor."""
        return Estimate(
            value=self.value * factor,
            low=self.low * factor,
            high=self.high * factor,
            basis=self.basis,
            because=self.because,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an action or a verdict rests on: a statistic of the bundle, over a window, against a threshold."""

    what: str
    query: str
    window: str
    value: str
    threshold: str = ""

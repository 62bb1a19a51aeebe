"""Where a number comes from: estimates with an interval, evidence for an action."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class Basis(Enum):
    """How a number was obtained, most certain first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    MODELLED = "modelled"
    ASSUMED = "assumed"


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


def inverse(estimate: Estimate) -> Estimate:
    """Return one over a positive estimate."""
    return Estimate(
        value=1 / estimate.value,
        low=1 / estimate.high,
        high=1 / estimate.low,
        basis=estimate.basis,
        because=estimate.because,
    )


def product(one: Estimate, other: Estimate) -> Estimate:
    """Return the product of two independent positive estimates: relative widths add in squares; the weaker basis holds.

    >>> speed = Estimate(value=2.0, low=1.0, high=4.0, basis=Basis.CALIBRATED)
    >>> round(product(speed, speed).low, 3)  # 4 / 2 ** sqrt(2)
    1.501
    """
    value = one.value * other.value
    down = math.hypot(math.log(one.value / one.low), math.log(other.value / other.low))
    up = math.hypot(math.log(one.high / one.value), math.log(other.high / other.value))
    order = list(Basis)
    return Estimate(
        value=value,
        low=value * math.exp(-down),
        high=value * math.exp(up),
        basis=max(one.basis, other.basis, key=order.index),
        because="; ".join(dict.fromkeys(part for part in (one.because, other.because) if part)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an action or a verdict rests on: a statistic of the bundle, over a window, against a threshold."""

    what: str
    query: str
    window: str
    value: str
    threshold: str = ""

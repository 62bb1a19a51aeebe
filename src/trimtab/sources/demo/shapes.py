"""Demand over time: a day's curve, weekends, slow noise, short bursts, growth.

All series are sampled once a minute from the start of a `Span`, as arrays of shape `(n_minutes,)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, S_PER_DAY, S_PER_HR, S_PER_MIN

Floats = npt.NDArray[np.float64]

MIN_PER_HR = S_PER_HR // S_PER_MIN
MIN_PER_DAY = S_PER_DAY // S_PER_MIN
_SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time, `[start, end)`, in whole hours; `proof` is where its last part, the proof window, begins."""

    start: datetime
    proof: datetime
    end: datetime

    @property
    def minutes(self) -> int:
        """Minutes in the span."""
        return self.minute_of(self.end)

    @property
    def fit_minutes(self) -> int:
        """Minutes before the proof window."""
        return self.minute_of(self.proof)

    def minute_of(self, moment: datetime) -> int:
        """Return the number of whole minutes from the start to a moment."""
        return int((moment - self.start).total_seconds()) // S_PER_MIN

    def at(self, second: float) -> datetime:
        """Return the moment so many seconds after the start."""
        return self.start + timedelta(seconds=second)


SIX_WEEKS = Span(
    start=datetime(2026, 9, 21, tzinfo=UTC),
    proof=datetime(2026, 10, 19, tzinfo=UTC),
    end=datetime(2026, 11, 2, tzinfo=UTC),
)
"""42 days from a Monday; the last 14 are the proof window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCurve:
    """A day as a floor and a raised cosine: 1 at `peak_hr` (UTC) of a weekday, `floor_frac` in the dead of night."""

    peak_hr: float
    floor_frac: float
    sharpness: float
    weekend_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Departures from the curve: slow noise of a given memory, and short bursts that come at random."""

    sd_frac: float
    memory_min: float
    bursts_per_day: float
    burst_gain: tuple[float, float]
    burst_min: tuple[float, float]


def weekend(span: Span) -> npt.NDArray[np.bool_]:
    """Tell the minutes of Saturdays and Sundays (UTC) of a span that starts at midnight."""
    day = span.start.weekday() + np.arange(span.minutes) // MIN_PER_DAY
    return np.asarray(day % DAYS_PER_WEEK >= _SATURDAY)


def day_curve(curve: DayCurve, span: Span) -> Floats:
    """Evaluate a day's curve over a span, weekends lowered, with a mean of 1 over the fit window."""
    minute = np.arange(span.minutes)
    start_hr = span.start.hour + span.start.minute / MIN_PER_HR
    hour = start_hr + minute / MIN_PER_HR
    wave = 0.5 * (1 + np.cos(2 * np.pi * (hour - curve.peak_hr) / HR_PER_DAY))
    level = curve.floor_frac + (1 - curve.floor_frac) * wave**curve.sharpness
    level = np.where(weekend(span), level * curve.weekend_frac, level)
    return np.asarray(level / level[: span.fit_minutes].mean())


def slow_noise(noise: Noise, n_minutes: int, rng: np.random.Generator) -> Floats:
    """Draw noise around 1 whose memory fades exponentially (an AR(1) process in the logarithm)."""
    length = int(6 * noise.memory_min)
    kernel = np.exp(-np.arange(length) / noise.memory_min)
    kernel /= np.sqrt((kernel**2).sum())
    white = rng.standard_normal(n_minutes + length - 1)
    return np.asarray(np.exp(noise.sd_frac * np.convolve(white, kernel, mode="valid") - noise.sd_frac**2 / 2))


def bursts(noise: Noise, n_minutes: int, rng: np.random.Generator) -> Floats:
    """Draw a factor that is 1 but for short bursts: Poisson in time, uniform in gain and length."""
    factor = np.ones(n_minutes)
    for _ in range(rng.poisson(noise.bursts_per_day * n_minutes / MIN_PER_DAY)):
        first = int(rng.integers(n_minutes))
        last = first + int(rng.uniform(*noise.burst_min))
        factor[first:last] = np.maximum(factor[first:last], rng.uniform(*noise.burst_gain))
    return factor


def growth(growth_frac: float, span: Span, ramp_days: float = 2.0) -> Floats:
    """Return a factor that is 1 in the fit window and climbs to `1 + growth_frac` in the first days of the proof window."""
    days = (np.arange(span.minutes) - span.fit_minutes) / MIN_PER_DAY
    return np.asarray(1 + growth_frac * np.clip(days / ramp_days, 0.0, 1.0))

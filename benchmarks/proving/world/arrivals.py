"""Requests as a point process: a rate by minute, and within each minute arrivals that cluster as much as asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.proving.world.clock import DAY_S, HOUR_S, MINUTE_S

Floats = npt.NDArray[np.float64]


def day_shape(minutes: int, *, floor_frac: float, peak_hour: float, weekend_frac: float = 1.0) -> Floats:
    """Return a rate by minute (n_minutes,) that peaks at 1 each day; the first day is a Monday."""
    t = np.arange(minutes) * float(MINUTE_S)
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * (t / HOUR_S - peak_hour) / 24)
    weekend = np.where((t // DAY_S) % 7 >= 5, weekend_frac, 1.0)
    return np.asarray((floor_frac + (1 - floor_frac) * wave**1.5) * weekend)


def wandering(minutes: int, rng: np.random.Generator, *, sd_frac: float = 0.08, memory_min: float = 45.0) -> Floats:
    """Return a slow random factor around 1 (n_minutes,): an Ornstein-Uhlenbeck process in the logarithm."""
    keep = np.exp(-1 / memory_min)
    noise = rng.standard_normal(minutes) * sd_frac * np.sqrt(1 - keep**2)
    level, levels = 0.0, np.empty(minutes)
    for at in range(minutes):
        level = keep * level + noise[at]
        levels[at] = level
    return np.asarray(np.exp(levels))


def arrivals(rate_s: Floats, rng: np.random.Generator, *, dispersion: float = 1.0) -> Floats:
    """Draw sorted arrival times for a rate by minute, requests a second (n_minutes,).

    `dispersion` is the variance of a minute's count over its mean: 1 is Poisson, more is a gamma-mixed (negative binomial)
    count.
    """
    mean = rate_s * MINUTE_S
    if dispersion > 1:
        mean = rng.gamma(np.maximum(mean, 1e-12) / (dispersion - 1), dispersion - 1)
    counts = rng.poisson(mean)
    minute = np.repeat(np.arange(len(counts)), counts)
    return np.sort((minute + rng.random(len(minute))) * MINUTE_S)


def lognormal(n: int, mean: float, sigma: float, rng: np.random.Generator) -> Floats:
    """Draw positive values with a mean, spread by the standard deviation of their logarithm."""
    return np.asarray(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, n))

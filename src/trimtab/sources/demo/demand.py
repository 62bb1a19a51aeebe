"""Demand over time, and the services that answer it: shapes, what can be served, how long it takes, what GPUs then show.

All series are sampled once a minute from the start of a `Span`, as arrays of shape `(n_minutes,)`.

The capacity of a replica and the law of its latency stay here. A bundle holds what a metrics server would have seen: counts per
minute and per latency bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import erf, inf, sqrt

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


LATENCY_LE_S = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, inf)
"""Bucket bounds of the services' latency histograms, in the style of Prometheus client libraries."""

_TAIL_FROM = 0.7
_ERF = np.vectorize(erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLaw:
    """Latency under load rho of a replica: lognormal, median `base_s * (1 + load_gain * rho^2)`, spread `sigma`.

    Beyond a load of 0.7 the spread and the median grow as 1 / (1 - rho), as queues do near saturation.
    """

    base_s: float
    load_gain: float = 0.5
    sigma: float = 0.35

    def median_s(self, rho: Floats) -> Floats:
        """Return the median at each load."""
        return np.asarray(self.base_s * (1 + self.load_gain * rho**2) * _stretch(rho))

    def sigma_at(self, rho: Floats) -> Floats:
        """Return the spread of the logarithm at each load."""
        return np.asarray(self.sigma * np.sqrt(_stretch(rho)))

    def mean_s(self, rho: Floats) -> Floats:
        """Return the mean at each load."""
        return np.asarray(self.median_s(rho) * np.exp(self.sigma_at(rho) ** 2 / 2))

    def bucket_fracs(self, rho: Floats, bounds_s: tuple[float, ...]) -> Floats:
        """Return the share of requests in each bucket, shape `(n, n_bounds)`."""
        finite = np.log(np.asarray(bounds_s[:-1]))
        z = (finite[None, :] - np.log(self.median_s(rho))[:, None]) / self.sigma_at(rho)[:, None]
        below = _normal_cdf(z)
        edges = np.concatenate([np.zeros((len(rho), 1)), below, np.ones((len(rho), 1))], axis=1)
        return np.asarray(np.maximum(np.diff(edges, axis=1), 0.0))


FLAT = DayCurve(peak_hr=0.0, floor_frac=1.0, sharpness=1.0, weekend_frac=1.0)
"""The same demand at every hour."""
QUIET = Noise(sd_frac=0.0, memory_min=1.0, bursts_per_day=0.0, burst_gain=(1.0, 1.0), burst_min=(0.0, 0.0))
"""No departure from the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoService:
    """A service of static replicas, one GPU each, and the demand it meets. `mean_util_frac` fixes a replica's capacity."""

    workload: str
    team: str
    replicas: int
    requests_per_day: float
    mean_util_frac: float
    latency: LatencyLaw
    curve: DayCurve = FLAT
    noise: Noise = QUIET
    ttft: LatencyLaw | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    memory_gib: float = 8.0
    tensor_of_sm: float = 0.4
    dram_of_sm: float = 0.75
    kv_cache: bool = False

    @property
    def capacity_req_s(self) -> float:
        """Requests a second that one replica can answer at most."""
        return self.requests_per_day / S_PER_DAY / self.replicas / self.mean_util_frac


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMinutes:
    """What happened to a service, minute by minute: columns of the `demand` table but its keys, and the true load."""

    columns: dict[str, Floats]
    latency_count: Floats
    ttft_count: Floats | None
    rho: Floats


def demand_rate(service: DemoService, span: Span, growth_frac: float, rng: np.random.Generator) -> Floats:
    """Draw the expected arrivals of each minute: curve x noise x bursts x growth, its fit window as stated."""
    shape = (
        day_curve(service.curve, span)
        * slow_noise(service.noise, span.minutes, rng)
        * bursts(service.noise, span.minutes, rng)
        * growth(growth_frac, span)
    )
    return np.asarray(shape / shape[: span.fit_minutes].mean() * service.requests_per_day * S_PER_MIN / S_PER_DAY)


def serve(service: DemoService, expected: Floats, rng: np.random.Generator) -> ServedMinutes:
    """Draw arrivals around their expectation and answer them."""
    return answer(service, rng.poisson(expected).astype(np.float64), rng)


def answer(
    service: DemoService, arrivals: Floats, rng: np.random.Generator, interval_s: int = S_PER_MIN
) -> ServedMinutes:
    """Answer the arrivals of each interval, first come first served, within the replicas' capacity."""
    capacity = max(np.floor(service.capacity_req_s * service.replicas * interval_s), 1.0)
    backlog = _backlog(arrivals, capacity)
    completed = arrivals - np.diff(backlog, prepend=0.0)
    rho = np.minimum(completed / capacity, 0.98)
    waiting_s = backlog / capacity * interval_s
    queue_s = _queue_s(service.latency, rho)
    rate = completed / interval_s
    columns = {
        "arrivals": arrivals,
        "completed": completed,
        "failed": np.zeros_like(arrivals),
        "running_mean": np.round(rate * (service.latency.mean_s(rho) - queue_s), 3),
        "waiting_mean": np.round(backlog + rate * queue_s, 3),
        "replicas_ready": np.full_like(arrivals, float(service.replicas)),
    }
    columns |= _token_columns(service, rho, rng)
    return ServedMinutes(
        columns=columns,
        latency_count=_bucket_counts(service.latency, rho, completed, waiting_s, rng),
        ttft_count=None if service.ttft is None else _bucket_counts(service.ttft, rho, completed, waiting_s, rng),
        rho=rho,
    )


def _token_columns(service: DemoService, rho: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw mean token counts and the fullest KV cache, for the services that have them."""
    columns: dict[str, Floats] = {}
    if service.input_tokens is not None:
        columns["input_tokens_mean"] = np.round(service.input_tokens * rng.normal(1.0, 0.02, len(rho)), 1)
    if service.output_tokens is not None:
        columns["output_tokens_mean"] = np.round(service.output_tokens * rng.normal(1.0, 0.02, len(rho)), 1)
    if service.kv_cache:
        fullest = np.clip(0.85 * rho * rng.lognormal(0.1, 0.1, len(rho)), 0.0, 1.0)
        columns["kv_cache_frac_max"] = np.asarray(np.round(fullest, 4), dtype=np.float64)
    return columns


def _backlog(arrivals: Floats, capacity: float) -> Floats:
    """Return the requests left unanswered at the end of each minute (Lindley's recursion, closed form)."""
    surplus = np.cumsum(arrivals - capacity)
    return np.asarray(surplus - np.minimum(np.minimum.accumulate(surplus), 0.0))


def _bucket_counts(
    law: LatencyLaw, rho: Floats, completed: Floats, waiting_s: Floats, rng: np.random.Generator
) -> Floats:
    """Draw the requests per latency bucket; a minute with a backlog waits it out on top of the law's latency."""
    fracs = law.bucket_fracs(rho, LATENCY_LE_S)
    for minute in np.flatnonzero(waiting_s > 0):
        late = np.searchsorted(LATENCY_LE_S, law.base_s + waiting_s[minute])
        carried = fracs[minute, :late].sum()
        fracs[minute, :late] = 0.0
        fracs[minute, late] += carried
    fracs /= fracs.sum(axis=1, keepdims=True)
    return rng.multinomial(completed.astype(np.int64), fracs).astype(np.float64)


def _queue_s(law: LatencyLaw, rho: Floats) -> Floats:
    """Return the part of the mean latency that is waiting: what the stretch beyond a load of 0.7 adds."""
    return np.asarray(law.mean_s(rho) * (1 - 1 / _stretch(rho)))


def _stretch(rho: Floats) -> Floats:
    """Return 1 up to a load of 0.7, then growth as 1 / (1 - rho), continuous at 0.7."""
    return np.asarray(np.maximum(1.0, (1 - _TAIL_FROM) / (1 - np.minimum(rho, 0.98))))


def _normal_cdf(z: npt.NDArray[np.float64]) -> Floats:
    """Evaluate the standard normal distribution by interpolation in a fine table (error below 1e-6)."""
    grid = np.linspace(-8.0, 8.0, 16001)
    return np.asarray(np.interp(z, grid, 0.5 * (1 + _ERF(grid / sqrt(2)))))

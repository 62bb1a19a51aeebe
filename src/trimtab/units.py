"""Units and the only conversions between them.

Every float that has a unit carries it as a suffix (`_s`, `_hr`, `_gib`, `_usd_hr`, `_frac`, ...). A literal 3600, 730,
1024 or 1e9 outside this module is a fault. Money is added up in whole micro-dollars, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from typing import NewType

MicroUsd = NewType("MicroUsd", int)
"""Money in whole millionths of a dollar."""

S_PER_MIN = 60
S_PER_HR = 3600
HR_PER_DAY = 24
S_PER_DAY = S_PER_HR * HR_PER_DAY
DAYS_PER_WEEK = 7
WORKDAYS_PER_WEEK = 5
HR_PER_WEEK = HR_PER_DAY * DAYS_PER_WEEK
HR_PER_MO = 730
"""Hours in a month, as cloud price lists count them (8,760 / 12)."""
HR_PER_YEAR = 8760
MO_PER_YEAR = 12
MO_PER_QUARTER = 3
MICRO_PER_USD = 1_000_000
MICRO_PER_CENT = 10_000
NANO_PER_USD = 1_000_000_000
NANO_PER_MICRO = 1000
BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2
BYTES_PER_GIB = 1024**3
MIB_PER_GIB = 1024
BYTES_PER_GB = 10**9
FLOPS_PER_TFLOPS = 10**12
GFLOPS_PER_TFLOPS = 1000
TOKENS_PER_MTOK = 10**6
MJ_PER_KWH = 3.6e9
"""Millijoules (DCGM's energy counter) in a kilowatt-hour."""
W_PER_KW = 1000
MW_PER_W = 1000
"""Milliwatts (NVML's power) in a watt."""
MS_PER_S = 1000
US_PER_S = 1_000_000


def micro_usd(usd: float | Decimal | str) -> MicroUsd:
    """Convert dollars to whole micro-dollars, half to even."""
    exact = Decimal(str(usd)) * MICRO_PER_USD
    return MicroUsd(int(exact.to_integral_value(ROUND_HALF_EVEN)))


def usd(micro: int) -> float:
    """Convert micro-dollars to dollars, for people and JSON; never add these up."""
    return micro / MICRO_PER_USD


def cents(micro: int) -> int:
    """Round micro-dollars to whole cents, half to even."""
    whole, rest = divmod(micro, MICRO_PER_CENT)
    half = MICRO_PER_CENT // 2
    return whole + (1 if rest > half or (rest == half and whole % 2) else 0)


def usd_cents(micro: int) -> float:
    """Return dollars rounded to the cent: what is printed."""
    return cents(micro) / 100


def mul_div(amount: int, numerator: int, denominator: int) -> int:
    """Return amount * numerator / denominator in exact integers, half to even; the denominator is positive."""
    whole, rest = divmod(amount * numerator, denominator)
    twice = 2 * rest
    return whole + (1 if twice > denominator or (twice == denominator and whole % 2) else 0)


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Split a whole amount by weights so that the parts sum to it exactly (largest remainder; ties to the first).

    Weights are non-negative. With no positive weight the parts are equal but for the remainder. The total may be negative.
    """
    if not weights:
        return []
    if any(weight < 0 for weight in weights):
        raise ValueError("weights must not be negative")
    scale = sum(weights)
    shares = [weight / scale for weight in weights] if scale > 0 else [1 / len(weights)] * len(weights)
    sign = -1 if total < 0 else 1
    whole = abs(total)
    parts = [int(whole * share) for share in shares]
    left = whole - sum(parts)
    order = sorted(range(len(parts)), key=lambda i: (parts[i] - whole * shares[i], i))
    step = 1 if left >= 0 else -1
    for turn in range(abs(left)):
        parts[order[turn % len(order)]] += step
    return [sign * part for part in parts]


def round_parts(parts: Sequence[int], unit: int) -> list[int]:
    """Return whole parts in a larger unit, each off by less than one, that sum to the rounded sum (half to even).

    >>> round_parts([15, 15, -4], 10)
    [2, 1, 0]
    """
    wanted, rest = divmod(sum(parts), unit)
    wanted += 1 if 2 * rest > unit or (2 * rest == unit and wanted % 2) else 0
    whole = [part // unit for part in parts]
    order = sorted(range(len(parts)), key=lambda i: (-(parts[i] % unit), i))
    for index in order[: wanted - sum(whole)]:
        whole[index] += 1
    return whole


def per_month(amount: float, window_hr: float) -> float:
    """Scale an amount over a window to a month of 730 hours."""
    return amount * HR_PER_MO / window_hr


def hours_between(start: datetime, end: datetime) -> float:
    """Return the hours in `[start, end)`."""
    return (end - start).total_seconds() / S_PER_HR


def as_utc(moment: datetime, zone: tzinfo = UTC) -> datetime:
    """Return a moment in UTC; one that names no zone is of `zone`."""
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)


def floor_hour(moment: datetime) -> datetime:
    """Return the start of the hour that holds an aware moment, in UTC."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def parse_span(text: str) -> timedelta:
    """Read a length of time such as `15s`, `5m`, `24h`, `14d`, `2w`."""
    units = {"s": 1, "m": S_PER_MIN, "h": S_PER_HR, "d": S_PER_DAY, "w": S_PER_DAY * DAYS_PER_WEEK}
    number, unit = text[:-1], text[-1:]
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if unit not in units or not amount > 0:
        raise ValueError(f"{text!r} is not a length of time; write 15s, 5m, 24h, 14d or 2w")
    return timedelta(seconds=amount * units[unit])

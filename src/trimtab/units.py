"""Units and the only conversions between them.

Every float that has a unit carries it as a suffix (`_s`, `_hr`, `_gib`, `_usd_hr`, `_frac`, ...). A literal 3600, 730,
1024 or 1e9 outside this module is a fault. Money is added up in whole micro-dollars, so that sums are exact. The units that the
runtimes need are defined where they are, in `trimtab_runtime.units`, and imported here by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import NewType

from trimtab_runtime.units import (
    BYTES_PER_GB as BYTES_PER_GB,
    BYTES_PER_GIB as BYTES_PER_GIB,
    BYTES_PER_KIB as BYTES_PER_KIB,
    BYTES_PER_MIB as BYTES_PER_MIB,
    DAYS_PER_WEEK as DAYS_PER_WEEK,
    HR_PER_DAY as HR_PER_DAY,
    MIB_PER_GIB as MIB_PER_GIB,
    MJ_PER_KWH as MJ_PER_KWH,
    MS_PER_S as MS_PER_S,
    MW_PER_W as MW_PER_W,
    NS_PER_S as NS_PER_S,
    PCIE_LANE_GB_S as PCIE_LANE_GB_S,
    S_PER_DAY as S_PER_DAY,
    S_PER_HR as S_PER_HR,
    S_PER_MIN as S_PER_MIN,
    as_utc as as_utc,
    parse_span as parse_span,
)

MicroUsd = NewType("MicroUsd", int)
"""Money in whole millionths of a dollar."""

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
FLOPS_PER_TFLOPS = 10**12
GFLOPS_PER_TFLOPS = 1000
TOKENS_PER_MTOK = 10**6
BYTES_PER_MB = 10**6
NS_PER_MS = 10**6
W_PER_KW = 1000
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


def floor_hour(moment: datetime) -> datetime:
    """Return the start of the hour that holds an aware moment, in UTC."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)

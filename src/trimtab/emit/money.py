"""Money for display: months of 730 hours, whole cents, parts that still sum to their total."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.units import HR_PER_MO, MICRO_PER_CENT, cents, mul_div, round_parts


def month_cents(micro_usd: int, window_hr: int) -> int:
    """Return micro-dollars over a window as whole cents a month, rounded half to even."""
    return cents(mul_div(micro_usd, HR_PER_MO, window_hr))


def month_usd(micro_usd: int, window_hr: int) -> float:
    """Return micro-dollars over a window as dollars a month, rounded to the cent."""
    return month_cents(micro_usd, window_hr) / 100


def month_usd_parts(parts_micro_usd: Sequence[int], total_micro_usd: int, window_hr: int) -> list[float]:
    """Return parts of a total as dollars a month, in cents that sum to `month_usd` of the total (largest remainder).

    Parts may be negative. Raises ValueError if they do not sum to the total.
    """
    if sum(parts_micro_usd) != total_micro_usd:
        raise ValueError(f"parts sum to {sum(parts_micro_usd)} micro-dollars, not to {total_micro_usd}")
    scale = window_hr * MICRO_PER_CENT
    wholes = [divmod(part * HR_PER_MO, scale) for part in parts_micro_usd]
    result = [whole for whole, _ in wholes]
    left = month_cents(total_micro_usd, window_hr) - sum(result)
    order = sorted(range(len(wholes)), key=lambda i: (-wholes[i][1], i))
    for i in order[:left]:
        result[i] += 1
    return [part / 100 for part in result]


def dollars(usd: float) -> str:
    """Format an amount in whole dollars: `$1,234`, `-$5`."""
    return f"{'-' if round(usd) < 0 else ''}${abs(round(usd)):,}"


def whole_dollars(parts_usd: Sequence[float]) -> list[int]:
    """Return parts as whole dollars for display, each off by less than one, that sum to the rounded sum of their cents."""
    return round_parts([round(part * 100) for part in parts_usd], 100)


def bill_left(today_usd: float, then_usd: float) -> int:
    """Return a later bill in whole dollars for display: today's less the saving, each as `dollars` shows it.

    It is off by less than one and a half dollars, and equals `today - saving` of the figures that stand beside it.

    >>> bill_left(200121.81, 66324.42), round(200121.81), round(133797.39)
    (66325, 200122, 133797)
    """
    return round(today_usd) - round(round(today_usd - then_usd, 2))


def dollars_and_cents(usd: float) -> str:
    """Format an amount to the cent: `$1,234.50`."""
    return f"{'-' if round(usd, 2) < 0 else ''}${abs(usd):,.2f}"


def percent(frac: float | None, digits: int = 0) -> str:
    """Format a share as a percentage; a dash if it is not known."""
    return "–" if frac is None else f"{frac * 100:.{digits}f}%"

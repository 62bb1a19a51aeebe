"""What is always judged, as lines for people."""

from __future__ import annotations

from trimtab.emit.document import VenturePart
from trimtab.emit.money import dollars
from trimtab.units import MO_PER_YEAR

_LONG_MO = 5 * MO_PER_YEAR


def venture_subject(venture: VenturePart) -> str:
    """Say what was judged, and its sums; the kind alone where there is nothing to sum."""
    if not venture.saving_low_usd_mo and not venture.saving_high_usd_mo:
        return venture.kind
    return f"{venture.kind}: {venture.subject} ({_sums(venture)})"


def _sums(venture: VenturePart) -> str:
    """Say its sums in one line."""
    word = "saves" if venture.saving_usd_mo >= 0 else "costs"
    low, high = sorted((abs(venture.saving_low_usd_mo), abs(venture.saving_high_usd_mo)))
    span = (
        f"{dollars(low)} to {dollars(high)}"
        if venture.saving_low_usd_mo * venture.saving_high_usd_mo > 0
        else f"{dollars(venture.saving_low_usd_mo)} to {dollars(venture.saving_high_usd_mo)} saved"
    )
    once = f", {dollars(venture.once_usd)} once" if venture.once_usd else ""
    return f"{word} {dollars(abs(venture.saving_usd_mo))} a month ({span}){once}{_payback(venture)}"


def _payback(venture: VenturePart) -> str:
    if venture.payback_mo is None or not venture.once_usd:
        return ""
    if venture.payback_mo > _LONG_MO:
        return ", paid back after more than 5 years"
    months = max(1, round(venture.payback_mo))
    return f", paid back after {months} month{'s' if months > 1 else ''}"

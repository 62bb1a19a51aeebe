"""What is always judged, as lines for people."""

from __future__ import annotations

from trimtab.emit.document import VenturePart
from trimtab.emit.money import dollars
from trimtab.units import MO_PER_YEAR

_LONG_MO = 5 * MO_PER_YEAR


def venture_subject(one: VenturePart) -> str:
    """Say what was judged, and its sums; the kind alone where there is nothing to sum."""
    if not one.saving_low_usd_mo and not one.saving_high_usd_mo:
        return one.kind
    return f"{one.kind}: {one.subject} ({_sums(one)})"


def _sums(one: VenturePart) -> str:
    """Say its sums in one line."""
    word = "saves" if one.saving_usd_mo >= 0 else "costs"
    low, high = sorted((abs(one.saving_low_usd_mo), abs(one.saving_high_usd_mo)))
    span = (
        f"{dollars(low)} to {dollars(high)}"
        if one.saving_low_usd_mo * one.saving_high_usd_mo > 0
        else f"{dollars(one.saving_low_usd_mo)} to {dollars(one.saving_high_usd_mo)} saved"
    )
    once = f", {dollars(one.once_usd)} once" if one.once_usd else ""
    return f"{word} {dollars(abs(one.saving_usd_mo))} a month ({span}){once}{_payback(one)}"


def _payback(one: VenturePart) -> str:
    if one.payback_mo is None or not one.once_usd:
        return ""
    if one.payback_mo > _LONG_MO:
        return ", paid back after more than 5 years"
    months = max(1, round(one.payback_mo))
    return f", paid back after {months} month{'s' if months > 1 else ''}"

"""What several parts are made with: windows, evidence, shares, and figures that may not be known."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trimtab.emit.document.part import EvidencePart, WindowPart
from trimtab.fleet.model import Window
from trimtab.provenance import Evidence


def window_part(window: Window) -> WindowPart:
    """Return a window's part."""
    return WindowPart(start=window.start, end=window.end, hours=window.hours)


def evidence_parts(evidence: Iterable[Evidence]) -> tuple[EvidencePart, ...]:
    """Return the part of each piece of evidence."""
    return tuple(
        EvidencePart(what=fact.what, query=fact.query, window=fact.window, value=fact.value, threshold=fact.threshold)
        for fact in evidence
    )


def share(part: int, whole: int) -> float:
    """Return a part's share of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def known(value: float | None) -> float | None:
    """Return a value, or None where it is NaN: not measured."""
    return None if value is None or math.isnan(value) else value


def to_cents(usd: float | None) -> float | None:
    """Round dollars to the cent, where they are known."""
    return None if usd is None else round(usd, 2)

"""What every part of the document is made of, and the two that stand in several of them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the document: frozen, and a key that it does not know is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class WindowPart(Part):
    """Whole hours `[start, end)`, UTC."""

    start: datetime
    """First moment."""
    end: datetime
    """First moment after it."""
    hours: int
    """Hours between the two."""


class EvidencePart(Part):
    """What a statement rests on: a statistic of the history, over a window, against a threshold."""

    what: str
    """The statistic, in words."""
    query: str
    """How it was read."""
    window: str
    """Over which hours."""
    value: str
    """What was seen."""
    threshold: str
    """What it was held against; empty where there is none."""

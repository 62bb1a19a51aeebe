"""Base class of all parts of the document, and the two parts used in several places."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the document: frozen, and an unknown key is an error."""

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
    """Evidence for a statement: a statistic of the history, over a window, compared with a threshold."""

    what: str
    """The statistic, in words."""
    query: str
    """How it was measured."""
    window: str
    """The hours it covers."""
    value: str
    """The observed value."""
    threshold: str
    """The threshold it is compared with; empty if there is none."""

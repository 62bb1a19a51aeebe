"""Base class of all parts of the document, the two parts used in several places, and what is wrong with one in words."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, ValidationError


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


def faults(error: ValidationError) -> str:
    """Return how many errors a document has, and what and where the first is."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the text"
    return f"{error.error_count()} errors, the first at {place}: {first['msg']}"

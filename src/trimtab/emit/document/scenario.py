"""A scenario beside the world as it is."""

from __future__ import annotations

from trimtab.emit.document.part import Part


class ComparedPart(Part):
    """One figure in the world as it is and in the scenario."""

    section: str
    """What it belongs to: the plan, actions, limits, budget or deadline."""
    what: str
    """The figure."""
    unit: str
    """usd_mo, frac, weeks, count or text."""
    base: float | str | None
    """As it is; null where that world has none."""
    scenario: float | str | None
    """In the scenario; null where that world has none."""


class WhatIfPart(Part):
    """A scenario planned beside the world as it is."""

    scenario: tuple[str, ...]
    """What is different."""
    refused: str
    """Why there is no plan in that world; empty where there is one."""
    figures: tuple[ComparedPart, ...]
    """Both worlds, figure by figure."""

"""The year ahead."""

from __future__ import annotations

from trimtab.emit.document.part import Part


class StepPart(Part):
    """One action in the course of a year."""

    action: str
    """Its id."""
    start_mo: float
    """Months from the start until work on it begins."""
    done_mo: float
    """Months from the start until it is done."""
    bill_usd_mo: float
    """The monthly bill from then on."""
    quick_win: bool
    """Little work, low risk, paid back within a month."""


class SchedulePart(Part):
    """An order of actions played through a year."""

    steps: tuple[StepPart, ...]
    """In the order in which work on them begins."""
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at the end of each month, from 0 (today) to 12."""
    year_usd: float
    """What the twelve months cost together."""


class EffortSensitivityPart(Part):
    """The order if one lever took half or twice its effort."""

    lever: str
    """Which lever."""
    factor: float
    """On its effort."""
    same_frac: float
    """Share of pairs of actions that keep their order."""
    first: str
    """The action that comes first then."""
    regret_usd: float
    """What keeping the plan's order would cost over the year against the order made for that effort; below 0 it is better."""


class RoadmapPart(Part):
    """The year ahead: the bill as actions are done, beside the order that guides give for the same actions."""

    course: SchedulePart
    """In the plan's order."""
    fixed: SchedulePart
    """In the fixed order: autoscale, right-size, capacity, quantize, MIG, taints, long tail."""
    gain_usd: float
    """What the plan's order saves over the year against the fixed one."""
    best: bool = False
    """No order of these actions, one at a time, makes the year cheaper."""
    per_week_loss_usd: float | None = None
    """What the year would cost more with the largest saving per engineer-week first; null where it was not known yet."""
    year_end_bill_usd_mo: float
    """The monthly bill after twelve months."""
    year_end_saving_frac: float
    """How much lower that is than today's bill, as a share of it."""
    folklore_low_frac: float
    """Lower end of what guides promise within a year, as a share of the bill."""
    folklore_high_frac: float
    """Upper end of it."""
    sways: tuple[EffortSensitivityPart, ...]
    """How firm the order is: each lever at half and at twice its effort."""

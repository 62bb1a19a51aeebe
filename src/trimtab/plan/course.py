"""The year ahead in values: when each action is done, the bill month by month, and how firm the order is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action of a course: when it is worked on, and the bill once it is done."""

    action: str
    start_mo: float
    done_mo: float
    bill_usd_mo: float
    quick_win: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """An order of actions played through a year."""

    steps: tuple[Step, ...]
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at each month's end, from 0 (today) to 12."""
    year_usd: float
    """What the twelve months cost together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sway:
    """The order where one lever takes half or twice its effort."""

    lever: str
    factor: float
    same_frac: float
    """Share of pairs of actions that stay in the same order."""
    first: str
    """The action that comes first."""
    regret_usd: float
    """What keeping the plan's order would cost over the year, against the order made for that effort; 0 or more where the
    other order is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roadmap:
    """The plan's course, the course that guides give for the same actions, and how firm the plan's order is."""

    course: Course
    fixed: Course
    sways: tuple[Sway, ...]
    per_week_loss_usd: float | None = None
    """What the year would cost more with the largest saving per engineer-week first; None in plans kept before it was known."""
    best: bool = False
    """No order of these actions, one at a time, makes the year cheaper."""

    @property
    def gain_usd(self) -> float:
        """Return what the plan's order saves over the year against the fixed one."""
        return self.fixed.year_usd - self.course.year_usd

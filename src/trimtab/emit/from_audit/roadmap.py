"""The year ahead as a part of the audit's document."""

from __future__ import annotations

from trimtab.emit.document import EffortSensitivityPart, RoadmapPart, SchedulePart, StepPart
from trimtab.plan.model import Roadmap, Schedule

FOLKLORE_LOW_FRAC, FOLKLORE_HIGH_FRAC = 0.60, 0.75
"""What vendors' case studies and guides promise within a year, whatever the fleet; held against the plan, never used in it."""
_MO_DIGITS = 3


def roadmap_part(found: Roadmap) -> RoadmapPart:
    """Return the document's part."""
    course = _course(found.course)
    today, end = course.bill_usd_mo[0], course.bill_usd_mo[-1]
    fixed = _course(found.fixed)
    return RoadmapPart(
        course=course,
        fixed=fixed,
        gain_usd=round(fixed.year_usd - course.year_usd, 2),
        best=found.best,
        per_week_loss_usd=None if found.per_week_loss_usd is None else round(found.per_week_loss_usd, 2),
        year_end_bill_usd_mo=end,
        year_end_saving_frac=1 - end / today if today else 0.0,
        folklore_low_frac=FOLKLORE_LOW_FRAC,
        folklore_high_frac=FOLKLORE_HIGH_FRAC,
        sways=tuple(
            EffortSensitivityPart(
                lever=sway.lever,
                factor=sway.factor,
                same_frac=round(sway.same_frac, 4),
                first=sway.first,
                regret_usd=round(sway.regret_usd, 2),
            )
            for sway in found.sways
        ),
    )


def _course(course: Schedule) -> SchedulePart:
    return SchedulePart(
        steps=tuple(
            StepPart(
                action=step.action,
                start_mo=round(step.start_mo, _MO_DIGITS),
                done_mo=round(step.done_mo, _MO_DIGITS),
                bill_usd_mo=round(step.bill_usd_mo, 2),
                quick_win=step.quick_win,
            )
            for step in course.steps
        ),
        bill_usd_mo=tuple(round(bill, 2) for bill in course.bill_usd_mo),
        year_usd=round(course.year_usd, 2),
    )

"""The plan and its year as parts of the document: actions whose shares sum to the joint saving to the cent, limits."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.emit.document import (
    EffortSensitivityPart,
    LimitPart,
    NotWorthPart,
    PlanPart,
    RoadmapPart,
    SchedulePart,
    StepPart,
    TargetPart,
    VenturePart,
)
from trimtab.emit.from_audit.actions import action_part
from trimtab.emit.from_audit.shared import share, to_cents, window_part
from trimtab.emit.money import month_cents, month_usd, month_usd_parts
from trimtab.plan.actions.intervals import joint_saving
from trimtab.plan.audit import Audit
from trimtab.plan.model import NotWorthDoing, Roadmap, Schedule, Venture
from trimtab.plan.program.limits import LimitPrice


def plan_part(audit: Audit, targets: Sequence[TargetPart]) -> PlanPart:
    """Return the plan's part; `targets` are the proof's."""
    plan, robustness = audit.plan, audit.robustness
    hours = plan.window.hours
    before_cents = month_cents(plan.before_micro_usd, hours)
    saved_cents = month_cents(plan.joint_saving_micro_usd, hours)
    joint = joint_saving(plan)
    savings = month_usd_parts([action.saving_micro_usd for action in plan.actions], plan.joint_saving_micro_usd, hours)
    return PlanPart(
        window=window_part(plan.window),
        before_usd_mo=before_cents / 100,
        objective_usd_mo=(before_cents - saved_cents) / 100,
        moving_usd_mo=month_usd(plan.moving_micro_usd, hours),
        bound_usd_mo=min(month_cents(plan.bound_micro_usd, hours), before_cents - saved_cents) / 100,
        gap_frac=plan.gap_frac,
        work_gap_frac=plan.work_gap_frac,
        joint_saving_usd_mo=saved_cents / 100,
        joint_saving_low_usd_mo=min(saved_cents / 100, round(joint.low, 2)),
        joint_saving_high_usd_mo=max(saved_cents / 100, round(joint.high, 2)),
        saving_frac=share(plan.joint_saving_micro_usd, plan.before_micro_usd),
        attribution=plan.attribution,
        options=plan.options,
        pruned=dict(plan.pruned),
        actions=tuple(
            action_part(action, saving, targets, robustness.fragile(action) if robustness else ())
            for action, saving in zip(plan.actions, savings, strict=True)
        ),
        not_worth_doing=tuple(_not_worth(row) for row in plan.not_worth_doing),
        limits=tuple(_limit(limit) for limit in plan.limits),
        always_judged=tuple(_venture(venture) for venture in plan.ventures),
        roadmap=roadmap_part(plan.roadmap) if plan.roadmap and plan.actions else None,
    )


def _limit(limit: LimitPrice) -> LimitPart:
    return LimitPart(
        limit=limit.use.words,
        most=limit.use.limit,
        used=limit.use.used,
        binds=limit.use.binds,
        cost_usd_mo=to_cents(limit.cost_usd_mo),
        bill_usd_mo=to_cents(limit.bill_usd_mo),
    )


def _not_worth(row: NotWorthDoing) -> NotWorthPart:
    return NotWorthPart(
        lever=row.lever,
        subject=row.subject,
        saving_usd_mo=to_cents(row.saving_usd_mo),
        reason=row.reason,
    )


def _venture(venture: Venture) -> VenturePart:
    return VenturePart(
        kind=venture.kind.value,
        subject=venture.subject,
        saving_usd_mo=round(venture.saving_usd_mo.value, 2),
        saving_low_usd_mo=round(venture.saving_usd_mo.low, 2),
        saving_high_usd_mo=round(venture.saving_usd_mo.high, 2),
        once_usd=round(venture.once_usd, 2),
        payback_mo=None if venture.payback_mo is None else round(venture.payback_mo, 2),
        worth=venture.worth,
        reason=venture.reason,
        assumptions=venture.assumptions,
    )


FOLKLORE_LOW_FRAC, FOLKLORE_HIGH_FRAC = 0.60, 0.75
"""What vendors' case studies and guides promise within a year, whatever the fleet; compared with the plan, never used in it."""
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

"""The plan and its year as parts of the document: actions whose shares sum to the joint saving to the cent, limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pydantic import TypeAdapter

from trimtab.deployment.kept_form import TYPE
from trimtab.emit.document.plan import (
    ActionPart,
    AlternativePart,
    ChangePart,
    EffortSensitivityPart,
    LimitPart,
    NotWorthPart,
    PlanPart,
    RoadmapPart,
    SchedulePart,
    StepPart,
    SwitchedActionPart,
    SwitchedPart,
    TargetPart,
)
from trimtab.emit.from_audit.shared import evidence_parts, known, share, to_cents, window_part
from trimtab.emit.money import month_cents, month_usd, month_usd_parts
from trimtab.emit.words import canary_steps, target_words
from trimtab.plan.actions.intervals import joint_saving
from trimtab.plan.audit import Audit
from trimtab.plan.model import Action, Alternative, Change, NotWorthDoing, Roadmap, Schedule, TargetResult
from trimtab.plan.program.limits import LimitPrice
from trimtab.plan.proof.switched import Switched


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
        always_judged=tuple(_alternative(alternative) for alternative in plan.alternatives),
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


def _alternative(alternative: Alternative) -> AlternativePart:
    return AlternativePart(
        kind=alternative.kind.value,
        subject=alternative.subject,
        saving_usd_mo=round(alternative.saving_usd_mo.value, 2),
        saving_low_usd_mo=round(alternative.saving_usd_mo.low, 2),
        saving_high_usd_mo=round(alternative.saving_usd_mo.high, 2),
        once_usd=round(alternative.once_usd, 2),
        payback_mo=None if alternative.payback_mo is None else round(alternative.payback_mo, 2),
        worth=alternative.worth,
        reason=alternative.reason,
        assumptions=alternative.assumptions,
    )


FOLKLORE_LOW_FRAC, FOLKLORE_HIGH_FRAC = 0.60, 0.75
"""What vendors' case studies and guides promise within a year, whatever the fleet; compared with the plan, never used in it."""
_MO_DIGITS = 3


def roadmap_part(found: Roadmap) -> RoadmapPart:
    """Return the document's part."""
    course = schedule_part(found.course)
    today, end = course.bill_usd_mo[0], course.bill_usd_mo[-1]
    fixed = schedule_part(found.fixed)
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


def schedule_part(course: Schedule) -> SchedulePart:
    """Return the document's part of an order played through a year."""
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


def action_part(
    action: Action,
    saving_usd_mo: float,
    targets: Sequence[TargetPart],
    fragile: tuple[str, ...],
) -> ActionPart:
    """Return an action's part: its share of the saving in whole cents, what is spent on and asked of what it touches.

    `fragile` are the departures under which its workloads miss a target.
    """
    subjects = {change.subject for change in action.changes}
    return ActionPart(
        id=action.id,
        lever=action.lever,
        subject=action.subject,
        effect=effect_words(action.changes) or action.subject,
        saving_usd_mo=saving_usd_mo,
        saving_low_usd_mo=min(saving_usd_mo, round(action.saving_usd_mo.low, 2)),
        saving_high_usd_mo=max(saving_usd_mo, round(action.saving_usd_mo.high, 2)),
        saving_basis=action.saving_usd_mo.basis.value,
        saving_because=action.saving_usd_mo.because,
        standalone_usd_mo=round(action.standalone_usd_mo, 2),
        last_in_usd_mo=round(action.last_in_usd_mo, 2),
        moving_usd_mo=round(action.moving_usd_mo, 2),
        spend_usd_mo=to_cents(action.spend_usd_mo),
        effort_weeks=action.effort_weeks,
        saving_per_week_usd_mo=round(action.saving_per_week_usd_mo, 2),
        risk=action.risk.value,
        quarter=action.quarter,
        evidence=evidence_parts(action.evidence),
        changes=tuple(_change(change) for change in action.changes),
        targets=tuple(target for target in targets if target.workload in subjects),
        canary=canary_steps(action),
        rollback=action.rollback,
        share_low_usd_mo=to_cents(action.share_low_usd_mo),
        share_high_usd_mo=to_cents(action.share_high_usd_mo),
        fragile=fragile,
        enables=action.enables,
        hazards=action.hazards,
        ask_first=action.ask_first,
        preconditions=tuple(condition.words for condition in action.preconditions),
    )


def effect_words(changes: Sequence[Change]) -> str:
    """Say what changes come to: the first of each kind, and how many variants there are."""
    by_kind: dict[type, list[str]] = {}
    for change in changes:
        words = by_kind.setdefault(type(change.effect), [])
        if change.effect.describe() not in words:
            words.append(change.effect.describe())
    return "; ".join(f"{words[0]}{_variants(len(words) - 1)}" for words in by_kind.values())


def _variants(count: int) -> str:
    return f", and {count} variant{'s' if count > 1 else ''} of it" if count else ""


def _change(change: Change) -> ChangePart:
    settings = _change_form().dump_python(change, mode="json")["effect"]
    kind = settings.pop(TYPE)
    return ChangePart(subject=change.subject, kind=kind, summary=change.effect.describe(), settings=settings)


@cache
def _change_form() -> TypeAdapter[Change]:
    return TypeAdapter(Change)


def target_part(result: TargetResult) -> TargetPart:
    """Return the part of a target, with what history and the plan attain of it."""
    return TargetPart(
        workload=result.workload,
        metric=result.target.metric.value,
        target=target_words(result.target),
        required_frac=result.target.required_frac,
        before_frac=known(result.before_frac),
        attained_frac=result.attained_frac,
        kept=result.kept,
        declared=result.target.declared,
        because=result.target.because,
        limit_s=result.target.limit_s,
        promise=result.promise.value,
        touched=result.touched,
        times_as_late=known(result.times_as_late),
    )


def switched_part(found: Switched, window_hr: int) -> SwitchedPart:
    """Return the part; `window_hr` is the length of the window that the plan was made on."""
    saved = found.before_micro_usd - found.after_micro_usd
    before_cents, saved_cents = month_cents(found.before_micro_usd, window_hr), month_cents(saved, window_hr)
    amounts = [action.saving_micro_usd for action in found.actions]
    savings = (
        month_usd_parts(amounts, saved, window_hr)
        if found.shared
        else [month_usd(amount, window_hr) for amount in amounts]
    )
    proof_saved = found.proof_before_micro_usd - found.proof_after_micro_usd
    return SwitchedPart(
        off=found.off,
        before_usd_mo=before_cents / 100,
        bill_usd_mo=(before_cents - saved_cents) / 100,
        rest_usd_mo=month_usd(found.rest_micro_usd, window_hr),
        joint_saving_usd_mo=saved_cents / 100,
        saving_frac=share(saved, found.before_micro_usd),
        actions=tuple(
            SwitchedActionPart(
                id=action.was,
                lever=action.draft.lever,
                subject=action.draft.subject,
                effect=effect_words(action.draft.changes) or action.draft.subject,
                saving_usd_mo=saving,
                risk=action.draft.risk.value,
            )
            for action, saving in zip(found.actions, savings, strict=True)
        ),
        shares=found.shared,
        proof_saving_frac=share(proof_saved, found.proof_before_micro_usd),
        targets=tuple(map(target_part, found.targets)),
        targets_kept=sum(target.kept for target in found.targets),
    )

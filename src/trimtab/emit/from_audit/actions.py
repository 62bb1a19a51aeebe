"""Actions and targets as parts of the audit's document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pydantic import TypeAdapter

from trimtab.deployment.kept_form import TYPE
from trimtab.emit.document import ActionPart, ChangePart, TargetPart
from trimtab.emit.from_audit.shared import evidence_parts, known, to_cents
from trimtab.emit.rollout import canary_steps
from trimtab.emit.words import target_words
from trimtab.plan.model import Action, Change, TargetResult


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
    )


def effect_words(changes: Sequence[Change]) -> str:
    """Say what changes come to: the first of each kind, and how many more there are like it."""
    by_kind: dict[type, list[str]] = {}
    for change in changes:
        words = by_kind.setdefault(type(change.effect), [])
        if change.effect.describe() not in words:
            words.append(change.effect.describe())
    texts = [words[0] if len(words) == 1 else f"{words[0]}, {len(words) - 1} more alike" for words in by_kind.values()]
    return "; ".join(texts)


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

"""Turn an audit into its document. Money is rounded here, once: parts sum to their totals to the cent in every face."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum

from pydantic import JsonValue

from trimtab._version import __version__
from trimtab.diagnose.findings import ProductForm, Unjudged, Verdict, Waste
from trimtab.emit.comparison import compared
from trimtab.emit.document import (
    SCHEMA_VERSION,
    ActionPart,
    AuditDocument,
    BillByHour,
    CapacityPart,
    ChangePart,
    ComparedPart,
    CoveragePart,
    EvidencePart,
    HeatMapPart,
    LimitPart,
    NotWorthPart,
    OwnedPart,
    Pictures,
    PlanPart,
    ProductFormPart,
    ProofPart,
    RobustnessPart,
    SpendPart,
    SpendTables,
    StressedPart,
    TargetPart,
    UnjudgedPart,
    VerdictPart,
    WastePart,
    WhatIfPart,
    WindowPart,
)
from trimtab.emit.money import month_cents, month_usd, month_usd_parts, percent
from trimtab.emit.proof_part import action_proof, given_up
from trimtab.emit.roadmap_part import roadmap_part
from trimtab.emit.rollout import canary_steps
from trimtab.emit.venture_part import venture_part
from trimtab.emit.words import WASTE_MEANING, target_words
from trimtab.fleet.model import FloatArray, Window
from trimtab.plan.commit_inventory import Held
from trimtab.plan.intervals import joint_saving
from trimtab.plan.limits import LimitPrice
from trimtab.plan.model import (
    Action,
    Audit,
    CapacityPicture,
    Change,
    HeatMap,
    NotWorthDoing,
    Plan,
    Proof,
    Spend,
    TargetResult,
)
from trimtab.plan.robustness import Robustness
from trimtab.plan.scenario import WhatIf
from trimtab.provenance import Evidence
from trimtab.units import usd_cents

_SERIES_DIGITS = 4
_GPU_HOUR_DIGITS = 2


def audit_document(audit: Audit) -> AuditDocument:
    """Build the document of an audit. Parts of the bill and of the joint saving sum to them to the cent."""
    spend_usd_mo = {row.name: month_usd(row.micro_usd, audit.plan.window.hours) for row in audit.spend_by_workload}
    targets = tuple(_target(result) for result in audit.proof.targets)
    return AuditDocument(
        schema_version=SCHEMA_VERSION,
        trimtab_version=__version__,
        fleet=audit.fleet,
        coverage=_coverage(audit),
        degraded=audit.degraded,
        bill_usd_mo=month_usd(audit.bill_micro_usd, audit.plan.window.hours),
        spend=SpendTables(
            by_kind=_spend(audit.spend_by_kind, audit),
            by_team=_spend(audit.spend_by_team, audit),
            by_workload=_spend(audit.spend_by_workload, audit),
        ),
        product_form=_product_form(audit.product_form),
        waste=_waste(audit.waste, audit),
        verdicts=tuple(_verdict(verdict) for verdict in audit.verdicts),
        plan=_flagged(_plan(audit.plan, spend_usd_mo, targets), audit),
        proof=_proof(audit.proof, targets),
        unjudged=tuple(_unjudged(row, audit.plan.window.hours) for row in audit.unjudged),
        pictures=_pictures(audit),
        owned=tuple(_owned(held) for held in audit.owned),
        robustness=None if audit.robustness is None else _robustness(audit.robustness),
        what_if=None if audit.what_if is None else _what_if(audit.what_if),
    )


def _window(window: Window) -> WindowPart:
    return WindowPart(start=window.start, end=window.end, hours=window.hours)


def _coverage(audit: Audit) -> CoveragePart:
    """Say how much history was read: the fit window, which the coverage's shares are of, and the proof window."""
    coverage, fit, proof = audit.coverage, audit.plan.window, audit.proof.window
    whole = Window(start=fit.start, hours=fit.hours + proof.hours)
    return CoveragePart(
        summary=(
            f"{whole.days:.1f} of {coverage.asked_days:g} days ({fit.days:g} to plan on, {proof.days:g} to prove on), "
            f"{coverage.nodes} {'node' if coverage.nodes == 1 else 'nodes'} with {coverage.gpus} GPUs billed, "
            f"{percent(coverage.device_hours_seen_frac)} of GPU-hours "
            f"measured ({percent(coverage.sm_active_frac)} of them with SM activity)"
        ),
        window=_window(whole),
        asked_days=coverage.asked_days,
        device_hours_seen_frac=coverage.device_hours_seen_frac,
        sm_active_frac=coverage.sm_active_frac,
        gpus=coverage.gpus,
        nodes=coverage.nodes,
        notes=coverage.notes,
        counts=dict(coverage.counts),
    )


def _spend(rows: Sequence[Spend], audit: Audit) -> tuple[SpendPart, ...]:
    amounts = month_usd_parts([row.micro_usd for row in rows], audit.bill_micro_usd, audit.plan.window.hours)
    return tuple(
        SpendPart(
            name=row.name,
            usd_mo=amount,
            share_frac=_share(row.micro_usd, audit.bill_micro_usd),
            gpu_hours=round(row.gpu_hours, _GPU_HOUR_DIGITS),
            activity_frac=row.activity_frac,
        )
        for row, amount in zip(rows, amounts, strict=True)
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _product_form(form: ProductForm) -> ProductFormPart:
    return ProductFormPart(
        allocation_frac=form.allocation_frac,
        busy_frac=form.busy_frac,
        efficiency_frac=form.efficiency_frac,
        product_frac=form.product_frac,
    )


def _waste(rows: Sequence[Waste], audit: Audit) -> tuple[WastePart, ...]:
    amounts = month_usd_parts([row.micro_usd for row in rows], audit.bill_micro_usd, audit.plan.window.hours)
    return tuple(
        WastePart(
            kind=row.kind.value,
            usd_mo=amount,
            share_frac=_share(row.micro_usd, audit.bill_micro_usd),
            meaning=WASTE_MEANING[row.kind],
            where=row.where,
        )
        for row, amount in zip(rows, amounts, strict=True)
    )


def _evidence(evidence: Iterable[Evidence]) -> tuple[EvidencePart, ...]:
    return tuple(
        EvidencePart(what=one.what, query=one.query, window=one.window, value=one.value, threshold=one.threshold)
        for one in evidence
    )


def _verdict(verdict: Verdict) -> VerdictPart:
    return VerdictPart(workload=verdict.workload, headline=verdict.headline, evidence=_evidence(verdict.evidence))


def _unjudged(row: Unjudged, window_hr: int) -> UnjudgedPart:
    return UnjudgedPart(workload=row.workload, usd_mo=month_usd(row.micro_usd, window_hr), reason=row.reason)


def _plan(plan: Plan, spend_usd_mo: dict[str, float], targets: tuple[TargetPart, ...]) -> PlanPart:
    hours = plan.window.hours
    before_cents = month_cents(plan.before_micro_usd, hours)
    saved_cents = month_cents(plan.joint_saving_micro_usd, hours)
    joint = joint_saving(plan)
    savings = month_usd_parts([action.saving_micro_usd for action in plan.actions], plan.joint_saving_micro_usd, hours)
    return PlanPart(
        window=_window(plan.window),
        before_usd_mo=before_cents / 100,
        objective_usd_mo=(before_cents - saved_cents) / 100,
        bound_usd_mo=min(month_cents(plan.bound_micro_usd, hours), before_cents - saved_cents) / 100,
        gap_frac=plan.gap_frac,
        joint_saving_usd_mo=saved_cents / 100,
        joint_saving_low_usd_mo=min(saved_cents / 100, round(joint.low, 2)),
        joint_saving_high_usd_mo=max(saved_cents / 100, round(joint.high, 2)),
        saving_frac=_share(plan.joint_saving_micro_usd, plan.before_micro_usd),
        attribution=plan.attribution,
        options=plan.options,
        pruned=dict(plan.pruned),
        actions=tuple(
            _action(action, saving, spend_usd_mo, targets) for action, saving in zip(plan.actions, savings, strict=True)
        ),
        not_worth_doing=tuple(_not_worth(row) for row in plan.not_worth_doing),
        limits=tuple(_limit(limit) for limit in plan.limits),
        always_judged=tuple(venture_part(one) for one in plan.ventures),
        roadmap=roadmap_part(plan.roadmap) if plan.roadmap and plan.actions else None,
    )


def _limit(limit: LimitPrice) -> LimitPart:
    return LimitPart(
        limit=limit.use.words,
        most=limit.use.limit,
        used=limit.use.used,
        binds=limit.use.binds,
        cost_usd_mo=None if limit.cost_usd_mo is None else round(limit.cost_usd_mo, 2),
    )


def _owned(held: Held) -> OwnedPart:
    return OwnedPart(
        name=held.owned.name,
        pool=str(held.owned.pool),
        count=held.owned.count,
        end=held.owned.end.isoformat(),
        used_frac=held.used_frac,
        sunk_usd_mo=round(held.unused_usd_mo, 2),
    )


def _robustness(found: Robustness) -> RobustnessPart:
    return RobustnessPart(
        stressed=tuple(
            StressedPart(
                departure=one.departure.name,
                saving_frac=one.saving_frac,
                targets_kept=one.targets_kept,
                targets=one.targets,
                missed=one.missed,
            )
            for one in found.stressed
        ),
        price_usd_mo=round(found.price_usd_mo, 2),
    )


def _what_if(found: WhatIf) -> WhatIfPart:
    return WhatIfPart(
        scenario=found.scenario.words(),
        refused=found.refused,
        figures=tuple(
            ComparedPart(section=row.section, what=row.what, unit=row.unit.value, base=row.base, scenario=row.scenario)
            for row in compared(found)
        ),
    )


def _flagged(plan: PlanPart, audit: Audit) -> PlanPart:
    """Mark the actions whose workloads miss a target where the world departs."""
    found = audit.robustness
    if found is None:
        return plan
    actions = zip(plan.actions, audit.plan.actions, strict=True)
    flagged = tuple(part.model_copy(update={"fragile": found.fragile(action)}) for part, action in actions)
    return plan.model_copy(update={"actions": flagged})


def _action(
    action: Action, saving_usd_mo: float, spend_usd_mo: dict[str, float], targets: tuple[TargetPart, ...]
) -> ActionPart:
    subjects = {change.subject for change in action.changes}
    touched = [spend_usd_mo[name] for name in sorted(subjects) if name in spend_usd_mo]
    return ActionPart(
        id=action.id,
        lever=action.lever.value,
        subject=action.subject,
        effect=_effect_words(action),
        saving_usd_mo=saving_usd_mo,
        saving_low_usd_mo=min(saving_usd_mo, round(action.saving_usd_mo.low, 2)),
        saving_high_usd_mo=max(saving_usd_mo, round(action.saving_usd_mo.high, 2)),
        saving_basis=action.saving_usd_mo.basis.value,
        saving_because=action.saving_usd_mo.because,
        standalone_usd_mo=round(action.standalone_usd_mo, 2),
        last_in_usd_mo=round(action.last_in_usd_mo, 2),
        spend_usd_mo=round(sum(touched), 2) if touched else None,
        effort_weeks=action.effort_weeks,
        saving_per_week_usd_mo=round(action.saving_per_week_usd_mo, 2),
        risk=action.risk.value,
        quarter=action.quarter,
        evidence=_evidence(action.evidence),
        changes=tuple(_change(change) for change in action.changes),
        targets=tuple(target for target in targets if target.workload in subjects),
        canary=canary_steps(action),
        rollback=action.rollback,
        share_low_usd_mo=_cents(action.share_low_usd_mo),
        share_high_usd_mo=_cents(action.share_high_usd_mo),
    )


def _effect_words(action: Action) -> str:
    """Say what an action does: the first change of each kind, and how many more there are like it."""
    by_kind: dict[type, list[str]] = {}
    for change in action.changes:
        words = by_kind.setdefault(type(change.effect), [])
        if change.effect.describe() not in words:
            words.append(change.effect.describe())
    said = [words[0] if len(words) == 1 else f"{words[0]}, {len(words) - 1} more alike" for words in by_kind.values()]
    return "; ".join(said) or action.subject


def _change(change: Change) -> ChangePart:
    settings = _plain(change.effect)
    assert isinstance(settings, dict)
    return ChangePart(
        subject=change.subject,
        kind=type(change.effect).__name__,
        summary=change.effect.describe(),
        settings=settings,
    )


def _plain(value: object) -> JsonValue:
    """Return a value of an effect as JSON: dataclasses and NamedTuples as objects, enums by their value."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        items = [_plain(item) for item in value]
        return dict(zip(names, items, strict=True)) if names else items
    raise TypeError(f"an effect holds a {type(value).__name__}, which has no form in JSON")


def _not_worth(row: NotWorthDoing) -> NotWorthPart:
    return NotWorthPart(
        lever=row.lever.value,
        subject=row.subject,
        saving_usd_mo=None if row.saving_usd_mo is None else round(row.saving_usd_mo, 2),
        reason=row.reason,
    )


def _target(result: TargetResult) -> TargetPart:
    return TargetPart(
        workload=result.workload,
        metric=result.target.metric.value,
        target=target_words(result.target),
        required_frac=result.target.required_frac,
        before_frac=_known(result.before_frac),
        attained_frac=result.attained_frac,
        kept=result.kept,
        declared=result.target.declared,
        because=result.target.because,
        limit_s=result.target.limit_s,
    )


def _proof(proof: Proof, targets: tuple[TargetPart, ...]) -> ProofPart:
    return ProofPart(
        window=_window(proof.window),
        before_usd=usd_cents(proof.before_micro_usd),
        after_usd=usd_cents(proof.after_micro_usd),
        clairvoyant_usd=usd_cents(proof.clairvoyant_micro_usd),
        before_usd_mo=month_usd(proof.before_micro_usd, proof.window.hours),
        after_usd_mo=month_usd(proof.after_micro_usd, proof.window.hours),
        saving_frac=proof.saving_frac,
        targets=targets,
        targets_kept=sum(target.kept for target in targets),
        interruptions=proof.interruptions,
        lost_gpu_hr=proof.lost_gpu_hr,
        notes=proof.notes,
        actions=tuple(action_proof(one) for one in proof.actions),
        given_up=given_up(targets),
    )


def _pictures(audit: Audit) -> Pictures:
    start = audit.proof.window.start
    return Pictures(
        bill_by_hour=BillByHour(
            start=start,
            before_usd=_known_series(audit.proof.hourly_before_usd),
            after_usd=_known_series(audit.proof.hourly_after_usd),
        ),
        heat_map=_heat_map(audit.heat_map),
        capacity=tuple(_capacity(picture, start) for picture in audit.capacity),
    )


def _heat_map(heat_map: HeatMap) -> HeatMapPart:
    return HeatMapPart(rows=heat_map.rows, activity_frac=tuple(_series(row) for row in heat_map.activity_frac))


def _capacity(picture: CapacityPicture, start: datetime) -> CapacityPart:
    return CapacityPart(
        workload=picture.workload,
        start=start,
        demand_gpus=_series(picture.demand_gpus),
        before_gpus=_series(picture.before_gpus),
        after_gpus=_series(picture.after_gpus),
    )


def _cents(usd_mo: float | None) -> float | None:
    return None if usd_mo is None else round(usd_mo, 2)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _series(values: FloatArray) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else round(value, _SERIES_DIGITS) for value in values.tolist())


def _known_series(values: FloatArray) -> tuple[float, ...]:
    return tuple(round(value, _SERIES_DIGITS) for value in values.tolist())

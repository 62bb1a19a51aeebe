"""Explains one action: its evidence, arithmetic, certainty, the targets it must keep, how to try and undo it."""

from __future__ import annotations

from trimtab.emit.blocks import (
    Block,
    Bullets,
    ListItem,
    Paragraph,
    Section,
    Table,
    TableColumn,
    TableRow,
    bullets,
    strong,
)
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.part import EvidencePart
from trimtab.emit.document.plan import ActionPart, TargetPart
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.words import enabled, risk_meaning, sampled_share
from trimtab.levers.lever import Risk

_BASIS_MEANING = {
    "measured": "read from the history itself",
    "calibrated": "a model fitted to the history",
    "modelled": "a model from published facts, not fitted to this fleet",
    "assumed": "an assumption of the settings",
}


def action_sections(document: AuditDocument, action: ActionPart) -> tuple[Section, ...]:
    """Return the parts of the explanation. Questions to owners appear only if there are any."""
    changes = bullets([f"{change.subject}: {change.summary}" for change in action.changes])
    targets = [target_line(target) for target in action.targets] or ["No workload with a target is affected."]
    canary = Bullets(numbered=True, items=tuple(ListItem(words=step) for step in action.canary))
    parts: tuple[tuple[str, tuple[Block, ...]], ...] = (
        ("What changes", (changes,)),
        ("Why: the evidence", (Bullets(items=tuple(map(evidence_item, action.evidence))),)),
        ("Arithmetic, dollars a month", (_arithmetic(document, action), Paragraph(words=_gloss(document, action)))),
        ("How sure", (Paragraph(words=_basis(action)),)),
        ("What it must keep", (bullets(targets),)),
        ("Effort and risk", (Paragraph(words=_risk(action)),)),
        *([("Before it", (bullets(action.preconditions),))] if action.preconditions else []),
        *([("Ask first", (bullets(action.ask_first),))] if action.ask_first else []),
        ("Try it on a small part first", (canary,)),
        ("Rollback", (Paragraph(words=action.rollback),)),
    )
    return tuple(Section(title=title, blocks=blocks) for title, blocks in parts)


def evidence_item(row: EvidencePart) -> ListItem:
    """Return the readings, their source, and the threshold they are compared with."""
    bound = f"; compare: {row.threshold}" if row.threshold else ""
    return ListItem(words=(f"{row.what}: ", strong(row.value), bound), beneath=f"from {row.query}, {row.window}")


def _arithmetic(document: AuditDocument, action: ActionPart) -> Table:
    """Return before, alone, last in and share, and the share as a part of the whole plan."""
    alone = action.standalone_usd_mo
    sums = [
        ("what the plan loses if it alone is left out", action.last_in_usd_mo),
        ("its share of the joint saving", action.saving_usd_mo),
    ]
    if action.spend_usd_mo is None:
        sums.insert(0, ("what it saves if it is the only action", alone))
    else:
        sums = [
            ("today's spend on what it changes", action.spend_usd_mo),
            ("- what it saves if it is the only action", alone),
            ("= that spend with this action alone", action.spend_usd_mo - alone),
            *sums,
        ]
    if sampled_share(action):
        sums.append(("lower end of that share: orders are sampled, 95% interval", action.share_low_usd_mo or 0.0))
        sums.append(("upper end of it", action.share_high_usd_mo or 0.0))
    sums.append(("the joint saving of all actions", document.plan.joint_saving_usd_mo))
    if action.moving_usd_mo:
        sums.append(("moving and traffic, paid within these sums", action.moving_usd_mo))
    return Table(
        columns=(TableColumn(title=""), TableColumn(title="", right=True)),
        rows=tuple(TableRow(cells=(what, dollars_and_cents(usd_mo))) for what, usd_mo in sums),
    )


def _gloss(document: AuditDocument, action: ActionPart) -> str:
    gloss = (
        f"Savings overlap, so stand-alone figures cannot be added up. The share ({document.plan.attribution}) is what the "
        "action adds on average over all orders in which the actions could be taken; the shares sum to the joint saving."
    )
    if action.enables:
        gloss += f" {enabled(action)}"
    return gloss


def _basis(action: ActionPart) -> str:
    low, high = dollars(action.saving_low_usd_mo), dollars(action.saving_high_usd_mo)
    because = f": {action.saving_because}" if action.saving_because else ""
    meaning = _BASIS_MEANING[action.saving_basis]
    sure = f"Exactly {low} a month" if low == high else f"80% interval {low} to {high} a month"
    return f"{sure}. Basis: {action.saving_basis} ({meaning}){because}."


def target_line(target: TargetPart) -> str:
    """Say what a target reaches on the proof window, and before."""
    before = "" if target.before_frac is None else f"; before {percent(target.before_frac, 1)}"
    verdict = "kept" if target.kept else "MISSED"
    return (
        f"{target.workload}: {target.target} ({target.because}). On the proof window: "
        f"{percent(target.attained_frac, 1)}, {verdict}{before}."
    )


def _risk(action: ActionPart) -> str:
    weeks = f"{action.effort_weeks:g} engineer-week{'' if action.effort_weeks == 1 else 's'}"
    when = f"quarter {action.quarter}" if action.quarter else "later than a year"
    hazards = "; ".join(action.hazards) or risk_meaning(Risk(action.risk), action.lever)
    return (
        f"{weeks}, planned for {when}: {dollars(action.saving_per_week_usd_mo)} a month saved per engineer-week. "
        f"Risk {action.risk}: {hazards}."
    )

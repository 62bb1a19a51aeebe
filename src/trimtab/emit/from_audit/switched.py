"""A plan with actions switched off as a part of a document: money rounded once, shares that sum to the saving to the cent."""

from __future__ import annotations

from trimtab.emit.document.switched import SwitchedActionPart, SwitchedPart
from trimtab.emit.from_audit.plan import effect_words, target_part
from trimtab.emit.from_audit.shared import share
from trimtab.emit.money import month_cents, month_usd, month_usd_parts
from trimtab.plan.proof.switched import Switched


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

"""The proof action by action: what each was predicted to save, and what its replay over the proof window saves.

Shares as in the plan (Shapley) where the actions that touch one another are few enough to enumerate on a second window as
well; else what is lost when an action alone is left out, on both sides. Either way the two figures are of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.plan.actions.attribution import attribute, components
from trimtab.plan.model import ActionProof
from trimtab.plan.planner import Planned
from trimtab.plan.proof.proof_window import PlanOnWindow, ProofResult
from trimtab.units import per_month, usd

MOST_BILLS = 1_024
"""Sets of actions that are billed again at most; beyond, actions are left out one at a time."""


def proof_by_action(planned: Planned, proven: ProofResult, *, seed: int) -> tuple[ActionProof, ...]:
    """Return one entry an action, in the plan's order."""
    if not planned.plan.actions:
        return ()
    after = PlanOnWindow(planned=planned, enacted=proven.enacted)
    touches = [planned.drafted.actions[number].touches for number in planned.order]
    groups = components(len(touches), touches)
    shared = sum(2 ** len(group) for group in groups) <= MOST_BILLS
    saved = attribute(after.saving, groups, len(touches), seed=seed).shapley if shared else _last_in(after)
    hours = proven.proof.window.hours
    return tuple(
        ActionProof(
            id=action.id,
            measure="share" if shared else "last in",
            predicted_usd_mo=action.saving_usd_mo.value if shared else action.last_in_usd_mo,
            replayed_usd_mo=per_month(usd(micro_usd), hours),
            held=_held(action.saving_usd_mo.low, per_month(usd(micro_usd), hours), action.saving_usd_mo.high)
            if shared
            else None,
        )
        for action, micro_usd in zip(planned.plan.actions, saved, strict=True)
    )


def _held(low: float, value: float, high: float) -> bool:
    return low - 0.01 <= value <= high + 0.01


def _last_in(after: PlanOnWindow) -> Sequence[int]:
    everything = frozenset(range(len(after.planned.plan.actions)))
    joint = after.saving(everything)
    return [joint - after.saving(everything - {action}) for action in sorted(everything)]

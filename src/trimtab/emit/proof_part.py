"""The proof as a part of the audit's document: the bill, the targets, what is given up within them, each action."""

from __future__ import annotations

from trimtab.emit.document import ActionProofPart, TargetPart
from trimtab.emit.money import percent
from trimtab.plan.model import ActionProof

_GIVEN_UP_FRAC = 0.005
"""A target attained by so much less than before is listed."""


def action_proof(one: ActionProof) -> ActionProofPart:
    """Return one action's part."""
    return ActionProofPart(
        id=one.id,
        measure=one.measure,
        predicted_usd_mo=round(one.predicted_usd_mo, 2),
        replayed_usd_mo=round(one.replayed_usd_mo, 2),
        held=one.held,
    )


def given_up(targets: tuple[TargetPart, ...]) -> tuple[str, ...]:
    """Say which targets the plan keeps with less to spare than history did, largest difference first."""
    rows = [
        (target.before_frac - target.attained_frac, target)
        for target in targets
        if target.kept and target.before_frac is not None and target.before_frac - target.attained_frac > _GIVEN_UP_FRAC
    ]
    return tuple(_words(target) for _, target in sorted(rows, key=lambda row: -row[0]))


def _words(target: TargetPart) -> str:
    return (
        f"{target.workload}: {percent(target.before_frac, 1)} before, {percent(target.attained_frac, 1)} with the plan; "
        f"its target allows it ({target.target}, {'declared' if target.declared else 'no worse than observed'})"
    )

"""The proof as a part of the audit's document: the bill, the targets, what is given up within them, each action."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.emit.document import (
    ActionProofPart,
    PromisePart,
    ProofPart,
    RepairPart,
    RobustnessPart,
    StressedPart,
    StressedTargetPart,
    TargetPart,
)
from trimtab.emit.from_audit.actions import target_part
from trimtab.emit.from_audit.shared import window_part
from trimtab.emit.money import month_usd, percent
from trimtab.emit.words import late_words
from trimtab.fleet.model import Window
from trimtab.plan.model import ActionProof, Promise, Proof, Repair, TargetResult
from trimtab.plan.proof.robustness import Robustness
from trimtab.units import usd_cents

_GIVEN_UP_FRAC = 0.005
"""A target attained by so much less than before is listed."""


def proof_part(proof: Proof, targets: tuple[TargetPart, ...], fit: Window) -> ProofPart:
    """Return the proof's part; `targets` are its own, in its order, `fit` is the window that the plan was made on."""
    first = proof.first_saving_micro_usd
    return ProofPart(
        window=window_part(proof.window),
        before_usd=usd_cents(proof.before_micro_usd),
        after_usd=usd_cents(proof.after_micro_usd),
        moving_usd=usd_cents(proof.moving_micro_usd),
        clairvoyant_usd=usd_cents(proof.clairvoyant_micro_usd),
        before_usd_mo=month_usd(proof.before_micro_usd, proof.window.hours),
        after_usd_mo=month_usd(proof.after_micro_usd, proof.window.hours),
        saving_frac=proof.saving_frac,
        targets=targets,
        targets_kept=sum(target.kept for target in targets),
        interruptions=proof.interruptions,
        lost_gpu_hr=proof.lost_gpu_hr,
        notes=proof.notes,
        actions=tuple(_action_proof(action) for action in proof.actions),
        given_up=_given_up(targets),
        by_promise=tuple(_by_promise(targets)),
        repairs=tuple(_repair(repair) for repair in proof.repairs),
        first_saving_usd_mo=None if first is None else month_usd(first, fit.hours),
    )


def robustness_part(found: Robustness) -> RobustnessPart:
    """Return the part of the worlds that depart from what the plan was made for."""
    return RobustnessPart(
        stressed=tuple(
            StressedPart(
                departure=stressed.departure.name,
                saving_frac=stressed.saving_frac,
                targets_kept=stressed.targets_kept,
                targets=stressed.targets,
                missed=stressed.missed,
                bill_usd_mo=round(stressed.bill_usd_mo, 2),
                attained=tuple(_stressed_target(result) for result in stressed.results),
                runs_without_node=stressed.runs_without_node,
                longest_without_node_s=round(stressed.longest_without_node_s, 1),
            )
            for stressed in found.stressed
        ),
        price_usd_mo=round(found.price_usd_mo, 2),
        notes=found.notes,
    )


def _action_proof(action: ActionProof) -> ActionProofPart:
    return ActionProofPart(
        id=action.id,
        measure=action.measure,
        predicted_usd_mo=round(action.predicted_usd_mo, 2),
        replayed_usd_mo=round(action.replayed_usd_mo, 2),
        held=action.held,
    )


def _by_promise(targets: tuple[TargetPart, ...]) -> Iterator[PromisePart]:
    """Count the targets kind by kind, those of workloads left as they are among them."""
    for promise in Promise:
        promised = [target for target in targets if target.promise == promise.value]
        if promised:
            yield PromisePart(
                promise=promise.value,
                kept=sum(target.kept for target in promised),
                targets=len(promised),
                untouched=sum(not target.touched for target in promised),
            )


def _repair(repair: Repair) -> RepairPart:
    return RepairPart(
        workload=repair.workload,
        was=repair.was,
        now=repair.now,
        missed=tuple(target_part(result) for result in repair.missed),
        when_slow=repair.when_slow,
        extra_usd=usd_cents(repair.extra_micro_usd),
    )


def _stressed_target(result: TargetResult) -> StressedTargetPart:
    return StressedTargetPart(
        workload=result.workload,
        metric=result.target.metric.value,
        required_frac=result.target.required_frac,
        attained_frac=result.attained_frac,
        kept=result.kept,
    )


def _given_up(targets: tuple[TargetPart, ...]) -> tuple[str, ...]:
    """Say which targets the plan keeps with less to spare than history did, largest difference first."""
    rows = [
        (target.before_frac - target.attained_frac, target)
        for target in targets
        if target.kept and target.before_frac is not None and target.before_frac - target.attained_frac > _GIVEN_UP_FRAC
    ]
    return tuple(_words(target) for _, target in sorted(rows, key=lambda row: -row[0]))


def _words(target: TargetPart) -> str:
    changes = (
        late_words(target)
        or f"{percent(target.before_frac, 1)} before, {percent(target.attained_frac, 1)} with the plan"
    )
    return (
        f"{target.workload}: {changes}; "
        f"its target allows it ({target.target}, {'declared' if target.declared else 'no worse than observed'})"
    )

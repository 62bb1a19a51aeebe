"""The proof as a part of the document: the bill, the targets, what is given up within them, each action, services' laws."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.emit.document.plan import TargetPart
from trimtab.emit.document.proof import (
    ActionProofPart,
    BackTestPart,
    HeldPart,
    LawPart,
    PromisePart,
    ProofPart,
    RepairPart,
    RobustnessPart,
    StressedPart,
    StressedTargetPart,
)
from trimtab.emit.from_audit.plan import target_part
from trimtab.emit.from_audit.shared import window_part
from trimtab.emit.money import dollars, month_usd, percent
from trimtab.emit.words import late_words
from trimtab.fleet.law_evidence import BackTest, BackTestedMeasure
from trimtab.fleet.model import Window
from trimtab.plan.model import ActionProof, Promise, Proof, Repair, TargetResult
from trimtab.plan.proof.law_report import LawFinding, LoadTest
from trimtab.plan.proof.robustness import Robustness
from trimtab.units import usd_cents

_GIVEN_UP_FRAC = 0.005
"""A target attained by so much less than before is listed."""


def proof_part(proof: Proof, targets: tuple[TargetPart, ...], fit: Window) -> ProofPart:
    """Return the proof's part; `targets` are its own, in its order, `fit` is the window that the plan was made on."""
    first = proof.first_saving_micro_usd
    if proof.clairvoyant_micro_usd is None:
        raise ValueError("the proof of an audit has a bound with the future known")
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
        work_ratio=None if action.work_ratio is None else round(action.work_ratio, 4),
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


_REQUESTS, _GPUS = "requests/s", "busy GPUs"
_DIGITS = 5


def law_part(found: LawFinding) -> LawPart:
    """Return a law's part."""
    test, unit = found.tested.back_test, _REQUESTS if found.requests else _GPUS
    return LawPart(
        workload=found.workload,
        bound=found.tested.bound.value,
        unit=unit,
        planned=_figure(found.top_req_s),
        shown=_figure(found.tested.shown_req_s),
        by_activity=_figure(found.tested.activity_req_s),
        back_test=_back_test(test) if isinstance(test, BackTest) else None,
        untested="" if isinstance(test, BackTest) else test,
        load_test="" if found.load_test is None else _recipe(found.load_test, unit),
        load_test_saves_usd_mo=_saves(found.load_test),
    )


def _recipe(test: LoadTest, unit: str) -> str:
    saves = _saves(test)
    buys = "" if saves is None else f", and save up to {dollars(saves)} a month more, before commitments"
    if unit == _GPUS:
        return (
            "collect its request metrics (table demand), then, at a busy hour, let fewer and fewer replicas serve it, 20 "
            f"minutes each, while its targets hold, and audit again: the plan may then go as far{buys}"
        )
    return (
        f"at a busy hour, let so few replicas serve it that each gets up to {test.reach_req_s:.3g} {unit}, 20 minutes for each "
        f"number of them, back at once where a target is missed; audit again: the plan may then go as far as went well{buys}"
    )


def _saves(test: LoadTest | None) -> float | None:
    return None if test is None or test.saves_usd_mo is None else round(test.saves_usd_mo, 2)


def _back_test(test: BackTest) -> BackTestPart:
    return BackTestPart(
        fitted_req_s=_figure(test.fitted_req_s),
        tested_req_s=_figure(test.tested_req_s),
        limit_s=test.limit_s,
        in_time=_held(test.in_time),
        running=_held(test.running),
        waiting=_held(test.waiting),
        gpu_s=_held(test.gpu_s),
        error_frac=round(test.error_frac, _DIGITS),
    )


def _held(held: BackTestedMeasure | None) -> HeldPart | None:
    return None if held is None else HeldPart(foretold=_figure(held.foretold), measured=_figure(held.measured))


def _figure(value: float) -> float:
    return float(f"{value:.6g}")

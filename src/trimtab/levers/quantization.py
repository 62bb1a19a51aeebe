"""Store a served model's weights in fewer bits, where the team has found that its answers stay good enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Effect, SetPrecision
from trimtab.deployment.placement import slot_board
from trimtab.errors import UnknownName
from trimtab.fleet.declared_models import ServedModel, need_on, served_model
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions, Effort
from trimtab.ledger.arrays import IntArray
from trimtab.levers import autoscaling, relocation, right_size, sharing
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    speed_fact,
    usual_reason,
)
from trimtab.physics.formats import FORMATS, WeightFormat, weight_format, why_not
from trimtab.physics.transfer import fits_memory
from trimtab.replay.outcomes.outcome import Case, alone_cost, own_micro_usd
from trimtab.tables.quality_evidence import QualityEvidence
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import per_month, usd

NAME = "quantization"
FORMATS_TRIED = (WeightFormat.FP8, WeightFormat.INT8, WeightFormat.INT4)
_WAYS_TRIED = 2
"""Ways of holding replicas that are priced with a format that is not accepted yet: those of the cheapest options."""
EVALUATE = "what it does to the answers is unknown: evaluate it, then declare quantize: in workloads.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats with fewer bits than today's that the team accepts, and those that have not been evaluated yet.

    A format whose evaluation rejected it is in neither.
    """

    model: ServedModel
    accepted: tuple[WeightFormat, ...]
    unknown: tuple[WeightFormat, ...]


def formats_of(workload: Workload) -> Formats | str:
    """Return which formats may be offered to a service, or why none can be judged."""
    model = served_model(workload)
    if isinstance(model, str):
        return model
    try:
        said = {weight_format(text) for text in workload.spec.quantize or ()}
        judged = evaluated(workload)
    except UnknownName as error:
        return f"quantize: {error}"
    narrower = [
        candidate for candidate in FORMATS_TRIED if FORMATS[candidate].weight_bytes < FORMATS[model.stored].weight_bytes
    ]
    if not narrower:
        return f"its weights are stored in {model.stored.value} already"
    said |= {stored for stored, found in judged.items() if found.verdict == "accept"}
    refused = judged.keys() - said
    if refused.issuperset(narrower):
        return f"its evaluation rejected {' and '.join(candidate.value for candidate in narrower)}"
    return Formats(
        model=model,
        accepted=tuple(candidate for candidate in narrower if candidate in said),
        unknown=tuple(candidate for candidate in narrower if candidate not in said | refused),
    )


def evaluated(workload: Workload) -> Mapping[WeightFormat, QualityEvidence]:
    """Return what evaluations found of formats (`quality:` in workloads.yaml); an accepted way of making one stands for it.

    Raises UnknownName for a key that is no format.
    """
    found: dict[WeightFormat, QualityEvidence] = {}
    for text, evidence in (workload.spec.quality or {}).items():
        stored = weight_format(text)
        if stored not in found or evidence.verdict == "accept":
            found[stored] = evidence
    return found


def propose(
    workload: Workload, model: ServedModel, stored: WeightFormat, home: Gpu, there: Gpu, assumptions: Assumptions
) -> SetPrecision | str:
    """Return the change of format for a service on a GPU, or why it cannot be.

    Its speed is that of the new format over the present one on the same GPU, at home and there.
    """
    for gpu in {home.name: home, there.name: there}.values():
        if reason := why_not(gpu, stored):
            return reason
    need_gib = need_on(workload, model, there, stored)
    if need_gib is None or not fits_memory(need_gib, there, margin_frac=assumptions.memory_headroom_frac).fits:
        return "not enough memory"
    after_gib = model.need_gib(home, stored)
    evidence = evaluated(workload).get(stored)
    return SetPrecision(
        before=model.stored,
        after=stored,
        speed=model.change_of_format(home, stored),
        speed_there=model.change_of_format(there, stored),
        saved_gib=model.need_gib(home, model.stored) - after_gib,
        model=workload.spec.model or model.architecture.name,
        work_speed=model.change_of_further_work(home, stored),
        work_speed_there=model.change_of_further_work(there, stored),
        answers=evidence.words if evidence is not None else "",
    )


def places(ask: LeverRequest, formats: Formats, stored: WeightFormat, *, near: bool = False) -> Iterator[Deployment]:
    """Yield where a service can run with weights stored so: at home, on offerings and in slots, some of them only then.

    `near`: on nodes of its own in its own region alone.
    """
    workload, market, assumptions = ask.workload, ask.market, ask.assumptions
    home = market.gpu(workload.gpu)
    if home is None:
        return
    for where, there in _near(ask, home, stored) if near else _boards(ask, home, stored):
        if there is not None:
            change = propose(workload, formats.model, stored, home, there, assumptions)
            if not isinstance(change, str):
                yield where.plus((NAME, change))


def _boards(ask: LeverRequest, home: Gpu, stored: WeightFormat) -> Iterator[tuple[Deployment, Gpu | None]]:
    """Yield each place that holds weights stored so, with the GPU or slice that a replica runs on there."""
    workload, market, assumptions = ask.workload, ask.market, ask.assumptions
    yield from _near(ask, home, stored)
    fits = {move.pool for move in ask.once(relocation.moves).fitting}
    for move in relocation.propose(workload, market, ask.settings, stored=stored).fitting:
        away = replace(move, to=replace(move.to, only_quantized=move.pool not in fits))
        yield AS_IT_IS.plus((relocation.NAME, away)), market.gpu(move.to.gpu)
    known = {(slot.shared, slot.slots) for slot in ask.once(sharing.shares).fitting}
    for slots in sharing.propose(workload, market, assumptions, sharing.asked(ask), stored=stored).fitting:
        shared = replace(slots, only_quantized=(slots.shared, slots.slots) not in known)
        yield AS_IT_IS.plus((sharing.NAME, shared)), slot_board(slots, market)


def _near(ask: LeverRequest, home: Gpu, stored: WeightFormat) -> Iterator[tuple[Deployment, Gpu | None]]:
    """Yield the places of them on nodes of its own in its own region, the present one first."""
    yield AS_IT_IS, home
    whole = {size.pool for size in ask.once(right_size.sizes).fitting}
    for size in right_size.propose(ask.workload, ask.market, ask.assumptions, stored=stored).fitting:
        there = replace(size, only_quantized=size.pool not in whole)
        yield AS_IT_IS.plus((right_size.NAME, there)), ask.market.gpu(size.gpu)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield every accepted format on each place that runs and holds it."""
    formats = formats_of(ask.workload)
    if not base.changes and isinstance(formats, Formats):
        for stored in formats.accepted:
            yield from places(ask, formats, stored)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str:
    """Say why no other format is planned, or what those that have not been evaluated would save: priced here, never planned."""
    paid_anyway = ask.workload.pool.capacity_type.paid_anyway  # no format is worth a replay then
    return usual_reason(NAME, ask, judged, own=None if paid_anyway else _what_formats_would_save(ask, judged))


def _what_formats_would_save(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say what formats that have not been evaluated would save beside the best way; None where one is accepted."""
    formats = formats_of(ask.workload)
    if isinstance(formats, str):
        return formats
    alone = [(way.deployment, way.usage) for way in judged.kept if not way.slots]
    if formats.accepted or not alone:
        return None
    priced = sorted(
        ((_priced(ask.case, deployment, usage, ask.market), deployment) for deployment, usage in alone),
        key=lambda pair: pair[0],
    )
    scaled = [deployment.scaling for _, deployment in priced if deployment.scaling is not None][:_WAYS_TRIED]
    best, saved = None, 0
    for stored in formats.unknown:
        for where in places(ask, formats, stored):
            if where.sharing is None:
                for way in (where, *(where.plus((autoscaling.NAME, policy)) for policy in scaled)):
                    cost = _cost(ask, way, most=priced[0][0] - saved)
                    if cost is not None:
                        best, saved = stored, priced[0][0] - cost
    if best is None:
        return f"neither {' nor '.join(candidate.value for candidate in formats.unknown)} would save more"
    saved_usd_mo = per_month(usd(saved), ask.case.window.hours)
    return f"{best.value} could save about ${saved_usd_mo:,.0f} a month more; {EVALUATE}"


def _cost(ask: LeverRequest, deployment: Deployment, most: int) -> int | None:
    """Return what a workload would cost alone; None where it would miss a target, or cost so much or more."""
    place = ask.evaluator.place(deployment)
    least = ask.evaluator.least(deployment)
    # no replay where even what it holds at least is too much
    if least is not None and _priced(ask.case, deployment, least.usage(place), ask.market) >= most:
        return None
    if not ask.evaluator.keeps_targets(deployment):
        return None
    usage = ask.evaluator.outcome(deployment).usage(place)
    cost = _priced(ask.case, deployment, usage, ask.market)
    return cost if cost < most else None


def _priced(case: Case, deployment: Deployment, usage: Mapping[Pool, IntArray], market: Market) -> int:
    own = own_micro_usd(case.workload, deployment, market, case.settings, case.window.hours)
    return alone_cost(usage, market) + own


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for change in applied.effects:
        if isinstance(change, SetPrecision):
            ratio = change.speed_there if applied.place.leaves else change.speed
            yield speed_fact(f"speed in {change.after.value} over {change.before.value}", ratio)
            yield Fact("memory that it frees", "physics", f"{change.saved_gib:.1f} GiB")
            if change.answers:
                yield Fact("change of the model's answers", "trimtab quality, paired", change.answers)
            else:
                yield Fact("change of the model's answers", "not measured here", "unknown", "evaluation")


def _canary(effect: Effect) -> tuple[str, ...]:
    after, before = (
        (effect.after.value, effect.before.value) if isinstance(effect, SetPrecision) else ("the new", "those of today")
    )
    return (
        f"Run the model's own evaluation on {after} weights beside {before}: stop if it loses more than the team allows.",
        "Send one request in a hundred to one replica with the new weights; compare answers and p95 for a week.",
    )


LEVER = Lever(
    name=NAME,
    title="Quantize",
    meaning="Stores a served model's weights in fewer bits, where the team accepts what that does to the answers",
    page="how-to/quantize.md",
    stage=CompositionStage.PLACE,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=2.0, per="class", first_weeks=1.0),
    first_steps=(EffortStep("an evaluation of answers that the team believes", 5.0),),
    steps=(
        EffortStep("the weights in the new format, and the server that runs them", 2.0),
        EffortStep("the evaluation, and what its losses mean to the owner", 3.0),
        EffortStep("a week of one request in a hundred, watched", 3.0),
        EffortStep("the rest, and the old weights kept", 2.0),
    ),
    risk=Risk.HIGH,
    rollback="serve the former weights again; keep them loaded on one replica until the evaluation is over",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=3,
)

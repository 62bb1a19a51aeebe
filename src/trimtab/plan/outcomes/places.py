"""Where a workload could run, and with its weights stored how: every set of effects that says so.

Its present nodes; any offering that holds it, here or in other regions where it may run; slots of shared nodes; fewer GPUs a
run, there or on another offering; another memory plan, which names its own GPUs. Then every accepted format on each place that
runs and holds it: some only so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu
from trimtab.fleet.effects import Effect, Relocate, SetPrecision, SetTrainingMemory, UseOffering, UseSlots
from trimtab.fleet.limits import asked_isolation
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_elsewhere
from trimtab.fleet.settings import Lever
from trimtab.fleet.trained_model import trained_model
from trimtab.levers import gpu_count, quantization, relocation, right_size, sharing, training_memory
from trimtab.levers.quantization import Formats
from trimtab.physics.formats import WeightFormat
from trimtab.plan.outcomes.outcome import Case

Where = Mapping[Lever, Effect]
"""The effects that place a workload; none: its present nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places that hold a workload, and how many were refused for which reason."""

    fitting: tuple[Where, ...]
    refused: Counter[str]


def places_of(case: Case, market: Market) -> Places:
    """Return every place at every precision that the team accepts; the present one as it is comes first."""
    workload, assumptions = case.workload, case.settings.assumptions
    sizing = right_size.propose(workload, market, assumptions)
    moves = relocation.propose(workload, market, case.settings)
    isolation = asked_isolation(workload.spec, case.settings.limits.isolation)
    shares = sharing.propose(workload, market, assumptions, isolation)
    away = offerings_elsewhere(workload, market)
    shares_away = sharing.propose(workload, market, assumptions, isolation, offerings=away)
    counts = gpu_count.propose(workload, market)
    fitting: list[Where] = [
        {},
        *({Lever.RIGHT_SIZE: size} for size in sizing.fitting),
        *({Lever.RELOCATION: move} for move in moves.fitting),
        *({Lever.SHARING: slots} for slots in shares.fitting),
        *_with_moves(shares_away.fitting, moves.fitting),
        *({Lever.GPU_COUNT: count} for count in counts),
        *({Lever.TRAINING_MEMORY: plan} for plan in memory_plans(case, market)),
    ]
    if counts:
        covered = {count.pool for count in counts}
        elsewhere = (size for size in sizing.fitting if size.pool not in covered)
        fitting += [{Lever.GPU_COUNT: counts[0], Lever.RIGHT_SIZE: size} for size in elsewhere]
        fitting += [{Lever.GPU_COUNT: counts[0], Lever.RELOCATION: move} for move in moves.fitting]
    formats = quantization.formats_of(workload)
    if isinstance(formats, Formats):
        for stored in formats.accepted:
            fitting += quantized_places(case, market, formats, stored)
    return Places(fitting=tuple(fitting), refused=sizing.refused + moves.refused + shares.refused)


def _with_moves(shares: Iterable[UseSlots], moves: Iterable[Relocate]) -> Iterator[Where]:
    """Yield slots of nodes elsewhere, each with the move to its nodes."""
    to = {move.pool: move for move in moves}
    for slots in shares:
        if slots.pool in to:
            yield {Lever.RELOCATION: to[slots.pool], Lever.SHARING: slots}


def quantized_places(case: Case, market: Market, formats: Formats, stored: WeightFormat) -> Iterator[Where]:
    """Yield where a service can run with weights stored so: at home, on offerings and in slots, some of them only then."""
    workload, assumptions = case.workload, case.settings.assumptions
    home = market.gpu(workload.gpu)
    if home is None:
        return
    whole = {size.pool for size in right_size.propose(workload, market, assumptions).fitting}
    isolation = asked_isolation(workload.spec, case.settings.limits.isolation)
    shared = {(one.shared, one.slots) for one in sharing.propose(workload, market, assumptions, isolation).fitting}
    sizes = right_size.propose(workload, market, assumptions, stored=stored).fitting
    slots = sharing.propose(workload, market, assumptions, isolation, stored=stored).fitting
    fits = {move.pool for move in relocation.propose(workload, market, case.settings).fitting}
    moves = relocation.propose(workload, market, case.settings, stored=stored).fitting
    places: list[Where] = [
        {},
        *({Lever.RIGHT_SIZE: replace(one, only_quantized=one.pool not in whole)} for one in sizes),
        *({Lever.RELOCATION: replace(one, to=replace(one.to, only_quantized=one.pool not in fits))} for one in moves),
        *({Lever.SHARING: replace(one, only_quantized=(one.shared, one.slots) not in shared)} for one in slots),
    ]
    for where in places:
        there = board_of(workload, where, market)
        if there is None:
            continue
        change = quantization.propose(workload, formats.model, stored, home, there, assumptions)
        if not isinstance(change, str):
            yield {Lever.QUANTIZATION: change, **where}


def memory_plans(case: Case, market: Market) -> tuple[SetTrainingMemory, ...]:
    """Return the memory plans of a training run that fit somewhere; none where its own is not known."""
    model = trained_model(case.workload)
    if isinstance(model, str) or case.workload.jobs is None:
        return ()
    return training_memory.propose(case.workload, model, market, case.settings.assumptions)


def board_of(workload: Workload, where: Where, market: Market) -> Gpu | None:
    """Return the GPU or slice on which a service runs there; None where the catalog does not know it."""
    size, move, slots = (where.get(one) for one in (Lever.RIGHT_SIZE, Lever.RELOCATION, Lever.SHARING))
    if isinstance(slots, UseSlots):
        return sharing.board_of(slots, market)
    if isinstance(move, Relocate):
        size = move.to
    return market.gpu(size.gpu if isinstance(size, UseOffering) else workload.gpu)


def stored_as(where: Where) -> WeightFormat | None:
    """Return the format that weights are changed to; None where they stay."""
    precision = where.get(Lever.QUANTIZATION)
    return precision.after if isinstance(precision, SetPrecision) else None

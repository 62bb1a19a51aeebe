"""Other memory plans of training runs as options, with every way of holding nodes; what they would cost if refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trimtab.fleet.effects import Effect, SetCapacityType, SetTrainingMemory
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever
from trimtab.fleet.trained_model import trained_model
from trimtab.levers import training_memory
from trimtab.plan.outcome import Case, placement
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import S_PER_HR, usd


def training_options(
    case: Case, market: Market, spots: Sequence[Effect | None], ways: Sequence[Mapping[Lever, Effect]]
) -> Iterator[dict[Lever, Effect]]:
    """Yield effects with every memory plan that fits somewhere, held in every way, on demand and on spot."""
    spot_of = {one.pool.instance_type: one for one in spots if isinstance(one, SetCapacityType)}
    for plan in _plans(case, market):
        for how in ways:
            effects: dict[Lever, Effect] = {Lever.TRAINING_MEMORY: plan, **how}
            yield effects
            offer = spot_of.get(plan.pool.instance_type)
            if offer is not None:
                yield {**effects, Lever.SPOT: offer}


def _plans(case: Case, market: Market) -> tuple[SetTrainingMemory, ...]:
    model = trained_model(case.workload)
    if isinstance(model, str) or case.workload.jobs is None:
        return ()
    return training_memory.propose(case.workload, model, market, case.settings.assumptions)


def training_note(case: Case, market: Market) -> str | None:
    """Say why no memory plan can be judged, or what the cheapest would cost a run where it is too slow for the target.

    None where nothing is to be said: of experiments that declare no plan, or where the cheapest keeps the target.
    """
    model = trained_model(case.workload)
    if isinstance(model, str):
        asked = case.workload.kind is WorkloadKind.TRAINING or case.workload.spec.training is not None
        return model if asked else None
    plans = _plans(case, market)
    if not plans:
        return "no other memory plan fits a GPU of the region that costs no more"
    cheapest = min(plans, key=lambda plan: _run_usd(case, market, {Lever.TRAINING_MEMORY: plan}))
    required = [target.required_frac for target in case.targets if target.metric is TargetMetric.THROUGHPUT]
    if cheapest.speed.low >= max(required, default=0.0):
        return None
    now, then = _run_usd(case, market, {}), _run_usd(case, market, {Lever.TRAINING_MEMORY: cheapest})
    return (
        f"cheapest a run: {cheapest.describe()}; it takes {1 / cheapest.speed.value:.1f} times as long, which its target "
        f"forbids, for ${then:,.0f} a run on demand, not ${now:,.0f}"
    )


def _run_usd(case: Case, market: Market, effects: Mapping[Lever, Effect]) -> float:
    """Return what the mean run would cost on demand, its nodes held for its own time only."""
    jobs = case.workload.jobs
    if jobs is None or not jobs.count:
        return 0.0
    place = placement(case.workload, effects)
    hours = float((jobs.end_s - jobs.start_s).mean()) / S_PER_HR / place.speed.value
    return usd(market.rate(place.pool)) * place.nodes_per_run * hours

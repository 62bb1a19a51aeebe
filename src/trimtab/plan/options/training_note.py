"""What the report says of memory plans of training runs: why none can be judged, or what the cheapest would cost."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.fleet.effects import Effect
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever
from trimtab.fleet.trained_model import trained_model
from trimtab.plan.outcomes.outcome import Case, placement
from trimtab.plan.outcomes.places import memory_plans
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import S_PER_HR, usd


def training_note(case: Case, market: Market) -> str | None:
    """Say why no memory plan can be judged, or what the cheapest would cost a run where it is too slow for the target.

    None where nothing is to be said: of experiments that declare no plan, or where the cheapest keeps the target.
    """
    model = trained_model(case.workload)
    if isinstance(model, str):
        asked = case.workload.kind is WorkloadKind.TRAINING or case.workload.spec.training is not None
        return model if asked else None
    plans = memory_plans(case, market)
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

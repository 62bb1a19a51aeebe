"""`trimtab.fit`: which GPU for this model, how many, what it costs (the library's face of the searches); what speed costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.catalog import load_catalog
from trimtab.errors import UsageError
from trimtab.fleet.ownership import serving_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import DEFAULT_ENGINE, FitAnswer, FitMarket, serving_answer, training_answer
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.models import Architecture, model_named
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.units import HR_PER_DAY, HR_PER_MO, S_PER_HR, TOKENS_PER_MTOK

SPEED_STEPS = (0.7, 0.5, 0.35, 0.25)
"""Tighter limits on the time per token, as shares of the cheapest way's."""


def fit(
    model: str | Architecture,
    *,
    serve: Demand | None = None,
    train: TrainingDemand | None = None,
    market: FitMarket | None = None,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
) -> FitAnswer:
    """Return which GPU a model needs, how many, and what it costs; give either `serve` or `train`.

    Without a `market`, every NVIDIA GPU that somebody sells on demand, at the packaged prices. Raises UnknownName for a model
    that no table knows, UsageError unless exactly one demand is given.

    >>> answer = fit("llama-3.1-8b", serve=Demand(input_tokens=1024, output_tokens=256, rate_req_s=5))
    >>> answer.found[0].usd_per_mtok.value < answer.found[-1].usd_per_mtok.value
    True
    """
    market = market or FitMarket(catalog=load_catalog())
    architecture = model_named(model) if isinstance(model, str) else model
    match serve, train:
        case Demand(), None:
            return serving_answer(architecture, serve, market, engine=engine, formats=formats)
        case None, TrainingDemand():
            return training_answer(architecture, train, market)
        case _:
            raise UsageError("give either serve=Demand(...) or train=TrainingDemand(...)")


def usd_per_mtok_all_told(
    way: ServingOption, settings: Settings, demand: Demand, hours_per_day: float = HR_PER_DAY
) -> float:
    """Return what a million tokens cost with everything that a way of serving costs besides its GPUs."""
    total = serving_cost(way, settings, output_tokens=demand.output_tokens, hours_per_day=hours_per_day)
    requests_mo = way.served_req_s * HR_PER_MO * hours_per_day / HR_PER_DAY * S_PER_HR
    return total.usd / (requests_mo * (demand.input_tokens + demand.output_tokens) / TOKENS_PER_MTOK)


def faster_ways(
    first: ServingOption,
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    *,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
    scale: float = 1.0,
) -> list[ServingOption]:
    """Return the cheapest ways under tighter and tighter times per token than the first way's: what speed costs."""
    found: list[ServingOption] = []
    for share in SPEED_STEPS:
        tighter = replace(demand, targets=replace(demand.targets, tpot_s=first.tpot_s.value * share))
        ways = serving_answer(model, tighter, market, engine=engine, formats=formats, scale=scale).found
        found += [way for way in ways if isinstance(way, ServingOption)]
    return found

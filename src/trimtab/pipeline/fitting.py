"""`trimtab.fit`: which GPU for this model, how many, what it costs (the library's face of the searches); what speed costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.catalog import load_catalog
from trimtab.errors import UsageError
from trimtab.fleet.ownership import serving_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import DEFAULT_ENGINE, FitAnswer, FitMarket, serving_answer, training_answer
from trimtab.physics.first_token import default_step_tokens, first_token_fit
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.models import Architecture, model_named
from trimtab.physics.predict import coefficients_at, packaged
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_query import serving_columns, serving_keys
from trimtab.physics.serving_ways import query_of
from trimtab.provenance import Estimate
from trimtab.replay.first_token import drawn_requests, replay_deployment, seen_by_requests
from trimtab.units import HR_PER_DAY, HR_PER_MO, S_PER_HR, TOKENS_PER_MTOK


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLoad:
    """What the replay of the engine's scheduler says of one way under the asked load; first tokens with 80 % intervals."""

    ttft_p50_s: Estimate
    ttft_p95_s: Estimate
    tpot_p95_s: float
    preempted_frac: float
    """Preemptions a request."""


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


def replayed_load(way: ServingOption, demand: Demand, engine: str, *, scale: float = 1.0) -> ReplayedLoad | None:
    """Replay one replica's share of the asked load; None where not one request was answered.

    A rate comes as a Poisson stream, spread evenly over the replicas; a concurrency as clients that send their next request
    when one is answered. The engine runs as many at once as the answer says, which is what `vllm serve` is given. `scale` is
    measured over predicted time of the user's own point.
    """
    query = query_of(way, demand, engine)
    columns, keys = serving_columns([query]), serving_keys(query)
    fitted = first_token_fit()
    costs = fitted.of(keys)
    rate_req_s = None if demand.rate_req_s is None else demand.rate_req_s / way.replicas
    clients = 0 if demand.concurrency is None else math.ceil(demand.concurrency / way.replicas)
    requests = drawn_requests(demand.input_tokens, demand.output_tokens, rate_req_s=rate_req_s, clients=clients)
    coefficients = coefficients_at(packaged("serving").tables, [keys], columns)
    replayed = replay_deployment(
        columns,
        coefficients,
        requests,
        clients=clients,
        max_num_seqs=way.concurrency,
        step_tokens=default_step_tokens(way.gpu),
        scale=scale,
    )
    seen = seen_by_requests(replayed, costs)
    if seen is None:
        return None
    return ReplayedLoad(
        ttft_p50_s=fitted.estimate(seen.ttft_p50_s),
        ttft_p95_s=fitted.estimate(seen.ttft_p95_s),
        tpot_p95_s=seen.tpot_p95_s,
        preempted_frac=seen.preempted_frac,
    )

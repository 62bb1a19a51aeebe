"""`trimtab.fit`: which GPU for this model, how many, what it costs (the library's face of the searches); what speed costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.catalog import load_catalog
from trimtab.errors import UsageError
from trimtab.fleet.ownership import serving_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import DEFAULT_ENGINE, FitAnswer, FitMarket, accepted_caveats, serving_answer, training_answer
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.models import Architecture, model_named
from trimtab.physics.predict import coefficients_of
from trimtab.physics.search_serving import serving_rank
from trimtab.physics.search_training import TrainingDemand, TrainingOption
from trimtab.physics.serving import default_step_tokens, first_token_fit
from trimtab.physics.serving_demand import Demand, query_of
from trimtab.physics.serving_query import serving_columns, serving_keys
from trimtab.provenance import Estimate
from trimtab.replay.first_token import drawn_requests, replay_deployment, seen_by_requests
from trimtab.units import HR_PER_DAY, HR_PER_MO, S_PER_HR, TOKENS_PER_MTOK


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTimes:
    """What requests see at one quantile: the one asked for, else 0.95."""

    frac: float
    ttft_s: Estimate
    tpot_s: float
    """NaN where answers have one token."""
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLoad:
    """What the replay of the engine's scheduler says of one way under the asked load; first tokens with 80 % intervals.

    There are none (None) where more comes than is served: they would be waits in a backlog that only grows.
    """

    ttft_p50_s: Estimate | None
    ttft_p95_s: Estimate | None
    tpot_p95_s: float
    preempted_frac: float
    """Preemptions a request."""
    tail: TailTimes | None = None
    """The times at the quantile asked for; None beyond saturation."""


DEFAULT_TAIL_FRAC = 0.95
MORE_HEADROOM = (0.25, 1.0)
"""How many more requests replicas are meant for where those that serve the rate make first tokens wait too long."""
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
            return served_in_time(architecture, serve, market, engine=engine, formats=formats)
        case None, TrainingDemand():
            return training_answer(architecture, train, market)
        case _:
            raise UsageError("give either serve=Demand(...) or train=TrainingDemand(...)")


def served_in_time(
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    *,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
    scale: float = 1.0,
) -> FitAnswer:
    """Search all ways of serving, and hold the limit on the first token to the replay of the engine's scheduler.

    The search knows the mean of a closed loop. How long randomly arriving requests wait is known only from a replay. On each
    GPU options are replayed from the cheapest on until one keeps the limits; those that cost more are left as found. Where none
    does, options with more replicas are tried. Without a limit on a quantile this is the search alone.
    """
    answer = serving_answer(model, demand, market, engine=engine, formats=formats, scale=scale)
    if not demand.targets.needs_replay:
        return answer
    kept, missed = _kept_in_replay(answer.found, demand, engine, scale)
    # who asks for so much headroom, or for a concurrency, has said how many replicas there are to be
    for more in MORE_HEADROOM if demand.rate_req_s is not None and demand.headroom_frac < 1 else ():
        if not missed:
            break
        wider = replace(demand, headroom_frac=(1 + demand.headroom_frac) * (1 + more) - 1)
        there = replace(market, gpus=tuple(sorted({gpu for gpu, _ in missed})))
        # naming GPUs for the second search accepts no caveat that the question did not accept
        again = serving_answer(
            model, wider, there, engine=engine, formats=formats, scale=scale, accepted=accepted_caveats(market, formats)
        )
        open_kinds = [way for way in again.found if isinstance(way, ServingOption) and _kind(way) in missed]
        found, missed_again = _kept_in_replay(open_kinds, demand, engine, scale)
        kept += found
        missed = {key: missed_again.get(key, reject) for key, reject in missed.items() if key not in _kinds(found)}
    kept.sort(key=serving_rank)
    return FitAnswer(found=tuple(kept), rejected=(*answer.rejected, *missed.values()))


_Kind = tuple[str, bool]
"""A GPU, and whether the option has a caveat: each kind has a cheapest option of its own."""


def _kind(way: ServingOption) -> _Kind:
    return (way.gpu.name, bool(way.caveats))


def _kinds(ways: Sequence[ServingOption]) -> frozenset[_Kind]:
    return frozenset(_kind(way) for way in ways)


def _kept_in_replay(
    ways: Sequence[ServingOption | TrainingOption], demand: Demand, engine: str, scale: float
) -> tuple[list[ServingOption], dict[_Kind, Rejected]]:
    """Return the ways from the first on that keeps the limits on each GPU, and the best miss on those where none does."""
    kept: list[ServingOption] = []
    missed: dict[_Kind, Rejected] = {}
    for way in ways:
        if not isinstance(way, ServingOption):
            continue
        key = _kind(way)
        if key not in _kinds(kept):
            reject = _too_late(way, replayed_load(way, demand, engine, scale=scale), demand)
            if reject is not None:
                missed[key] = min(missed.get(key, reject), reject, key=lambda known: known.miss_frac)
                continue
        kept.append(way)
    return kept, {key: reject for key, reject in missed.items() if key not in _kinds(kept)}


def _too_late(way: ServingOption, load: ReplayedLoad | None, demand: Demand) -> Rejected | None:
    """Return by how much the replay of a way misses its limits; None where it keeps them."""
    limits = demand.targets
    if load is None or load.tail is None:
        worst, seen = math.inf, "more comes than is served at once"
    else:
        tail = f"p{100 * load.tail.frac:g}"
        held = [(load.tail.ttft_s.value, limits.ttft_s, "TTFT")]
        if limits.tail_frac is not None:
            held += [(load.tail.tpot_s, limits.tpot_s, "TPOT"), (load.tail.latency_s, limits.latency_s, "latency")]
        misses = [(value / limit, name, value, limit) for value, limit, name in held if limit is not None]
        ratio, name, value, limit = max(misses, default=(0.0, "", 0.0, math.inf))
        worst, seen = ratio - 1, f"{name} {tail} {value:.3g} s where the limit is {limit:.3g} s"
    if worst <= 0:
        return None
    return Rejected(
        gpu=way.gpu.name,
        what=f"{way.tensor} x {way.stored.value}",
        reason=Unmet.TARGET,
        because=f"{seen}, in the replay of {way.replicas} replicas",
        miss_frac=worst,
    )


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
    steps: Sequence[float] = SPEED_STEPS,
) -> list[ServingOption]:
    """Return the cheapest ways under tighter and tighter times per token than the first way's: what speed costs."""
    found: list[ServingOption] = []
    for share in steps:
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
    requests = drawn_requests(
        demand.input_tokens,
        demand.output_tokens,
        rate_req_s=rate_req_s,
        clients=clients,
        cached_frac=demand.cached_frac + demand.loaded_frac,
    )
    coefficients = coefficients_of([query], columns)
    replayed = replay_deployment(
        columns,
        coefficients,
        requests,
        clients=clients,
        max_num_seqs=way.concurrency,
        step_tokens=default_step_tokens(way.gpu),
        scale=scale,
    )
    tail_frac = demand.targets.tail_frac or DEFAULT_TAIL_FRAC
    seen = seen_by_requests(replayed, costs, load_s=float(columns["load_s"][0]), tail_frac=tail_frac)
    if seen is None:
        return None
    return ReplayedLoad(
        tail=None
        if seen.is_beyond_saturation
        else TailTimes(
            frac=tail_frac,
            ttft_s=fitted.estimate(seen.ttft_tail_s),
            tpot_s=seen.tpot_tail_s,
            latency_s=seen.latency_tail_s,
        ),
        ttft_p50_s=None if seen.is_beyond_saturation else fitted.estimate(seen.ttft_p50_s),
        ttft_p95_s=None if seen.is_beyond_saturation else fitted.estimate(seen.ttft_p95_s),
        tpot_p95_s=seen.tpot_p95_s,
        preempted_frac=seen.preempted_frac,
    )

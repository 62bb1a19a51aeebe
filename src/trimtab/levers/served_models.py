"""What is known of a service whose language model is declared, and the cheapest ways to serve it in one pool of replicas.

Known are the model and its format, the work of tokens by step (`ServiceLaw.counted`), how long requests take and how that
spreads. Step times come from `physics` and are scaled so that today's mean request takes on today's GPU what was measured; the
interval of speeds between two GPUs is left, at whose low end a way must keep the targets. Requests are as long as today's on
average, and spread as today's times of whole requests do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from trimtab.catalog import Lifecycle
from trimtab.catalog.kinds import BuyingOption
from trimtab.fleet.declared_models import ENGINE, ServedModel, served_model
from trimtab.fleet.law_evidence import seconds_in_work
from trimtab.fleet.market import Offering
from trimtab.fleet.reach import offerings_at_home, quota_of_pools, quotas_of
from trimtab.fleet.token_work import TokenWork
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.lever import JudgedWays, LeverRequest, usual_reason
from trimtab.physics.offers import NodeOffer
from trimtab.physics.predict import calibrated, coefficients_of
from trimtab.physics.serving import capacity, default_step_tokens, first_token_fit, step_times, token_seconds
from trimtab.physics.serving_demand import ASSUMED_LONGEST, Demand, ServingWay, Targets, ways_of
from trimtab.physics.serving_query import ServingQuery, serving_columns, serving_keys
from trimtab.replay.disaggregated import AnswerLimit, ServingPool, most_req_s_together, together_pool
from trimtab.replay.engine import Requests
from trimtab.replay.outcomes.service_model import floor_replicas
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_HR, usd

Columns = tuple[dict[str, FloatArray], dict[str, FloatArray]]
"""Of a query: its columns, and the coefficients of them."""
MOST_SCALE = 2.0
"""A service whose requests take more than so many times as long as predicted, or that many times less, is not what was
declared: the predictor's median error is 12 % (docs/benchmarks/physics.md)."""
MOST_SPREAD = 1.2
"""Standard deviation of ln(length) at most: at 1.2 the longest of a hundred requests is 16 times the middle one."""
REQUESTS = 4_000
"""Requests of a replay at each load: 40 of them are beyond the 99th percentile."""
MOST_POOLS = 4
"""Single pools with another number of GPUs a replica that are worth a replay."""
SEQUENCES_TOGETHER = (32, 256)
"""Requests in work at once, at most, of one pool: vLLM's default, and a number that keeps steps short."""
_SEED = 20261128
_PEAK_QUANTILE = 0.999
"""Of the recorded rates: the busiest 40 minutes of four weeks are above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDemand:
    """What is known of a service whose requests the engine's scheduler could be asked about."""

    model: ServedModel
    peak_req_s: float
    mean_req_s: float
    cached_frac: float
    """Share of prompt tokens found in the prefix cache."""
    prompt_work: TokenWork
    """What a token counts of a mean request's prompt."""
    answer_work: TokenWork
    scale: float
    """Measured over predicted time of today's mean request."""
    spread: float
    """Standard deviation of ln(length)."""


def known_demand(ask: LeverRequest) -> KnownDemand | str:
    """Return what is known of a service, or why its engine's scheduler cannot be asked."""
    case, workload = ask.case, ask.workload
    service, law = workload.service, case.law
    if service is None or law is None:
        return "its requests are not measured"
    if law.counted is None:
        return f"its tokens are not known: {law.tokens}"
    model = served_model(workload)
    if isinstance(model, str):
        return model
    home = ask.market.gpu(workload.gpu)
    if home is None:
        return "its GPU is not in the catalog"
    if not law.share.size:
        return "no latency was measured, so that nothing says how far its requests differ"
    took_s = seconds_in_work(service)
    if took_s is None:
        return "its requests in work were not measured, so that predicted times cannot be compared"
    assert service.tokens is not None
    both = np.isfinite(service.tokens.input) & np.isfinite(service.tokens.output) & np.isfinite(service.arrivals)
    requests = float(service.arrivals[both].sum())
    prompts, answers = (float(values[both].sum()) for values in (service.tokens.input, service.tokens.output))
    found = min(float(np.nansum(service.tokens.cached[both])), prompts)
    if min(requests, prompts - found, answers) <= 0:
        return "no prompt or no answer was counted"
    computed = replace(model, input_tokens=max(1.0, (prompts - found) / requests))
    scale = took_s / computed.request_s(home, model.stored)
    if not 1 / MOST_SCALE <= scale <= MOST_SCALE:
        return f"its requests take {scale:.2g} times as long as {model.architecture.name} is predicted to: check model:"
    rate = service.arrivals[np.isfinite(service.arrivals)] / service.step_s
    return KnownDemand(
        model=model,
        peak_req_s=float(np.quantile(rate, _PEAK_QUANTILE)),
        mean_req_s=float(rate.mean()),
        cached_frac=found / prompts,
        prompt_work=TokenWork(input_req=requests / (prompts - found), output_req=0.0, cached_req=0.0),
        answer_work=TokenWork(input_req=0.0, output_req=requests / answers, cached_req=0.0),
        scale=scale,
        spread=min(law.run_time_spread, MOST_SPREAD),
    )


def reason_where_known(lever: str, found: Sequence[object] | str, ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Explain why a lever that looked for ways to serve is not in the plan; None where tokens or model are not known."""
    # other services would all have the same line
    if isinstance(ask.once(known_demand), str):
        return None
    return usual_reason(lever, ask, judged, own=found if isinstance(found, str) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePool:
    """Replicas of so many GPUs that serve prompts and answers in one place, on nodes that follow the demand."""

    query: ServingQuery
    offer: NodeOffer
    concurrency: int
    """Requests in work at once, at most."""
    usd_hr: float

    def describe(self) -> str:
        """Describe it in words."""
        return f"{self.query.tensor} x {self.query.gpu.name} a replica on {self.offer.instance_type}"


def cheapest_pools(ask: LeverRequest) -> tuple[SinglePool, ...]:
    """Return the cheapest single pools that keep the limits at the low end of their speed, the cheapest first.

    Of each board and number of GPUs on its cheapest nodes: as many as `MOST_POOLS` that have another number of GPUs than
    today's replicas, and those of today's number that cost no more.
    """
    known = ask.once(known_demand)
    if isinstance(known, str):
        return ()
    slow = known.scale / calibrated(1.0).low
    limits, requests = limits_of(ask), drawn_requests(known)
    ranked = []
    for way in ways_held(ask, known):
        columns = columns_of(way.query)
        rate_req_s = likely_req_s(known, way.query) / slow
        for offer in way.offers:
            if offer.gpus >= way.query.tensor:
                least_usd = followed_usd(ask, offer, way.query.tensor, 2 * rate_req_s)
                ranked.append((least_usd, rate_req_s, way.query, columns, offer))
    ranked.sort(key=lambda row: (row[0], row[2].gpu.name, row[2].tensor, row[4].instance_type))
    found = dict[tuple[str, int], SinglePool]()
    rates = dict[tuple[str, int], tuple[float, int]]()
    for least_usd, rate_req_s, query, columns, offer in ranked:
        others = sorted(pool.usd_hr for pool in found.values() if pool.query.tensor != known.model.tensor)
        if len(others) >= MOST_POOLS and others[MOST_POOLS - 1] <= least_usd:
            break
        key = (query.gpu.name, query.tensor)
        if key not in rates:
            costs = first_token_fit().of(serving_keys(query))
            rates[key] = max(
                (
                    most_req_s_together(pool_of(query, columns, most, slow), costs, requests, limits, rate_req_s),
                    most,
                )
                for most in SEQUENCES_TOGETHER
            )
        kept_req_s, most = rates[key]
        usd_hr = followed_usd(ask, offer, query.tensor, kept_req_s) if kept_req_s else math.inf
        if usd_hr < (found[key].usd_hr if key in found else math.inf):
            found[key] = SinglePool(query=query, offer=offer, concurrency=most, usd_hr=usd_hr)
    return tuple(sorted(found.values(), key=lambda pool: (pool.usd_hr, pool.describe())))


def pool_of(query: ServingQuery, columns: Columns, concurrency: int, scale: float) -> ServingPool:
    """Return one replica of a query, whose steps take `scale` times as long as predicted."""
    step_tokens = default_step_tokens(query.gpu)
    return together_pool(*columns, max_num_seqs=concurrency, step_tokens=step_tokens, scale=scale)


def followed_usd(ask: LeverRequest, offer: NodeOffer, gpus: int, replica_req_s: float) -> float:
    """Return what an hour of whole nodes costs on average where replicas of so many GPUs follow the demand of each step."""
    service = ask.workload.service
    assert service is not None
    rate = service.arrivals[np.isfinite(service.arrivals)] / service.step_s
    replicas = np.maximum(np.ceil(rate / replica_req_s), floor_replicas(ask.case))
    nodes = np.ceil(replicas / (offer.gpus // gpus))
    return float(nodes.mean()) * offer.usd_hr[BuyingOption.ON_DEMAND]


def likely_req_s(known: KnownDemand, query: ServingQuery) -> float:
    """Return the requests a second of a replica that has a usual number of them in work, as predicted."""
    columns = columns_of(query)
    requests = max(1.0, min(float(SEQUENCES_TOGETHER[-1]), float(capacity(columns[0])[0])))
    step_tokens = default_step_tokens(query.gpu)
    times = step_times(*columns, max_num_seqs=SEQUENCES_TOGETHER[-1], step_tokens=step_tokens)
    spent = token_seconds(
        times,
        input_tokens=known.model.input_tokens,
        cached_tokens=known.model.input_tokens * known.cached_frac,
        output_tokens=known.model.output_tokens,
        requests=requests,
    )
    return 1 / (spent.input_s + spent.output_s + spent.cached_s)


def limits_of(ask: LeverRequest) -> list[AnswerLimit]:
    """Return the limits that its answers must keep."""
    kinds = {TargetMetric.TTFT: "first", TargetMetric.TPOT: "token", TargetMetric.LATENCY: "whole"}
    return [
        AnswerLimit(of=kinds[target.metric], limit_s=target.limit_s, required_frac=target.required_frac)
        for target in ask.case.targets
        if target.limit_s is not None and target.metric in kinds
    ]


def demand_at_peak(ask: LeverRequest, known: KnownDemand) -> Demand:
    """Return the service's busiest minutes as physics asks for them."""
    model = known.model
    return Demand(
        input_tokens=model.input_tokens,
        output_tokens=model.output_tokens,
        rate_req_s=known.peak_req_s,
        mean_req_s=known.mean_req_s,
        cached_frac=known.cached_frac,
        targets=Targets(tpot_s=_token_limit_s(ask, known)),
        headroom_frac=ask.settings.planning.demand_headroom_frac,
        longest_tokens=math.ceil(ASSUMED_LONGEST * (model.input_tokens + model.output_tokens)),
    )


def ways_held(ask: LeverRequest, known: KnownDemand) -> list[ServingWay]:
    """Return the boards and numbers of GPUs that hold the model as it is stored today."""
    offered = offers_of(ask).values()
    return [
        way
        for gpu in dict.fromkeys(offering.gpu for offering in offered)
        for way in ways_of(
            known.model.architecture,
            gpu,
            tuple(_offer(offering) for offering in offered if offering.gpu == gpu),
            demand_at_peak(ask, known),
            ENGINE,
            (known.model.stored,),
        )[0]
    ]


def _token_limit_s(ask: LeverRequest, known: KnownDemand) -> float:
    """Return the mean step time that decode must keep: of targets on tokens, on whole answers, else today's.

    A limit that a share of requests must keep is taken at the low end of the speed; of whole answers those that are longer by
    the spread of lengths have less for each token.
    """
    slow, answers = calibrated(1.0).low, known.model.output_tokens
    limits_s = []
    for target in ask.case.targets:
        if target.limit_s is not None and target.metric is TargetMetric.TPOT:
            limits_s.append(target.limit_s * slow)
        elif target.limit_s is not None and target.metric is TargetMetric.LATENCY:
            longer = math.exp(_normal_quantile(target.required_frac) * known.spread - known.spread**2 / 2)
            limits_s.append(target.limit_s * slow / max(1.0, answers * longer))
    service = ask.workload.service
    assert service is not None
    return min(limits_s, default=(seconds_in_work(service) or math.inf) / answers)


def _normal_quantile(share: float) -> float:
    """Return the standard normal quantile of a share in (0, 1)."""
    return NormalDist().inv_cdf(min(max(share, 0.5), 0.9999))


def offers_of(ask: LeverRequest) -> dict[str, Offering]:
    """Return the nodes on demand in the service's region that its images run on, by instance type."""
    workload, market = ask.workload, ask.market
    arch, quotas = market.cpu_arch(workload.pool), quotas_of(ask.settings.limits.quotas)
    offered = [
        offering
        for offering in offerings_at_home(workload, market)
        if offering.gpu.has_speed_law
        and offering.cpu_arch == (arch or offering.cpu_arch)
        and (offering.lifecycle is Lifecycle.CURRENT or offering.pool == workload.pool)
    ]
    most = quota_of_pools(quotas, [offering.pool for offering in offered])
    return {offering.pool.instance_type: offering for offering in offered if most.get(offering.pool) != 0}


def _offer(offering: Offering) -> NodeOffer:
    pool = offering.pool
    return NodeOffer(
        provider=pool.provider,
        instance_type=pool.instance_type,
        region=pool.region,
        gpus=offering.gpus_per_node,
        usd_hr={BuyingOption.ON_DEMAND: usd(offering.rate_micro_usd_hr)},
    )


def today_usd(ask: LeverRequest) -> float:
    """Return what the service's nodes cost an hour on average."""
    return usd(ask.market.rate(ask.workload.pool)) * float(ask.workload.held_node_seconds.mean()) / S_PER_HR


def drawn_requests(known: KnownDemand) -> Requests:
    """Return a Poisson stream of one request a second, with lengths spread as today's times are; the same for every pair."""
    rng = np.random.default_rng(_SEED)
    arrival_s = np.cumsum(rng.standard_exponential(REQUESTS))
    model, longest = known.model, ASSUMED_LONGEST * (known.model.input_tokens + known.model.output_tokens)
    lengths = np.exp(known.spread * rng.standard_normal((2, REQUESTS)) - known.spread**2 / 2)
    prompts, answers = (
        np.clip(np.rint(mean * spread), 1, longest / 2).astype(np.int64)
        for mean, spread in zip((model.input_tokens, model.output_tokens), lengths, strict=True)
    )
    found = np.minimum(np.floor(prompts * known.cached_frac).astype(np.int64), prompts - 1)
    return Requests(arrival_s, prompts, answers, found)


def columns_of(query: ServingQuery) -> Columns:
    """Return the columns of a query and the coefficients of them."""
    columns = serving_columns([query])
    return columns, coefficients_of([query], columns)

"""Serve prompts (prefill) and answers (decode) of a language model on nodes of their own, each scaled by its own tokens.

Offered where a plan knows what it must: the model and its format, the work of tokens by step (`ServiceLaw.counted`), how long
requests take and how that spreads. Step times come from `physics` and are scaled so that today's mean request takes on today's
GPU what was measured; the interval of speeds between two GPUs is left, at whose low end both halves must keep the targets.
Requests are as long as today's on average, and spread as today's times of whole requests do.

`physics.disaggregated` finds pairs of nodes for the busiest minutes; each half's times by load are replayed by the engine's
scheduler (`replay.disaggregated`), and a rule for each half is chosen with all other options of the service, by replay of its
recorded demand (`replay.outcomes.split_outcome`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from trimtab.catalog import Lifecycle
from trimtab.catalog.kinds import BuyingOption
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, ServingHalf, SetReplicaPolicy, SplitServing, UseOffering
from trimtab.fleet.declared_models import ENGINE, ServedModel, served_model
from trimtab.fleet.law_evidence import seconds_in_work
from trimtab.fleet.market import Offering
from trimtab.fleet.reach import offerings_at_home, quota_of_pools, quotas_of
from trimtab.fleet.settings import Effort
from trimtab.fleet.token_work import TokenWork
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.autoscaling import ROOM_TO_GROW, TOKENS_METRIC, WINDOWS_S
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
from trimtab.physics.disaggregated import DisaggregatedOption, Half, search_disaggregated
from trimtab.physics.offers import NodeOffer
from trimtab.physics.predict import calibrated, coefficients_of
from trimtab.physics.serving import capacity, default_step_tokens, first_token_fit, step_times, token_seconds
from trimtab.physics.serving_demand import ASSUMED_LONGEST, Demand, ServingWay, Targets, ways_of
from trimtab.physics.serving_query import ServingQuery, serving_columns, serving_keys
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.replay.disaggregated import (
    AnswerLimit,
    TimesByLoad,
    decode_pool,
    decode_times,
    most_req_s_together,
    prefill_pool,
    prefill_times,
    together_pool,
)
from trimtab.replay.engine import Requests
from trimtab.replay.outcomes.service_outcome import floor_replicas
from trimtab.replay.outcomes.split_outcome import most_load_apart
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import BYTES_PER_GB, S_PER_HR, usd

NAME = "disaggregation"
MOST_PAIRS = 4
"""Pairs of nodes that are replayed with every pair of rules, the cheapest at the busiest minutes first."""
MOST_TRIED = 24
"""Pairs whose times by load are looked at until so many can keep the targets."""
TARGET_LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Of what a replica of a half serves, at which its rule aims."""
MOST_SCALE = 2.0
"""A service whose requests take more than so many times as long as predicted, or that many times less, is not what was
declared: the predictor's median error is 12 % (docs/benchmarks/physics.md)."""
MOST_SPREAD = 1.2
"""Standard deviation of ln(length) at most: at 1.2 the longest of a hundred requests is 16 times the middle one."""
REQUESTS = 4_000
"""Requests of a replay at each load: 40 of them are beyond the 99th percentile."""
_SEQUENCES_TOGETHER = (32, 256)
"""Requests in work at once, at most, of one pool: vLLM's default, and a number that keeps steps short."""
_SEED = 20261128
_PEAK_QUANTILE = 0.999
"""Of the recorded rates: the busiest 40 minutes of four weeks are above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDemand:
    """What is known of a service that could be served apart."""

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


def demand_apart(ask: LeverRequest) -> SplitDemand | str:
    """Return what is known of a service, or why prefill and decode apart cannot be judged."""
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
    return SplitDemand(
        model=model,
        peak_req_s=float(np.quantile(rate, _PEAK_QUANTILE)),
        mean_req_s=float(rate.mean()),
        cached_frac=found / prompts,
        prompt_work=TokenWork(input_req=requests / (prompts - found), output_req=0.0, cached_req=0.0),
        answer_work=TokenWork(input_req=0.0, output_req=requests / answers, cached_req=0.0),
        scale=scale,
        spread=min(law.run_time_spread, MOST_SPREAD),
    )


def pairs(ask: LeverRequest) -> tuple[SplitServing, ...] | str:
    """Return the ways to serve apart that are worth a replay, or why there are none."""
    known = ask.once(demand_apart)
    if isinstance(known, str):
        return known
    if ask.workload.pool.capacity_type.paid_anyway:
        return "its nodes are paid anyway"
    demand = _demand(ask, known)
    offers = _offers(ask)
    found, unlinked = search_disaggregated(_ways_of(ask, known), demand, scale=known.scale)
    worth = [pair for pair in found if not pair.caveats and _at_least_usd(pair, known) < _today_usd(ask)]
    if not worth:
        if found:
            return "two pools cost more than today's nodes, even at the mean load"
        return unlinked[0].because if unlinked else "no pair of nodes holds the model and keeps the time per token"
    together, refused = ask.once(_together), 0
    made: list[SplitServing] = []
    kept = 0
    for pair in [pair for pair in worth if _first_token_fits(pair, demand, ask)][:MOST_TRIED]:
        splits = list(_splits(ask, known, pair, offers, demand))
        usd_hr = _usd_apart(ask, pair, splits)
        if usd_hr >= together.usd:
            refused += math.isfinite(usd_hr)
            continue
        made += [split for split in splits if ask.evaluator.hopeless(Deployment.of((NAME, split))) is None]
        kept += 1
        if kept == MOST_PAIRS:
            break
    if made:
        return tuple(made)
    if refused:
        return f"one pool costs less at the same limits: {together.what}, as predicted for both ways"
    return "two pools keep no target on the first token or the whole answer, whatever their load"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedHalf:
    """What manifests say of the replicas of prefill or decode."""

    instance_type: str
    gpus: int
    concurrency: int | None
    """`--max-num-seqs`; None where it is not stated."""


def stated_pair(ask: LeverRequest, prefill: StatedHalf, decode: StatedHalf) -> SplitServing | str:
    """Return what is predicted of halves that somebody stated, under some rule each; or why nothing is."""
    known = ask.once(demand_apart)
    if isinstance(known, str):
        return known
    demand, offers = _demand(ask, known), _offers(ask)
    ways = [
        replace(way, offers=(offer,))
        for way in _ways_of(ask, known)
        for offer in way.offers
        if (offer.instance_type, way.query.tensor) in {(half.instance_type, half.gpus) for half in (prefill, decode)}
    ]
    found, unlinked = search_disaggregated(ways, demand, scale=known.scale)
    for pair in found:
        halves = ((pair.prefill, prefill), (pair.decode, decode))
        if any(
            (half.offer.instance_type, half.query.tensor) != (said.instance_type, said.gpus) for half, said in halves
        ):
            continue
        if decode.concurrency is not None and decode.concurrency != pair.decode.concurrency:
            return f"decode runs {decode.concurrency} requests at once, and its times are known at {pair.decode.concurrency}"
        split = next(iter(_splits(ask, known, pair, offers, demand)), None)
        return split or "requests pile up there at every load"
    if unlinked:
        return unlinked[0].because
    return f"{prefill.gpus} GPUs of {prefill.instance_type} or {decode.gpus} of {decode.instance_type} do not hold the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestOption:
    """The cheapest predicted way to serve prompts and answers in one place: dollars an hour, by `_followed_usd`."""

    usd: float
    what: str


def _together(ask: LeverRequest) -> CheapestOption:
    """Return the cheapest single pool that keeps the limits at the low end of its speed, on any board and number of GPUs.

    A pair of pools may change both too: without this, it would be given the credit for a board or a number of GPUs that one
    pool could have as well.
    """
    known = ask.once(demand_apart)
    if isinstance(known, str):
        raise TypeError(known)
    slow = known.scale / calibrated(1.0).low
    limits, requests = _limits(ask), _requests(known)
    ranked = []
    for way in _ways_of(ask, known):
        columns = _columns(way.query)
        likely_req_s = _likely_req_s(known, way.query, columns) / slow
        for offer in way.offers:
            if offer.gpus >= way.query.tensor:
                least_usd = _followed_usd(ask, offer, way.query.tensor, 2 * likely_req_s)
                ranked.append((least_usd, likely_req_s, way.query, columns, offer))
    ranked.sort(key=lambda row: (row[0], row[2].gpu.name, row[2].tensor, row[4].instance_type))
    best, rates = CheapestOption(usd=math.inf, what=""), dict[tuple[str, int], float]()
    for least_usd, likely_req_s, query, columns, offer in ranked:
        if least_usd >= best.usd:
            break
        key = (query.gpu.name, query.tensor)
        if key not in rates:
            costs = first_token_fit().of(serving_keys(query))
            rates[key] = max(
                most_req_s_together(
                    together_pool(*columns, max_num_seqs=most, step_tokens=default_step_tokens(query.gpu), scale=slow),
                    costs,
                    requests,
                    limits,
                    likely_req_s,
                )
                for most in _SEQUENCES_TOGETHER
            )
        usd_hr = _followed_usd(ask, offer, query.tensor, rates[key]) if rates[key] else math.inf
        if usd_hr < best.usd:
            what = f"{query.tensor} x {query.gpu.name} a replica on {offer.instance_type}"
            best = CheapestOption(usd=usd_hr, what=what)
    return best


def _followed_usd(ask: LeverRequest, offer: NodeOffer, gpus: int, replica_req_s: float) -> float:
    """Return what an hour of whole nodes costs on average where replicas of so many GPUs follow the demand of each step."""
    service = ask.workload.service
    assert service is not None
    rate = service.arrivals[np.isfinite(service.arrivals)] / service.step_s
    replicas = np.maximum(np.ceil(rate / replica_req_s), floor_replicas(ask.case))
    nodes = np.ceil(replicas / (offer.gpus // gpus))
    return float(nodes.mean()) * offer.usd_hr[BuyingOption.ON_DEMAND]


def _likely_req_s(
    known: SplitDemand, query: ServingQuery, columns: tuple[dict[str, FloatArray], dict[str, FloatArray]]
) -> float:
    """Return the requests a second of a replica that has a usual number of them in work, as predicted."""
    requests = max(1.0, min(float(_SEQUENCES_TOGETHER[-1]), float(capacity(columns[0])[0])))
    step_tokens = default_step_tokens(query.gpu)
    times = step_times(*columns, max_num_seqs=_SEQUENCES_TOGETHER[-1], step_tokens=step_tokens)
    spent = token_seconds(
        times,
        input_tokens=known.model.input_tokens,
        cached_tokens=known.model.input_tokens * known.cached_frac,
        output_tokens=known.model.output_tokens,
        requests=requests,
    )
    return 1 / (spent.input_s + spent.output_s + spent.cached_s)


def _limits(ask: LeverRequest) -> list[AnswerLimit]:
    kinds = {TargetMetric.TTFT: "first", TargetMetric.TPOT: "token", TargetMetric.LATENCY: "whole"}
    return [
        AnswerLimit(of=kinds[target.metric], limit_s=target.limit_s, required_frac=target.required_frac)
        for target in ask.case.targets
        if target.limit_s is not None and target.metric in kinds
    ]


def _usd_apart(ask: LeverRequest, pair: DisaggregatedOption, splits: Sequence[SplitServing]) -> float:
    """Return what an hour costs on average where both halves follow the demand at the highest load that keeps the limits.

    At the low end of its speed, as for one pool; infinite where it keeps them at no load.
    """
    best = math.inf
    for split in splits:
        load = most_load_apart(ask.case, ask.evaluator.place(Deployment.of((NAME, split))))
        if load:
            rates = [half.replica_req_s * half.nodes.speed.low * load for half in split.halves.values()]
            best = min(
                best,
                sum(
                    _followed_usd(ask, half.offer, half.query.tensor, rate)
                    for half, rate in zip((pair.prefill, pair.decode), rates, strict=True)
                ),
            )
    return best


def _first_token_fits(pair: DisaggregatedOption, demand: Demand, ask: LeverRequest) -> bool:
    """Return whether a mean prompt that waits for nothing is answered within every limit on first tokens, if all is slow."""
    slow_s = pair.prefill.time.high + pair.transfer.prompt_s(demand.input_tokens) + pair.decode.time.high
    limits = [target.limit_s for target in ask.case.targets if target.metric is TargetMetric.TTFT]
    return all(limit_s is None or slow_s <= limit_s for limit_s in limits)


def _demand(ask: LeverRequest, known: SplitDemand) -> Demand:
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


def _ways_of(ask: LeverRequest, known: SplitDemand) -> list[ServingWay]:
    """Return the boards and numbers of GPUs that hold the model as it is stored today."""
    offered = _offers(ask).values()
    return [
        way
        for gpu in dict.fromkeys(offering.gpu for offering in offered)
        for way in ways_of(
            known.model.architecture,
            gpu,
            tuple(_offer(offering) for offering in offered if offering.gpu == gpu),
            _demand(ask, known),
            ENGINE,
            (known.model.stored,),
        )[0]
    ]


def _token_limit_s(ask: LeverRequest, known: SplitDemand) -> float:
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


def _offers(ask: LeverRequest) -> dict[str, Offering]:
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


def _today_usd(ask: LeverRequest) -> float:
    """Return what the service's nodes cost an hour on average."""
    return usd(ask.market.rate(ask.workload.pool)) * float(ask.workload.held_node_seconds.mean()) / S_PER_HR


def _at_least_usd(pair: DisaggregatedOption, known: SplitDemand) -> float:
    """Return what both pools cost an hour at least: parts of nodes that are at full load at the mean demand."""
    return sum(
        known.mean_req_s / half.replica_req_s * half.query.tensor / half.offer.gpus * half.offer.usd_hr[half.option]
        for half in (pair.prefill, pair.decode)
    )


def _splits(
    ask: LeverRequest,
    known: SplitDemand,
    pair: DisaggregatedOption,
    offers: Mapping[str, Offering],
    demand: Demand,
) -> Iterator[SplitServing]:
    """Yield a pair of nodes with every pair of rules; nothing where requests pile up at every load."""
    requests = _requests(known)
    costs = first_token_fit().of(serving_keys(pair.decode.query))
    read = prefill_times(
        prefill_pool(
            *_columns(pair.prefill.query),
            replicas=1,
            step_tokens=default_step_tokens(pair.prefill.gpu),
            scale=known.scale,
        ),
        pair.transfer,
        costs,
        requests,
        pair.prefill.replica_req_s,
    )
    answered = decode_times(
        decode_pool(*_columns(pair.decode.query), replicas=1, max_num_seqs=pair.decode.concurrency, scale=known.scale),
        costs,
        requests,
        pair.decode.replica_req_s,
    )
    if read is None or answered is None:
        return
    firsts = _halves(ask, known, pair.prefill, read, offers[pair.prefill.offer.instance_type], known.prompt_work)
    seconds = _halves(ask, known, pair.decode, answered, offers[pair.decode.offer.instance_type], known.answer_work)
    for prefill in firsts:
        for decode in seconds:
            yield SplitServing(
                prefill=prefill,
                decode=decode,
                model=ask.workload.spec.model or known.model.architecture.name,
                stored=known.model.stored,
                context=demand.longest_tokens or 0,
                prompt_mb=pair.transfer.prompt_mb(demand.input_tokens),
                link_gb_s=pair.transfer.byte_s / BYTES_PER_GB,
                link=pair.transfer.label,
            )


def _requests(known: SplitDemand) -> Requests:
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


def _columns(query: ServingQuery) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    columns = serving_columns([query])
    return columns, coefficients_of([query], columns)


def _halves(
    ask: LeverRequest, known: SplitDemand, half: Half, times: TimesByLoad, offering: Offering, work: TokenWork
) -> list[ServingHalf]:
    """Return a half under each rule."""
    floor = floor_replicas(ask.case)
    most = max(floor, ROOM_TO_GROW * math.ceil(known.peak_req_s / half.replica_req_s))
    time = half.time
    nodes = UseOffering(
        pool=offering.pool,
        gpu=offering.gpu.name,
        gpus_per_node=offering.gpus_per_node,
        speed=Estimate(
            value=1.0,
            low=time.value / time.high,
            high=time.value / time.low,
            basis=Basis.CALIBRATED,
            because=f"{time.because}; predicted times are scaled by {known.scale:.2f}, today's measured over predicted",
        ),
    )
    return [
        ServingHalf(
            nodes=nodes,
            gpus=half.query.tensor,
            concurrency=half.concurrency,
            replica_req_s=half.replica_req_s,
            loads=times.loads,
            wait_s=times.wait_s,
            token_s=times.token_s,
            answer_s=times.answer_s,
            scaling=SetReplicaPolicy(
                policy=HpaPolicy(target_frac=load, min_replicas=floor, max_replicas=most, window_s=window_s),
                metric=TOKENS_METRIC,
                tokens=work,
            ),
        )
        for window_s in WINDOWS_S
        for load in TARGET_LOADS
        if load < times.loads[-1]
    ]


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if base.changes:
        return
    found = ask.once(pairs)
    for split in () if isinstance(found, str) else found:
        yield base.plus((NAME, split))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for split in applied.effects:
        if isinstance(split, SplitServing):
            for name, half in (("prefill", split.prefill), ("decode", split.decode)):
                yield Fact(
                    f"{name}, mean requests a second of a replica",
                    "physics, scaled to today's measured requests",
                    f"{half.replica_req_s:.3g} on {half.gpus} x {half.nodes.gpu}",
                )
            together = _together(LeverRequest(evaluator=applied.evaluator, market=applied.market))
            yield Fact(
                "cheapest single pool on any board and number of GPUs, at the same limits",
                "physics, nodes that follow the demand",
                f"${together.usd:,.2f} an hour: {together.what}" if together.what else "none keeps them",
            )
            yield speed_fact("speed of the less certain half beside its prediction", split.speed)
            carried = f"{split.prompt_mb:,.0f} MB in {split.prompt_ms:,.3g} ms"
            yield Fact("a mean prompt's cache to hand over", split.link, carried)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    found = ask.once(pairs)
    # worth a line only for a service whose tokens and model are known
    if isinstance(ask.once(demand_apart), str):
        return None
    return usual_reason(NAME, ask, judged, own=found if isinstance(found, str) else None)


def _canary(effect: Effect) -> tuple[str, ...]:
    there = "both pools"
    if isinstance(effect, SplitServing):
        there = f"{effect.prefill.nodes.pool.instance_type} and {effect.decode.nodes.pool.instance_type}"
    return (
        f"Run the fewest replicas of prefill and decode on {there} behind the gateway; send them one request in a hundred.",
        "Compare for a day time to first token and time per token with today's, and a busy replica's tokens with the plan's.",
    )


LEVER = Lever(
    name=NAME,
    title="Disaggregate",
    meaning="Serves prompts and answers of a language model on nodes of their own, each scaled by its own tokens",
    page="how-to/disaggregate-serving.md",
    stage=CompositionStage.FORM,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=2.0, per="class", first_weeks=3.0),
    first_steps=(
        EffortStep("a gateway that routes prompts to prefill and answers to decode (llm-d, Dynamo)", 6.0),
        EffortStep("caches handed over between nodes: connector, network, images", 6.0),
        EffortStep("autoscalers on tokens for two sets of pods, their series beside the dashboards", 3.0),
    ),
    steps=(
        EffortStep("read the emitted pools, sets and autoscalers, and have them merged", 2.0),
        EffortStep("a day of one request in a hundred, with both times compared", 3.0),
        EffortStep("the rest of the requests, and the replicas of before kept for a week", 5.0),
    ),
    risk=Risk.HIGH,
    rollback="send all requests to the replicas of before again; keep their Deployment until a week has passed",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=6,
)

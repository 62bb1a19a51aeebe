"""Serve prompts (prefill) and answers (decode) of a language model on nodes of their own, each scaled by its own tokens.

Offered where a plan knows what it must (`levers.served_models`). Both halves keep the targets at the low end of their speed.

`physics.disaggregated` finds pairs of nodes for the busiest minutes; each half's times by load are replayed by the engine's
scheduler (`replay.disaggregated`), and a rule for each half is chosen with all other options of the service, by replay of its
recorded demand (`replay.outcomes.split_outcome`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, ServingHalf, SetReplicaPolicy, SplitServing, UseOffering
from trimtab.fleet.market import Offering
from trimtab.fleet.settings import Effort
from trimtab.fleet.token_work import TokenWork
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
)
from trimtab.levers.served_models import (
    KnownDemand,
    cheapest_pools,
    columns_of,
    demand_at_peak,
    drawn_requests,
    followed_usd,
    known_demand,
    offers_of,
    reason_where_known,
    today_usd,
    ways_held,
)
from trimtab.physics.disaggregated import DisaggregatedOption, Half, KvTransfer, search_disaggregated
from trimtab.physics.serving import FirstTokenCosts, default_step_tokens, first_token_fit
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_query import serving_keys
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.replay.disaggregated import (
    TimesByLoad,
    decode_pool,
    decode_times,
    prefill_pool,
    prefill_times,
)
from trimtab.replay.outcomes.service_model import floor_replicas
from trimtab.replay.outcomes.split_outcome import most_load_apart
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import BYTES_PER_GB

NAME = "disaggregation"
MOST_PAIRS = 4
"""Pairs of nodes that are replayed with every pair of rules, the cheapest at the busiest minutes first."""
MOST_TRIED = 24
"""Pairs whose times by load are looked at until so many can keep the targets."""
TARGET_LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Of what a replica of a half serves, at which its rule aims."""


def pairs(ask: LeverRequest) -> tuple[SplitServing, ...] | str:
    """Return the ways to serve apart that are worth a replay, or why there are none."""
    known = ask.once(known_demand)
    if isinstance(known, str):
        return known
    if ask.workload.pool.capacity_type.paid_anyway:
        return "its nodes are paid anyway"
    demand = demand_at_peak(ask, known)
    offers = offers_of(ask)
    found, unlinked = search_disaggregated(ways_held(ask, known), demand, scale=known.scale)
    worth = [pair for pair in found if not pair.caveats and _at_least_usd(pair, known) < today_usd(ask)]
    if not worth:
        if found:
            return "two pools cost more than today's nodes, even at the mean load"
        return unlinked[0].because if unlinked else "no pair of nodes holds the model and keeps the time per token"
    together, refused = next(iter(ask.once(cheapest_pools)), None), 0
    replayed = _ReplayedHalves(known)
    made: list[SplitServing] = []
    kept = 0
    for pair in [pair for pair in worth if _first_token_fits(pair, demand, ask)][:MOST_TRIED]:
        # most pairs cost more than one pool even where their targets let them run at full load: those need no replay
        if together is not None and _usd_followed(ask, pair, load=1.0) >= together.usd_hr:
            refused += 1
            continue
        splits = list(_splits(ask, replayed, pair, offers, demand))
        usd_hr = _usd_apart(ask, pair, splits)
        if together is not None and usd_hr >= together.usd_hr:
            refused += math.isfinite(usd_hr)
            continue
        made += [split for split in splits if ask.evaluator.hopeless(Deployment.of((NAME, split))) is None]
        kept += 1
        if kept == MOST_PAIRS:
            break
    if made:
        return tuple(made)
    if refused and together is not None:
        return f"one pool costs less at the same limits: {together.describe()}, as predicted for both ways"
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
    known = ask.once(known_demand)
    if isinstance(known, str):
        return known
    demand, offers = demand_at_peak(ask, known), offers_of(ask)
    ways = [
        replace(way, offers=(offer,))
        for way in ways_held(ask, known)
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
        split = next(iter(_splits(ask, _ReplayedHalves(known), pair, offers, demand)), None)
        return split or "requests pile up there at every load"
    if unlinked:
        return unlinked[0].because
    return f"{prefill.gpus} GPUs of {prefill.instance_type} or {decode.gpus} of {decode.instance_type} do not hold the model"


def _usd_apart(ask: LeverRequest, pair: DisaggregatedOption, splits: Sequence[SplitServing]) -> float:
    """Return what an hour costs on average where both halves follow the demand at the highest load that keeps the limits.

    At the low end of its speed, as for one pool; infinite where it keeps them at no load.
    """
    best = math.inf
    # of both halves' rules only decode's load moves a limit: it sets the part of the limit that decode has for itself
    by_load = {split.decode.scaling.hpa.target_frac: split for split in splits}
    for split in by_load.values():
        load = most_load_apart(ask.case, ask.evaluator.place(Deployment.of((NAME, split))))
        if load:
            best = min(best, _usd_followed(ask, pair, load))
    return best


def _usd_followed(ask: LeverRequest, pair: DisaggregatedOption, load: float) -> float:
    """Return what an hour costs on average where both halves follow the demand at a load of the low end of their speed."""
    return sum(
        followed_usd(ask, half.offer, half.query.tensor, half.replica_req_s * (half.time.value / half.time.high) * load)
        for half in (pair.prefill, pair.decode)
    )


def _first_token_fits(pair: DisaggregatedOption, demand: Demand, ask: LeverRequest) -> bool:
    """Return whether a mean prompt that waits for nothing is answered within every limit on first tokens, if all is slow."""
    slow_s = pair.prefill.time.high + pair.transfer.prompt_s(demand.input_tokens) + pair.decode.time.high
    limits = [target.limit_s for target in ask.case.targets if target.metric is TargetMetric.TTFT]
    return all(limit_s is None or slow_s <= limit_s for limit_s in limits)


def _at_least_usd(pair: DisaggregatedOption, known: KnownDemand) -> float:
    """Return what both pools cost an hour at least: parts of nodes that are at full load at the mean demand."""
    return sum(
        known.mean_req_s / half.replica_req_s * half.query.tensor / half.offer.gpus * half.offer.usd_hr[half.option]
        for half in (pair.prefill, pair.decode)
    )


class _ReplayedHalves:
    """Times by load of the halves of pairs: pairs share their halves, and each is replayed once."""

    def __init__(self, known: KnownDemand) -> None:
        self.known = known
        self._requests = drawn_requests(known)
        self._times = dict[tuple[object, ...], TimesByLoad | None]()

    def prefill(self, half: Half, transfer: KvTransfer) -> TimesByLoad | None:
        """Return the times of prompts until their cache has arrived; None where they pile up at every load."""
        key = (half.gpu.name, half.query.tensor, half.replica_req_s, transfer)
        if key not in self._times:
            step_tokens = default_step_tokens(half.gpu)
            columns = columns_of(half.query)
            pool = prefill_pool(*columns, replicas=1, step_tokens=step_tokens, scale=self.known.scale)
            self._times[key] = prefill_times(pool, transfer, self._costs(half), self._requests, half.replica_req_s)
        return self._times[key]

    def decode(self, half: Half) -> TimesByLoad | None:
        """Return the times of answers from when their cache arrived; None where they pile up at every load."""
        key = (half.gpu.name, half.query.tensor, half.replica_req_s, half.concurrency)
        if key not in self._times:
            columns = columns_of(half.query)
            pool = decode_pool(*columns, replicas=1, max_num_seqs=half.concurrency, scale=self.known.scale)
            self._times[key] = decode_times(pool, self._costs(half), self._requests, half.replica_req_s)
        return self._times[key]

    def _costs(self, half: Half) -> FirstTokenCosts:
        return first_token_fit().of(serving_keys(half.query))


def _splits(
    ask: LeverRequest,
    replayed: _ReplayedHalves,
    pair: DisaggregatedOption,
    offers: Mapping[str, Offering],
    demand: Demand,
) -> Iterator[SplitServing]:
    """Yield a pair of nodes with every pair of rules; nothing where requests pile up at every load."""
    known = replayed.known
    read, answered = replayed.prefill(pair.prefill, pair.transfer), replayed.decode(pair.decode)
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


def _halves(
    ask: LeverRequest, known: KnownDemand, half: Half, times: TimesByLoad, offering: Offering, work: TokenWork
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
            pools = cheapest_pools(LeverRequest(evaluator=applied.evaluator, market=applied.market))
            yield Fact(
                "cheapest single pool on any board and number of GPUs, at the same limits",
                "physics, nodes that follow the demand",
                f"${pools[0].usd_hr:,.2f} an hour: {pools[0].describe()}" if pools else "none keeps them",
            )
            yield speed_fact("speed of the less certain half beside its prediction", split.speed)
            carried = f"{split.prompt_mb:,.0f} MB in {split.prompt_ms:,.3g} ms"
            yield Fact("a mean prompt's cache to hand over", split.link, carried)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    return reason_where_known(NAME, ask.once(pairs), ask, judged)


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
        EffortStep("the rest of the requests, and the former replicas kept for a week", 5.0),
    ),
    risk=Risk.HIGH,
    rollback="send all requests to the former replicas again; keep their Deployment until a week has passed",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=6,
)

"""Replay a service: its own arrivals, served by replicas under another scaling policy.

Requests of many users come independently of one another, so that the counts inside a step are multinomial. The even split
that a mean suggests is too calm: a replica that serves one request in two seconds gets seven in 15 s, give or take three, and
an autoscaler that follows them holds the highest of its window. What clusters more than that inside a step is not known from
counts by step.

A service is a first-in-first-out fluid queue in front of identical replicas, in steps of 15 s (one HPA decision each). A
starting replica is billed and serves nothing for the cold start. A request meets a target if its wait in the queue is within
the target's limit, and then with the share that a replica reaches at that load. Gaps in the history stay gaps: nothing arrives
that counts, rules without a metric stand still, and what is running is billed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies import keda, rules, scaling, serving_stacks
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.keda import CronPolicy, KedaPolicy, keda_memory
from trimtab.policies.rules import Rule, RuleKind
from trimtab.policies.scaling import NO_LIMIT, SYNC_S, HpaPolicy, StaticReplicas, hpa_memory
from trimtab.policies.serving_stacks import (
    PLANNER_MEMORY,
    KnativePolicy,
    OutstandingPolicy,
    PlannerPolicy,
    SaturationPolicy,
    TokenAwarePolicy,
    TokenSaturationPolicy,
    TokenVelocityPolicy,
    knative_memory,
    outstanding_memory,
    token_aware_memory,
    token_saturation_memory,
)
from trimtab.replay.compiled import CountArray, admit, as_numbers
from trimtab.replay.fluid import (
    COLD_STARTS,
    GUARD_TIMES,
    ON_DEMAND,
    QUOTA_SHORT_S,
    REVERSALS,
    SCALE_UPS,
    STOPPED,
    Curves,
    GuardCurves,
    LoopDemand,
    LoopRule,
    LoopSpot,
    QueueTotals,
    SerialRequests,
    ServerShape,
    empty_totals,
    serve_history,
    wait_quantile,
)
from trimtab.replay.nodes import CountRuns, bill_each_node
from trimtab.replay.recorded import record, wanted_loads
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR


class SplitArrivals(NamedTuple):
    """Arrivals by step, each step's split at random over its decisions, in little memory."""

    counts: NDArray[np.unsignedinteger]
    """Whole requests by decision (n_steps, parts)."""
    weight: FloatArray
    """What each of them counts (n_steps,): a share of a request goes with the others; NaN where a step has no count."""

    def by_decision(self) -> FloatArray:
        """Return arrivals by decision (n_steps * parts,)."""
        return np.asarray((self.counts * self.weight[:, None]).reshape(-1), dtype=np.float64)


def split_at_random(arrivals: FloatArray, *, step_s: float, seed: Sequence[int]) -> SplitArrivals | None:
    """Return arrivals (n_steps,) split at random over the decisions of their steps; None where a step is one decision.

    Each step keeps its total; a step without a count (NaN) stays unknown. The same seed gives the same split.
    """
    parts = int(step_s) // SYNC_S
    if parts <= 1:
        return None
    known = ~np.isnan(arrivals)
    # a share of a request goes with the others: 2.5 are three, each of them counting as 5/6
    whole = np.ceil(np.where(known, arrivals, 0.0)).astype(np.int64)
    # independent users: the counts of equal parts are multinomial
    counts = np.random.default_rng(list(seed)).multinomial(whole, np.full(parts, 1.0 / parts))
    weight = np.where(whole > 0, arrivals / np.maximum(whole, 1), np.where(known, 0.0, np.nan))
    return SplitArrivals(counts.astype(np.min_scalar_type(int(counts.max(initial=0)))), weight)


def arrivals_by_decision(arrivals: FloatArray, *, step_s: float, seed: Sequence[int]) -> FloatArray:
    """Return arrivals (n_steps,) by decision (n_steps * step_s / SYNC_S,), split as `split_at_random` does."""
    split = split_at_random(arrivals, step_s=step_s, seed=seed)
    return arrivals if split is None else split.by_decision()


def usual_demand(demand: FloatArray, *, step_s: float) -> FloatArray:
    """Return demand by step (n_steps,) whose unknown steps (NaN) hold what was usual at that hour of the day.

    When monitoring is down, demand is not zero, and an autoscaler does not stand still for days: the gap is in the history, not
    in the cluster. An hour of the day that was never seen gets the mean of all that were; a demand that was never measured at
    all stays unknown.
    """
    known = ~np.isnan(demand)
    if known.all() or not known.any():
        return demand
    hour_of_day = (np.arange(len(demand)) * step_s // S_PER_HR).astype(np.int64) % HR_PER_DAY
    seen = np.bincount(hour_of_day[known], minlength=HR_PER_DAY)
    total = np.bincount(hour_of_day[known], weights=demand[known], minlength=HR_PER_DAY)
    # an hour of the day that was never seen takes the mean of all that was
    usual = np.where(seen > 0, total / np.maximum(seen, 1), demand[known].mean())
    return np.asarray(np.where(known, demand, usual[hour_of_day]), dtype=np.float64)


def shared_out(totals: FloatArray, like: FloatArray) -> FloatArray:
    """Return totals by step (n_steps,) by decision (n_decisions,), each shared out as `like` is within its step.

    Where that has nothing in a step, evenly.

    >>> shared_out(np.array([6.0, 4.0]), np.array([2.0, 1.0, 0.0, 0.0])).tolist()
    [4.0, 2.0, 2.0, 2.0]
    """
    parts = like.reshape(len(totals), -1)
    whole = parts.sum(axis=1, keepdims=True)
    share = np.divide(parts, whole, out=np.full_like(parts, 1.0 / parts.shape[1]), where=whole > 0)
    return np.asarray((share * totals[:, None]).reshape(-1), dtype=np.float64)


for _module in (scaling, keda, serving_stacks, rules):
    admit(_module)

ScalingPolicy = (
    StaticReplicas
    | HpaPolicy
    | CronPolicy
    | KedaPolicy
    | KnativePolicy
    | SaturationPolicy
    | TokenSaturationPolicy
    | PlannerPolicy
    | OutstandingPolicy
    | TokenAwarePolicy
    | TokenVelocityPolicy
    | ForecastPolicy
)

NO_HPA = HpaPolicy(target_frac=1.0, min_replicas=0, max_replicas=NO_LIMIT)
# The compiled loop takes one shape for all kinds: what a kind does not use is filled with these.
NO_RULE = Rule(
    kind=RuleKind.STATIC,
    hpa=NO_HPA,
    keda=KedaPolicy(NO_HPA),
    knative=KnativePolicy(1.0, 0, NO_LIMIT),
    saturation=SaturationPolicy(0, NO_LIMIT),
    token_saturation=TokenSaturationPolicy(NO_HPA),
    planner=PlannerPolicy(0, NO_LIMIT),
    outstanding=OutstandingPolicy(NO_HPA),
    token_aware=TokenAwarePolicy(NO_HPA),
    token_velocity=TokenVelocityPolicy(0, NO_LIMIT),
    replicas=0,
    lead_s=0,
    start_s=0,
)
ALL_ON_DEMAND = HedgePolicy(one_in=1)


NO_GUARDS = GuardCurves(np.zeros((0, len(GUARD_TIMES), 2)), np.zeros((0, len(GUARD_TIMES))), np.zeros(0))
_ROUNDING_FRAC = 1e-6
"""Far above what the sums of a replay round by: a stopped replay would have missed its target without doubt."""
QUEUE_LIMIT_S = 300.0
"""How long a request waits before it gives up, where no target allows more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceHistory:
    """What arrived at a service, step by step.

    `arrivals` `(n_steps,)` counts the requests of each step, NaN where unknown; `step_s` is a multiple of 15. Step 0
    starts on an hour boundary, `start_hour` hours after Monday 00:00 UTC. `within` `(n_decisions,)`, where given, is what rules
    see arrive in each 15 s; else a step's requests come evenly. `signal` `(n_steps,)` or `(n_decisions,)`, where given, is the
    number of replicas that recording rules ask for at the end of each, and `asked` `(n_decisions,)` the number that a timetable
    asks for beside. `seen_as` tells histories apart by what `within` counts and `asked` asks for.
    """

    arrivals: FloatArray
    step_s: float
    start_hour: int = 0
    signal: FloatArray | None = None
    within: FloatArray | None = None
    asked: FloatArray | None = None
    seen_as: Hashable = None

    def __post_init__(self) -> None:
        if self.step_s <= 0 or self.step_s % SYNC_S:
            raise ValueError(f"a step must be a multiple of {SYNC_S} s, got {self.step_s}")
        if self.signal is not None and len(self.signal) not in {len(self.arrivals), self.decisions}:
            raise ValueError(f"{len(self.signal)} signals for {len(self.arrivals)} steps")
        if self.within is not None and len(self.within) != self.decisions:
            raise ValueError(f"{len(self.within)} counts for {self.decisions} decisions")
        if self.asked is not None and len(self.asked) != self.decisions:
            raise ValueError(f"{len(self.asked)} numbers of replicas for {self.decisions} decisions")

    @property
    def decisions(self) -> int:
        """Return how many decisions there are: one every 15 s."""
        return len(self.arrivals) * (int(self.step_s) // SYNC_S)

    def load(self, model: ServiceModel) -> FloatArray:
        """Return the replicas that each step's arrivals keep busy, `(n_steps,)`."""
        return np.asarray(self.arrivals / (model.capacity_req_s * self.step_s), dtype=np.float64)

    def rate_seen(self) -> tuple[FloatArray, float]:
        """Return the requests/s that rules see, and every how many seconds: by decision, or by step if that is all."""
        if self.within is None:
            return np.asarray(self.arrivals / self.step_s, dtype=np.float64), self.step_s
        return np.asarray(self.within / SYNC_S, dtype=np.float64), float(SYNC_S)

    def by_decision(self, values: FloatArray) -> FloatArray:
        """Return values of each step, or of each decision, by decision."""
        repeats = self.decisions // max(len(values), 1)
        return np.ascontiguousarray(values if repeats <= 1 else np.repeat(values, repeats), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceModel:
    """How fast a replica is, how long it takes to start, and what it occupies.

    `load_grid` `(n_loads,)` ascends from 0; `ok_frac` `(n_targets, n_loads)` is the share of requests within each target on a
    replica at that load, the last value beyond the grid; `wait_limit_s` `(n_targets,)` is the longest wait in the queue that
    each target bears. Requests that would wait longer than `queue_limit_s` give up. `quota_replicas` is the most that may run.
    `cold_start_s` is a node's start, the pull of the image and the load of the model; a replica that finds room on a node that
    is up takes `warm_start_s` (the load; None: as long as any). A node that is empty stays up, and billed, for
    `empty_node_kept_s`. `beside` says whether room beside ready replicas counts, or only what they left.
    From the first of `closed_hours` to the second, counted from the history's start, nothing can be started. What rules see is
    `metrics_late_s` old.

    Rules see a queue where more comes than `full_req_s` (None: the capacity), which is more than a careful capacity.
    `guards` are what an autoscaler's triggers on latency read, over the same loads.

    `one_by_one_spread`, where given, says that a replica takes one request at a time, and how far their times scatter (standard
    deviation of the logarithm): rules see requests that wait for a free replica. None: of those beyond a fluid's rate.
    """

    capacity_req_s: float
    load_grid: FloatArray
    ok_frac: FloatArray
    wait_limit_s: FloatArray
    cold_start_s: float
    gpus_per_replica: float = 1.0
    gpus_per_node: int = 1
    queue_limit_s: float = QUEUE_LIMIT_S
    quota_replicas: int = NO_LIMIT
    warm_start_s: float | None = None
    empty_node_kept_s: float = 0.0
    beside: bool = True
    closed_hours: tuple[int, int] = (0, 0)
    metrics_late_s: float = 0.0
    full_req_s: float | None = None
    guards: GuardCurves = NO_GUARDS
    one_by_one_spread: float | None = None

    def __post_init__(self) -> None:
        if self.warm_start_s is not None and not 0 <= self.warm_start_s <= self.cold_start_s:
            raise ValueError(f"a start on a node that is up takes at most a cold start, got {self.warm_start_s} s")
        if not self.capacity_req_s > 0:
            raise ValueError(f"a replica must serve something, got {self.capacity_req_s} requests/s")
        if len(self.load_grid) < 2 or not np.all(self.load_grid[1:] > self.load_grid[:-1]):
            raise ValueError("load_grid must ascend and hold at least two loads")
        if np.shape(self.ok_frac) != (len(self.wait_limit_s), len(self.load_grid)):
            raise ValueError("ok_frac must have a row for each target and a column for each load")

    @property
    def replicas_per_node(self) -> float:
        """Return how many replicas a node holds; below 1 where a replica spans nodes."""
        if self.gpus_per_replica <= self.gpus_per_node:
            return float(math.floor(self.gpus_per_node / self.gpus_per_replica + scaling.ROUNDING))
        return 1.0 / math.ceil(self.gpus_per_replica / self.gpus_per_node - scaling.ROUNDING)

    @property
    def room_per_node(self) -> float:
        """Return how many replicas a node is assumed to hold where one looks for room to start in."""
        return self.replicas_per_node if self.beside else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceReplay:
    """What a policy would have cost, and how many requests it would have served in time.

    `node_seconds` and `gpu_seconds` are by clock hour, `runs` the replicas ready and starting by decision. `unmet` counts
    requests that gave up; `quota_short_replica_s` what the policy wanted beyond the quota; `reversals` the changes from growing
    to shrinking or back; `cold_starts` equals the replicas started, `scale_ups` the decisions that started any. `queued_s` is
    the longest wait of each step's requests, where asked for. Where a replay `stopped`, because a target was out of reach, `ok`
    counts what it did not come to as in time, and the rest ends there.
    """

    node_seconds: IntArray
    gpu_seconds: IntArray
    runs: CountRuns
    decisions_per_step: int
    requests: float
    ok: FloatArray
    wait_p95_s: float
    wait_p99_s: float
    gap_steps: int
    scale_ups: int
    cold_starts: int
    unmet: float
    quota_short_replica_s: int
    reversals: int
    wait_p50_s: float
    queued_s: FloatArray
    stopped: bool = False

    @property
    def held(self) -> CountArray:
        """Return the replicas, ready and starting, at each decision `(n_decisions,)`."""
        return self.runs.counts()

    @property
    def most_replicas(self) -> int:
        """Return the most replicas, ready and starting, at once."""
        return int(self.runs.levels.max(initial=0))

    @property
    def replicas(self) -> CountArray:
        """Return the replicas, ready and starting, at the end of each step of the history `(n_steps,)`."""
        return self.runs.every(self.decisions_per_step)

    def on_nodes(self, model: ServiceModel) -> ServiceReplay:
        """Return what the same replicas take on the nodes of a model: only the bill depends on these."""
        node_seconds, gpu_seconds = seconds_held(model, self.runs)
        return replace(self, node_seconds=node_seconds, gpu_seconds=gpu_seconds)

    @property
    def attained_frac(self) -> FloatArray:
        """Return the share of requests within each target; 1 where none came."""
        if self.requests <= 0:
            return np.ones_like(self.ok)
        return np.asarray(self.ok / self.requests)

    @property
    def replica_hr(self) -> float:
        """Return replica-hours, starting ones included, at the history's step."""
        return float(self.gpu_seconds.sum()) / S_PER_HR


def rule_of(policy: ScalingPolicy, *, start_hour: int = 0) -> LoopRule:
    """Return a policy in the shape that the loop takes: rule, timetable, fresh memory."""
    rule = NO_RULE._replace(start_s=start_hour * S_PER_HR)
    by_hour = np.zeros(1, dtype=np.int64)
    memory = [0.0]
    match policy:
        case StaticReplicas():
            rule = rule._replace(replicas=policy.replicas)
        case HpaPolicy():
            rule, memory = rule._replace(kind=RuleKind.HPA, hpa=policy), hpa_memory(policy)
        case ForecastPolicy():
            rule, memory = rule._replace(kind=RuleKind.HPA, hpa=policy.hpa), hpa_memory(policy.hpa)
        case KedaPolicy():
            rule, memory = rule._replace(kind=RuleKind.KEDA, keda=policy), keda_memory(policy)
        case KnativePolicy():
            rule, memory = rule._replace(kind=RuleKind.KNATIVE, knative=policy), knative_memory(policy)
        case SaturationPolicy():
            rule = rule._replace(kind=RuleKind.SATURATION, saturation=policy)
        case TokenSaturationPolicy():
            rule = rule._replace(kind=RuleKind.TOKEN_SATURATION, token_saturation=policy)
            memory = token_saturation_memory(policy)
        case PlannerPolicy():
            rule, memory = rule._replace(kind=RuleKind.PLANNER, planner=policy), [0.0] * PLANNER_MEMORY
        case OutstandingPolicy():
            rule, memory = rule._replace(kind=RuleKind.OUTSTANDING, outstanding=policy), outstanding_memory(policy)
        case TokenAwarePolicy():
            rule, memory = rule._replace(kind=RuleKind.TOKEN_AWARE, token_aware=policy), token_aware_memory(policy)
        case TokenVelocityPolicy():
            rule = rule._replace(kind=RuleKind.TOKEN_VELOCITY, token_velocity=policy)
        case CronPolicy():
            rule, by_hour = rule._replace(kind=RuleKind.CRON, lead_s=policy.lead_s), _timetable(policy)
        case _:
            assert_never(policy)
    return LoopRule(rule=as_numbers(rule), by_hour=by_hour, memory=np.asarray(memory))


def _timetable(policy: CronPolicy) -> IntArray:
    if len(policy.replicas_by_hour) not in (HR_PER_DAY, HR_PER_WEEK):
        raise ValueError(f"a timetable has 24 or 168 hours, got {len(policy.replicas_by_hour)}")
    return np.asarray(policy.replicas_by_hour, dtype=np.int64)


def replay_service(
    history: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    *,
    initial_replicas: int,
    by_step: bool = False,
    required_frac: FloatArray | None = None,
) -> ServiceReplay:
    """Replay a service's history under a policy, from `initial_replicas` ready ones; the same input gives the same bytes.

    `by_step` keeps each step's longest wait, for a picture. `required_frac` `(n_targets,)`, where given, are shares below which
    nothing counts: the replay stops where one of them is out of reach, whatever comes.
    """
    totals = serve(
        history, model, policy, initial_replicas=initial_replicas, by_step=by_step, required_frac=required_frac
    )
    return _replay(history, model, totals)


def serve(
    history: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    *,
    initial_replicas: int,
    hedge_policy: HedgePolicy = ALL_ON_DEMAND,
    spells: Flags | None = None,
    by_step: bool = False,
    required_frac: FloatArray | None = None,
) -> QueueTotals:
    """Run the compiled loop over a history; `spells` `(n_zones, steps of 15 s)` says which zone gives spot when, None: none."""
    substeps = int(history.step_s) // SYNC_S
    steps = len(history.arrivals) * substeps
    # an array without rows instead of None: the compiled loop has one signature
    up = np.zeros((0, steps), dtype=np.bool_) if spells is None else np.ascontiguousarray(spells)
    if up.shape[1] != steps:
        raise ValueError(f"{up.shape[1]} steps of spot availability for {steps} of history")
    totals = empty_totals(
        lanes=1 + len(up),
        decisions=steps,
        targets=len(model.wait_limit_s),
        queued_steps=len(history.arrivals) if by_step else 0,
    )
    serve_history(
        LoopDemand(
            arrivals=np.ascontiguousarray(history.arrivals, dtype=np.float64),
            within=history.by_decision(history.arrivals / substeps if history.within is None else history.within),
            signal=signal_of(history, model, policy),
            # as for a signal, a single place stands for none
            asked=np.zeros(1) if history.asked is None else history.asked,
            substeps=substeps,
        ),
        shape_of(model),
        curves_of(model),
        model.guards,
        _in_turn(history, model),
        rule_of(policy, start_hour=history.start_hour),
        LoopSpot(hedge_policy=hedge_policy, up=up),
        initial_replicas,
        allowed_misses(history, model, required_frac),
        totals,
    )
    return totals


def _in_turn(history: ServiceHistory, model: ServiceModel) -> SerialRequests:
    """Return requests that replicas answer one at a time; a fluid's where so many are in progress that hardly any waits."""
    spread = model.one_by_one_spread
    most = float(np.nanmax(history.load(model), initial=0.0)) if spread is not None else 0.0
    told = spread is not None and most <= _AT_WORK_AT_MOST
    return SerialRequests(
        takes_s=_times_taken(spread) / model.capacity_req_s if told and spread is not None else np.zeros(0),
        ends_s=np.zeros(2 * _PLACES if told else 0),
        counts=np.zeros(4, dtype=np.int64),
        part=np.zeros(1),
    )


_AT_WORK_AT_MOST = 64.0
"""Of 64 requests in progress on 91 replicas, full to 70 %, one in 2,000 waits (Erlang C): a fluid has the same queue."""
_PLACES = 1024
_TIMES = 4096


@lru_cache(maxsize=64)
def _times_taken(spread: float) -> FloatArray:
    """Return log-normal times (n_draws,) with a mean of 1 whose logarithm scatters so far: each quantile once, shuffled."""
    quantiles = (np.random.default_rng(_TIMES).permutation(_TIMES) + 0.5) / _TIMES
    times = np.exp(spread * np.array([_NORMAL.inv_cdf(quantile) for quantile in quantiles.tolist()]))
    return np.asarray(times / times.mean(), dtype=np.float64)


_NORMAL = NormalDist()


def allowed_misses(history: ServiceHistory, model: ServiceModel, required_frac: FloatArray | None) -> FloatArray:
    """Return how many requests may miss each target, a little more than the required shares say, for the sake of rounding."""
    if required_frac is None:
        return np.full(len(model.wait_limit_s), np.inf)
    # requests that were not counted cannot miss a target
    return np.asarray((1.0 - required_frac + _ROUNDING_FRAC) * np.nansum(history.arrivals), dtype=np.float64)


def signal_of(history: ServiceHistory, model: ServiceModel, policy: ScalingPolicy) -> FloatArray:
    """Return what the recording rules ask for at each decision: given, or evaluated for a policy that brings its own."""
    if history.signal is not None:
        return history.by_decision(history.signal)
    if isinstance(policy, ForecastPolicy):
        rate, step_s = history.rate_seen()
        told = record(rate, step_s=step_s, rules=policy.rules)
        return history.by_decision(wanted_loads(policy, rate, told, step_s=step_s, replica_load=model.capacity_req_s))
    # the loop takes a single place for no signal at all
    return np.full(1, np.nan)


def shape_of(model: ServiceModel) -> ServerShape:
    """Return what the compiled replay needs to know of a service's replicas, times in its steps."""
    return ServerShape(
        capacity_req_s=model.capacity_req_s,
        # up to whole steps: a start is never shorter than stated
        cold_steps=math.ceil(model.cold_start_s / SYNC_S - scaling.ROUNDING),
        warm_steps=math.ceil(
            (model.cold_start_s if model.warm_start_s is None else model.warm_start_s) / SYNC_S - scaling.ROUNDING
        ),
        kept_steps=math.ceil(model.empty_node_kept_s / SYNC_S - scaling.ROUNDING),
        room_per_node=model.room_per_node,
        queue_limit_s=model.queue_limit_s,
        quota_replicas=model.quota_replicas,
        closed_from=model.closed_hours[0] * S_PER_HR // SYNC_S,
        closed_to=model.closed_hours[1] * S_PER_HR // SYNC_S,
        full_req_s=model.capacity_req_s if model.full_req_s is None else model.full_req_s,
        late_steps=math.ceil(model.metrics_late_s / SYNC_S - scaling.ROUNDING),
    )


def curves_of(model: ServiceModel) -> Curves:
    """Return the shares within each target by load, laid out for the compiled replay."""
    return Curves(
        load_grid=np.ascontiguousarray(model.load_grid, dtype=np.float64),
        ok_frac=np.ascontiguousarray(model.ok_frac, dtype=np.float64),
        wait_limit_s=np.ascontiguousarray(model.wait_limit_s, dtype=np.float64),
    )


def seconds_held(
    model: ServiceModel, held: CountRuns, *, kept_s: float | None = None, spreads: bool = False, moves: bool = True
) -> tuple[IntArray, IntArray]:
    """Return the node-seconds and GPU-seconds by hour of a course of replicas, one count for each 15 s.

    All that is planned, proved, or read from files is billed so. An empty node is kept for `kept_s` (None: as long as the model
    says). What `spreads` and `moves` mean for replicas that share nodes: `bill_each_node`; as they stand, they are what emitted
    files say.
    """
    kept_steps = math.ceil((model.empty_node_kept_s if kept_s is None else kept_s) / SYNC_S - scaling.ROUNDING)
    if model.replicas_per_node < 2:
        # no two replicas share a node: nodes follow from the counts alone
        return _counted(model, held, kept_steps)
    shape, gpu_seconds = shape_of(model), _gpu_seconds(model, held)
    start_steps, nodes = (shape.cold_steps, shape.warm_steps), np.zeros(len(gpu_seconds), dtype=np.int64)
    bill_each_node(held.counts(), int(model.replicas_per_node), kept_steps, start_steps, spreads, moves, nodes)
    return nodes, gpu_seconds


def least_seconds_held(model: ServiceModel, held: CountRuns) -> tuple[IntArray, IntArray]:
    """Return a bound from below on the seconds of `seconds_held`, however replicas are placed, and for more of them too."""
    # a node that is drained goes at once: of nodes that several share none is sure to be kept
    return _counted(model, held, 0 if model.replicas_per_node >= 2 else shape_of(model).kept_steps)


def _counted(model: ServiceModel, held: CountRuns, kept_steps: int) -> tuple[IntArray, IntArray]:
    return held.node_seconds(model.replicas_per_node, kept_steps), _gpu_seconds(model, held)


def _gpu_seconds(model: ServiceModel, held: CountRuns) -> IntArray:
    # a replica may hold a part of a GPU: rounded once an hour, after all sums
    return np.asarray(np.rint(held.replica_seconds() * model.gpus_per_replica), dtype=np.int64)


def unseen_requests(history: ServiceHistory, totals: QueueTotals) -> float:
    """Return the requests that a replay which stopped did not come to; 0 where it ran to the end."""
    return float(np.nansum(history.arrivals)) - float(totals.requests[0]) if totals.counts[STOPPED] else 0.0


def _replay(history: ServiceHistory, model: ServiceModel, totals: QueueTotals) -> ServiceReplay:
    unseen = unseen_requests(history, totals)
    runs = CountRuns.of(totals.held[ON_DEMAND])
    node_seconds, gpu_seconds = seconds_held(model, runs)
    return ServiceReplay(
        node_seconds=node_seconds,
        gpu_seconds=gpu_seconds,
        runs=runs,
        decisions_per_step=int(history.step_s) // SYNC_S,
        requests=float(totals.requests[0]) + unseen,
        ok=totals.ok + unseen,
        wait_p50_s=wait_quantile(totals.waits, 0.5),
        queued_s=totals.queued_s,
        wait_p95_s=wait_quantile(totals.waits, 0.95),
        wait_p99_s=wait_quantile(totals.waits, 0.99),
        gap_steps=int(np.isnan(history.arrivals).sum()),
        scale_ups=int(totals.counts[SCALE_UPS]),
        cold_starts=int(totals.counts[COLD_STARTS]),
        unmet=float(totals.requests[1]),
        quota_short_replica_s=int(totals.counts[QUOTA_SHORT_S]),
        reversals=int(totals.counts[REVERSALS]),
        stopped=bool(totals.counts[STOPPED]),
    )

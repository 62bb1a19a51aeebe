"""Scaling policies by name, tuned on a service's own history and replayed beside a lower bound of hindsight's cost.

Further metrics of an autoscaler follow a plus sign: `keda:70+queue:5+kv:95+wait:1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.errors import UnknownName, UsageError
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.notebook import ShownInNotebook
from trimtab.policies.forecast import ForecastPolicy, forecast_policy
from trimtab.policies.keda import CronPolicy, KedaPolicy
from trimtab.policies.scaling import NO_LIMIT, ROUNDING, HpaPolicy, Metric, Others, StaticReplicas
from trimtab.policies.serving_stacks import (
    KnativePolicy,
    OutstandingPolicy,
    PlannerPolicy,
    SaturationPolicy,
    TokenAwarePolicy,
    TokenSaturationPolicy,
    TokenVelocityPolicy,
    token_saturation,
)
from trimtab.replay.recorded import ForecastSeries, record, wanted_loads
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, ServiceReplay, replay_service
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN


def needed_replicas(load: FloatArray) -> IntArray:
    """Return the replicas that serve each step's load without queueing; an unknown load needs what the step before needed."""
    # unknown loads count as none here; the next lines put the latest known one in their place
    need = np.ceil(np.nan_to_num(load, nan=-1.0) - ROUNDING).astype(np.int64)
    known = np.maximum.accumulate(np.where(np.isnan(load), 0, np.arange(len(load))))
    return np.maximum(need[known], 0)


def clairvoyant_replica_hr(load: FloatArray, *, step_s: float, cold_start_s: float) -> float:
    """Return the least replica-hours that serve every step without queueing, starts billed.

    The k-th replica runs whenever the load needs k; over a gap it costs the lesser of staying and starting again. Replicas are
    alike, so this is exact, level by level (interval cover with a start cost). A start before the first step is free.
    """
    need = needed_replicas(load)
    billed_s = 0.0
    for level in range(1, int(need.max(initial=0)) + 1):
        # edges of the stretches in which the load needs this level: rises and falls in turn
        edges = np.flatnonzero(np.diff(np.concatenate([[0], need >= level, [0]]).astype(np.int8)))
        starts, ends = edges[::2], edges[1::2]
        gaps_s = (starts[1:] - ends[:-1]) * step_s
        billed_s += float((ends - starts).sum()) * step_s
        # a gap costs the cheaper of staying up and starting again
        billed_s += float(np.minimum(gaps_s, cold_start_s).sum()) + (cold_start_s if starts[0] > 0 else 0.0)
    return billed_s / S_PER_HR


SLACK_FRAC = 0.5
"""For targets of 99.9 %, where one surge more than the fit window had is much of what is permitted."""
WARM_UP_S = 10 * S_PER_MIN
"""The rules need some past before they are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPolicy:
    """A tuned policy and how it did on the fit window; `feasible` is False where it missed the required share."""

    policy: ForecastPolicy
    replay: ServiceReplay
    feasible: bool


def tune_scaling(
    history: ServiceHistory,
    model: ServiceModel,
    *,
    required_frac: float | FloatArray,
    slack_frac: float = SLACK_FRAC,
    target_frac: float = 1.0,
    min_replicas: int = 1,
    max_replicas: int = NO_LIMIT,
    down_stabilization_s: int = 300,
) -> TunedPolicy:
    """Return the cheapest policy that keeps `required_frac` of the requests within each target over the window, with slack.

    `slack_frac` is the share of the permitted misses that the window may use up; the rest is for what it did not hold.

    The margin learns by itself; what is searched is the least floor of replicas that the share needs, which helps where
    requests are too few or too bunched to forecast. Where the target is out of reach, the best one is returned, not feasible.
    """
    wanted_frac = np.atleast_1d(1.0 - (1.0 - np.asarray(required_frac)) * slack_frac)
    start = forecast_policy(
        cold_start_s=model.cold_start_s,
        required_frac=float(np.max(required_frac)),
        mean_req_s=float(np.nanmean(history.arrivals)) / history.step_s,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        target_frac=target_frac,
        down_stabilization_s=down_stabilization_s,
    )
    rate, step_s = history.rate_seen()
    recorded = record(rate, step_s=step_s, rules=start.rules)
    return _tune_floor(history, model, recorded, start, wanted_frac)


def preference(choice: TunedPolicy) -> tuple[bool, float, int, int]:
    """Order choices: feasible ones by billed nodes, then by GPUs; others by how near they come to what they miss most."""
    missed = 0.0 if choice.feasible else 1.0 - float(choice.replay.attained_frac.min())
    replay = choice.replay
    return not choice.feasible, missed, int(replay.node_seconds.sum()), int(replay.gpu_seconds.sum())


def _tune_floor(
    history: ServiceHistory,
    model: ServiceModel,
    recorded: ForecastSeries,
    policy: ForecastPolicy,
    wanted_frac: FloatArray,
) -> TunedPolicy:
    """Return the rule over the least floor of replicas, by bisection, that reaches the wanted share."""

    def over(floor: int) -> TunedPolicy:
        hpa = policy.hpa._replace(min_replicas=floor)
        return _try(history, model, recorded, policy._replace(hpa=hpa), wanted_frac)

    low = policy.hpa.min_replicas
    best = over(low)
    # the margin alone suffices: no floor is needed
    if best.feasible:
        return best
    need = int(needed_replicas(history.load(model)).max(initial=1))
    # a floor beyond twice the highest need is not looked for
    high = max(low, min(policy.hpa.max_replicas, max(1, need) * 2))
    best = over(high)
    # `high` is the least floor known to keep the share, or the bound; `low` is known not to
    while high - low > 1:
        middle = (low + high) // 2
        choice = over(middle)
        if choice.feasible:
            high, best = middle, choice
        else:
            low = middle
    return best


def _warm(history: ServiceHistory, signal: FloatArray | None = None) -> ServiceHistory:
    """Return the history after its warm-up, if it is long enough to have one, with a signal that saw all of it."""
    # a short history is judged whole
    first = math.ceil(WARM_UP_S / history.step_s)
    first = first if len(history.arrivals) > 2 * first else 0

    def rest(values: FloatArray | None) -> FloatArray | None:
        # a signal has one place a step or several: the same stretch is cut from either
        return None if values is None else values[first * (len(values) // len(history.arrivals)) :]

    return replace(history, arrivals=history.arrivals[first:], signal=rest(signal), within=rest(history.within))


def _try(
    history: ServiceHistory,
    model: ServiceModel,
    recorded: ForecastSeries,
    policy: ForecastPolicy,
    wanted_frac: FloatArray,
) -> TunedPolicy:
    rate, step_s = history.rate_seen()
    wanted = wanted_loads(policy, rate, recorded, step_s=step_s, replica_load=model.capacity_req_s)
    warm = _warm(history, wanted)
    replay = replay_service(warm, model, policy, initial_replicas=forecast_first_replicas(policy, warm.signal))
    return TunedPolicy(policy=policy, replay=replay, feasible=bool(np.all(replay.attained_frac >= wanted_frac)))


def forecast_first_replicas(policy: ForecastPolicy, wanted: FloatArray | None) -> int:
    """Return the replicas that a rule would be running when its signal begins."""
    known = np.array([]) if wanted is None else wanted[~np.isnan(wanted)]
    first = float(known[0]) if len(known) else 0.0
    return max(policy.hpa.min_replicas, math.ceil(first / policy.hpa.target_frac))


NAMES = (
    "static", "hpa", "hpa-duty", "keda", "knative", "saturation", "saturation-tokens", "token-aware", "token-velocity",
    "dynamo", "dynamo-load", "tokens", "cron", "forecast",
)  # fmt: skip
USUAL_PERCENT = 70.0
METRICS = ("duty", "queue", "kv", "wait")
"""Further metrics: percent busy, seconds of waiting work per replica, percent of the KV cache, seconds of waiting."""
CRON_HEADROOM = 1.1
WITH_OTHERS = ("hpa", "hpa-duty", "keda")
_SHARES = ("hpa", "hpa-duty", "keda", "knative", "token-velocity", "tokens")
"""Policies whose number is a share of what a replica serves."""
_MOST_PERCENT = 100.0
FORECAST_LOADS = tuple(round(0.1 * step, 1) for step in range(1, 11))
"""Loads per replica that the forecasting rule is tuned at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitContext:
    """What a policy is made from: a fit window of history, the service, its targets, and how many replicas it may have."""

    history: ServiceHistory
    model: ServiceModel
    required_frac: FloatArray
    observed_replicas: int
    min_replicas: int
    max_replicas: int
    slack_frac: float = 0.75
    """Share of the permitted misses that the forecasting rule may use up on the fit window."""


def expanded(text: str) -> list[str]:
    """Return the policies that a sweep names: `hpa:50..90:5` is hpa:50, hpa:55, ... hpa:90; others stand for themselves."""
    found = re.fullmatch(r"([a-z-]+):(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?::(\d+(?:\.\d+)?))?", text)
    if not found:
        return [text]
    name, first, last = found[1], float(found[2]), float(found[3])
    step = float(found[4]) if found[4] else (last - first) / 10 or 1.0
    if last < first or step <= 0:
        raise UsageError(f"{text!r} sweeps nothing: write NAME:FROM..TO:STEP with FROM <= TO and STEP > 0")
    # the tolerance keeps the last step where a quotient falls short of a whole number by rounding
    count = math.floor((last - first) / step + 1e-9) + 1
    return [f"{name}:{first + i * step:g}" for i in range(count)]


def named_policy(text: str, fit: FitContext) -> ScalingPolicy:
    """Return the policy that a name means for a service; raises UnknownName or UsageError."""
    first, *further = text.split("+")
    name, _, number = first.partition(":")
    if name not in NAMES:
        raise UnknownName("policy", name, NAMES)
    if further and name not in WITH_OTHERS:
        raise UsageError(f"policy {text!r}: only {', '.join(WITH_OTHERS)} take further metrics")
    value = _number(text, name, number) if number else None
    if name in _SHARES and value is not None and value > _MOST_PERCENT:
        raise UsageError(f"policy {text!r}: PERCENT is of what a replica serves, {_MOST_PERCENT:g} at most")
    others = _others(text, further)
    target = (USUAL_PERCENT if value is None else value) / 100
    low, high = fit.min_replicas, fit.max_replicas
    match name:
        case "static":
            return StaticReplicas(fit.observed_replicas if value is None else math.ceil(value))
        case "hpa":
            return HpaPolicy(target, low, high, others=others)
        case "hpa-duty":
            return HpaPolicy(target, low, high, Metric.DUTY_CYCLE, others=others)
        case "keda":
            # KEDA may go to no replica at all
            return KedaPolicy(HpaPolicy(target, 0, high, others=others))
        case "knative":
            return KnativePolicy(target, low, high)
        case "saturation":
            return SaturationPolicy(low, high)
        case "saturation-tokens":
            return token_saturation(low, high)
        case "token-aware":
            return TokenAwarePolicy(HpaPolicy(1.0, low, high))
        case "token-velocity":
            return TokenVelocityPolicy(low, high, engine_load=1.0 if value is None else target)
        case "dynamo" | "dynamo-load":
            load = 1.0 if value is None else target
            return PlannerPolicy(low, high, engine_load=load, scales_by_load=name == "dynamo-load")
        case "tokens":
            return OutstandingPolicy(HpaPolicy(target, low, high))
        case "cron":
            return timetable(fit, 1.0 if value is None else target)
        case _:
            return _forecast(fit, value)


def _number(text: str, name: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError as error:
        raise UsageError(f"policy {text!r}: {number!r} is not a number; write {name}:70") from error
    if not 0 < value < math.inf:
        raise UsageError(f"policy {text!r}: the number must be above 0")
    return value


def _others(text: str, further: Sequence[str]) -> Others:
    """Return the targets of further metrics, each `NAME:NUMBER`."""
    targets = dict.fromkeys(METRICS, 0.0)
    for part in further:
        name, _, number = part.partition(":")
        if name not in METRICS:
            raise UnknownName("metric", name, METRICS)
        targets[name] = _number(text, name, number)
    return Others(
        duty_cycle_frac=targets["duty"] / 100,
        queue_replica_s=targets["queue"],
        kv_cache_frac=targets["kv"] / 100,
        wait_s=targets["wait"],
    )


def timetable(fit: FitContext, target_frac: float) -> CronPolicy:
    """Return replicas by hour of the week: the most that the fit window's same hours needed, and a tenth more."""
    need = needed_replicas(fit.history.load(fit.model) / target_frac)
    per_hour = max(1, round(S_PER_HR / fit.history.step_s))
    by_hour = np.zeros(HR_PER_WEEK, dtype=np.int64)
    for first in range(0, len(need), per_hour):
        hour = (fit.history.start_hour + first // per_hour) % HR_PER_WEEK
        by_hour[hour] = max(by_hour[hour], need[first : first + per_hour].max())
    # hours that the fit window did not hold get what its highest one needed
    by_hour[by_hour == 0] = need.max(initial=1)
    replicas = np.ceil(by_hour * CRON_HEADROOM).astype(int)
    return CronPolicy(
        tuple(int(max(fit.min_replicas, min(fit.max_replicas, count))) for count in replicas),
        lead_s=math.ceil(fit.model.cold_start_s),
    )


def _forecast(fit: FitContext, percent: float | None) -> ScalingPolicy:
    loads = FORECAST_LOADS if percent is None else (percent / 100,)
    tuned = [
        tune_scaling(
            fit.history,
            fit.model,
            required_frac=fit.required_frac,
            target_frac=load,
            slack_frac=fit.slack_frac,
            min_replicas=fit.min_replicas,
            max_replicas=fit.max_replicas,
        )
        for load in loads
    ]
    return min(tuned, key=preference).policy


OSCILLATES_PER_HR = 6.0
"""From so many turns between growing and shrinking an hour on, a policy is called oscillating."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyRun(ShownInNotebook):
    """One policy over one history. `over_clairvoyant` is replica-hours over the fewest that serve every step unqueued.

    `keeps` says whether every target was kept; `undominated` whether no other run was both cheaper and no worse.
    """

    name: str
    policy: ScalingPolicy
    replay: ServiceReplay
    over_clairvoyant: float
    keeps: bool
    undominated: bool
    notes: tuple[str, ...]

    @property
    def worst_attained_frac(self) -> float:
        """Return the least share of requests within any target."""
        return float(self.replay.attained_frac.min(initial=1.0))


def compare(
    history: ServiceHistory,
    model: ServiceModel,
    policies: Mapping[str, ScalingPolicy],
    *,
    required_frac: FloatArray,
    past: ServiceHistory | None = None,
) -> list[PolicyRun]:
    """Replay every policy over a history; `past` is the history before it, which recording rules have seen."""
    load = history.load(model)
    best_hr = clairvoyant_replica_hr(load, step_s=history.step_s, cold_start_s=model.cold_start_s)
    runs = []
    for name, policy in policies.items():
        replay = replay_service(
            _with_signal(history, model, policy, past),
            model,
            policy,
            initial_replicas=first_replicas(policy, load),
            by_step=True,
        )
        runs.append((name, policy, replay))
    # whole seconds, so that equal costs compare as equal
    costs = np.array([replay.node_seconds.sum() for _, _, replay in runs], dtype=np.int64)
    shares = np.array([replay.attained_frac.min(initial=1.0) for _, _, replay in runs])
    return [
        PolicyRun(
            name=name,
            policy=policy,
            replay=replay,
            over_clairvoyant=replica_hr(replay, history) / best_hr if best_hr else float("nan"),
            keeps=bool(np.all(replay.attained_frac >= required_frac)),
            undominated=_undominated(at, costs, shares),
            notes=tuple(_notes(replay, history)),
        )
        for at, (name, policy, replay) in enumerate(runs)
    ]


def replica_hr(replay: ServiceReplay, history: ServiceHistory) -> float:
    """Return replica-hours, starting ones included."""
    return float(replay.replicas.sum()) * history.step_s / S_PER_HR


def first_replicas(policy: ScalingPolicy, load: FloatArray) -> int:
    """Return the replicas that a policy would be running when a history begins."""
    known = load[~np.isnan(load)]
    need = max(1, int(np.ceil(known[0]))) if len(known) else 1
    match policy:
        case StaticReplicas():
            return policy.replicas
        case CronPolicy():
            return policy.replicas_by_hour[0]
        case HpaPolicy():
            return max(policy.min_replicas, int(np.ceil(need / policy.target_frac)))
        case ForecastPolicy() | KedaPolicy():
            return max(1, policy.hpa.min_replicas, int(np.ceil(need / policy.hpa.target_frac)))
        case OutstandingPolicy() | TokenAwarePolicy() | TokenSaturationPolicy():
            return max(policy.hpa.min_replicas, need * 2)
        case _:
            return max(policy.min_replicas, need * 2)


def _with_signal(
    history: ServiceHistory, model: ServiceModel, policy: ScalingPolicy, past: ServiceHistory | None
) -> ServiceHistory:
    if not isinstance(policy, ForecastPolicy) or past is None:
        return history
    (before, _), (rate, step_s) = past.rate_seen(), history.rate_seen()
    # recorded as one series, because the rules' windows reach back over the seam
    whole = np.concatenate([before, rate])
    told = record(whole, step_s=step_s, rules=policy.rules)
    wanted = wanted_loads(policy, whole, told, step_s=step_s, replica_load=model.capacity_req_s)
    return replace(history, signal=wanted[len(before) :])


def _undominated(at: int, costs: IntArray, shares: FloatArray) -> bool:
    # no worse in both, better in one
    better = (costs <= costs[at]) & (shares >= shares[at]) & ((costs < costs[at]) | (shares > shares[at]))
    return not bool(better.any())


def _notes(replay: ServiceReplay, history: ServiceHistory) -> Sequence[str]:
    hours = len(history.arrivals) * history.step_s / S_PER_HR
    notes = []
    if hours and replay.reversals / hours >= OSCILLATES_PER_HR:
        notes.append(f"oscillates: turns {replay.reversals / hours:.0f} times an hour")
    if replay.quota_short_replica_s:
        notes.append(f"short of quota by {replay.quota_short_replica_s / S_PER_HR:,.0f} replica-hours")
    if replay.unmet > 0:
        notes.append(f"{replay.unmet / max(replay.requests, 1):.2%} of requests gave up")
    return notes

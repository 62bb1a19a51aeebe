"""Tune a service's scaling on a window of its own history: the least cost that keeps its target there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trimtab.policies.forecast import ForecastPolicy, forecast_policy
from trimtab.policies.scaling import NO_LIMIT
from trimtab.replay.clairvoyant import needed_replicas
from trimtab.replay.recorded import ForecastSeries, record, wanted_loads
from trimtab.replay.series import FloatArray
from trimtab.replay.services import ServiceHistory, ServiceModel, ServiceReplay, replay_service
from trimtab.units import S_PER_MIN

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
    replay = replay_service(warm, model, policy, initial_replicas=first_replicas(policy, warm.signal))
    return TunedPolicy(policy=policy, replay=replay, feasible=bool(np.all(replay.attained_frac >= wanted_frac)))


def first_replicas(policy: ForecastPolicy, wanted: FloatArray | None) -> int:
    """Return the replicas that a rule would be running when its signal begins."""
    known = np.array([]) if wanted is None else wanted[~np.isnan(wanted)]
    first = float(known[0]) if len(known) else 0.0
    return max(policy.hpa.min_replicas, math.ceil(first / policy.hpa.target_frac))

"""Scaling policies by name: `hpa:70`, `keda:80`, `cron`, `static:12`, `forecast`, and sweeps such as `hpa:50..90:5`.

Further metrics of an autoscaler follow a plus sign: `keda:70+queue:5+kv:95+wait:1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.errors import UnknownName, UsageError
from trimtab.policies.cron import CronPolicy
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.knative import KnativePolicy
from trimtab.policies.metrics import Others
from trimtab.policies.saturation import SaturationPolicy
from trimtab.policies.scaling import HpaPolicy, Metric, StaticReplicas
from trimtab.replay.clairvoyant import needed_replicas
from trimtab.replay.series import FloatArray
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel
from trimtab.replay.tuning import preference, tune_scaling
from trimtab.units import HR_PER_WEEK, S_PER_HR

NAMES = ("static", "hpa", "hpa-duty", "keda", "knative", "saturation", "cron", "forecast")
USUAL_PERCENT = 70.0
METRICS = ("duty", "queue", "kv", "wait")
"""Further metrics: percent busy, seconds of waiting work per replica, percent of the KV cache, seconds of waiting."""
CRON_HEADROOM = 1.1
WITH_OTHERS = ("hpa", "hpa-duty", "keda")
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
        case "cron":
            return timetable(fit, 1.0 if value is None else target)
        case _:
            return _forecast(fit, value)


def _number(text: str, name: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError as error:
        raise UsageError(f"policy {text!r}: {number!r} is no number; write {name}:70") from error
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

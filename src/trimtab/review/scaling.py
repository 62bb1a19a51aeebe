"""How many replicas an autoscaler's object would keep: HorizontalPodAutoscaler v2 and KEDA's ScaledObject as replayed policies.

An autoscaler that follows what history does not hold (`signals`) cannot be replayed, and is not judged.
Defaults are those of Kubernetes 1.34 (autoscaling/v2: 1 replica, tolerance 10 %, up by 100 % or 4 pods per 15 s, down to the
highest of 300 s) and KEDA 2.18 (minReplicaCount 0, maxReplicaCount 100, pollingInterval 30 s, cooldownPeriod 300 s).

What a ScaledObject says beyond the autoscaler that it makes is after kedacore/keda v2.20.2: pkg/fallback/fallback.go
(doFallback), apis/keda/v1alpha1/scaledobject_types.go (annotations, scalingModifiers), controllers/keda/hpa.go (pauses of one
direction), pkg/scalers/prometheus_scaler.go (`ignoreNullValues`: an empty answer is 0 unless it is false, and no fault that a
fallback would answer).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trimtab.deployment.effects import TimedReplicas
from trimtab.fleet.model import Window
from trimtab.fleet.token_work import TokenWork
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric, Others
from trimtab.review.manifests import RecordedSeries, Scaler
from trimtab.review.signals import Kind, Signal, formula_of, formula_queries, signals_of
from trimtab.review.timetables import timed_replicas
from trimtab.sources.kubernetes.objects import at, listed, number, quantity, text

_AT = "autoscaling.keda.sh/"
PAUSED, PAUSED_REPLICAS = f"{_AT}paused", f"{_AT}paused-replicas"
PAUSED_IN, PAUSED_OUT = f"{_AT}paused-scale-in", f"{_AT}paused-scale-out"
FORCED = f"{_AT}force-activation"
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go's strconv.ParseBool takes for false; KEDA takes what is no such word for true."""
_SAME_UNIT_FRAC = 1e-4
"""A recorded capacity is written with six digits: the same number as that of the replay."""
_KEDA_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """How many replicas are held once more than `failures` polls in a row got no metric."""

    failures: int
    replicas: int
    behavior: str

    def held(self, current: int) -> int:
        """Return the replicas that a fallback asks for beside so many that there are."""
        match self.behavior:
            case "currentReplicas":
                return current
            case "currentReplicasIfHigher":
                return max(current, self.replicas)
            case "currentReplicasIfLower":
                return min(current, self.replicas)
            case _:
                return self.replicas


def fallback_of(scaler: Scaler) -> Fallback | None:
    """Return the fallback of a ScaledObject; None where it has none, and for a HorizontalPodAutoscaler."""
    body = at(scaler.spec, "fallback")
    failures, replicas = number(body, "failureThreshold"), number(body, "replicas")
    if scaler.kind != "ScaledObject" or failures is None or replicas is None:
        return None
    return Fallback(failures=int(failures), replicas=int(replicas), behavior=text(body, "behavior") or "static")


def reads_absence_as_zero(scaler: Scaler) -> tuple[str, ...]:
    """Return the names of Prometheus triggers to which an empty answer is 0, and no fault."""
    return tuple(
        text(trigger, "name") or "prometheus"
        for trigger in listed(scaler.spec, "triggers")
        if text(trigger, "type") == "prometheus"
        and (text(trigger, "metadata", "ignoreNullValues") or "true") not in _FALSE
    )


def is_on(scaler: Scaler, annotation: str) -> bool:
    """Return whether an annotation is there and says no word for false."""
    said = scaler.annotations.get(annotation)
    return said is not None and said not in _FALSE


def paused(scaler: Scaler) -> bool:
    """Return whether nothing scales a workload: stated replicas pause it whatever else is said."""
    return is_on(scaler, PAUSED) or PAUSED_REPLICAS in scaler.annotations


def paused_at(scaler: Scaler) -> int | None:
    """Return the replicas at which a ScaledObject is paused; None where it is not, or at those that there are."""
    said = scaler.annotations.get(PAUSED_REPLICAS, "")
    return int(said) if said.isdigit() else None


def idles(scaler: Scaler) -> bool:
    """Return whether a ScaledObject goes to none although its autoscaler keeps more."""
    return scaler.kind == "ScaledObject" and number(scaler.spec, "idleReplicaCount") == 0


def may_go_to_none(scaler: Scaler) -> bool:
    """Return whether a ScaledObject gives up the last replica while no trigger is active.

    Not while it is told to be active, nor while it may not scale in (pkg/scaling/executor/scale_scaledobjects.go, RequestScale,
    scaleToZeroOrIdle).
    """
    held = is_on(scaler, FORCED) or is_on(scaler, PAUSED_IN)
    return not held and (idles(scaler) or bounds(scaler)[0] == 0)


def not_modelled(scaler: Scaler) -> str:
    """Say which part of an autoscaler decides how many replicas there are and is not modelled; empty where none does."""
    if (formula := formula_of(scaler)) and formula_queries(scaler) is None:
        return (
            f"of the formula {formula} (scalingModifiers) only sums of Prometheus triggers and their maximum are read"
        )
    return ""


def read_roughly(scaler: Scaler) -> Iterator[str]:
    """Yield what of a ScaledObject is passed over."""
    if scaler.kind != "ScaledObject":
        return
    if number(scaler.spec, "idleReplicaCount"):
        yield "idleReplicaCount above 0 is ignored: its autoscaler raises it to minReplicaCount at once"
    if number(scaler.spec, "initialCooldownPeriod"):
        yield "initialCooldownPeriod is ignored: it matters only after the object is created"
    for trigger in listed(scaler.spec, "triggers"):
        if at(trigger, "useCachedMetrics") is True:
            yield "useCachedMetrics is ignored: in reality its autoscaler sees what was polled last, not what is now"


def hours_of(scaler: Scaler, window: Window, notes: list[str]) -> tuple[TimedReplicas, ...] | str:
    """Return what the cron triggers of a ScaledObject ask for by the hour beside its others, or why that is not known.

    Each is a metric of its autoscaler like the others, of which the highest counts, and 0 outside its hours. Where a formula
    makes one metric of them all, a trigger that is not in it does not count.
    """
    triggers = [trigger for trigger in listed(scaler.spec, "triggers") if text(trigger, "type") == "cron"]
    found: list[TimedReplicas] = []
    for trigger in () if formula_of(scaler) else triggers:
        first, spans, last = (
            timed_replicas(trigger, moment)
            for moment in (window.start, window.start + (window.end - window.start) / 2, window.end)
        )
        name = text(trigger, "name") or "cron"
        if isinstance(spans, str):
            return f"{name}: {spans}"
        if first != last:
            notes.append(f"{name}: clocks are put forward or back within this history; replayed as set in its middle")
        found += spans
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Above which load (replicas), over which window, or above which waiting work a ScaledObject is active."""

    load: float
    window_s: int
    backlog_replica_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The policy that an object amounts to for one service, or why it cannot be replayed; and what was read roughly."""

    policy: HpaPolicy | ForecastPolicy | None
    refused: str = ""
    notes: tuple[str, ...] = ()
    outlives: bool = False
    """Whether a metric still shows requests while there is no pod."""
    activation: Activation | None = None
    """Of an autoscaler that goes to none: what keeps it awake."""
    never_asks: str = ""
    """Why it never asks for as many replicas as its load needs, where that is so."""
    cure: str = "lower the target, or follow requests"
    """Of what it never asks for."""
    counted_req_s: float = 0.0
    """What its metric takes a replica to serve; 1 where it counts requests as they are, 0 where it does not count them."""
    tokens: TokenWork | None = None
    """What each token counts of a mean request, where its metric goes by their work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What one replica does where it would run: the requests a second that it answers, the activity that it then shows, and
    which activity that is."""

    capacity_req_s: float
    full_frac: float
    signal: str
    most_frac: float = 1.0
    """The most activity that it shows before requests wait: more than `full_frac` where its capacity is a careful one."""
    seen_full: bool = True
    """Whether history tells where it is full."""
    tokens_counted: bool = False
    """Whether history holds the tokens that its server counted."""


def scaling_of(scaler: Scaler, replica: Replica, records: Sequence[RecordedSeries]) -> Scaling:
    """Return what an autoscaler does to a service of such replicas."""
    if unmodelled := not_modelled(scaler):
        return Scaling(policy=None, refused=unmodelled)
    signals = signals_of(scaler, records)
    if mistake := next((signal.mistake for signal in signals if signal.mistake), ""):
        cure = "sum over all of its pods, or compare their mean with a value (metricType: Value, target.value)"
        return Scaling(policy=None, refused=mistake, never_asks=mistake, cure=cure)
    unknown = [signal for signal in signals if signal.kind is Kind.UNKNOWN]
    if not signals or unknown:
        names = ", ".join(signal.name for signal in unknown) or "nothing"
        return Scaling(policy=None, refused=f"it follows {names}, which this history does not hold")
    leading = _leading(signals, replica)
    if not leading:
        return Scaling(
            policy=None, refused="it follows no load, only what waits or a limit: that is not modelled alone"
        )
    first = leading[0]
    if any(signal.kind is Kind.ACTIVITY for signal in leading) and replica.signal != "sm_active":
        return Scaling(
            policy=None, refused="it follows SM activity, and this history holds nvidia-smi's utilization only"
        )
    if first.tokens is not None and not replica.tokens_counted:
        return Scaling(policy=None, refused=f"{first.name} counts tokens, and this history holds no counters of them")
    counted = 0.0 if first.kind is Kind.ACTIVITY else first.divided_by
    return replace(_policy(scaler, first, signals, replica), counted_req_s=counted, tokens=first.tokens)


def _leading(signals: Sequence[Signal], replica: Replica) -> list[Signal]:
    """Return the metrics of load, the one first that the others are judged beside: a forecast, demand, then what saturates.

    Of those of one kind the lowest target asks for most replicas, and the highest recommendation counts (Kubernetes 1.34,
    pkg/controller/podautoscaler/horizontal.go, computeReplicasForMetrics).
    """
    order = [Kind.DEMAND, Kind.SERVED, Kind.ACTIVITY]
    found = [signal for signal in signals if signal.kind in order]
    return sorted(
        found, key=lambda signal: (signal.forecast is None, order.index(signal.kind), _target(signal, replica)[0])
    )


def _policy(scaler: Scaler, first: Signal, signals: list[Signal], replica: Replica) -> Scaling:
    target, tops_out = _target(first, replica)
    waits = [
        signal.target * signal.divided_by / replica.capacity_req_s for signal in signals if signal.kind is Kind.WAITING
    ]
    beside = [signal for signal in signals if signal.kind in (Kind.SERVED, Kind.ACTIVITY) and signal is not first]
    low, high = bounds(scaler)
    notes = [note for signal in signals for note in signal.notes]
    notes += [
        f"{signal.name} asks for more only beyond its limit: not replayed"
        for signal in signals
        if signal.kind is Kind.GUARD
    ]
    notes += [
        f"{signal.name} averages over {signal.window_s} s, and is replayed over {first.window_s} s as {first.name} is"
        for signal in signals
        if signal.kind in (Kind.DEMAND, Kind.SERVED, Kind.ACTIVITY) and signal.window_s != first.window_s
    ]
    notes += read_roughly(scaler)
    policy = HpaPolicy(
        target_frac=target,
        min_replicas=low,
        max_replicas=high,
        metric=Metric.DEMAND if first.kind is Kind.DEMAND else Metric.DUTY_CYCLE,
        others=Others(
            queue_replica_s=min(waits, default=0.0),
            duty_cycle_frac=min((_target(signal, replica)[0] for signal in beside), default=0.0),
        ),
        window_s=first.window_s,
    )
    behaving, roughly = _behaving(policy, scaler)
    if first.forecast is not None:
        return _forecast(behaving, first, first.forecast, (*notes, *roughly))
    return Scaling(
        policy=behaving,
        notes=(*notes, *roughly),
        never_asks=tops_out,
        outlives=any(signal.outlives for signal in signals),
        activation=_activation(signals, replica),
    )


def _activation(signals: Sequence[Signal], replica: Replica) -> Activation:
    """Return what keeps a ScaledObject awake: the trigger on load that is active first, and what waits.

    A trigger that counts arrivals only does not see what waits: under a threshold above 0 that keeps nothing awake.
    """
    asking = [signal for signal in signals if signal.kind in (Kind.DEMAND, Kind.SERVED, Kind.WAKE)]
    if not asking:
        return Activation(load=0.0, window_s=SYNC_S, backlog_replica_s=0.0)
    first = min(asking, key=lambda signal: (_activation_load(signal, replica), -signal.window_s))
    load = _activation_load(first, replica)
    waits = [
        signal.activation * signal.divided_by / replica.capacity_req_s
        for signal in signals
        if signal.kind is Kind.WAITING
    ]
    waits += [_activation_load(signal, replica) * SYNC_S for signal in asking if signal.kind is Kind.DEMAND]
    waits += [0.0] if load == 0.0 else []
    return Activation(load=load, window_s=first.window_s, backlog_replica_s=min(waits, default=math.inf))


def _activation_load(signal: Signal, replica: Replica) -> float:
    """Return the load, in replicas, above which a trigger is active; whether requests arrive is 0 or 1."""
    if signal.kind is Kind.WAKE:
        return 0.0 if signal.activation < 1.0 else math.inf
    return _target(replace(signal, target=signal.activation), replica)[0]


def _forecast(hpa: HpaPolicy, signal: Signal, seen: ForecastPolicy, notes: tuple[str, ...]) -> Scaling:
    """Return the forecasting policy, if its rules rely on the very autoscaler that follows them."""
    stated = (hpa.min_replicas, hpa.max_replicas, max(SYNC_S, hpa.down_stabilization_s))
    counted = (seen.hpa.min_replicas, seen.hpa.max_replicas, seen.hpa.down_stabilization_s)
    if stated != counted or not math.isclose(seen.hpa.target_frac, signal.target, rel_tol=_SAME_UNIT_FRAC):
        return Scaling(policy=None, refused=f"{signal.name}: its rules rely on another least, most, target or window")
    return Scaling(
        policy=ForecastPolicy(rules=seen.rules, hpa=hpa._replace(metric=Metric.SIGNAL, window_s=SYNC_S)), notes=notes
    )


def _target(signal: Signal, replica: Replica) -> tuple[float, str]:
    """Return a metric's target as a load per replica, and why it is never reached, where it is not."""
    if signal.kind is Kind.ACTIVITY:
        target = signal.target / replica.full_frac
        if signal.target < replica.most_frac:
            return target, ""
        guess = "" if replica.seen_full else ", as far as this history shows"
        return target, (
            f"a full replica shows {replica.most_frac:.0%} activity{guess}, and its target is {signal.target:.0%}: it never "
            "adds a replica"
        )
    same = math.isclose(signal.divided_by, replica.capacity_req_s, rel_tol=_SAME_UNIT_FRAC)
    served = signal.target if same else signal.target * signal.divided_by / replica.capacity_req_s
    if signal.kind is Kind.SERVED and served >= 1.0:
        return served, (
            f"a replica answers {replica.capacity_req_s:.3g} requests/s at most, and its target is "
            f"{signal.target * signal.divided_by:.3g}: it never adds a replica"
        )
    return served, ""


def bounds(scaler: Scaler) -> tuple[int, int]:
    """Return the fewest and the most replicas that an autoscaler keeps."""
    if scaler.kind == "ScaledObject":
        low, high = number(scaler.spec, "minReplicaCount"), number(scaler.spec, "maxReplicaCount")
        return int(low or 0), int(_KEDA_MOST if high is None else high)
    low, high = number(scaler.spec, "minReplicas"), number(scaler.spec, "maxReplicas")
    return int(1 if low is None else low), int(high or 0)


def _behaving(policy: HpaPolicy, scaler: Scaler) -> tuple[HpaPolicy, tuple[str, ...]]:
    """Return a policy with the behaviours that an object states, and what of them was read roughly."""
    keda = scaler.kind == "ScaledObject"
    path = ("advanced", "horizontalPodAutoscalerConfig", "behavior") if keda else ("behavior",)
    body = at(scaler.spec, *path)
    up, down = at(body, "scaleUp"), at(body, "scaleDown")
    low = max(1, policy.min_replicas)
    up_frac, up_pods, up_period = _direction(up, policy.up_frac, policy.up_pods, low)
    down_frac, down_pods, down_period = _direction(down, policy.down_frac, policy.down_pods, low)
    periods = {period for period in (up_period, down_period) if period is not None}
    behaving = policy._replace(
        up_stabilization_s=int(_default(number(up, "stabilizationWindowSeconds"), policy.up_stabilization_s)),
        down_stabilization_s=int(_default(number(down, "stabilizationWindowSeconds"), policy.down_stabilization_s)),
        tolerance_up_frac=_default(quantity(at(up, "tolerance")), policy.tolerance_up_frac),
        tolerance_down_frac=_default(quantity(at(down, "tolerance")), policy.tolerance_down_frac),
        up_frac=up_frac,
        up_pods=up_pods,
        down_frac=down_frac,
        down_pods=down_pods,
        period_s=max(periods, default=policy.period_s),
    )
    if is_on(scaler, PAUSED_IN):
        behaving = behaving._replace(down_frac=0.0, down_pods=0)
    if is_on(scaler, PAUSED_OUT):
        behaving = behaving._replace(up_frac=0.0, up_pods=0)
    roughly = []
    if len(periods) > 1:
        roughly.append("its directions count over different periods: replayed over the longer one")
    for name, body in (("scaleUp", up), ("scaleDown", down)):
        limits = listed(body, "policies")
        if len({number(limit, "periodSeconds") for limit in limits}) > 1:
            roughly.append(f"the policies of {name} count over different periods: replayed over the longest")
        if len(limits) > 1 and text(body, "selectPolicy") == "Min":
            roughly.append(
                f"selectPolicy Min of {name}: replayed by the policy that allows least from {low} replicas on"
            )
    return behaving, tuple(roughly)


def _default(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _direction(body: object, frac: float, pods: int, low: int) -> tuple[float, int, int | None]:
    """Return the share and the pods by which a direction may move per period, and the period; none where it is disabled.

    Of several policies the largest move counts, or with `selectPolicy: Min` the smallest; of a share and a number of pods the
    one that is smallest at `low` replicas.
    """
    if text(body, "selectPolicy") == "Disabled":
        return 0.0, 0, None
    limits = listed(body, "policies")
    if not limits:
        return frac, pods, None
    least = text(body, "selectPolicy") == "Min"
    shares, counts = (
        [number(limit, "value") or 0.0 for limit in limits if text(limit, "type") == form]
        for form in ("Percent", "Pods")
    )
    chosen = min if least else max
    share, count = chosen(shares, default=0.0) / 100, int(chosen(counts, default=0.0))
    if least and shares and counts:
        share, count = (share, 0) if share * low < count else (0.0, count)
    return share, count, int(max(number(limit, "periodSeconds") or SYNC_S for limit in limits))

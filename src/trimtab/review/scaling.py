"""How many replicas an autoscaler's object would keep: HorizontalPodAutoscaler v2 and KEDA's ScaledObject as replayed policies.

What a metric says is told by the series that its query ends in: requests, requests that wait, GPU activity. A metric that
history does not hold (CPU, memory, a queue elsewhere) cannot be replayed, and an autoscaler that follows it is not judged.
Defaults are those of Kubernetes 1.34 (autoscaling/v2: 1 replica, tolerance 10 %, up by 100 % or 4 pods per 15 s, down to the
highest of 300 s) and KEDA 2.18 (minReplicaCount 0, maxReplicaCount 100, pollingInterval 30 s, cooldownPeriod 300 s).

What a ScaledObject says beyond the autoscaler that it makes is after kedacore/keda v2.20.2: pkg/fallback/fallback.go
(doFallback), apis/keda/v1alpha1/scaledobject_types.go (annotations, scalingModifiers), controllers/keda/hpa.go (pauses of one
direction), pkg/scalers/prometheus_scaler.go (`ignoreNullValues`: an empty answer is 0 unless it is false, and no fault that a
fallback would answer).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trimtab.catalog.model_servers import SERVERS
from trimtab.fleet.token_work import TokenWork
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric, Others, window_steps
from trimtab.review.forecasts import LOAD, WANTED, Forecast, read_forecast
from trimtab.review.manifests import RecordedSeries, Scaler
from trimtab.sources.kubernetes.objects import at, listed, number, text
from trimtab.tables.workloads import averaged_over_s, ranges_of, rests_on_replicas

_AT = "autoscaling.keda.sh/"
PAUSED, PAUSED_REPLICAS = f"{_AT}paused", f"{_AT}paused-replicas"
PAUSED_IN, PAUSED_OUT = f"{_AT}paused-scale-in", f"{_AT}paused-scale-out"
FORCED = f"{_AT}force-activation"
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go's strconv.ParseBool takes for false; KEDA takes what is no such word for true."""


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
    if at(scaler.spec, "advanced", "scalingModifiers", "formula"):
        return "a formula over its triggers (scalingModifiers) decides, which is not modelled"
    return ""


def read_roughly(scaler: Scaler) -> Iterator[str]:
    """Yield what of a ScaledObject is passed over."""
    if scaler.kind != "ScaledObject":
        return
    if number(scaler.spec, "idleReplicaCount"):
        yield "idleReplicaCount above 0 is passed over: its autoscaler raises it to minReplicaCount at once"
    if number(scaler.spec, "initialCooldownPeriod"):
        yield "initialCooldownPeriod is passed over: it matters only after the object is made"
    for trigger in listed(scaler.spec, "triggers"):
        if at(trigger, "useCachedMetrics") is True:
            yield "useCachedMetrics is passed over: in truth its autoscaler sees what was polled last, not what is now"


_REQUESTS = re.compile(
    r"request[a-z_]*(total|count|per_second|rate)|request_success|num_requests_total|\brps\b|\bqps\b"
)
_WAITING = re.compile(r"requests?_waiting|queue_(size|depth|length)|num_queue_reqs|pending_requests?")
_PROMPTS, _ANSWERS, _CACHED = (
    frozenset(name for server in SERVERS for name in getattr(server, kind))
    for kind in ("prompt_tokens", "answer_tokens", "cached_tokens")
)
_WEIGHED = re.compile(
    r"sum by \(namespace, pod\) \(irate\((?P<name>[a-zA-Z_:][\w:]*)\{.*?\}\[\d+s\]\)\)"
    r" \* (?P<each>-?[0-9.]+(?:e[+-]?[0-9]+)?)"
)
"""Tokens times what one takes of a mean request."""
_SM_ACTIVE = re.compile(r"DCGM_FI_PROF_(SM|GR_ENGINE)_ACTIVE", re.IGNORECASE)
_GPU_UTIL = re.compile(r"DCGM_FI_DEV_GPU_UTIL|gpu_util|duty_cycle", re.IGNORECASE)
_RATE = re.compile(r"\b(i?rate|increase)\s*\(")
_LAST_TWO = frozenset({"irate", "idelta", "last_over_time"})
"""Functions that take the last two samples of their window, or the last, however long it is."""
_SCALED = re.compile(r"^(?P<whole>.+?)\s*(?P<by>[/*])\s*(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?)$", re.DOTALL)
_OPERATOR = re.compile(r"[-+*/%^<>=]|\b(?:and|or|unless)\b")
_CLAMPED = re.compile(r"^clamp_(?:min|max)\s*\((?P<inside>.*),\s*[0-9.]+\s*\)$", re.DOTALL)
_SUMMED = re.compile(r"^(?:sum|avg|max)\s*(?:(?:by|without)\s*\([^)]*\))?\s*(?P<inside>\(.*\))$", re.DOTALL)
_SELECTOR = re.compile(r"^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{[^}]*\})?\s*$")
_RECORDED = re.compile(r"\b([a-zA-Z_][a-zA-Z0-9_]*:[a-zA-Z0-9_:]+)(?:\{[^}]*\})?")
_FORECAST = re.compile(r"\b(deriv|predict_linear|holt_winters|double_exponential_smoothing)\s*\(|\boffset\b")
_GUARD = re.compile(r">\s*[0-9.]+.*\bor\s+vector\(0\)\s*$", re.DOTALL)
_HOLDS = re.compile(
    r"\((?P<demand>.+) < (?P<floor>[0-9.e+-]+) \* [^()]+\) or \((?P=demand) > (?P<target>[0-9.e+-]+) \* (?P<current>[^()]+)\)"
    r" or \((?P=target) \* (?P=current) and (?P=demand)\)"
)
"""Demand that asks for no fewer replicas than there are while those that are ready have enough to do: as a pods metric does."""
_MEAN_LOAD = re.compile(r"\((?P<demand>[^()]+) - (?P<load>[^()]+) \+ avg_over_time\((?P=load)\[(?P<window>\d+)s\]\)\)")
"""Demand with the mean load of a window in place of that of now."""
_EMPTY_WITHOUT_PODS = re.compile(r"sum\((?P<demand>.+)\) or \(vector\(0\) unless on \(\) \(.+ > 0\)\)", re.DOTALL)
"""Demand that reads 0, and is no fault, while no pod is ready to export it."""
_WAKES = re.compile(r"clamp_max\(ceil\(sum\((?P<query>.+)\)\), 1\)", re.DOTALL)
"""One replica while something is above 0."""
_SAME_UNIT_FRAC = 1e-4
"""A recorded capacity is written with six digits: the same number as that of the replay."""
_KEDA_MOST = 100


Records = Mapping[str, str]
"""Expression by recorded name."""


class Kind(Enum):
    """What a metric follows."""

    DEMAND = "requests that arrive"
    SERVED = "requests that are answered"
    ACTIVITY = "GPU activity"
    WAITING = "requests that wait"
    GUARD = "a limit, beyond which it asks for more"
    HOURS = "hours of the week"
    WAKE = "whether anybody asks"
    UNKNOWN = "what this history does not hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One metric of an autoscaler: what it follows, its target per replica in the series' own unit, and what the series was
    divided by."""

    kind: Kind
    name: str
    target: float
    divided_by: float = 1.0
    window_s: int = SYNC_S
    """Over which it averages."""
    outlives: bool = False
    """Whether it still tells of requests while there is no pod."""
    activation: float = 0.0
    """Above which a trigger is active, in the series' own unit."""
    forecast: Forecast | None = None
    notes: tuple[str, ...] = ()
    tokens: TokenWork | None = None
    """What each token counts of a mean request, where it goes by their work."""


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
    """Whether a metric still tells of requests while there is no pod."""
    activation: Activation | None = None
    """Of an autoscaler that goes to none: what keeps it awake."""
    tops_out: str = ""
    """Why it can never ask for more, where that is so."""
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
    keda = scaler.kind == "ScaledObject"
    known = _records_of(scaler, records)
    signals = list(_triggers(scaler, known) if keda else _metrics(scaler, known))
    unknown = [signal for signal in signals if signal.kind in (Kind.UNKNOWN, Kind.HOURS)]
    if not signals or unknown:
        names = ", ".join(signal.name for signal in unknown) or "nothing"
        return Scaling(policy=None, refused=f"it follows {names}, which this history does not hold")
    if unmodelled := not_modelled(scaler):
        return Scaling(policy=None, refused=unmodelled)
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


def _records_of(scaler: Scaler, records: Sequence[RecordedSeries]) -> dict[str, str]:
    """Return what each recorded series of its namespace is; of several of one name, that with its workload's label."""
    own_records = [record for record in records if record.namespace == scaler.namespace]
    target = text(scaler.spec, "scaleTargetRef", "name")
    own = {record.name: record.expression for record in own_records if target in record.labels.values()}
    times = Counter(record.name for record in own_records)
    return {record.name: record.expression for record in own_records if times[record.name] == 1} | own


def _policy(scaler: Scaler, first: Signal, signals: list[Signal], replica: Replica) -> Scaling:
    target, tops_out = _target(first, replica)
    waits = [signal.target / replica.capacity_req_s for signal in signals if signal.kind is Kind.WAITING]
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
        tops_out=tops_out,
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
    waits = [signal.activation / replica.capacity_req_s for signal in signals if signal.kind is Kind.WAITING]
    waits += [_activation_load(signal, replica) * SYNC_S for signal in asking if signal.kind is Kind.DEMAND]
    waits += [0.0] if load == 0.0 else []
    return Activation(load=load, window_s=first.window_s, backlog_replica_s=min(waits, default=math.inf))


def _activation_load(signal: Signal, replica: Replica) -> float:
    """Return the load, in replicas, above which a trigger is active; whether somebody asks is 0 or 1."""
    if signal.kind is Kind.WAKE:
        return 0.0 if signal.activation < 1.0 else math.inf
    return _target(replace(signal, target=signal.activation), replica)[0]


def _forecast(hpa: HpaPolicy, signal: Signal, seen: Forecast, notes: tuple[str, ...]) -> Scaling:
    """Return the forecasting policy, if its rules count on the very autoscaler that follows them."""
    stated = (hpa.min_replicas, hpa.max_replicas, max(SYNC_S, hpa.down_stabilization_s))
    counted = (seen.min_replicas, seen.max_replicas, seen.held_for_s)
    if stated != counted or not math.isclose(seen.target_frac, signal.target, rel_tol=_SAME_UNIT_FRAC):
        return Scaling(policy=None, refused=f"{signal.name}: its rules count on another least, most, target or window")
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


def _metrics(scaler: Scaler, records: Records) -> Iterator[Signal]:
    for metric in listed(scaler.spec, "metrics"):
        form = text(metric, "type")
        body = at(metric, form[:1].lower() + form[1:])
        if form in ("Resource", "ContainerResource"):
            yield Signal(kind=Kind.UNKNOWN, name=f"{text(body, 'name')} of its pods", target=0.0)
            continue
        name = text(body, "metric", "name")
        target = at(body, "target")
        value = _quantity(at(target, "averageValue"))
        if value is None:
            yield Signal(kind=Kind.UNKNOWN, name=f"{name} (a target that is no average value)", target=0.0)
        else:
            yield _signal(name, value, scaler, records)


def _triggers(scaler: Scaler, records: Records) -> Iterator[Signal]:
    for trigger in listed(scaler.spec, "triggers"):
        form, name = text(trigger, "type"), text(trigger, "name") or text(trigger, "type")
        if form == "cron":
            yield Signal(kind=Kind.HOURS, name=f"hours ({name})", target=0.0)
        elif form == "prometheus":
            query = text(trigger, "metadata", "query")
            value = _quantity(at(trigger, "metadata", "threshold"))
            if value is None or text(trigger, "metricType") == "Value":
                yield Signal(kind=Kind.UNKNOWN, name=f"{name} (a target that is no average value)", target=0.0)
            else:
                active_above = _quantity(at(trigger, "metadata", "activationThreshold"))
                yield replace(_signal(query, value, scaler, records, name), activation=active_above or 0.0)
        else:
            yield Signal(kind=Kind.UNKNOWN, name=f"{form} ({name})", target=0.0)


def _quantity(value: object) -> float | None:
    """Return a Kubernetes quantity without a unit, or with m for thousandths; None where it is none."""
    found = re.fullmatch(r"([0-9.]+)(m?)", str(value)) if value is not None else None
    return None if found is None else float(found[1]) / (1000.0 if found[2] else 1.0)


def _signal(query: str, target: float, scaler: Scaler, records: Records, name: str = "") -> Signal:
    """Return what a query follows, with every recorded series in it replaced by what it records."""
    said = name or query
    wakes = _WAKES.fullmatch(query.strip())
    if wakes is not None:
        asked = _written_out(wakes["query"], records)
        outlives = rests_on_replicas(asked) is None
        return Signal(kind=Kind.WAKE, name=said, target=target, window_s=_window_s(asked), outlives=outlives)
    held = _EMPTY_WITHOUT_PODS.fullmatch(query.strip())
    query = _spelled(held["demand"] if held else query, records)
    if _GUARD.search(_recorded(query, records) or query):
        return Signal(kind=Kind.GUARD, name=said, target=target)
    forecast = _forecast_of(query, scaler, records)
    if forecast is not None:
        load = records.get(LOAD, "")
        return Signal(
            kind=Kind.DEMAND,
            name=said,
            target=target,
            divided_by=_divisor(load),
            forecast=forecast,
            tokens=_tokens(load),
        )
    query, window_s = _demand_of(_recorded(query, records) or query)
    written = _written_out(query, records)
    if _FORECAST.search(written):
        return Signal(kind=Kind.UNKNOWN, name=f"{said} (a forecast of a form that is not known)", target=0.0)
    window_s, notes = max(window_s, _window_s(written)), _other_windows(said, written)
    if _SM_ACTIVE.search(written):
        return Signal(kind=Kind.ACTIVITY, name=said, target=target, window_s=window_s, notes=notes)
    if _GPU_UTIL.search(written):
        return Signal(kind=Kind.UNKNOWN, name=f"{said} (nvidia-smi's utilization: how it moves with load", target=0.0)
    tokens = _tokens(written)
    if tokens is not None or (_REQUESTS.search(written) and (_RATE.search(written) or _SELECTOR.match(written))):
        arriving = bool(_WAITING.search(written))
        return Signal(
            kind=Kind.DEMAND if arriving else Kind.SERVED,
            name=said,
            target=target,
            divided_by=_divisor(written),
            window_s=window_s,
            notes=notes,
            outlives=rests_on_replicas(written) is None,
            tokens=tokens,
        )
    if _WAITING.search(written):
        outlives = rests_on_replicas(written) is None
        return Signal(kind=Kind.WAITING, name=said, target=target, notes=notes, outlives=outlives)
    return Signal(kind=Kind.UNKNOWN, name=said, target=target)


def _tokens(expression: str) -> TokenWork | None:
    """Return what an expression takes each token for, in mean requests, where it is of the form that `emit` writes.

    The form is the work of prompts' and answers' tokens, and requests that wait beside it; None for any other.
    """
    each = {found["name"]: float(found["each"]) for found in _WEIGHED.finditer(expression)}
    prompts, answers, cached = (
        next((each[name] for name in each if name in names), None) for names in (_PROMPTS, _ANSWERS, _CACHED)
    )
    if prompts is None or answers is None or not _WAITING.search(expression):
        return None
    return TokenWork(input_req=prompts, output_req=answers, cached_req=prompts + (cached or 0.0))


def _window_s(expression: str) -> int:
    """Return the longest window over which an expression averages, in whole decisions of the autoscaler.

    >>> _window_s("rate(a[5m]) + idelta(b[30s]) / 15"), _window_s("irate(a[2m])"), _window_s("avg_over_time(c[299s])")
    (300, 15, 300)
    """
    return window_steps(averaged_over_s(expression)) * SYNC_S


def _other_windows(said: str, expression: str) -> tuple[str, ...]:
    """Say which functions look back in a way that the replay does not."""
    return tuple(
        f"{said} has {name} over {span}: replayed as what it is now"
        for name, span in ranges_of(expression)
        if name not in _LAST_TWO
    )


def _demand_of(query: str) -> tuple[str, int]:
    """Return the demand that an expression holds up, and the window over which its load is averaged."""
    held = _HOLDS.fullmatch(query)
    demand = held["demand"] if held else query
    mean = _MEAN_LOAD.fullmatch(demand)
    return (mean["demand"], int(mean["window"]) + 1) if mean else (demand, SYNC_S)


def _forecast_of(query: str, scaler: Scaler, records: Records) -> Forecast | None:
    """Return the forecast that a series is the last of; None where it is none."""
    found = _SELECTOR.match(query)
    if found is None or found[1] != WANTED:
        return None
    workload = text(scaler.spec, "scaleTargetRef", "name")
    return read_forecast(records, f'{{namespace="{scaler.namespace}",workload="{workload}"}}')


def _divisor(expression: str) -> float:
    """Return the number that a whole expression is divided by, inside sums and clamps; 1 where it is not.

    >>> _divisor("clamp_min(sum by (namespace) ((rate(a[1m]) + b / 15) / 8.6), 0)"), _divisor("rate(a[1m]) + b / 15")
    (8.6, 1.0)
    >>> _divisor("sum(rate(a[1m])) / 16"), _divisor("sum by (pod) (rate(a[1m])) * 0.5")
    (16.0, 2.0)
    """
    inside = expression.strip()
    while True:
        found = _CLAMPED.match(inside) or _SUMMED.match(inside)
        if found and _is_one(found["inside"]):
            inside = found["inside"].strip()
        elif inside.startswith("(") and _closes(inside) == len(inside) - 1:
            inside = inside[1:-1].strip()
        else:
            break
    found = _SCALED.match(inside)
    if found is None or not float(found["number"]) or _OPERATOR.search(_outside(found["whole"])):
        return 1.0
    return float(found["number"]) if found["by"] == "/" else 1.0 / float(found["number"])


def _outside(expression: str) -> str:
    """Return what of an expression stands in no bracket."""
    depth, left = 0, ""
    for letter in expression:
        depth -= letter in ")}]"
        left += letter if depth == 0 else ""
        depth += letter in "({["
    return left


def _is_one(text: str) -> bool:
    """Return whether what was found inside a call is one balanced expression."""
    return text.count("(") == text.count(")")


def _closes(text: str) -> int:
    """Return where the parenthesis that a text begins with is closed; -1 where it begins with none."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place if letter == ")" else -1
    return -1


def _spelled(query: str, records: Records) -> str:
    """Return a query with a recorded series' name as it was recorded: metrics APIs spell colons as `_`."""
    found = _SELECTOR.match(query)
    return {name.replace(":", "_"): name for name in records}.get(found[1], query) if found else query


def _recorded(query: str, records: Records) -> str | None:
    """Return what a query that is one recorded series records; None where it is more, or none."""
    found = _SELECTOR.match(query)
    return records.get(found[1]) if found else None


def _written_out(query: str, records: Records) -> str:
    """Return what the first series of a query records, down to what servers export."""
    for _ in records:
        found = next((match[1] for match in _RECORDED.finditer(query) if match[1] in records), None)
        if found is None:
            break
        # of several series that an expression combines, the first says what is followed
        query = records[found]
    return query


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
        tolerance_up_frac=_default(_quantity(at(up, "tolerance")), policy.tolerance_up_frac),
        tolerance_down_frac=_default(_quantity(at(down, "tolerance")), policy.tolerance_down_frac),
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

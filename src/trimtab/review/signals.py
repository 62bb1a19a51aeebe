"""What the metrics of an autoscaler follow: known by the series that a query ends in, down to what servers export.

Requests, requests that wait, GPU activity, a guard, whether anybody asks. A metric that history does not hold (CPU, memory, a
queue elsewhere) is unknown. Kubernetes divides an external metric by its average value as if it were a sum, and compares it
with its value in proportion to the replicas that are ready (kubernetes/kubernetes v1.34, pkg/controller/podautoscaler/
replica_calculator.go, GetExternalPerPodMetricReplicas and GetExternalMetricReplicas). So a mean over pods with an average value
asks for a few replicas, however many are busy.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trimtab.catalog.model_servers import PROXIES, SERVERS
from trimtab.emit.manifests.demand_rules import LOAD, LOAD_WANTED
from trimtab.emit.manifests.forecast_rules import read_forecast
from trimtab.fleet.token_work import TokenWork
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import SYNC_S, window_steps
from trimtab.review.manifests import RecordedSeries, Scaler
from trimtab.sources.kubernetes.objects import at, listed, quantity, text
from trimtab.tables.workloads import averaged_over_s, ranges_of, rests_on_replicas

_REQUESTS = re.compile(
    r"request[a-z_]*(total|count|per_second|rate)|request_success|num_requests_total|\brps\b|\bqps\b"
)
_PROXIED = frozenset(name for proxy in PROXIES for name in proxy.completed)
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
_AGGREGATED = re.compile(
    r"^(?P<how>sum|avg|max|min|quantile|stddev|count)\s*(?P<kept>(?:by|without)\s*\([^)]*\))?\s*(?=\()"
)
_KEPT = re.compile(r"(?:by|without)\s*\([^)]*\)|")
_PER_POD = re.compile(r"^/\s*.*(kube_(pod|deployment|replicaset|statefulset)_|\bup\b|replicas)", re.DOTALL)
"""Divided by how many pods there are."""
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_OUTCOMES = frozenset(
    {"status", "code", "status_code", "response_code", "http_response_code", "grpc_code", "outcome", "result", "error"}
)
"""Labels that tell how a request ended."""
_GOOD = re.compile(r"2|\b0\b|OK|ok|success|\.\+|\.\*|false|none")
_OF_SOME = frozenset({"method", "path", "route", "uri", "handler", "tenant", "user", "model", "model_name", "priority"})
"""Labels by which one workload's requests are told apart."""
_POD_LABELS = frozenset({"pod", "exported_pod", "pod_name"})
_OF_POD = re.compile(r"\bpod\s*=~?")
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
    """Whether it still shows requests while there is no pod."""
    activation: float = 0.0
    """Above which a trigger is active, in the series' own unit."""
    forecast: ForecastPolicy | None = None
    notes: tuple[str, ...] = ()
    tokens: TokenWork | None = None
    """What each token counts of a mean request, where it goes by their work."""
    mistake: str = ""
    """Why it never asks for what its target says."""


def _records_of(scaler: Scaler, records: Sequence[RecordedSeries]) -> dict[str, str]:
    """Return what each recorded series of its namespace is; of several of one name, that with its workload's label."""
    own_records = [record for record in records if record.namespace == scaler.namespace]
    target = text(scaler.spec, "scaleTargetRef", "name")
    own = {record.name: record.expression for record in own_records if target in record.labels.values()}
    times = Counter(record.name for record in own_records)
    return {record.name: record.expression for record in own_records if times[record.name] == 1} | own


def signals_of(scaler: Scaler, recorded: Sequence[RecordedSeries]) -> list[Signal]:
    """Return what each metric of an autoscaler follows."""
    records = _records_of(scaler, recorded)
    if scaler.kind != "ScaledObject":
        return list(_metrics(scaler, records))
    return list((_composite if formula_of(scaler) else _triggers)(scaler, records))


def _metrics(scaler: Scaler, records: Records) -> Iterator[Signal]:
    metrics = listed(scaler.spec, "metrics")
    if not metrics:
        yield Signal(kind=Kind.UNKNOWN, name="cpu of its pods (it names no metric of autoscaling/v2)", target=0.0)
    for metric in metrics:
        form = text(metric, "type")
        body = at(metric, form[:1].lower() + form[1:])
        if form in ("Resource", "ContainerResource"):
            yield Signal(kind=Kind.UNKNOWN, name=f"{text(body, 'name')} of its pods", target=0.0)
            continue
        name = text(body, "metric", "name")
        average, value = (quantity(at(body, "target", key)) for key in ("averageValue", "value"))
        yield _compared(name, (average, value), scaler, records, of_pods=form == "Pods")


def _triggers(scaler: Scaler, records: Records) -> Iterator[Signal]:
    for trigger in listed(scaler.spec, "triggers"):
        form, name = text(trigger, "type"), text(trigger, "name") or text(trigger, "type")
        if form == "cron":
            yield Signal(kind=Kind.HOURS, name=f"hours ({name})", target=0.0)
        elif form == "prometheus":
            threshold = quantity(at(trigger, "metadata", "threshold"))
            targets = (None, threshold) if text(trigger, "metricType") == "Value" else (threshold, None)
            found = _compared(text(trigger, "metadata", "query"), targets, scaler, records, name)
            active_above = quantity(at(trigger, "metadata", "activationThreshold"))
            yield replace(found, activation=active_above or 0.0)
        else:
            yield Signal(kind=Kind.UNKNOWN, name=f"{form} ({name})", target=0.0)


def formula_of(scaler: Scaler) -> str:
    """Return the formula over its triggers by which a ScaledObject scales; empty where each counts by itself."""
    return text(scaler.spec, "advanced", "scalingModifiers", "formula") if scaler.kind == "ScaledObject" else ""


def _composite(scaler: Scaler, records: Records) -> Iterator[Signal]:
    """Yield what a formula follows, beside the triggers on CPU and memory, which stay as they are.

    Its value is the one metric, an average value unless it says otherwise, and is active above its own `activationTarget`
    (kedacore/keda v2.20.2, controllers/keda/hpa.go and pkg/scaling/modifiers/formula.go). Of a maximum each part may stand
    for itself, since the highest recommendation counts.
    """
    for trigger in listed(scaler.spec, "triggers"):
        if text(trigger, "type") in ("cpu", "memory"):
            yield Signal(kind=Kind.UNKNOWN, name=f"{text(trigger, 'type')} of its pods", target=0.0)
    formula, body = formula_of(scaler), at(scaler.spec, "advanced", "scalingModifiers")
    queries = formula_queries(scaler)
    target = quantity(at(body, "target"))
    targets = (None, target) if text(body, "metricType") == "Value" else (target, None)
    for query in queries or ():
        found = _compared(
            query, targets, scaler, records, f"the formula {formula}" if len(queries or ()) == 1 else query
        )
        yield replace(found, activation=quantity(at(body, "activationTarget")) or 0.0)


def formula_queries(scaler: Scaler) -> tuple[str, ...] | None:
    """Return a formula as queries, of which the one that asks for most counts; None where it is no such.

    Read are weighted sums of Prometheus triggers and the highest of several: their values are numbers, so that a sum of them is
    the query that sums what they query.
    """
    queries = {
        text(trigger, "name"): text(trigger, "metadata", "query")
        for trigger in listed(scaler.spec, "triggers")
        if text(trigger, "type") == "prometheus"
    }
    try:
        parsed = ast.parse(formula_of(scaler).strip(), mode="eval").body
        sums = [_weights(part) for part in _highest_of(parsed)]
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):  # what no person writes is no sum either
        return None
    if not all(part and part.keys() <= queries.keys() and min(part.values()) > 0 for part in sums):
        return None
    return tuple(_summed_query(part, queries) for part in sums)


def _highest_of(node: ast.expr) -> list[ast.expr]:
    """Return what an expression is the highest of: itself, where it is no `max`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "max":
        parts = [part for given in node.args for part in (given.elts if isinstance(given, ast.List) else [given])]
        return [part for given in parts for part in _highest_of(given)]
    return [node]


def _weights(node: ast.expr) -> dict[str, float]:
    """Return the weight of each name in a sum of them; raises ValueError for any other expression.

    >>> _weights(ast.parse("(load + 2 * waiting / 15) / 8 + load", mode="eval").body)
    {'load': 1.125, 'waiting': 0.016666666666666666}
    """
    match node:
        case ast.Name():
            return {node.id: 1.0}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return dict(sum((Counter(_weights(side)) for side in (left, right)), Counter()))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            by, of = (left, right) if _number(left) is not None else (right, left)
            return {name: weight * _known(by) for name, weight in _weights(of).items()}
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return {name: weight / _known(right) for name, weight in _weights(left).items()}
        case _:
            raise ValueError("no sum of triggers")


def _number(node: ast.expr) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def _known(node: ast.expr) -> float:
    value = _number(node)
    if value is None or not math.isfinite(value):
        raise ValueError("no number")
    return value


def _summed_query(weights: Mapping[str, float], queries: Mapping[str, str]) -> str:
    """Return a weighted sum as one query, with the first weight as a factor on all."""
    first = next(iter(weights.values()))
    parts = [
        f"({queries[name]})" if weight == first else f"({queries[name]}) * {weight / first:.12g}"
        for name, weight in weights.items()
    ]
    whole = parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
    return queries[next(iter(weights))] if len(parts) == 1 and first == 1.0 else f"{whole} * {first:.12g}"


def _compared(
    query: str,
    targets: tuple[float | None, float | None],
    scaler: Scaler,
    records: Records,
    name: str = "",
    *,
    of_pods: bool = False,
) -> Signal:
    """Return what a query follows under an average value or a value, one of which is None.

    A mean over pods under a value asks for what a metric of pods asks for.
    """
    average, value = targets
    spelled = _spelled(query, records)
    written = _written_out(spelled, records)
    folded = "" if of_pods else "avg" if _PER_POD.search(_outside_of_calls(written)) else _folded(spelled, records)
    if average is None and (value is None or folded != "avg"):
        return Signal(kind=Kind.UNKNOWN, name=f"{name or query} (a target that is not an average value)", target=0.0)
    target = value if average is None else average
    if not target:
        return Signal(kind=Kind.UNKNOWN, name=f"{name or query} (a target of 0)", target=0.0)
    if why := _other_than(written, scaler):
        return Signal(kind=Kind.UNKNOWN, name=f"{name or query} ({why})", target=0.0)
    found = _signal(query, target, scaler, records, name)
    if folded == "each" and scaler.kind == "ScaledObject":
        said = f"{found.name} gives a series for each pod, and KEDA takes one only"
        return replace(found, mistake=f"{said}: with two replicas it fails")
    if average is None or folded in ("", "sum", "each") or not _is_of_pods(found, query, records):
        return found
    said = f"{found.name} is the {folded} over its pods, and an average value divides it as if it were their sum: it asks for "
    if found.kind is Kind.ACTIVITY:
        return replace(found, mistake=f"{said}{math.ceil(1 / found.target)} replicas at most, however busy they are")
    return replace(found, mistake=f"{said}fewer replicas, the more there are")


def _outside_of_calls(expression: str) -> str:
    """Return an expression's own divisions, with what it divides by."""
    at = next((place for place, letter in enumerate(_levels(expression)) if letter == "/"), -1)
    return expression[at:] if at >= 0 else ""


def _other_than(written: str, scaler: Scaler) -> str:
    """Say what a query counts that is not all requests to the workload; empty where it seems to be that."""
    target = text(scaler.spec, "scaleTargetRef", "name")
    matchers = _MATCHER.findall(written)
    for label, operator, value in matchers:
        if label in _OUTCOMES and not operator.startswith("!") and not re.search(_GOOD, value):
            return f"only what has {label}{operator}{value}"
    if any(target in value for label, _, value in matchers):
        return ""
    for label, operator, value in matchers:
        prefix = re.split(r"[^\w-]", value)[0]
        if label in _POD_LABELS and not operator.startswith("!") and not target.startswith(prefix.rstrip("-")):
            return f"of other pods, {value}"
    divides = _outside_of_calls(written)
    return "a ratio" if re.match(r"/\s*[^\d.\s]", divides) and not _PER_POD.search(divides) else ""


def _is_of_pods(signal: Signal, query: str, records: Records) -> bool:
    """Return whether a query reads what pods export, and not a queue or a gateway that several exporters report."""
    written = _written_out(_spelled(query, records), records)
    return signal.kind is Kind.ACTIVITY or rests_on_replicas(written) is not None or bool(_OF_POD.search(written))


def _folded(query: str, records: Records) -> str:
    """Return how a query folds the series of pods into one, `each` where it keeps them; empty where that is not said.

    >>> _folded("clamp_min(avg(rate(a[1m])) / 16, 0)", {}), _folded("max(a) by (team)", {}), _folded("avg by (pod) (a)", {})
    ('avg', 'max', 'each')
    """
    inside = query.strip()
    for _ in range(len(query)):
        found = _AGGREGATED.match(inside)
        body = inside[found.end() :] if found else ""
        after = body[_closes(body) + 1 :].strip()
        if found and _KEPT.fullmatch(after):
            kept = found["kept"] or after
            of_each = bool(re.search(r"\b(pod|instance)\b", kept)) != kept.startswith("without")
            return "each" if kept and of_each else found["how"]
        if (clamped := _CLAMPED.match(inside)) and _is_one(clamped["inside"]):
            inside = clamped["inside"].strip()
        elif inside.startswith("(") and _closes(inside) == len(inside) - 1:
            inside = inside[1:-1].strip()
        elif (scaled := _SCALED.match(inside)) and not _OPERATOR.search(_outside(scaled["whole"])):
            inside = scaled["whole"].strip()
        elif (recorded := _recorded(inside, records)) is not None:
            inside = recorded.strip()
        else:
            break
    return ""


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
    window_s, notes = max(window_s, _window_s(written)), (*_other_windows(said, written), *_some_only(said, written))
    if _SM_ACTIVE.search(written):
        return Signal(kind=Kind.ACTIVITY, name=said, target=target, window_s=window_s, notes=notes)
    if _GPU_UTIL.search(written):
        return Signal(kind=Kind.UNKNOWN, name=f"{said} (nvidia-smi's utilization: how it moves with load", target=0.0)
    tokens = _tokens(written)
    counts = bool(_REQUESTS.search(written)) or any(name in written for name in _PROXIED)
    if tokens is not None or (counts and (_RATE.search(written) or _SELECTOR.match(written))):
        arriving = bool(_WAITING.search(written))
        return Signal(
            kind=Kind.DEMAND if arriving else Kind.SERVED,
            name=said,
            target=target,
            divided_by=_divisor(written) / _increased_over_s(written),
            window_s=window_s,
            notes=notes,
            outlives=rests_on_replicas(written) is None,
            tokens=tokens,
        )
    if _WAITING.search(written):
        outlives = rests_on_replicas(written) is None
        return Signal(
            kind=Kind.WAITING,
            name=said,
            target=target,
            divided_by=_divisor(written),
            notes=notes,
            outlives=outlives,
        )
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
    ) + tuple(
        f"{said} looks back over {span} (a subquery): replayed as what it is now"
        for span in dict.fromkeys(re.findall(r"\[(\d+[smhd]):", expression))
    )


def _some_only(said: str, expression: str) -> tuple[str, ...]:
    """Say which of a workload's requests alone a query counts."""
    return tuple(
        f"{said} counts only those of {label}{operator}{value}: replayed as all of its requests"
        for label, operator, value in dict.fromkeys(_MATCHER.findall(expression))
        if label in _OF_SOME
    )


def _demand_of(query: str) -> tuple[str, int]:
    """Return the demand that an expression holds up, and the window over which its load is averaged."""
    held = _HOLDS.fullmatch(query)
    demand = held["demand"] if held else query
    mean = _MEAN_LOAD.fullmatch(demand)
    return (mean["demand"], int(mean["window"]) + 1) if mean else (demand, SYNC_S)


def _forecast_of(query: str, scaler: Scaler, records: Records) -> ForecastPolicy | None:
    """Return the forecast that a series is the last of; None where it is none."""
    found = _SELECTOR.match(query)
    if found is None or found[1] != LOAD_WANTED:
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


def _increased_over_s(expression: str) -> int:
    """Return the seconds over which an expression counts requests; 1 where it is a rate.

    >>> _increased_over_s("sum(increase(a[5m]))"), _increased_over_s("sum(rate(a[5m]))")
    (300, 1)
    """
    counts = re.search(r"\bincrease\s*\(", expression) and not re.search(r"\bi?rate\s*\(", expression)
    return averaged_over_s(expression) if counts else 1


def _outside(expression: str) -> str:
    """Return what of an expression is in no bracket."""
    return "".join(_levels(expression))


def _levels(expression: str) -> Iterator[str]:
    """Yield each letter of an expression that is in no bracket, and nothing for the others."""
    depth = 0
    for letter in expression:
        depth -= letter in ")}]"
        yield letter if depth == 0 else ""
        depth += letter in "({["


def _is_one(text: str) -> bool:
    """Return whether what was found inside a call is one balanced expression, that no bracket of another ends early."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


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

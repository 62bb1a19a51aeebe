"""The `demand` table from a Prometheus server: requests by interval, from counters that reset and gauges that have gaps.

A counter's rise over an interval is the difference between its last sample in it and its last sample before it (at most one
interval further back); where the later is smaller the counter was reset and the later one is the rise. An interval in which a
series has no sample is a gap: its rise is unknown, not 0.

A workload's requests are read from one place: the series that somebody declared for it, else those that its own pods export,
else those of the router, mesh or gateway closest to them. So no request is counted twice, however many saw it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trimtab.catalog.model_servers import PROXIES, SERVERS, ProxyTarget, ServerMetrics
from trimtab.sources.hour_grid import EDGE_S, HourGrid, Life
from trimtab.sources.prometheus.client import Floats, Prometheus, Series, any_of
from trimtab.sources.prometheus.gpu_readings import nearest_step_s
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.tables.arrow import conform, empty_table
from trimtab.units import MS_PER_S, S_PER_HR, S_PER_MIN

logger = logging.getLogger(__name__)

POD_LABELS = ("namespace", "exported_namespace", "pod", "exported_pod")
FALLBACK_LABELS = ("application", "deployment", "exported_service", "service", "model_name", "model", "job")
"""Labels that name a service where no pod is named, the surest first."""


_SLICE = "kube_endpointslice_endpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A workload that serves: the server's spelling, and the matchers that select its series."""

    workload: str
    metrics: ServerMetrics
    matchers: tuple[str, ...]
    counts: bool = True
    """Whether its counter of requests is among the series."""
    job: str | None = None
    """The scrape job that it is read from, where several read its pods at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWorkloads:
    """What is known of workloads besides the series of servers.

    `pods` are the lives of the pods that hold GPUs, pod by pod, by workload: proxies are read for these alone, and no proxy
    tells how many replicas there were. `declared` are the series that somebody named, by workload.
    """

    workload_of: Callable[[str, str], str | None]
    pods: Mapping[str, Sequence[Sequence[Life]]] = field(default_factory=dict)
    declared: Mapping[str, ServerMetrics] = field(default_factory=dict)

    @property
    def namespaces(self) -> list[str]:
        """Return the namespaces of workloads with GPUs."""
        return sorted({workload.partition("/")[0] for workload in self.pods})


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Intervals of `interval_s` seconds from `start_s`."""

    start_s: int
    interval_s: int
    count: int
    scrape_s: float = math.nan
    """How often the series were scraped; NaN where it was not asked for."""

    def index(self, times_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the interval whose end each evaluation was made at."""
        return (times_ms - self.start_s * MS_PER_S) // (self.interval_s * MS_PER_S)


def collect_demand(
    server: Prometheus,
    grid: HourGrid,
    served: ServedWorkloads,
    tally: Tally,
    report: Callable[[str, float], None] = lambda stage, done_frac: None,
) -> pa.Table:
    """Return the demand of every service whose requests somebody counts; empty where there is none."""
    tables = []
    services = find_services(server, grid, served, tally)
    for number, service in enumerate(services):
        report("demand", number / len(services))
        steps = _steps(server, service, grid)
        rows = _service_rows(server, service, steps, served.pods.get(service.workload, ()))
        if rows is not None:
            tables.append(rows)
        if not service.metrics.times_requests:
            tally.count(
                f"services of which {service.metrics.title} exports no latencies: judged by GPU activity, no latency target "
                "can be checked"
            )
    return pa.concat_tables(tables) if tables else empty_table("demand", None)


def find_services(server: Prometheus, grid: HourGrid, served: ServedWorkloads, tally: Tally) -> list[Service]:
    """Find the services by their series, one place for each workload; the pods of one workload are one service."""
    candidates: dict[str, list[Service]] = {}
    for service in (
        *_declared(server, grid, served, tally),
        *_by_their_pods(server, grid, served, tally),
        *_behind_proxies(server, grid, served, tally),
    ):
        candidates.setdefault(service.workload, []).append(service)
    found = []
    for workload, listed in sorted(candidates.items()):
        best = next((service for service in listed if service.counts), listed[0])
        found.append(best)
        for other in listed:
            if other is not best:
                tally.count(f"services that {other.metrics.title} counts too: read from {best.metrics.title} alone")
        logger.debug("%s: requests from %s", workload, best.metrics.title)
    return found


def _declared(server: Prometheus, grid: HourGrid, served: ServedWorkloads, tally: Tally) -> Iterator[Service]:
    for workload, metrics in sorted(served.declared.items()):
        found = _seen(server, grid, metrics)
        mine: Iterable[tuple[str, str, str]] = ()
        if metrics.target is None:
            named = [(_identity(labels, served.workload_of), labels) for labels in found]
            mine = {matched for (name, matched), _ in named if name == workload}
            found = [labels for (name, _), labels in named if name == workload]
        if found:
            yield Service(
                workload=workload,
                metrics=metrics,
                matchers=_matchers(mine) if mine else (),
                counts=_counts(metrics, found),
            )
        else:
            tally.count("workloads whose declared metrics have no series: check their names and labels in --cluster")


def _by_their_pods(server: Prometheus, grid: HourGrid, served: ServedWorkloads, tally: Tally) -> Iterator[Service]:
    for metrics in SERVERS:
        pods: dict[str, set[tuple[str, str, str]]] = {}
        series: dict[str, list[Mapping[str, str]]] = {}
        for labels in _seen(server, grid, metrics):
            workload, matched = _identity(labels, served.workload_of)
            pods.setdefault(workload, set()).add(matched)
            series.setdefault(workload, []).append(labels)
        for workload, matched_by in sorted(pods.items()):
            matchers = _matchers(matched_by)
            job = None
            if _is_scraped_twice(series[workload]):
                job = _only_job(server, grid, metrics, matchers, tally)
            yield Service(
                workload=workload,
                metrics=metrics,
                matchers=matchers if job is None else (*matchers, any_of("job", [job])),
                counts=_counts(metrics, series[workload]),
                job=job,
            )


_OF_A_JOB = ("job", "service", "endpoint")
"""Labels by which two scrapes of one target differ: Prometheus' own, and those of the operator's monitors."""


def _is_scraped_twice(series: Iterable[Mapping[str, str]]) -> bool:
    """Return whether one target's series is there under several jobs; without its address a target is not known."""
    jobs: dict[frozenset[tuple[str, str]], set[str]] = {}
    for labels in series:
        if labels.get("instance"):
            same = frozenset((name, value) for name, value in labels.items() if name not in _OF_A_JOB)
            jobs.setdefault(same, set()).add(labels.get("job", ""))
    return any(len(found) > 1 for found in jobs.values())


_SAW_ENOUGH_FRAC = 0.9
"""Of all hours that any job read, those that one must have read to be read alone."""


def _only_job(
    server: Prometheus, grid: HourGrid, metrics: ServerMetrics, matchers: Sequence[str], tally: Tally
) -> str | None:
    """Return the job to read a service from whose pods several jobs read; None where they did so one after the other.

    It is the one that read most hours, and of several the first by name. Where none read nearly all hours nothing is left out.
    """
    name = (metrics.running or metrics.completed)[0]
    query = f"count by (job) (last_over_time({name}{server.matching(*matchers, *metrics.only)}[1h]))"
    hours: dict[str, set[int]] = {}
    for found in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
        hours.setdefault(found.labels.get("job", ""), set()).update(found.times_ms.tolist())
    every = set().union(*hours.values())
    # where one job takes over from another, both are seen in one hour
    if sum(len(seen) for seen in hours.values()) <= len(every) + 1:
        return None
    best = min(hours, key=lambda job: (-len(hours[job]), job))
    if len(hours[best]) < _SAW_ENOUGH_FRAC * len(every):
        tally.count(
            "services whose pods several scrape jobs read, in part at once: requests and tokens count twice there; stop one (a "
            "ServiceMonitor beside a PodMonitor?), or leave one out with --selector"
        )
        return None
    tally.count(
        "services whose pods several scrape jobs read: read from the job that saw most, and so are emitted rules"
    )
    return best


def _behind_proxies(server: Prometheus, grid: HourGrid, served: ServedWorkloads, tally: Tally) -> Iterator[Service]:
    if not served.pods:
        return
    workloads_of = _workloads_of_services(server, grid, served)
    for metrics in PROXIES:
        target = metrics.target
        assert target is not None
        chosen: dict[str, list[dict[str, str]]] = {}
        nobody: set[tuple[str, str]] = set()
        for labels in _seen_by_proxy(server, grid, metrics, target, served.namespaces):
            said = target.of(labels)
            if said is None:
                continue
            workload = _served_by(said, target, served, workloads_of)
            if workload is None:
                nobody.add(said)
            else:
                chosen.setdefault(workload, []).append(target.chosen_by(labels))
        tally.count(
            f"services that {metrics.title} counts and that are no workload with GPUs by any name: declare those that are "
            "(metrics and labels in --cluster)",
            len(nobody),
        )
        for workload, listed in sorted(chosen.items()):
            yield Service(workload=workload, metrics=metrics, matchers=_of_one_kind(listed, target))


def _of_one_kind(listed: Sequence[Mapping[str, str]], target: ProxyTarget) -> tuple[str, ...]:
    """Return the matchers of a workload's series; of several that report the same requests, of the closest to it alone."""
    for reporter in target.reporters:
        told = [labels for labels in listed if labels.get("reporter") == reporter]
        if told:
            listed = told
            break
    # labels that a scrape renamed and the same under their own names are two scrapes of one proxy
    names = sorted({tuple(labels) for labels in listed})[0]
    same = [labels for labels in listed if tuple(labels) == names]
    return tuple(any_of(name, (labels[name] for labels in same)) for name in names)


def _served_by(
    said: tuple[str, str],
    target: ProxyTarget,
    served: ServedWorkloads,
    workloads_of: Mapping[tuple[str, str], set[str]],
) -> str | None:
    """Return the workload with GPUs that a proxy's service stands for; None where none is, or more than one may be."""
    namespace, name = said
    if target.suffix:
        owner = (served.workload_of(namespace, name) or f"{namespace}/{name}").rpartition("/")[2]
        if not owner.endswith(target.suffix):
            return None
        stem = f"{namespace}/{owner.removesuffix(target.suffix)}"
        alike = [workload for workload in served.pods if workload == stem or workload.startswith(f"{stem}-")]
        return alike[0] if len(alike) == 1 else None
    behind = workloads_of.get(said, set())
    if behind:
        return next(iter(behind)) if len(behind) == 1 else None
    workload = f"{namespace}/{name}"
    return workload if workload in served.pods else None


def _workloads_of_services(
    server: Prometheus, grid: HourGrid, served: ServedWorkloads
) -> dict[tuple[str, str], set[str]]:
    """Return the workloads with GPUs behind each Service, as kube-state-metrics tells by its EndpointSlices, if it does."""
    found: dict[tuple[str, str], set[str]] = {}
    for labels in server.series(
        [_SLICE + server.matching('targetref_kind="Pod"', any_of("targetref_namespace", served.namespaces))],
        grid.start_s,
        grid.end_s,
    ):
        namespace = labels.get("targetref_namespace", "")
        # a slice is named for its Service, with five letters after it
        service = labels.get("endpointslice", "").rpartition("-")[0]
        workload = served.workload_of(namespace, labels.get("targetref_name", ""))
        if service and workload is not None and workload in served.pods:
            found.setdefault((namespace, service), set()).add(workload)
    return found


def _seen(server: Prometheus, grid: HourGrid, metrics: ServerMetrics) -> list[dict[str, str]]:
    selectors = [name + server.matching(*metrics.only) for name in metrics.names]
    return server.series(selectors, grid.start_s, grid.end_s)


def _seen_by_proxy(
    server: Prometheus, grid: HourGrid, metrics: ServerMetrics, target: ProxyTarget, namespaces: Sequence[str]
) -> list[dict[str, str]]:
    """Return the series of the namespaces that have GPUs: a mesh has some for every pair of a caller and a callee."""
    if target.patterns:
        matchers = [
            any_of(label, namespaces).replace('=~"', '=~".*(').removesuffix('"') + ').*"' for label in target.name
        ]
    else:
        matchers = [any_of(label, namespaces) for label in target.namespace]
    selectors = [name + server.matching(matcher) for name in metrics.completed for matcher in matchers]
    return server.series(selectors, grid.start_s, grid.end_s)


def _counts(metrics: ServerMetrics, series: Iterable[Mapping[str, str]]) -> bool:
    counters = {*metrics.completed, metrics.arrived, *metrics.told_by}
    return any(labels.get("__name__", metrics.completed[0]) in counters for labels in series)


def _identity(
    labels: Mapping[str, str], workload_of: Callable[[str, str], str | None]
) -> tuple[str, tuple[str, str, str]]:
    """Return the workload of a series, and (namespace, label, value) that selects it."""
    namespace_label, pod_label = (
        next((name for name in names if labels.get(name)), names[1]) for names in (POD_LABELS[1::-1], POD_LABELS[:1:-1])
    )
    namespace, pod = labels.get(namespace_label, ""), labels.get(pod_label, "")
    if pod:
        return workload_of(namespace, pod) or f"{namespace}/{pod}", (f'{namespace_label}="{namespace}"', pod_label, pod)
    label = next((name for name in FALLBACK_LABELS if labels.get(name)), "job")
    place = f'{namespace_label}="{namespace}"' if namespace else ""
    name = labels.get(label, "service")
    return f"{namespace or 'default'}/{name.rpartition('/')[2]}", (place, label, labels.get(label, ""))


def _matchers(matched: Iterable[tuple[str, str, str]]) -> tuple[str, ...]:
    listed = sorted(matched)
    place, label, _ = listed[0]
    return tuple(part for part in (place, any_of(label, (value for _, _, value in listed))) if part)


def _steps(server: Prometheus, service: Service, grid: HourGrid) -> Steps:
    """Return intervals of a minute, or of the scrape interval in whole minutes where that is longer."""
    name = (service.metrics.running or service.metrics.completed)[0]
    query = f"max(count_over_time({name}{server.matching(*service.matchers, *service.metrics.only)}[1h]))"
    pieces = server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR)
    most = max((float(series.values.max()) for series in pieces), default=0.0)
    scrape_s = nearest_step_s(S_PER_HR / most) if most else S_PER_HR
    interval_s = max(1, math.ceil(scrape_s / S_PER_MIN)) * S_PER_MIN
    return Steps(
        start_s=grid.start_s, interval_s=interval_s, count=(grid.end_s - grid.start_s) // interval_s, scrape_s=scrape_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DemandReader:
    """Asks for one service's readings by interval."""

    server: Prometheus
    service: Service
    steps: Steps

    def chosen(self, metric: str, *more: str) -> str:
        return metric + self.server.matching(*self.service.matchers, *self.service.metrics.only, *more)

    def gauge(self, template: str, names: Sequence[str]) -> Floats:
        """Return (n_intervals,) of an expression of a gauge; the first spelling that has a value wins."""
        result = np.full(self.steps.count, np.nan)
        for name in names:
            query = template.format(last=f"{self.chosen(name)}[{self.steps.interval_s}s]")
            for series in self._evaluate(query):
                at = self.steps.index(series.times_ms)
                result[at] = np.where(np.isnan(result[at]), series.values, result[at])
        return result

    def rise(self, names: Sequence[str], *more: str) -> Floats:
        """Return (n_intervals,) of the rise of a counter summed over its series; the first spelling that has any counts."""
        result = np.full(self.steps.count, np.nan)
        for name in names:
            for series in self._evaluate(f"sum({self._rise_of(self.chosen(name, *more))})"):
                result[self.steps.index(series.times_ms)] = series.values
            if not np.isnan(result).all():
                break
        return result

    def rise_per_series(self, name: str) -> Floats:
        """Return (n_intervals,) of the mean rise of a counter over its series: of one that counts for each GPU alone."""
        result = np.full(self.steps.count, np.nan)
        for series in self._evaluate(f"avg({self._rise_of(self.chosen(name))})") if name else ():
            result[self.steps.index(series.times_ms)] = series.values
        return result

    def buckets(self, metric: str) -> tuple[Floats, Floats]:
        """Return the upper bounds (n_buckets,) in seconds and counts (n_intervals, n_buckets), not cumulative; NaN = gap."""
        by_bound: dict[float, Floats] = {}
        if metric:
            for series in self._evaluate(f"sum by (le) ({self._rise_of(self.chosen(metric + '_bucket'))})"):
                bound = float(series.labels.get("le", "nan"))
                row = by_bound.setdefault(bound, np.full(self.steps.count, np.nan))
                row[self.steps.index(series.times_ms)] = series.values
        if not by_bound:
            return np.zeros(0), np.zeros((self.steps.count, 0))
        bounds = np.array(sorted(by_bound))
        cumulative = np.stack([by_bound[bound] for bound in bounds.tolist()], axis=1)
        # Series of two versions of a server may differ in their bounds: a bound that one lacks would make counts fall.
        counts = np.diff(np.maximum.accumulate(cumulative, axis=1), axis=1, prepend=0.0)
        return bounds * self.service.metrics.bucket_s, counts

    def _rise_of(self, chosen: str) -> str:
        interval = f"{self.steps.interval_s}s"
        now = f"last_over_time({chosen}[{interval}])"
        before = f"last_over_time({chosen}[{2 * self.steps.interval_s}s] offset {interval})"
        return f"(({now} - {before}) >= 0) or ({now} < {before})"

    def _evaluate(self, query: str) -> Iterator[Series]:
        first_s = self.steps.start_s + self.steps.interval_s - EDGE_S
        last_s = first_s + (self.steps.count - 1) * self.steps.interval_s
        return self.server.range(query, first_s, last_s, self.steps.interval_s)


def _service_rows(
    server: Prometheus, service: Service, steps: Steps, pods: Sequence[Sequence[Life]]
) -> pa.Table | None:
    """Return the rows of one service: one an interval in which at least one of its series was seen."""
    reader = _DemandReader(server=server, service=service, steps=steps)
    metrics = service.metrics
    alive = metrics.running or metrics.waiting or metrics.completed
    by_pod = f"count(count by ({', '.join(POD_LABELS)}) (last_over_time({{last}})))"
    replicas = reader.gauge(by_pod, alive)
    finished, failed = _finished(reader)
    running = reader.gauge("sum(avg_over_time({last}))", metrics.running)
    waiting = reader.gauge("sum(avg_over_time({last}))", metrics.waiting)
    in_flight = reader.gauge("sum(last_over_time({last}))", metrics.running) + np.nan_to_num(
        reader.gauge("sum(last_over_time({last}))", metrics.waiting)
    )
    grown = np.diff(in_flight, prepend=np.nan)
    arrived = reader.rise((metrics.arrived,)) if metrics.arrived else finished + np.nan_to_num(grown)
    columns: dict[str, Floats] = {
        "arrivals": np.maximum(arrived, 0.0),
        "completed": finished - np.nan_to_num(failed),
        "failed": failed,
        "input_tokens_mean": _mean(reader, metrics.input_tokens),
        "output_tokens_mean": _mean(reader, metrics.output_tokens),
        "input_tokens": reader.rise(metrics.prompt_tokens),
        "output_tokens": reader.rise(metrics.answer_tokens),
        "cached_tokens": reader.rise(metrics.cached_tokens),
        "prefill_s": reader.rise(metrics.step_s, metrics.prefill),
        "decode_s": reader.rise(metrics.step_s, metrics.decode),
        "running_mean": running,
        "waiting_mean": waiting,
        "kv_cache_frac_max": np.clip(reader.gauge("max(max_over_time({last}))", metrics.kv_cache), 0.0, 1.0),
        "replicas_ready": replicas,
        "flops_per_gpu": reader.rise_per_series(metrics.flops),
        "read_bytes_per_gpu": reader.rise_per_series(metrics.read_bytes),
        "write_bytes_per_gpu": reader.rise_per_series(metrics.write_bytes),
    }
    rows = np.flatnonzero(~np.isnan(replicas))
    if metrics.target is not None:
        # the pods that export are the proxy's
        columns["replicas_ready"] = _alive(pods, steps)
    if not len(rows):
        return None
    named = {"latency": metrics.latency, "ttft": metrics.ttft, "tpot": metrics.tpot}
    histograms = {name: reader.buckets(metric) for name, metric in named.items()}
    return _table(service, steps, rows, columns, histograms)


def _alive(pods: Sequence[Sequence[Life]], steps: Steps) -> Floats:
    """Return the pods that held GPUs in each interval (n_intervals,), each for the share of it that it did."""
    edges = steps.start_s + np.arange(steps.count + 1) * float(steps.interval_s)
    total = np.zeros(steps.count)
    for lives in pods:
        held_s = np.zeros(steps.count)
        for life in lives:
            end_s = edges[-1] if life.end_s is None else life.end_s
            held_s += np.clip(np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], life.start_s), 0.0, None)
        # a pod has a life on each device that it holds
        total += np.minimum(held_s, steps.interval_s)
    return total / steps.interval_s


def _finished(reader: _DemandReader) -> tuple[Floats, Floats]:
    """Return the requests that ended, and those of them that failed; a counter of failures is beside that of successes."""
    metrics = reader.service.metrics
    finished = reader.rise(metrics.completed)
    if "=" in metrics.failed:
        failed = reader.rise(metrics.completed, metrics.failed)
        return finished, np.where(np.isnan(finished), np.nan, np.nan_to_num(failed))
    failed = reader.rise((metrics.failed,) if metrics.failed else ())
    return finished + np.nan_to_num(failed), failed


def _mean(reader: _DemandReader, histogram: str) -> Floats:
    if not histogram:
        return np.full(reader.steps.count, np.nan)
    total, count = reader.rise((f"{histogram}_sum",)), reader.rise((f"{histogram}_count",))
    return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)


def _table(
    service: Service,
    steps: Steps,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    columns: Mapping[str, Floats],
    histograms: Mapping[str, tuple[Floats, Floats]],
) -> pa.Table:
    starts_ms = (steps.start_s + rows * steps.interval_s) * MS_PER_S
    arrays: dict[str, pa.Array] = {
        "workload": pa.repeat(pa.scalar(service.workload), len(rows)),
        "server": pa.repeat(pa.scalar(service.metrics.server), len(rows)),
        "scrape_interval_s": pa.array(np.full(len(rows), steps.scrape_s), from_pandas=True),
        "scrape_job": pa.repeat(pa.scalar(service.job, pa.string()), len(rows)),
        "start": pa.array(starts_ms, type=pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
        "interval_s": pa.array(np.full(len(rows), float(steps.interval_s))),
    }
    arrays.update({name: pa.array(values[rows], from_pandas=True) for name, values in columns.items()})
    for name, (bounds, counts) in histograms.items():
        if len(bounds):
            arrays[f"{name}_le_s"], arrays[f"{name}_count"] = _bucket_arrays(bounds, counts[rows])
    return conform("demand", pa.table(arrays))


def _bucket_arrays(bounds: Floats, counts: Floats) -> tuple[pa.Array, pa.Array]:
    """Return the bounds and counts of each row as lists; null for a row with a gap."""
    gap = np.isnan(counts).any(axis=1)
    offsets = np.arange(len(counts) + 1, dtype=np.int32) * len(bounds)
    lists = (np.tile(bounds, len(counts)), np.nan_to_num(counts).ravel())
    first, second = (pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=pa.array(gap)) for flat in lists)
    return first, second

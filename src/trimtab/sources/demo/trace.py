"""A fleet whose demand is a recorded request trace, served by a fixed number of replicas sized for the trace's own peak.

A trace is a Parquet file with `t_s` and either one row per request (`input_tokens` and `output_tokens` where they are known) or
one row per interval with `requests_per_s`; a `model` column makes one service of each model. An interval that the file lacks is
a gap: it has no demand row, and no reading either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import distinct_texts, floats, read_arrow_table
from trimtab.sources.demo.demand import SIX_WEEKS, DemoService, Floats, LatencyLaw, ServedMinutes, Span, answer
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import P4D, Machine
from trimtab.sources.demo.placement import nodes
from trimtab.sources.demo.usage import UsageBlock, serving
from trimtab.units import HR_PER_YEAR, S_PER_DAY, S_PER_HR, S_PER_MIN

ANSWER = LatencyLaw(base_s=2.0)
FIRST_TOKEN = LatencyLaw(base_s=0.2, load_gain=0.8, sigma=0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFleet:
    """Everything that is set about the fleet; the trace sets the rest."""

    start: datetime = SIX_WEEKS.start
    machine: Machine = P4D
    replicas: int = 16
    peak_util_frac: float = 0.8
    latency: LatencyLaw = ANSWER
    ttft: LatencyLaw = FIRST_TOKEN
    memory_gib: float = 36.0
    cold_start_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSeries:
    """A trace as counts per interval; `present` is False in a gap. Token means are null where none are known."""

    name: str
    interval_s: int
    arrivals: Floats
    present: npt.NDArray[np.bool_]
    input_tokens: Floats | None = None
    output_tokens: Floats | None = None
    cached_tokens: Floats | None = None


FLEET = TraceFleet()
_MOST_S = HR_PER_YEAR * S_PER_HR
_MOST_REQ_S = 1e9
_READINGS = frozenset({"pod", "zone"})
"""Columns of samples that a monitor took of something, at moments unrelated to demand."""


def build(path: Path, seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the tables, the content of workloads.yaml and the meta data of a trace's fleet. Raises InputError."""
    series = read_series(path)
    hours = max(-(-len(model.arrivals) * model.interval_s // S_PER_HR) for model in series)
    end = Span(start=FLEET.start, proof=FLEET.start, end=FLEET.start).at(hours * S_PER_HR)
    span = Span(start=FLEET.start, proof=end, end=end)
    draft = FleetDraft(f"trace-{path.stem}", span, seed)
    for requests in series:
        _add_series(draft, requests)
    declared = {f"trace/{requests.name}": {"cold_start_s": FLEET.cold_start_s} for requests in series}
    return draft.tables(), {"version": 1, "workloads": declared}, meta(draft.name, span)


def read_series(path: Path, *, step_s: int = S_PER_MIN) -> list[RateSeries]:
    """Read a trace as one series for each model, requests counted by `step_s`. Raises InputError if it is not a trace."""
    table = _read(path)
    if "model" not in table.column_names:
        return [_series(path, path.stem, table, step_s)]
    models = distinct_texts(table["model"], f"{path}: model")
    table = table.set_column(table.column_names.index("model"), "model", table["model"].cast(pa.string()))
    return [_series(path, model, table.filter(pc.equal(table["model"], model)), step_s) for model in models]


def rates_by_model(table: pa.Table) -> pa.Table:
    """Add up the rates of clients by model and moment."""
    keys = [name for name in ("model", "t_s") if name in table.column_names]
    plain = table.select([*keys, "requests_per_s"])
    if "model" in keys:
        plain = plain.set_column(0, "model", plain["model"].cast(pa.string()))
    summed = plain.group_by(keys, use_threads=False).aggregate([("requests_per_s", "sum")])
    return summed.rename_columns([*keys, "requests_per_s"]).sort_by([(key, "ascending") for key in keys])


def _read(path: Path) -> pa.Table:
    table = read_arrow_table(path)
    if "t_s" not in table.column_names:
        found = ", ".join(table.column_names)
        raise InputError(f"{path}: a trace has a column t_s (seconds from its start); found {found}")
    if "client" in table.column_names and "requests_per_s" not in table.column_names:
        raise InputError(f"{path}: rows by client without requests_per_s: this is no record of requests")
    readings = sorted(_READINGS & set(table.column_names))
    if readings and "requests_per_s" not in table.column_names:
        raise InputError(
            f"{path}: rows by {readings[0]} are readings, not requests; give a row for each request, or requests_per_s"
        )
    if table.num_rows < 2:
        raise InputError(f"{path}: {table.num_rows} rows are no trace")
    return rates_by_model(table) if "client" in table.column_names else table


def _series(path: Path, name: str, table: pa.Table, step_s: int) -> RateSeries:
    t_s = floats(table, "t_s", str(path))
    if not len(t_s) or not np.isfinite(t_s).all() or t_s.min() < 0 or t_s.max() > _MOST_S:
        raise InputError(f"{path}: t_s must be seconds from the trace's start, finite, not negative, within a year")
    if "requests_per_s" in table.column_names:
        return _rate_series(path, name, t_s, floats(table, "requests_per_s", str(path)))
    return _request_series(name, t_s, table, step_s)


def _rate_series(path: Path, name: str, t_s: Floats, rate: Floats) -> RateSeries:
    """Lay rates on the grid of their most common step; rates that are not numbers are gaps."""
    if len(t_s) < 2:
        raise InputError(f"{path}: {name} has {len(t_s)} rates; a step of time needs two")
    order = np.argsort(t_s, kind="stable")
    interval_s = int(np.median(np.diff(t_s[order])))
    if interval_s < 1 or interval_s % S_PER_MIN:
        raise InputError(f"{path}: rates every {interval_s} s; give whole minutes")
    known = np.isfinite(rate)
    if not known.any() or rate[known].min() < 0 or not 0 < rate[known].max() < _MOST_REQ_S:
        raise InputError(f"{path}: requests_per_s must hold rates above 0 and below {_MOST_REQ_S:g}")
    slot = (t_s // interval_s).astype(np.int64)
    arrivals = np.zeros(int(slot.max()) + 1)
    present = np.zeros(len(arrivals), dtype=np.bool_)
    arrivals[slot[known]] = np.round(rate[known] * interval_s)
    present[slot[known]] = True
    return RateSeries(name=name, interval_s=interval_s, arrivals=arrivals, present=present)


def _request_series(name: str, t_s: Floats, table: pa.Table, step_s: int) -> RateSeries:
    """Count requests by step; the last, unfinished step is left out."""
    n_steps = max(int(t_s.max()) // step_s, 1)
    step = (t_s // step_s).astype(np.int64)
    inside = step < n_steps
    arrivals = np.bincount(step[inside], minlength=n_steps).astype(np.float64)

    def mean_of(column: str) -> Floats | None:
        if column not in table.column_names:
            return None
        tokens = floats(table, column, name)[inside]
        total = np.bincount(step[inside], weights=tokens, minlength=n_steps)
        return np.where(arrivals > 0, total / np.maximum(arrivals, 1.0), np.nan)

    return RateSeries(
        name=name,
        interval_s=step_s,
        arrivals=arrivals,
        present=np.ones(n_steps, dtype=np.bool_),
        input_tokens=mean_of("input_tokens"),
        output_tokens=mean_of("output_tokens"),
        cached_tokens=mean_of("cached_tokens"),
    )


def _add_series(draft: FleetDraft, series: RateSeries) -> None:
    """Serve a series by a fixed fleet, and read its GPUs minute by minute."""
    service = _service(series)
    rng = draft.stream(service.workload)
    served = _with_tokens(answer(service, series.arrivals, rng, series.interval_s), series)
    draft.demand(service.workload, served, interval_s=series.interval_s, present=series.present)
    machine = FLEET.machine
    homes = nodes(draft, machine, "serving", -(-service.replicas // machine.gpu_count))
    placed = [(node, device) for node, devices in homes for device in devices][: service.replicas]
    for node, device in placed:
        draft.pod(service.workload, service.team, "Deployment", node, (device,), start=draft.span.start)
    minutes = draft.span.minutes
    rho = np.repeat(served.rho, series.interval_s // S_PER_MIN)
    silent = ~np.repeat(series.present, series.interval_s // S_PER_MIN)
    rho, silent = np.pad(rho, (0, minutes - len(rho))), np.pad(silent, (0, minutes - len(silent)), constant_values=True)
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=tuple(device for _, device in placed),
            start=draft.span.start,
            workloads=(service.workload,),
            owner=np.zeros((len(placed), minutes), dtype=np.int64),
            activity=serving(rho, len(placed), memory_gib=FLEET.memory_gib, tensor_of_sm=0.3, dram_of_sm=0.85, rng=rng),
            unseen=np.broadcast_to(silent, (len(placed), minutes)),
        )
    )


def _service(series: RateSeries) -> DemoService:
    """Return the service whose replicas reach the set utilization in the trace's busiest interval."""
    known = series.arrivals[series.present]
    mean, most = float(known.mean()), float(known.max())
    return DemoService(
        workload=f"trace/{series.name}",
        team="trace",
        replicas=FLEET.replicas,
        requests_per_day=mean * S_PER_DAY / series.interval_s,
        mean_util_frac=FLEET.peak_util_frac * mean / most,
        latency=FLEET.latency,
        ttft=FLEET.ttft,
    )


def _with_tokens(served: ServedMinutes, series: RateSeries) -> ServedMinutes:
    known = {"input_tokens_mean": series.input_tokens, "output_tokens_mean": series.output_tokens}
    columns = served.columns | {name: tokens for name, tokens in known.items() if tokens is not None}
    if series.cached_tokens is not None:
        completed = columns["completed"]
        columns["cached_tokens"] = np.where(completed == 0, 0.0, completed * series.cached_tokens)
    return ServedMinutes(
        columns=columns, latency_count=served.latency_count, ttft_count=served.ttft_count, rho=served.rho
    )

"""Faults of GPUs and nodes from Prometheus: XIDs, ECC errors, failed row remaps, thermal throttling, nodes out of service.

DCGM shows the last XID until the driver is loaded anew, so that one begins where the number changes; its moment is that of the
first scrape that shows it. Thermal throttling is told by its counter, whose unit differs by version, so that only whether it
rises counts; what it cost in speed is the SM clock of a busy board against the same board's in hours without it.
Names: NVIDIA/dcgm-exporter etc/default-counters.csv; kube-state-metrics docs/metrics/cluster/node-metrics.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from trimtab.sources.hour_grid import HourGrid, Life, Watch, lifetimes, moment, moment_or_none, presence
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.sources.prometheus.dcgm import GpuLabels, read_labels
from trimtab.units import S_PER_HR

Row = dict[str, object]
NodeOf = Callable[[GpuLabels], str]
"""Names the node of a device as the bundle does."""
_XID, _ECC, _REMAP = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
_THERMAL, _CLOCK, _UTIL = "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL"
_BUSY_PERCENT = 90
"""A board so busy runs at the clock that it is allowed; one that rests clocks down by itself."""
_USUAL_QUANTILE = 0.9
"""Of the hours of a board without throttling: their clock is its usual one."""
_FEWEST_HOURS = 3
"""What fewer hours show is taken for chance."""


def fault_rows(server: Prometheus, watch: Watch, node_of: NodeOf) -> list[Row]:
    """Return the rows of `faults` of a window, in order of time."""
    rows = [
        *_xids(server, watch.grid, node_of),
        *_counted(server, watch.grid, node_of, "ecc", f"increase({_ECC}{server.matching()}[1h])"),
        *_counted(server, watch.grid, node_of, "row-remap", f"max_over_time({_REMAP}{server.matching()}[1h])"),
        *_throttled(server, watch.grid, node_of),
        *_out_of_service(server, watch),
    ]
    return sorted(rows, key=lambda row: (str(row["start"]), str(row["node"]), str(row["device"])))


def _hourly(server: Prometheus, query: str, grid: HourGrid) -> dict[str, tuple[GpuLabels, Floats]]:
    """Return an expression over `[1h]` by device and hour (n_hours,); NaN where there was no reading."""
    found: dict[str, tuple[GpuLabels, Floats]] = {}
    for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
        labels = read_labels(series.labels)
        if labels is not None:
            _, values = found.setdefault(labels.uuid, (labels, np.full(grid.hours, np.nan)))
            hours = grid.hour_of(series.times_ms)
            values[hours] = np.fmax(values[hours], series.values)
    return found


def _xids(server: Prometheus, grid: HourGrid, node_of: NodeOf) -> Iterator[Row]:
    """Yield a row where a board's last XID becomes another: it stands until the next one, or until the number is gone."""
    query = f"max_over_time({_XID}{server.matching()}[1h])"
    for labels, values in _hourly(server, query, grid).values():
        # hours without a reading go on with the last one: a gap neither ends an XID nor begins it anew
        last_read = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(grid.hours)))
        codes = np.where(last_read < 0, 0, values[last_read]).astype(np.int64)
        changes = np.flatnonzero(np.diff(codes, prepend=0))
        for at, hour in enumerate(changes.tolist()):
            if not codes[hour]:
                continue
            until = changes[at + 1] if at + 1 < len(changes) else None
            yield {
                "node": node_of(labels),
                "device": labels.uuid,
                "start": moment(_first_seen_s(server, labels.uuid, int(codes[hour]), grid, hour)),
                "end": None if until is None else moment(grid.start_s + int(until) * S_PER_HR),
                "fault": "xid",
                "code": int(codes[hour]),
            }


def _first_seen_s(server: Prometheus, uuid: str, code: int, grid: HourGrid, hour: int) -> float:
    """Return when an XID was first scraped within an hour; the hour's beginning where the server does not say."""
    begin_s = grid.start_s + hour * S_PER_HR
    end_s = begin_s + S_PER_HR - 1
    matched = server.matching(f'UUID="{uuid}"')
    query = f"min_over_time(timestamp({_XID}{matched} == {code})[1h:30s])"
    seen = [float(series.values.min()) for series in server.range(query, end_s, end_s, S_PER_HR) if len(series.values)]
    return min((at_s for at_s in seen if begin_s <= at_s <= end_s), default=float(begin_s))


def _counted(server: Prometheus, grid: HourGrid, node_of: NodeOf, fault: str, query: str) -> Iterator[Row]:
    """Yield a row for each board from the first hour in which an expression is above 0."""
    for labels, values in _hourly(server, query, grid).values():
        hours = np.flatnonzero(np.nan_to_num(values) > 0)
        if len(hours):
            start = moment(grid.start_s + int(hours[0]) * S_PER_HR)
            yield {"node": node_of(labels), "device": labels.uuid, "start": start, "end": None, "fault": fault}


def _throttled(server: Prometheus, grid: HourGrid, node_of: NodeOf) -> Iterator[Row]:
    """Yield the hours in which heat held a busy board back, with the share of its clock that this took."""
    heat = _hourly(server, f"increase({_THERMAL}{server.matching()}[1h])", grid)
    if not any((np.nan_to_num(values) > 0).any() for _, values in heat.values()):
        return
    busy = f"{_CLOCK}{server.matching()} and {_UTIL}{server.matching()} > {_BUSY_PERCENT}"
    clocks = _hourly(server, f"avg_over_time(({busy})[1h:1m])", grid)
    for uuid, (labels, violation) in heat.items():
        clock = clocks.get(uuid, (labels, np.full(grid.hours, np.nan)))[1]
        hot = np.nan_to_num(violation) > 0
        cool = clock[~hot & ~np.isnan(clock)]
        if len(cool) < _FEWEST_HOURS:
            continue
        lost = 1.0 - clock / float(np.quantile(cool, _USUAL_QUANTILE))
        for hour in np.flatnonzero(hot & (np.nan_to_num(lost) > 0)).tolist():
            yield {
                "node": node_of(labels),
                "device": uuid,
                "start": moment(grid.start_s + hour * S_PER_HR),
                "end": moment(grid.start_s + (hour + 1) * S_PER_HR),
                "fault": "thermal-throttle",
                "lost_frac": float(lost[hour]),
            }


_NODE_LABELS = ("node", "exported_node")


def _out_of_service(server: Prometheus, watch: Watch) -> Iterator[Row]:
    """Yield the stretches in which nodes were cordoned, or not ready."""
    cordoned = "kube_node_spec_unschedulable" + server.matching()
    unready = "kube_node_status_condition" + server.matching('condition="Ready"', 'status=~"false|unknown"')
    for fault, chosen in (("cordoned", cordoned), ("not-ready", unready)):
        seen = presence(server, chosen, _NODE_LABELS, watch.grid, statistic="sum_over_time")
        for node, lives in _stretches(seen, watch).items():
            for life in lives:
                end = moment_or_none(life.end_s)
                yield {"node": node, "device": None, "start": moment(life.start_s), "end": end, "fault": fault}


def _stretches(seen: Mapping[tuple[str, ...], Floats], watch: Watch) -> dict[str, list[Life]]:
    counts: dict[str, list[Floats]] = defaultdict(list)
    for (node, exported), samples in seen.items():
        counts[exported or node].append(samples)
    return {node: lifetimes(np.max(np.stack(samples), axis=0), watch) for node, samples in counts.items()}

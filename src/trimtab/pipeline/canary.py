"""One side of a canary comparison: a file of requests, or a service of a bundle with its measured latencies and its bill."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.diagnose.canary import MIN_SLICES, CanaryRun
from trimtab.errors import InputError, UnknownName
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Settings
from trimtab.pipeline.opening import open_fleet, priced_history
from trimtab.plan.verify.baseline import baseline_of
from trimtab.sources.traces.canary_files import read_run

_BEYOND = 2.0
"""A latency beyond the last bound of a histogram is taken as twice that bound."""


def canary_side(path: Path, usd_hr: float | None, name: str | None, prices: Path | None) -> CanaryRun:
    """Return a side; raises InputError, BundleError, MissingPrice, or UnknownName for a service that is not there."""
    if path.is_file():
        return read_run(path, usd_hr)
    settings, catalog = Settings(), load_catalog(prices)
    fleet, _ = priced_history(open_fleet(path), settings, catalog)
    market = Market(
        catalog=catalog,
        at=fleet.window.end.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    measured = {
        workload.name: workload
        for workload in fleet.workloads
        if workload.service is not None and workload.service.latency_count.size
    }
    service = _chosen(path, measured, name)
    costs = {workload.workload: workload.usd_hr for workload in baseline_of(fleet, market).workloads}
    return _run(path, service, costs[service.name] if usd_hr is None else usd_hr)


def _chosen(path: Path, measured: dict[str, Workload], name: str | None) -> Workload:
    if not measured:
        raise InputError(
            f"{path}: no service of this bundle has latencies (table demand, latency_le_s and latency_count)"
        )
    if name is not None and name not in measured:
        raise UnknownName("service with latencies", name, measured, where=str(path))
    if name is None and len(measured) > 1:
        raise InputError(f"{path} holds {len(measured)} services with latencies: say which, --workload {min(measured)}")
    return measured[name or min(measured)]


def _run(path: Path, workload: Workload, usd_hr: float) -> CanaryRun:
    service = workload.service
    assert service is not None
    bounds = np.asarray(service.latency_le_s, dtype=np.float64)
    finite = bounds[np.isfinite(bounds)]
    place = np.where(np.isfinite(bounds), bounds, finite.max() * _BEYOND)
    counts = [np.asarray(row, dtype=np.float64) for row in service.latency_count if np.isfinite(row).all()]
    if len(counts) < MIN_SLICES:
        raise InputError(
            f"{path}: {len(counts)} intervals of {workload.name} have latencies; {MIN_SLICES} are the least"
        )
    if not sum(row.sum() for row in counts):
        raise InputError(f"{path}: no request of {workload.name} was answered")
    return CanaryRun(
        name=f"{path} {workload.name}",
        slice_s=service.step_s,
        latency_s=tuple(place for _ in counts),
        weight=tuple(counts),
        failed=np.zeros(len(counts)),
        usd_hr=usd_hr,
    )

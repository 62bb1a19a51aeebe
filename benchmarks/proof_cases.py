"""Fleets whose history is long enough to plan and prove many times: real demand served by a fixed fleet, and generated runs.

Real demand is that of `benchmarks.commit_series` (GPUs in use per hour of real clusters, read as the rate of a service) and of
`benchmarks.traces` (requests); each is served by 16 replicas sized for the series' own peak. Offerings are the fleet's own
instance type and one that holds a single GPU, so that a hundred plans stay affordable.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.commit_series import demand_series
from benchmarks.traces import STEP_S, Demand, Floats, demands
from trimtab.catalog import Catalog, load_catalog
from trimtab.fleet.build import bundle_window
from trimtab.fleet.model import Window
from trimtab.pipeline import open_trace
from trimtab.sources.demo import demo_fleet
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.tables.workloads import DeclaredTarget, TargetMetric, Workloads
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR, S_PER_MIN

MEAN_REQ_S = 50.0
"""Real series are scaled to this rate, so that each replica has several requests in work."""
TARGET = DeclaredTarget(metric=TargetMetric.LATENCY, quantile=0.95, limit_s=12.0)
"""Declared for the served series: looser than what was observed at a fleet sized for the peak, or nothing could be saved."""
INSTANCE_TYPES = frozenset({"p4d.24xlarge", "g6e.xlarge"})
RUNS_FLEET = "finetune-7b"
RUNS_SEEDS = (1, 2, 3, 4)
SHORT_HOURS = 28 * HR_PER_DAY
"""Below this a series is too short for a fit window of two weeks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """A named fleet; `real` where its demand was recorded and not drawn."""

    name: str
    bundle: Bundle
    real: bool

    def windows(self) -> Iterator[tuple[Window, Window]]:
        """Yield (fit, proof): two weeks and one, every half week; one week and three days, each day, where it is short."""
        whole = bundle_window(self.bundle)
        long = whole.hours >= SHORT_HOURS
        fit, proof = (2 * HR_PER_WEEK, HR_PER_WEEK) if long else (HR_PER_WEEK, 3 * HR_PER_DAY)
        step = HR_PER_WEEK // 2 if long else HR_PER_DAY
        for first in range(0, whole.hours - fit - proof + 1, step):
            yield whole.part(first, fit), whole.part(first + fit, proof)


def histories(traces: Path) -> Iterator[History]:
    """Yield every fleet: clusters, request traces, generated runs; clusters only where they run GPUs throughout."""
    with tempfile.TemporaryDirectory() as folder:
        for name, gpus in demand_series(traces).items():
            yield _served(Path(folder), name, gpus, S_PER_HR)
        for demand in demands(traces):
            yield _served(Path(folder), demand.name, *_by_minute(demand))
    for seed in RUNS_SEEDS:
        tables, workloads, meta = demo_fleet(RUNS_FLEET, seed=seed)
        bundle = memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))
        yield History(name=f"{RUNS_FLEET}_seed_{seed}", bundle=bundle, real=False)


def small_catalog() -> Catalog:
    """Return the catalog with the rates of few instance types only."""
    catalog = load_catalog()
    rows = tuple(price for price in catalog.prices.prices if price.instance_type in INSTANCE_TYPES)
    return replace(catalog, prices=replace(catalog.prices, prices=rows))


def _by_minute(demand: Demand) -> tuple[Floats, int]:
    """Return requests per five minutes: finer steps change the capacity that a rule asks for, not its drift."""
    interval_s = 5 * S_PER_MIN
    per = interval_s // STEP_S
    whole = len(demand.arrivals) // per * per
    return np.asarray(demand.arrivals[:whole].reshape(-1, per).sum(axis=1)), interval_s


def _served(folder: Path, name: str, level: Floats, interval_s: int) -> History:
    rate = level / max(float(level.mean()), 1e-12) * MEAN_REQ_S
    path = folder / f"{name}.parquet"
    t_s = np.arange(len(rate), dtype=np.float64) * interval_s
    pq.write_table(pa.table({"t_s": t_s, "requests_per_s": rate}), path)
    bundle = open_trace(path)
    declared = {
        workload: spec.model_copy(update={"targets": (TARGET,)})
        for workload, spec in bundle.workloads.workloads.items()
    }
    return History(name=name, bundle=replace(bundle, workloads=Workloads(workloads=declared)), real=True)

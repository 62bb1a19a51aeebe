"""Replay a recorded trace too short for a plan and its proof: tuned on its first half, replayed over the second.

Who serves it is assumed, as for longer traces (`sources.demo.trace`): so many replicas at the busiest minute, on A100s; a
request is in time if it waits for at most a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.cli.replay_run import ROOM_TO_GROW, ServiceRuns, out_of_reach
from trimtab.cli.replay_spot import SpotAsked, spot_runs
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.pipeline import SEED
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.compare import compare
from trimtab.replay.named import FitContext, expanded, named_policy
from trimtab.replay.series import FloatArray
from trimtab.replay.services import ServiceHistory, ServiceModel
from trimtab.sources.demo.trace import FLEET, RateSeries, read_series
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

WAIT_LIMIT_S = 1.0
REQUIRED_FRAC = 0.99
SHORT_S = 2 * S_PER_DAY
"""A history of fewer whole days has no room for a plan and its proof."""


def is_short(path: Path) -> bool:
    """Tell whether a trace has no two whole days."""
    return max(len(one.arrivals) * one.interval_s for one in read_series(path)) < SHORT_S


def replay_trace(
    path: Path,
    names: Sequence[str],
    only: Sequence[str],
    settings: Settings,
    tell: Callable[[str, float], None],
    asked: SpotAsked | None,
) -> list[ServiceRuns]:
    """Replay each series of a short trace under each policy; raises where there is nothing to replay."""
    machine = FLEET.machine
    market = Market(catalog=load_catalog(), at=FLEET.start.date(), max_term_years=1, assumptions=settings.assumptions)
    pool = Pool(machine.provider, machine.instance_type, machine.region)
    series = {f"trace/{one.name}": one for one in read_series(path, step_s=SYNC_S)}
    for name in only:
        if name not in series:
            raise UnknownName("service", name, series)
    texts = [text for name in names for text in expanded(name)]
    if "plan" in texts:
        raise UsageError(f"{path}: policy plan needs two whole days of history; this is shorter")
    found: list[ServiceRuns] = []
    for name, one in series.items():
        if only and name not in only:
            continue
        tell(f"replaying {name}", len(found) / len(series))
        found.append(_replay(name, one, texts, asked, market.rate(pool), market.rate(pool.held_as(CapacityType.SPOT))))
    return found


def _replay(
    name: str, series: RateSeries, texts: Sequence[str], asked: SpotAsked | None, rate: int, spot_rate: int
) -> ServiceRuns:
    arrivals = np.where(series.present, series.arrivals, np.nan)
    half = len(arrivals) // 2
    if half < 1 or not np.any(arrivals[:half] > 0) or not np.any(arrivals[half:] > 0):
        raise InputError(f"{name}: too short to tune policies on its first half and replay the second")
    model = _model(arrivals, series.interval_s)
    past = ServiceHistory(arrivals=arrivals[:half], step_s=series.interval_s)
    history = ServiceHistory(arrivals=arrivals[half:], step_s=series.interval_s)
    required = np.array([REQUIRED_FRAC])
    context = FitContext(
        history=past,
        model=model,
        required_frac=required,
        observed_replicas=FLEET.replicas,
        min_replicas=1,
        max_replicas=FLEET.replicas * ROOM_TO_GROW,
    )
    policies = {text: named_policy(text, context) for text in texts}
    runs = compare(history, model, policies, required_frac=required, past=past)
    hours = len(history.arrivals) * history.step_s / S_PER_HR
    return ServiceRuns(
        workload=name,
        span=f"the second half of the trace, {hours:.2g} h",
        hours=hours,
        history=history,
        model=model,
        node_micro_usd_hr=rate,
        spot_micro_usd_hr=spot_rate,
        runs=runs,
        spot=[] if asked is None else spot_runs(history, model, runs, asked, required, SEED),
        impossible=tuple(out_of_reach([f"a wait of at most {WAIT_LIMIT_S:g} s"], required, model)),
    )


def _model(arrivals: FloatArray, step_s: float) -> ServiceModel:
    """Return a service whose assumed replicas are as busy as assumed in the busiest minute."""
    steps = max(1, round(S_PER_MIN / step_s))
    known = np.nan_to_num(arrivals)
    whole = known[: len(known) // steps * steps].reshape(-1, steps).sum(axis=1)
    peak_req_s = float(whole.max()) / (steps * step_s)
    return ServiceModel(
        capacity_req_s=peak_req_s / (FLEET.replicas * FLEET.peak_util_frac),
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([WAIT_LIMIT_S]),
        cold_start_s=FLEET.cold_start_s,
        gpus_per_node=FLEET.machine.gpu_count,
    )

"""Cost of scaling policies over the clairvoyant optimum, and the share of requests within target, on recorded demand.

The game is the referee's: one service is a fluid first-in-first-out queue in 15 s steps; a replica serves a load of 1; a
starting replica is billed and serves nothing for the cold start; a request is within target if it queues for at most 1 s; the
99.99 % quantile of the load is set to 8 and to 40 replicas. The clairvoyant serves every step without queueing.

Our policy (`trimtab`) is tuned on the first half of each series and scored, like its clairvoyant, on the second half. The other
policies have nothing to tune and are replayed over the whole series, as the referee replays them.

Run: python -m benchmarks.autoscale [--data DIR] [--cold-start-s 120]
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.traces import STEP_S, Demand, Floats, data_argument, demands
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy, Metric, StaticReplicas
from trimtab.replay.compare import clairvoyant_replica_hr, forecast_first_replicas, tune_scaling
from trimtab.replay.recorded import record, wanted_loads
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, replay_service

PEAK_REPLICAS = (8, 40)
REQUIRED_FRAC = 0.999
FIT_SHARE = 0.5
OURS = "trimtab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy on one series at one size."""

    case: str
    policy: str
    cost_ratio: float
    attainment_frac: float
    replica_hr: float
    cold_starts: int
    cold_start_s: int
    request_level: bool
    detail: str = ""


def game(demand: Demand, peak: int, cold_start_s: int) -> ServiceModel:
    """Return the referee's replica."""
    return ServiceModel(
        capacity_req_s=demand.capacity_req_s(peak),
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([1.0]),
        cold_start_s=cold_start_s,
        queue_limit_s=math.inf,
    )


def baselines(load: Floats) -> dict[str, tuple[ScalingPolicy, int]]:
    """Return the policies that need no tuning, with the replicas they start from."""
    peak = math.ceil(load.max() - 1e-9)
    start = math.ceil(load[0] / 0.7) + 1
    found: dict[str, tuple[ScalingPolicy, int]] = {
        "static peak": (StaticReplicas(peak), peak),
    }
    for percent in (50, 70, 85):
        duty = HpaPolicy(percent / 100, 1, NO_LIMIT, Metric.DUTY_CYCLE)
        found[f"HPA duty-cycle {percent}%"] = (duty, start)
    for percent in (70, 85):
        found[f"HPA demand-metric {percent}%"] = (HpaPolicy(percent / 100, 1, NO_LIMIT), start)
    return found


def baseline_rows(demand: Demand, peak: int, cold_start_s: int) -> Iterator[Row]:
    """Replay the policies without tuning over the whole series."""
    model = game(demand, peak, cold_start_s)
    history = ServiceHistory(arrivals=demand.arrivals, step_s=STEP_S)
    load = history.load(model)
    best_hr = clairvoyant_replica_hr(load, step_s=STEP_S, cold_start_s=cold_start_s)
    for name, (policy, start) in baselines(load).items():
        replay = replay_service(history, model, policy, initial_replicas=start)
        yield Row(
            case=f"{demand.name}/{peak}",
            policy=name,
            cost_ratio=replay.replica_hr / best_hr,
            attainment_frac=float(replay.attained_frac[0]),
            replica_hr=replay.replica_hr,
            cold_starts=replay.cold_starts,
            cold_start_s=cold_start_s,
            request_level=demand.request_level,
        )


def our_row(demand: Demand, peak: int, cold_start_s: int) -> Row:
    """Tune on the first half, score on the second; the recorded series run on from one to the other."""
    model = game(demand, peak, cold_start_s)
    load = ServiceHistory(arrivals=demand.arrivals, step_s=STEP_S).load(model)
    split = int(len(load) * FIT_SHARE)
    fit = ServiceHistory(arrivals=demand.arrivals[:split], step_s=STEP_S)
    policy = tune_scaling(fit, model, required_frac=REQUIRED_FRAC, down_stabilization_s=0).policy
    wanted = wanted_loads(policy, load, record(load, step_s=STEP_S, rules=policy.rules), step_s=STEP_S)[split:]
    rest = ServiceHistory(arrivals=demand.arrivals[split:], step_s=STEP_S, signal=wanted)
    replay = replay_service(rest, model, policy, initial_replicas=forecast_first_replicas(policy, wanted))
    best_hr = clairvoyant_replica_hr(load[split:], step_s=STEP_S, cold_start_s=cold_start_s)
    return Row(
        case=f"{demand.name}/{peak}",
        policy=OURS,
        cost_ratio=replay.replica_hr / best_hr,
        attainment_frac=float(replay.attained_frac[0]),
        replica_hr=replay.replica_hr,
        cold_starts=replay.cold_starts,
        cold_start_s=cold_start_s,
        request_level=demand.request_level,
        detail=(f"tolerance {policy.hpa.tolerance_up_frac:.2f}, at least {policy.hpa.min_replicas}"),
    )


def referee_error_frac(rows: list[Row], traces: Path) -> float | None:
    """Return the largest relative difference from the referee's recorded replica-hours, None where it left no record."""
    path = traces / "baseline_autoscaling.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as lines:
        recorded = {
            (f"{line['trace']}/{line['peak_replicas']}", line["policy"]): float(line["replica_hours"])
            for line in csv.DictReader(lines)
        }
    errors = [
        abs(row.replica_hr / recorded[row.case, row.policy] - 1)
        for row in rows
        if (row.case, row.policy) in recorded and row.policy != OURS
    ]
    return max(errors, default=None)


def summary(rows: list[Row]) -> dict[str, float | None]:
    """Return worst and mean cost ratio and worst attainment of our policy over some rows."""
    ours = [row for row in rows if row.policy == OURS]
    if not ours:
        return {"worst_cost_ratio": None, "mean_cost_ratio": None, "worst_attainment_frac": None}
    return {
        "worst_cost_ratio": max(row.cost_ratio for row in ours),
        "mean_cost_ratio": float(np.mean([row.cost_ratio for row in ours])),
        "worst_attainment_frac": min(row.attainment_frac for row in ours),
    }


def main() -> None:
    parser = data_argument(__doc__)
    parser.add_argument("--cold-start-s", type=int, default=120)
    arguments = parser.parse_args()
    cold_start_s: int = arguments.cold_start_s
    rows: list[Row] = []
    for demand in demands(arguments.data):
        for peak in PEAK_REPLICAS:
            found = [*baseline_rows(demand, peak, cold_start_s), our_row(demand, peak, cold_start_s)]
            rows += found
            for row in found:
                print(
                    f"{row.case:28} {row.policy:24} {row.cost_ratio:7.3f} x clairvoyant  {row.attainment_frac:.4f} in time"
                    f"  {row.detail}"
                )
    result = {
        "benchmark": "autoscale",
        "data": str(arguments.data),
        "cold_start_s": cold_start_s,
        **summary(rows),
        "rate_series": summary([row for row in rows if not row.request_level]),
        "request_level": summary([row for row in rows if row.request_level]),
        "referee_max_error_frac": referee_error_frac(rows, arguments.data) if cold_start_s == 120 else None,
        "cases": [asdict(row) for row in rows],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

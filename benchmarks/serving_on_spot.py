"""Serve recorded demand from spot whose comings and goings were recorded: cost over a bound, and requests in time.

The game is that of `benchmarks.autoscale` (a request is in time if it waits for at most 1 s, 40 replicas at the peak; rate
series only), with 120 s cold starts and four V100 zones probed every 195 s for 45 days (SkyPilot, 2023-02); spot at a third of
on-demand. Availability of one node stands for that of many: a zone that goes takes all of its replicas. Nothing is tuned. The
bound is clairvoyant: the replicas that each step needs, at the spot price while any zone is up, else on demand, starts free.

Run: python -m benchmarks.serving_on_spot [--data DIR]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.autoscale import game
from benchmarks.spot import SPOT_PRICE
from benchmarks.traces import STEP_S, Demand, data_argument, demands
from trimtab.cli.replay.run import read_availability
from trimtab.ledger.arrays import Flags
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy, StaticReplicas
from trimtab.replay.compare import first_replicas, needed_replicas
from trimtab.replay.hedged import replay_hedged
from trimtab.replay.services import ScalingPolicy, ServiceHistory
from trimtab.units import S_PER_HR

PEAK, COLD_START_S = 40, 120
PROBES = "skypilot_spot_availability.parquet"
EVERYTHING, NOTHING = 0, 1
"""One replica in so many on demand: 0 keeps none there, 1 all."""
FLOORS = (NOTHING, 2, 4, EVERYTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy with one floor on one series; costs in on-demand node-hours."""

    case: str
    policy: str
    one_in: int
    cost_ratio_to_bound: float
    cost_ratio_to_on_demand: float
    attainment_frac: float
    spot_frac: float
    lost_replicas: int


def rows(demand: Demand, up: Flags) -> Iterator[Row]:
    """Yield every policy with every floor; the first floor is all on demand."""
    model = game(demand, PEAK, COLD_START_S)
    history = ServiceHistory(arrivals=demand.arrivals, step_s=STEP_S)
    load = history.load(model)
    need = needed_replicas(load)
    bound_hr = float((need * np.where(up.any(axis=0), SPOT_PRICE, 1.0)).sum()) * STEP_S / S_PER_HR
    policies: dict[str, ScalingPolicy] = {
        "static peak": StaticReplicas(int(need.max())),
        "HPA 70%": HpaPolicy(0.7, 1, NO_LIMIT),
        "HPA 50%": HpaPolicy(0.5, 1, NO_LIMIT),
    }
    for name, policy in policies.items():
        on_demand_hr = None
        for one_in in FLOORS:
            replay = replay_hedged(
                history, model, policy, HedgePolicy(one_in), up, initial_replicas=first_replicas(policy, load)
            )
            held_hr = float(replay.on_demand_node_seconds.sum()) / S_PER_HR
            spot_hr = float(replay.spot_node_seconds.sum()) / S_PER_HR
            cost_hr = held_hr + SPOT_PRICE * spot_hr
            on_demand_hr = on_demand_hr or cost_hr
            yield Row(
                case=demand.name,
                policy=name,
                one_in=one_in,
                cost_ratio_to_bound=cost_hr / bound_hr,
                cost_ratio_to_on_demand=cost_hr / on_demand_hr,
                attainment_frac=float(replay.attained_frac[0]),
                spot_frac=spot_hr / (held_hr + spot_hr),
                lost_replicas=replay.lost,
            )


def cases(traces: Path) -> Iterator[Row]:
    """Yield the rows of every rate series under the recorded zones."""
    zones = read_availability(traces / "spot" / PROBES)
    for demand in demands(traces):
        if not demand.request_level:
            yield from rows(demand, zones.spells(len(demand.arrivals), seed=0))


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    found = list(cases(arguments.data))
    for row in found:
        print(
            f"{row.case:28} {row.policy:12} 1 in {row.one_in}  x bound {row.cost_ratio_to_bound:.2f}  "
            f"x on demand {row.cost_ratio_to_on_demand:.2f}  in time {row.attainment_frac:.4f}  "
            f"spot {row.spot_frac:.0%}  lost {row.lost_replicas}"
        )
    result = {"benchmark": "serving_on_spot", "data": str(arguments.data), "cases": [asdict(row) for row in found]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""What images on each node's disk save: drawn services whose starts were measured, planned with that option and without it.

Each service has 4 to 16 replicas, and a load that rises by day within minutes or over hours. A node takes 60 to 240 s to start;
on it images are pulled for 60 to 600 s and weights loaded for 30 to 240 s, as the pods of the history tell. Plans are made on
two weeks and billed on two others.

    python -m benchmarks.faster_start [--fleets 8] [--seed 1]
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from tests.contracts.random_fleets import LE_S, SHARES
from tests.fleets import FleetRows, few_machines, with_starts

from benchmarks.enact import proved_fleet
from benchmarks.lever_worth import Row, compared, run
from trimtab.fleet.settings import Assumptions, Planning, Settings
from trimtab.levers import faster_start
from trimtab.tables.bundle import Bundle

DAYS = 28
NAME = "prod/api"
MACHINES = few_machines("g5.xlarge")
PLANNING = Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1)


def drawn(seed: int) -> tuple[Bundle, Settings, float, float]:
    """Draw a service with its starts; return its start on a node and the pull in it, too."""
    rng = random.Random(seed)
    replicas, busy, by_night = rng.randint(4, 16), rng.uniform(2_000, 4_500), rng.uniform(0.05, 0.5)
    rise_hr, peak_hr = rng.choice((0.0, 1.0, 3.0)), rng.uniform(10.0, 16.0)
    node_s, pull_s, load_s = rng.uniform(60.0, 240.0), rng.uniform(60.0, 600.0), rng.uniform(30.0, 240.0)
    rows = FleetRows(DAYS)
    for number in range(replicas):
        rows.node(f"n{number}", "g5.xlarge").hold(NAME, f"n{number}", [0], pod=f"api-{number}", owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(DAYS * 24), sm=0.35, util=0.4, dram=0.2, tensor=0.15, memory_gib=8.0)

    def requests(hour: int) -> float:
        away_hr = abs((hour % 24) - peak_hr)
        day = float(np.clip(1.0 - (away_hr - 4.0) / rise_hr, 0.0, 1.0)) if rise_hr else float(away_hr <= 5.0)
        return busy * replicas * (by_night + (1.0 - by_night) * day)

    rows.demand(
        NAME,
        requests,
        replicas,
        LE_S,
        lambda hour: [requests(hour) * share for share in SHARES],
        running=lambda _: 0.5 * replicas,
    )
    quantile = rng.choice((0.95, 0.98, 0.99))
    rows.workloads[NAME] = {
        "interruptible": False, "targets": [{"metric": "latency", "quantile": quantile, "limit_s": 10.0}],
    }  # fmt: skip
    start_s = pull_s + 3.0 + load_s
    settings = Settings(planning=PLANNING, assumptions=replace(Assumptions(), node_startup_s=node_s))
    return with_starts(rows.bundle(), *[(start_s, pull_s, load_s)] * 4), settings, start_s, pull_s


def row_of_seed(seed: int) -> Row:
    """Plan, prove, write and read one fleet."""
    bundle, settings, start_s, pull_s = drawn(seed)
    fleet = proved_fleet(str(seed), bundle, settings, MACHINES)
    return compared(fleet, faster_start.NAME, seed=seed, said=f"start {start_s:.0f} s, pull {pull_s:.0f} s")


if __name__ == "__main__":
    run("faster_start", __doc__, row_of_seed)

"""What a second type of node saves where one is scarce: drawn services planned with that option and without it, and read back.

Each service has 4 to 24 replicas on nodes of four GPUs, and is busier by day. Half of the fleets have quotas of a few of the
cheapest nodes, half have one or two of their nodes under a commitment. Plans are made on two weeks and billed on two others.

    python -m benchmarks.overflow [--fleets 8] [--seed 1]
"""

from __future__ import annotations

import random
from datetime import date

from tests.contracts.random_fleets import LE_S, SHARES
from tests.fleets import FleetRows, few_machines

from benchmarks.enact import proved_fleet
from benchmarks.lever_worth import Row, compared, run
from trimtab.catalog.pools import Pool
from trimtab.fleet.settings import Limits, Planning, Settings
from trimtab.levers import overflow
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.plan.commitments.inventory import Owned, OwnedNodes

DAYS = 28
HOME = "g5.12xlarge"
GPUS = 4
NAME = "prod/api"
MACHINES = few_machines("g5.2xlarge", "g6.2xlarge", "g4dn.2xlarge")
PLANNING = Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1)


def drawn(seed: int) -> tuple[FleetRows, Settings, tuple[Owned, ...], str]:
    """Draw a service, what is scarce of its nodes, and that in words."""
    rng = random.Random(seed)
    nodes, busy = rng.randint(1, 6), rng.uniform(2_000, 6_000)
    by_night, sm = rng.uniform(0.1, 0.6), rng.uniform(0.25, 0.6)
    rows = FleetRows(DAYS)
    for node in range(nodes):
        rows.node(f"n{node}", HOME)
        for gpu in range(GPUS):
            rows.hold(NAME, f"n{node}", [gpu], pod=f"api-{node}-{gpu}", owner_kind="Deployment")
            hours = range(DAYS * 24)
            rows.use(NAME, f"n{node}", gpu, hours, sm=sm, util=sm, dram=sm / 2, tensor=sm / 3, memory_gib=8.0)

    def requests(hour: int) -> float:
        return busy * nodes * GPUS / 4 * (1.0 if 8 <= hour % 24 < 20 else by_night)

    def counts(hour: int) -> list[float]:
        return [requests(hour) * share for share in SHARES]

    rows.demand(NAME, requests, nodes * GPUS, LE_S, counts, running=lambda _: nodes * GPUS * sm)
    rows.workloads[NAME] = {"targets": [{"metric": "latency", "quantile": 0.9, "limit_s": 10.0}]}
    if seed % 2:
        count = rng.randint(1, 2)
        price = CommitmentPrice(
            pool=Pool("aws", HOME, "us-east-1"), term_years=1, upfront_usd=0.0, usd_hr=3.6, source="drawn"
        )
        owned = Owned(
            name="drawn", scope=OwnedNodes(offer=price, count=count), start=date(2026, 3, 1), end=date(2027, 3, 1)
        )
        return rows, Settings(planning=PLANNING), (owned,), f"{count} x {HOME} committed to"
    types = ("g4dn.xlarge", "g4dn.2xlarge", "g5.xlarge", "g6.xlarge")
    quotas = ",".join(f"{name}={rng.randint(1, 2 * nodes)}" for name in types)
    return rows, Settings(planning=PLANNING, limits=Limits(quotas=quotas)), (), quotas


def row_of_seed(seed: int) -> Row:
    """Plan, prove, write and read one fleet."""
    rows, settings, owned, scarce = drawn(seed)
    fleet = proved_fleet(str(seed), rows.bundle(), settings, MACHINES, owned)
    return compared(fleet, overflow.NAME, seed=seed, said=scarce)


if __name__ == "__main__":
    run("overflow", __doc__, row_of_seed)

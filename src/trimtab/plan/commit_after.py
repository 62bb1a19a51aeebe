"""What a fleet would use once the other levers are in place: the demand that is left to commit to."""

from __future__ import annotations

import numpy as np

from trimtab.fleet.market import Market
from trimtab.ledger import Usage
from trimtab.plan.planner import Planned
from trimtab.plan.program.fleet_problem import Enacted
from trimtab.replay.outcomes.evaluate import Evaluator


def usage_after(planned: Planned, market: Market) -> Usage:
    """Return node-seconds per pool and hour of the planned window with every action but commitments in force, as replayed."""
    fleet = planned.fleet
    evaluators = {
        index: Evaluator(case=planned.cases[workload.name])
        for index, workload in enumerate(fleet.workloads)
        if workload.name in planned.cases
    }
    in_force = {
        index: planned.deployments[workload.name]
        for index, workload in enumerate(fleet.workloads)
        if workload.name in planned.deployments
    }
    used = Enacted(fleet=fleet, evaluators=evaluators, market=market).usage(in_force, planned.released)
    pools = tuple(sorted(used))
    rows = [used[pool] for pool in pools]
    return Usage(pools=pools, node_seconds=np.array(rows, dtype=np.int64).reshape(len(pools), fleet.window.hours))

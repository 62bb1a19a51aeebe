"""Replay a deadline job over several zones' recorded spot, under a plan by prices of time, and in hindsight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.reference import zone_rules
from benchmarks.reference.spot_plan import NEVER, Flags
from benchmarks.reference.zone_rules import FIRST_ZONE, PAY, WAIT, ZoneMode, ZoneView, kept
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.compiled import admit, compiled

admit(zone_rules)

Actions = NDArray[np.int8]


@compiled
def run_zones(
    up: Flags,
    joint: IntArray,
    actions: Actions,
    start: FloatArray,
    slacks: IntArray,
    price: FloatArray,
    move_cost: float,
    work: int,
) -> tuple[float, bool, int, int, int]:
    """Run one job over the recorded steps; return cost, whether it finished, losses, moves, steps it took.

    A job that has not begun has no home: it begins in the zone of least cost ahead, and pays no transfer.
    """
    zones = len(price)
    done, mode, home, cost = 0, ZoneMode.IDLE, 0, 0.0
    losses, moves, elapsed = 0, 0, 0
    while elapsed < len(up) and done < work:
        if (mode == ZoneMode.SPOT or mode == ZoneMode.ARRIVING) and not up[elapsed, home]:
            mode = ZoneMode.IDLE
            losses += 1
        left = len(up) - elapsed
        point = max(0, int(np.searchsorted(slacks, left - (work - done), side="right")) - 1)
        if cost == 0.0:
            least = NEVER
            for zone in range(zones):
                worth = price[zone] + start[point, zone, joint[elapsed]]
                if up[elapsed, zone] and worth < least:
                    least, home = worth, zone
        view = ZoneView(left, work - done, mode, home)
        action = kept(int(actions[work - done, point, mode * zones + home, joint[elapsed]]), view)
        if action == WAIT:
            mode = ZoneMode.IDLE
        elif action == PAY:
            cost += 1.0
            done += 1 if mode == ZoneMode.ON_DEMAND else 0
            mode = ZoneMode.ON_DEMAND
        else:
            zone = action - FIRST_ZONE
            cost += price[zone]
            if zone == home:
                done += 1 if mode == ZoneMode.SPOT else 0
                mode = ZoneMode.SPOT
            else:
                cost += move_cost
                moves += 1
                home, mode = zone, ZoneMode.ARRIVING
        elapsed += 1
    return cost, done >= work, losses, moves, elapsed


@compiled
def zones_in_hindsight(up: Flags, price: FloatArray, move_cost: float, work: int) -> float:
    """Return the least cost with the whole future of all zones known, from any home zone."""
    zones = len(price)
    value = np.full((4, zones, work + 1), NEVER)
    value[:, :, 0] = 0.0
    earlier = value.copy()
    for elapsed in range(len(up) - 1, -1, -1):
        for home in range(zones):
            for r in range(1, work + 1):
                best = min(value[0, home, r], 1.0 + value[2, home, r])
                for zone in range(zones):
                    if up[elapsed, zone]:
                        if zone == home:
                            best = min(best, price[zone] + value[1, home, r])
                        else:
                            best = min(best, price[zone] + move_cost + value[3, zone, r])
                earlier[0, home, r] = best
                earlier[2, home, r] = min(best, 1.0 + value[2, home, r - 1])
                earlier[1, home, r], earlier[3, home, r] = best, best
                if up[elapsed, home]:
                    earlier[1, home, r] = min(best, price[home] + value[1, home, r - 1])
                    earlier[3, home, r] = min(best, price[home] + value[1, home, r])
        value, earlier = earlier, value
    return float(value[0, :, work].min())

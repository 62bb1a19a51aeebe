"""Work out where a job should run when several zones sell spot: an average-cost plan for each price of time.

Each zone is a chain over (down or up, age bin), counted on its history; zones move independently. For a price of time, relative
value iteration finds the policy of least cost per step of work, time included, over the joint market, the job's mode and its
home zone. Waiting costs time only, so that a low price of time waits for the zone that is cheap and lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.reference.spot_plan import Flags, ages
from benchmarks.reference.zone_job import Actions, run_zones
from benchmarks.reference.zone_rules import FIRST_ZONE, PAY, WAIT
from trimtab.replay.compiled import compiled
from trimtab.replay.series import FloatArray, IntArray

DOWN_EDGES = (1, 9)
UP_EDGES = (1, 3, 9, 33)
STATES = len(DOWN_EDGES) + len(UP_EDGES)
FIRST_UP = len(DOWN_EDGES)
PRIOR_STEPS = 5.0
TIME_PRICES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.6)
"""Shares of an on-demand step's price that a step of waiting is worth."""
SWEEPS = 400
PACE_WORK, PACE_STEPS = 8_000, 60_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZonePlan:
    """Actions `(n_levels, 4 n_zones, n_market)`, their values, and `pace` `(n_levels,)`: steps per step of work.

    `price` `(n_zones,)` is spot's share of the on-demand price, `move_cost` what a checkpoint's transfer costs, in on-demand
    steps.
    """

    actions: Actions
    values: FloatArray
    pace: FloatArray
    price: FloatArray
    move_cost: float


def zone_states(up: Flags) -> IntArray:
    """Return each step's state of one zone: by age while down, then by age while up."""
    age = ages(up)
    down_bin = np.searchsorted(DOWN_EDGES, age, side="right") - 1
    up_bin = np.searchsorted(UP_EDGES, age, side="right") - 1
    return np.where(up, FIRST_UP + up_bin, down_bin).astype(np.int64)


def market_states(up: Flags) -> IntArray:
    """Return each step's joint state of all zones `(n_steps,)`, from flags `(n_steps, n_zones)`."""
    joint = np.zeros(len(up), dtype=np.int64)
    for zone in range(up.shape[1]):
        joint = joint * STATES + zone_states(up[:, zone])
    return joint


def learn_zone(up: Flags) -> FloatArray:
    """Return one zone's chances of going from state to state `(STATES, STATES)`, counted on its history."""
    chances = np.zeros((STATES, STATES))
    states = zone_states(up)
    for first, edges, other in ((0, DOWN_EDGES, FIRST_UP), (FIRST_UP, UP_EDGES, 0)):
        inside = (states[:-1] >= first) & (states[:-1] < first + len(edges))
        turned = up[1:] != up[:-1]
        overall = (turned[inside].sum() + 1.0) / (inside.sum() + 10.0)
        for at in range(len(edges)):
            here = states[:-1] == first + at
            turn = (turned[here].sum() + PRIOR_STEPS * overall) / (here.sum() + PRIOR_STEPS)
            ageing = 1.0 / (edges[at + 1] - edges[at]) if at + 1 < len(edges) else 0.0
            chances[first + at, other] += turn
            chances[first + at, first + at] += (1.0 - turn) * (1.0 - ageing)
            if ageing:
                chances[first + at, first + at + 1] += (1.0 - turn) * ageing
    return chances


def plan_zones(up: Flags, *, price: FloatArray, move_cost: float, seed: int) -> ZonePlan:
    """Learn the zones' markets on a history `(n_steps, n_zones)` and plan for every price of time.

    Paces are measured on a path of the learned market, drawn with the seed.
    """
    count = up.shape[1]
    chances = np.stack([learn_zone(up[:, zone]) for zone in range(count)])
    solved = [solve_zones(chances, price, move_cost, worth, SWEEPS) for worth in TIME_PRICES]
    actions, values = np.stack([one[0] for one in solved]), np.stack([one[1] for one in solved])
    path = draw_path(chances, seed)
    joint = market_states_of(path)
    pace = [
        run_zones(path >= FIRST_UP, joint, actions[[at]], values[[at]], np.zeros(1), price, move_cost, PACE_WORK)[4]
        / PACE_WORK
        for at in range(len(TIME_PRICES))
    ]
    return ZonePlan(actions=actions, values=values, pace=np.minimum.accumulate(pace), price=price, move_cost=move_cost)


def draw_path(chances: FloatArray, seed: int) -> IntArray:
    """Draw a path of the learned market `(PACE_STEPS, n_zones)`."""
    draws = np.random.default_rng(seed).random((PACE_STEPS, len(chances)))
    return follow(chances.cumsum(axis=2), draws)


@compiled
def follow(bounds: FloatArray, draws: FloatArray) -> IntArray:
    """Return the states that draws lead to, from all zones freshly up."""
    path = np.zeros(draws.shape, dtype=np.int64)
    for zone in range(draws.shape[1]):
        state = FIRST_UP
        for step in range(len(draws)):
            state = min(np.searchsorted(bounds[zone, state], draws[step, zone]), STATES - 1)
            path[step, zone] = state
    return path


def market_states_of(path: IntArray) -> IntArray:
    """Return the joint state of each step of a path of zone states."""
    joint = np.zeros(len(path), dtype=np.int64)
    for zone in range(path.shape[1]):
        joint = joint * STATES + path[:, zone]
    return joint


@compiled
def expected_value(chances: FloatArray, value: FloatArray) -> FloatArray:
    """Return the expected value of the next market state, zone by zone, since zones move independently."""
    now, after = value.copy(), np.empty_like(value)
    stride = 1
    for zone in range(len(chances) - 1, -1, -1):
        for row in range(value.shape[0]):
            for i in range(value.shape[1]):
                state = (i // stride) % STATES
                base = i - state * stride
                total = 0.0
                for j in range(STATES):
                    if chances[zone, state, j] > 0.0:
                        total += chances[zone, state, j] * now[row, base + j * stride]
                after[row, i] = total
        now, after = after, now
        stride *= STATES
    return now


@compiled
def solve_zones(
    chances: FloatArray, price: FloatArray, move_cost: float, time_price: float, sweeps: int
) -> tuple[Actions, FloatArray]:
    """Return the best actions `(4 n_zones, n_market)` and their relative values, by relative value iteration.

    Rows are mode x home. `gain`, the cost of a step of work, is corrected until the values stop growing.
    """
    zones = len(price)
    market = STATES**zones
    value = np.zeros((4 * zones, market))
    fresh = np.empty_like(value)
    actions = np.zeros((4 * zones, market), dtype=np.int8)
    gain = price.mean() + time_price
    for _ in range(sweeps):
        after = expected_value(chances, value)
        for home in range(zones):
            for i in range(market):
                best, action = time_price + after[home, i], WAIT
                cost = 1.0 + time_price + after[2 * zones + home, i]
                if cost < best:
                    best, action = cost, PAY
                rest = i
                home_up = False
                for zone in range(zones - 1, -1, -1):
                    if rest % STATES >= FIRST_UP:
                        cost = price[zone] + time_price
                        if zone == home:
                            home_up = True
                            cost += after[zones + home, i]
                        else:
                            cost += move_cost + after[3 * zones + zone, i]
                        if cost < best:
                            best, action = cost, FIRST_ZONE + zone
                    rest //= STATES
                fresh[home, i], actions[home, i] = best, action
                for mode in range(1, 4):
                    row = mode * zones + home
                    fresh[row, i], actions[row, i] = best, action
                    if mode == 2:
                        cost = 1.0 + time_price - gain + after[2 * zones + home, i]
                        if cost < best:
                            fresh[row, i], actions[row, i] = cost, PAY
                    elif home_up:
                        progress = gain if mode == 1 else 0.0
                        cost = price[home] + time_price - progress + after[zones + home, i]
                        if cost < best:
                            fresh[row, i], actions[row, i] = cost, FIRST_ZONE + home
        growth = fresh[zones : 2 * zones].mean() - value[zones : 2 * zones].mean()
        gain += 0.5 * growth
        value[:, :] = fresh - fresh[zones, market - 1]
    return actions, value

"""Work out where a job with a deadline runs when several zones sell spot, at their own prices and with time lost in moving.

Each zone is a chain over (down or up, age bin), counted on its history; zones move independently. What a job can still afford
is its slack: the steps to the deadline beyond those of work. Backwards in work and in slack, dynamic programming finds the
action of least expected cost for the joint market, the job's mode and its home zone. Wide slacks are kept on a grid: a step
without progress moves to the next lower point with the chance that makes the mean right, as age bins do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.reference.spot_plan import NEVER, Flags, ages
from benchmarks.reference.zone_job import Actions
from benchmarks.reference.zone_rules import FIRST_ZONE, PAY, WAIT
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.compiled import compiled

DOWN_EDGES = (1, 9)
UP_EDGES = (1, 3, 9, 33)
STATES = len(DOWN_EDGES) + len(UP_EDGES)
FIRST_UP = len(DOWN_EDGES)
PRIOR_STEPS = 5.0
SLACKS = (*range(25), 28, 34, 42, 54, 72, 100, 150, 300)
"""Slacks, in steps, for which a plan is kept; between two the lower one counts, above the last the last."""
SWEEPS = 3
"""How often a slack of the grid that a step without progress may leave in place is worked out again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZonePlan:
    """Actions `(work + 1, n_slacks, 4 n_zones, n_market)`: rows are mode x home.

    `start` `(n_slacks, n_zones, n_market)` is the expected cost of all the work from a node just launched in a zone. `price`
    `(n_zones,)` is spot's share of the on-demand price, `move_cost` what a checkpoint's transfer costs, in on-demand steps.
    """

    actions: Actions
    start: FloatArray
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


def plan_zones(up: Flags, *, price: FloatArray, move_cost: float, work: int) -> ZonePlan:
    """Learn the zones' markets on a history `(n_steps, n_zones)` and plan so much work for every slack."""
    chances = np.stack([learn_zone(up[:, zone]) for zone in range(up.shape[1])])
    slacks = np.array(SLACKS, dtype=np.int64)
    actions, start = solve_zones(chances.astype(np.float32), price.astype(np.float32), move_cost, work, slacks, SWEEPS)
    return ZonePlan(actions=actions, start=start.astype(np.float64), price=price, move_cost=move_cost)


@compiled
def expect(chances: FloatArray, value: FloatArray, spare: FloatArray) -> None:
    """Turn values into expected values of the next market state, zone by zone, since zones move independently."""
    stride = 1
    for zone in range(len(chances) - 1, -1, -1):
        for row in range(value.shape[0]):
            for i in range(value.shape[1]):
                state = (i // stride) % STATES
                base = i - state * stride
                total = np.float32(0.0)
                for j in range(STATES):
                    chance = chances[zone, state, j]
                    if chance > 0.0:
                        total += chance * value[row, base + j * stride]
                spare[row, i] = total
        value[:, :] = spare
        stride *= STATES


@compiled
def solve_zones(
    chances: FloatArray, price: FloatArray, move_cost: float, work: int, slacks: IntArray, sweeps: int
) -> tuple[Actions, FloatArray]:
    """Return the best actions and the costs from a start (see `ZonePlan`), by work to do, then by slack."""
    zones, points = len(price), len(slacks)
    market = STATES**zones
    states = np.empty(market * zones, dtype=np.int64)
    for i in range(market):
        rest = i
        for zone in range(zones - 1, -1, -1):
            states[i * zones + zone] = rest % STATES
            rest //= STATES
    up = states.reshape(market, zones) >= FIRST_UP
    actions = np.zeros((work + 1, points, 4 * zones, market), dtype=np.int8)
    less = np.zeros((points, 4 * zones, market), dtype=np.float32)
    ahead = np.zeros_like(less)
    idle = np.empty((4 * zones, market), dtype=np.float32)
    value, spare = np.empty_like(idle), np.empty_like(idle)
    for remaining in range(1, work + 1):
        for point in range(points):
            width = slacks[point] - slacks[point - 1] if point > 0 else 1
            ahead[point] = less[point] + price.min()
            for _ in range(sweeps if width > 1 else 1):
                if point == 0:
                    idle[:, :] = np.float32(NEVER)
                else:
                    idle[:, :] = ahead[point - 1] / np.float32(width) + ahead[point] * np.float32(1.0 - 1.0 / width)
                improve(idle, less[point], up, price, move_cost, value, actions[remaining, point])
                expect(chances, value, spare)
                ahead[point] = value
        less, ahead = ahead, less
    return actions, less[:, zones : 2 * zones].copy()


@compiled
def improve(
    idle: FloatArray,
    less: FloatArray,
    up: Flags,
    price: FloatArray,
    move_cost: float,
    value: FloatArray,
    actions: Actions,
) -> None:
    """Write the best actions and their costs, by what lies ahead after a step without progress, and after one with it."""
    zones, market = len(price), idle.shape[1]
    for home in range(zones):
        for i in range(market):
            best, action = idle[home, i], WAIT
            cost = np.float32(1.0) + idle[2 * zones + home, i]
            if cost <= best:
                best, action = cost, PAY
            for zone in range(zones):
                if up[i, zone]:
                    cost = price[zone] + idle[zones + home, i]
                    if zone != home:
                        cost = price[zone] + np.float32(move_cost) + idle[3 * zones + zone, i]
                    if cost < best:
                        best, action = cost, FIRST_ZONE + zone
            for mode in range(4):
                value[mode * zones + home, i], actions[mode * zones + home, i] = best, action
            cost = np.float32(1.0) + less[2 * zones + home, i]
            if cost <= best:
                value[2 * zones + home, i], actions[2 * zones + home, i] = cost, PAY
            cost = price[home] + less[zones + home, i]
            if up[i, home] and cost < best:
                value[zones + home, i], actions[zones + home, i] = cost, FIRST_ZONE + home
            cost = price[home] + idle[zones + home, i]
            if up[i, home] and cost < best:
                value[3 * zones + home, i], actions[3 * zones + home, i] = cost, FIRST_ZONE + home

"""Learn how long spot stays up and down in a zone, and work out the cheapest way through it to a deadline.

Recorded up and down times are far from exponential (CV 1.5-2.6 on public traces): a market that has just come up is
likelier to go than one that has been up for a day. So the market is a chain over (down or up, age bin), whose chances of
turning are counted on history, and the plan is the exact optimum of that chain by dynamic programming, backwards from the
deadline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.reference import fallback
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.compiled import admit, compiled

admit(fallback)

Flags = NDArray[np.bool_]
Actions = NDArray[np.uint8]

AGE_EDGES = (1, 2, 3, 5, 9, 17, 33, 65, 129)
"""Steps of age at which a bin begins."""
PRIOR_STEPS = 2.0
"""A bin's chance of turning is shrunk towards that of all ages as if it had been seen for so many more steps."""
NEVER = 1e8
"""A cost that no plan reaches, in on-demand steps; finite, so that a chance of 0 times it is 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Market:
    """Chances per step that spot turns: `turning` `(2, n_ages)`, row 0 while down, row 1 while up."""

    turning: FloatArray
    age_edges: tuple[int, ...] = AGE_EDGES


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotPlan:
    """The best action for every state: `actions` flat, in the order of `fallback.plan_index`.

    The costs are what the plan expects to pay from an idle start, in on-demand steps, when spot has just come up and when it
    has just gone down.
    """

    actions: Actions
    age_edges: tuple[int, ...]
    work: int
    deadline: int
    cost_from_up: float
    cost_from_down: float


def ages(up: Flags) -> IntArray:
    """Return for each step how long the market has been in its state, this step included, `(n_steps,)`."""
    changed = np.concatenate([[True], up[1:] != up[:-1]])
    since = np.maximum.accumulate(np.where(changed, np.arange(len(up)), 0))
    return np.asarray(np.arange(len(up)) - since + 1, dtype=np.int64)


def learn_market(up: Flags, *, age_edges: tuple[int, ...] = AGE_EDGES) -> Market:
    """Count, on a history of at least two steps, how often spot turns at each age."""
    if len(up) < 2:
        raise ValueError(f"a market needs at least two steps of history, got {len(up)}")
    bins = np.searchsorted(age_edges, ages(up), side="right") - 1
    turned = up[1:] != up[:-1]
    seen, turns = np.zeros((2, len(age_edges))), np.zeros((2, len(age_edges)))
    np.add.at(seen, (up[:-1].astype(int), bins[:-1]), 1.0)
    np.add.at(turns, (up[:-1].astype(int), bins[:-1]), turned.astype(float))
    overall = (turns.sum(axis=1) + 1.0) / (seen.sum(axis=1) + 10.0)
    turning = (turns + PRIOR_STEPS * overall[:, None]) / (seen + PRIOR_STEPS)
    return Market(turning=turning, age_edges=age_edges)


def draw_market(market: Market, steps: int, seed: int) -> Flags:
    """Draw a path of a learned market `(steps,)`, from freshly up: a plan knows its law, and not what is drawn."""
    widths = np.diff(np.array([*market.age_edges, market.age_edges[-1] + NEVER]))
    draws = np.random.default_rng(seed).random((steps, 2))
    up, state, age = np.zeros(steps, dtype=np.bool_), 1, 0
    for step, (turn, ageing) in enumerate(draws):
        up[step] = bool(state)
        if turn < market.turning[state, age]:
            state, age = 1 - state, 0
        elif age + 1 < len(widths) and ageing < 1.0 / widths[age]:
            age += 1
    return up


def plan_job(market: Market, *, work: int, deadline: int, spot_price: float) -> SpotPlan:
    """Return the plan of least expected cost; `spot_price` is a share of the on-demand price, counts are in steps."""
    widths = np.diff(np.array([*market.age_edges, market.age_edges[-1] + NEVER]))
    actions, first = solve(market.turning, widths.astype(np.float64), work, deadline, spot_price)
    return SpotPlan(
        actions=actions.reshape(-1),
        age_edges=market.age_edges,
        work=work,
        deadline=deadline,
        cost_from_up=float(first[1]),
        cost_from_down=float(first[0]),
    )


@compiled
def expected_next(turning: FloatArray, widths: FloatArray, value: FloatArray, expected: FloatArray) -> None:
    """Write the expected value after a step; a job on spot that goes down is idle.

    A bin is left for the next older one with a chance that makes its mean length right.
    """
    bins = turning.shape[1]
    for mode in range(3):
        for up in range(2):
            for k in range(bins):
                after = 0 if mode == 1 and up == 1 else mode
                other = 0 if up == 1 else bins
                here = k + up * bins
                older = min(k + 1, bins - 1) + up * bins
                ageing = 1.0 / widths[k]
                turn = turning[up, k]
                for r in range(value.shape[2]):
                    stays = (1.0 - ageing) * value[mode, here, r] + ageing * value[mode, older, r]
                    expected[mode, here, r] = turn * value[after, other, r] + (1.0 - turn) * stays


@compiled
def solve(
    turning: FloatArray, widths: FloatArray, work: int, deadline: int, spot_price: float
) -> tuple[Actions, FloatArray]:
    """Return the best actions `(deadline + 1, 3, 2 n_ages, work + 1)` and the cost from idle, by market state."""
    bins = turning.shape[1]
    value = np.full((3, 2 * bins, work + 1), NEVER)
    value[:, :, 0] = 0.0
    expected = np.zeros_like(value)
    actions = np.zeros((deadline + 1, 3, 2 * bins, work + 1), dtype=np.uint8)
    for left in range(1, deadline + 1):
        expected_next(turning, widths, value, expected)
        for mode in range(3):
            for state in range(2 * bins):
                for r in range(1, work + 1):
                    best, action = expected[0, state, r], 0
                    if state >= bins:
                        after = r - 1 if mode == 1 else r
                        cost = spot_price + expected[1, state, after]
                        if cost < best:
                            best, action = cost, 1
                    after = r - 1 if mode == 2 else r
                    cost = 1.0 + expected[2, state, after]
                    if cost < best:
                        best, action = cost, 2
                    value[mode, state, r] = min(best, NEVER)
                    actions[left, mode, state, r] = action
    first = np.array([value[0, 0, work], value[0, bins, work]])
    return actions, first

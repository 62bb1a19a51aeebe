"""A plan for a deadline job that does not know which market it is in: several learned ones, weighed by what is seen.

Zones differ, and a zone differs from itself a month later. So a few markets are learned (`spot_plan.learn_market`: one a zone,
or one a stretch of history), the cheapest way to the deadline is worked out in each of them, and while the job runs each
market's weight follows how well it foretold what spot did so far. The action is the one of least cost on the weighted average
of the markets' values (QMDP: Littman, Cassandra and Kaelbling 1995), under the safety net that on-demand capacity can still
finish.

Time goes in steps; a launch costs `launch_steps` of progress, less or more than a step. Work is in steps and may be a fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.reference.spot_plan import NEVER, Flags, Market, ages
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.compiled import compiled

Values = NDArray[np.float32]

IDLE, SPOT, ON_DEMAND = 0, 1, 2
SPOT_PENDING, ON_DEMAND_PENDING = 3, 4
"""On a node whose launch has not ended with its first step."""
MODES = 5
FORGET_FRAC = 0.002
"""Share of the weight that is dealt out evenly again at each step, since a zone may turn into another kind of market."""
_TINY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixture:
    """Several markets with what lies ahead in each: `ahead` `(n_markets, deadline + 1, MODES, 2 n_ages, work + 1)`.

    `ahead[k, left, mode, market, remaining]` is the expected cost of the rest, in on-demand steps, once a step has ended in
    that mode and before the market moves, with `left` steps to come. `prior` `(n_markets,)` sums to 1.
    """

    turning: FloatArray
    age_edges: IntArray
    ahead: Values
    prior: FloatArray
    work: int
    deadline: int
    spot_price: float
    launch_steps: float


def plan_mixture(
    markets: Sequence[Market], *, work: int, deadline: int, spot_price: float, launch_steps: float = 1.0
) -> Mixture:
    """Work out every market's values for a job; all markets must have the same ages, all are as likely at first."""
    if len({market.age_edges for market in markets}) != 1:
        raise ValueError("a mixture needs at least one market, and the same ages in all of them")
    edges = np.array(markets[0].age_edges, dtype=np.int64)
    widths = np.append(np.diff(edges).astype(float), NEVER)
    turning = np.stack([market.turning for market in markets])
    ahead = np.stack([solve_ahead(one, widths, work, deadline, spot_price, launch_steps) for one in turning])
    return Mixture(
        turning=turning,
        age_edges=edges,
        ahead=ahead,
        prior=np.full(len(markets), 1.0 / len(markets)),
        work=work,
        deadline=deadline,
        spot_price=spot_price,
        launch_steps=launch_steps,
    )


@compiled
def after_step(mode: int, wanted: int, launch_steps: float) -> tuple[int, float]:
    """Return the mode after a step on `wanted` (IDLE, SPOT or ON_DEMAND) from `mode`, and the progress it brings."""
    if wanted == IDLE:
        return IDLE, 0.0
    if mode == wanted:
        return wanted, 1.0
    pending = launch_steps - 1.0
    if mode == wanted + 2:
        return wanted, 1.0 - pending
    if pending > 0.0:
        return wanted + 2, 0.0
    return wanted, 1.0 - launch_steps


@compiled
def between(row: Values, remaining: float) -> float:
    """Return a value at a fraction of a step of work, from those at whole ones; done is 0."""
    if remaining <= 0.0:
        return 0.0
    low = int(remaining)
    share = remaining - low
    if share <= 0.0:
        return float(row[low])
    return float((1.0 - share) * row[low] + share * row[low + 1])


@compiled
def solve_ahead(
    turning: FloatArray, widths: FloatArray, work: int, deadline: int, spot_price: float, launch_steps: float
) -> Values:
    """Return one market's `ahead` (see `Mixture`), backwards from the deadline."""
    bins = turning.shape[1]
    value = np.full((MODES, 2 * bins, work + 1), NEVER, dtype=np.float32)
    value[:, :, 0] = 0.0
    ahead = np.zeros((deadline + 1, MODES, 2 * bins, work + 1), dtype=np.float32)
    for left in range(deadline + 1):
        for mode in range(MODES):
            for market in range(2 * bins):
                up, k = market // bins, market % bins
                lost = IDLE if mode in (SPOT, SPOT_PENDING) else mode
                after = lost if up == 1 else mode
                older = min(k + 1, bins - 1) + up * bins
                other = 0 if up == 1 else bins
                turn, ageing = turning[up, k], 1.0 / widths[k]
                for r in range(work + 1):
                    stays = (1.0 - ageing) * value[mode, market, r] + ageing * value[mode, older, r]
                    ahead[left, mode, market, r] = turn * value[after, other, r] + (1.0 - turn) * stays
        for mode in range(MODES):
            for market in range(2 * bins):
                for r in range(1, work + 1):
                    best = float(ahead[left, IDLE, market, r])
                    for wanted in range(SPOT, ON_DEMAND + 1):
                        if wanted == SPOT and market < bins:
                            continue
                        then, progress = after_step(mode, wanted, launch_steps)
                        price = spot_price if wanted == SPOT else 1.0
                        best = min(best, price + between(ahead[left, then, market], r - progress))
                    value[mode, market, r] = min(best, NEVER)
    return ahead


@compiled
def can_finish(mode: int, remaining: float, left: int, launch_steps: float) -> bool:
    """Tell whether on-demand capacity alone finishes in the steps left, from a mode after a step, if spot is then lost."""
    if remaining <= _TINY:
        return True
    needed = remaining + launch_steps
    if mode == ON_DEMAND:
        needed = remaining
    elif mode == ON_DEMAND_PENDING:
        needed = remaining + launch_steps - 1.0
    return needed <= left + _TINY


@compiled
def choose(
    ahead: Values,
    weight: FloatArray,
    mode: int,
    market: int,
    remaining: float,
    left: int,
    spot_price: float,
    launch_steps: float,
) -> int:
    """Return IDLE, SPOT or ON_DEMAND for the step that begins, with `left` steps to the deadline, this one included."""
    bins = ahead.shape[3] // 2
    best, chosen = 0.0, -1
    for wanted in range(ON_DEMAND + 1):
        if wanted == SPOT and market < bins:
            continue
        then, progress = after_step(mode, wanted, launch_steps)
        if wanted != ON_DEMAND and not can_finish(then, remaining - progress, left - 1, launch_steps):
            continue
        cost = 1.0 if wanted == ON_DEMAND else (spot_price if wanted == SPOT else 0.0)
        for k in range(len(weight)):
            cost += weight[k] * between(ahead[k, left - 1, then, market], remaining - progress)
        if chosen < 0 or cost < best:
            best, chosen = cost, wanted
    return chosen


@compiled
def weigh(weight: FloatArray, turning: FloatArray, was_up: int, age_bin: int, turned: bool, forget_frac: float) -> None:
    """Move the markets' weights by whether spot turned in the step that ended, in a state of that age."""
    total = 0.0
    for k in range(len(weight)):
        chance = turning[k, was_up, age_bin]
        weight[k] *= chance if turned else 1.0 - chance
        total += weight[k]
    for k in range(len(weight)):
        weight[k] = (1.0 - forget_frac) * weight[k] / total + forget_frac / len(weight)


@compiled
def run_mixture(
    up: Flags,
    age: IntArray,
    first: int,
    deadline: int,
    work: int,
    turning: FloatArray,
    age_edges: IntArray,
    ahead: Values,
    prior: FloatArray,
    spot_price: float,
    launch_steps: float,
    forget_frac: float,
    seen_from: int,
) -> tuple[float, bool]:
    """Run one job from step `first` on, watched since `seen_from`; return its cost and whether it met its deadline."""
    bins = len(age_edges)
    weight = prior.copy()
    mode, remaining, cost = IDLE, float(work), 0.0
    for at in range(min(seen_from + 1, first), first + deadline):
        if at > seen_from:
            before = np.searchsorted(age_edges, age[at - 1], side="right") - 1
            weigh(weight, turning, 1 if up[at - 1] else 0, before, up[at] != up[at - 1], forget_frac)
        if at < first:
            continue
        if remaining <= _TINY:
            break
        if not up[at] and mode in (SPOT, SPOT_PENDING):
            mode = IDLE
        market = np.searchsorted(age_edges, age[at], side="right") - 1 + (bins if up[at] else 0)
        wanted = choose(ahead, weight, mode, market, remaining, first + deadline - at, spot_price, launch_steps)
        mode, progress = after_step(mode, wanted, launch_steps)
        cost += 1.0 if wanted == ON_DEMAND else (spot_price if wanted == SPOT else 0.0)
        remaining -= progress
    return cost, remaining <= _TINY


def replay_mixture(
    up: Flags, plan: Mixture, *, start: int, seen_from: int, forget_frac: float = FORGET_FRAC
) -> tuple[float, bool]:
    """Replay a job that starts at `start`, spot watched from `seen_from` on; return its cost and whether it met."""
    return run_mixture(
        up,
        ages(up),
        start,
        plan.deadline,
        plan.work,
        plan.turning,
        plan.age_edges,
        plan.ahead,
        plan.prior,
        plan.spot_price,
        plan.launch_steps,
        forget_frac,
        seen_from,
    )

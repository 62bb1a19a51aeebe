"""Replay a deadline job on recorded spot availability, under any rule of `fallback`, and in hindsight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.reference.fallback import Mode, Rule, View, decide
from benchmarks.reference.spot_plan import NEVER, Actions, Flags, SpotPlan, ages
from trimtab.ledger.arrays import IntArray
from trimtab.replay.compiled import compiled

NO_ACTIONS = np.zeros(1, dtype=np.uint8)
NO_AGES = np.ones(1, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineReplay:
    """What one run cost, in on-demand steps, and how it went."""

    cost: float
    met: bool
    steps_on_spot: int
    steps_on_demand: int
    launches: int
    losses: int


def replay_deadline_job(
    up: Flags,
    *,
    start: int,
    work: int,
    deadline: int,
    spot_price: float,
    rule: Rule,
    plan: SpotPlan | None = None,
) -> DeadlineReplay:
    """Replay a job that starts at step `start` of a zone's availability; the market's age there is known."""
    if rule is Rule.PLAN and (plan is None or plan.work != work or plan.deadline < deadline):
        raise ValueError("a plan must be made for the same work and at least the same deadline")
    window = slice(start, start + deadline)
    cost, met, spot, on_demand, launches, losses = run_to_deadline(
        up[window],
        ages(up[: start + deadline])[window],
        work,
        deadline,
        spot_price,
        rule,
        NO_ACTIONS if plan is None else plan.actions,
        NO_AGES if plan is None else np.asarray(plan.age_edges, dtype=np.int64),
    )
    return DeadlineReplay(
        cost=cost, met=met, steps_on_spot=spot, steps_on_demand=on_demand, launches=launches, losses=losses
    )


@compiled
def run_to_deadline(
    up: Flags,
    age: IntArray,
    work: int,
    deadline: int,
    spot_price: float,
    rule: Rule,
    actions: Actions,
    age_edges: IntArray,
) -> tuple[float, bool, int, int, int, int]:
    """Return cost, whether the deadline was met, steps on spot and on demand, launches, losses."""
    done, mode, cost = 0, Mode.IDLE, 0.0
    spot, on_demand, launches, losses = 0, 0, 0, 0
    for elapsed in range(len(up)):
        if done >= work:
            break
        spot_up = bool(up[elapsed])
        if mode == Mode.SPOT and not spot_up:
            mode = Mode.IDLE
            losses += 1
        view = View(elapsed, done, mode, spot_up, age[elapsed], work, deadline)
        wanted = decide(rule, view, actions, age_edges)
        if wanted == Mode.SPOT:
            cost += spot_price
            spot += 1
        elif wanted == Mode.ON_DEMAND:
            cost += 1.0
            on_demand += 1
        if wanted != Mode.IDLE:
            if wanted == mode:
                done += 1
            else:
                launches += 1
        mode = wanted
    return cost, done >= work, spot, on_demand, launches, losses


@compiled
def hindsight_cost(up: Flags, work: int, deadline: int, spot_price: float) -> float:
    """Return the least cost with the whole future known: `value[mode, remaining]`, backwards in time."""
    value = np.full((3, work + 1), NEVER)
    value[:, 0] = 0.0
    earlier = np.zeros_like(value)
    for elapsed in range(deadline - 1, -1, -1):
        for mode in range(3):
            for r in range(1, work + 1):
                best = value[0, r]
                if up[elapsed]:
                    best = min(best, spot_price + value[1, r - 1 if mode == 1 else r])
                earlier[mode, r] = min(best, 1.0 + value[2, r - 1 if mode == 2 else r])
        value[:, 1:] = earlier[:, 1:]
    return float(value[0, work])

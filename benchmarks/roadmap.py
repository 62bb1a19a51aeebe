"""How far the order by saving per engineer-week is from the best one, and what exchanges of pairs make of it.

python -m benchmarks.roadmap [--games 300] [--demos]

Random plans: 4 to 10 actions with crossing savings (`benchmarks.attribution.random_game`), levers drawn from the settings table
with its efforts, shared as in a plan, commitments last. `_frac` are shares of what the best order saves within the year.
`--demos` plans the demonstration fleets as well, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.attribution import random_game
from trimtab.catalog import load_catalog
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import commitments
from trimtab.levers.registry import BUILT_IN
from trimtab.pipeline import split_window
from trimtab.plan.actions.attribution import attribute
from trimtab.plan.actions.roadmap_planner import EXACT_ACTIONS, Bill, Work, best_order, better_order, year_of
from trimtab.plan.model import Plan
from trimtab.plan.planner import plan_of
from trimtab.plan.prospects import judge
from trimtab.sources.demo import DEMO_FLEETS, demo_fleet
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import MO_PER_QUARTER, MO_PER_YEAR, usd

Row = dict[str, float | int | str | bool | None]
FEWEST = 4


def main() -> None:
    """Print the figures, as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--demos", action="store_true")
    args = parser.parse_args()
    found: dict[str, object] = {"benchmark": "roadmap", **random_plans(args.games)}
    if args.demos:
        rows = [{"fleet": name, **demo(name)} for name in DEMO_FLEETS]
        for row in rows:
            print(row)
        found["demos"] = rows
    print(json.dumps(found))


def random_plans(games: int) -> Row:
    """Compare three ways to put random plans in order, over the year."""
    shortfalls, swapped, slowest_s = [], [], 0.0
    for seed in range(games):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(FEWEST, EXACT_ACTIONS + 1))
        work, bill, first = _random_plan(count, seed, rng)
        started = time.perf_counter()
        best = best_order(first, work, bill)
        slowest_s = max(slowest_s, time.perf_counter() - started)
        least = year_of(best, work, bill)
        saved = MO_PER_YEAR * bill(frozenset()) - least
        pairs = better_order(first, partial(year_of, work=work, bill=bill), work.before)
        shortfalls.append((year_of(first, work, bill) - least) / saved)
        swapped.append((year_of(pairs, work, bill) - least) / saved)
    short, pairs_short = np.array(shortfalls), np.array(swapped)
    return {
        "games": games,
        "per_week_best_share": float((short < 1e-9).mean()),
        "per_week_mean_frac": float(short.mean()),
        "per_week_p95_frac": float(np.quantile(short, 0.95)),
        "per_week_worst_frac": float(short.max()),
        "exchanged_best_share": float((pairs_short < 1e-9).mean()),
        "exchanged_mean_frac": float(pairs_short.mean()),
        "exchanged_worst_frac": float(pairs_short.max()),
        "slowest_exact_s": slowest_s,
    }


def _random_plan(count: int, seed: int, rng: np.random.Generator) -> tuple[Work, Bill, list[int]]:
    """Return a random plan's work, its bill by what is done, and its order by saving per engineer-week."""
    planning, table = Planning(), {lever.name: lever.effort for lever in BUILT_IN}
    levers = [BUILT_IN[at].name for at in rng.integers(0, len(BUILT_IN), count)]
    weeks = [table[lever].weeks / (levers.count(lever) if table[lever].per == "fleet" else 1) for lever in levers]
    game = random_game(count, seed)
    today = 2.0 * usd(game(frozenset(range(count))))
    known: dict[frozenset[int], float] = {}

    def bill(done: frozenset[int]) -> float:
        if done not in known:
            known[done] = today - usd(game(done))
        return known[done]

    buys = frozenset(at for at in range(count) if levers[at] == commitments.NAME)
    others = frozenset(range(count)) - buys
    work = Work(
        months=[week * MO_PER_QUARTER / planning.weeks_per_quarter / planning.engineers for week in weeks],
        levers=levers,
        before={at: others if at in buys else frozenset() for at in range(count)},
        apart_mo=1 / planning.levers_per_mo,
    )
    shares = attribute(game, [range(count)], count, seed=seed).shapley
    order = sorted(range(count), key=lambda at: (at in buys, -shares[at] / weeks[at]))
    return work, bill, order


def demo(name: str) -> Row:
    """Plan a demonstration fleet and compare its order with the one by saving per engineer-week."""
    tables, workloads, meta = demo_fleet(name)
    bundle = memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))
    settings = Settings()
    window = bundle_window(bundle)
    fleet = build_fleet(bundle, settings, split_window(window, settings).fit)
    market = Market(
        catalog=load_catalog(),
        at=window.end.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    made = [
        plan_of(judge(fleet, market, one, seed=7, progress=_silent), _silent).plan
        for one in (settings, replace(settings, planning=replace(settings.planning, levers_per_mo=0.0)))
    ]
    return {
        f"{key}{suffix}": value
        for suffix, plan in zip(("", "_no_wait"), made, strict=True)
        for key, value in _row(plan)
    }


def _silent(stage: str, share: float) -> None:
    """Tell nobody."""


def _row(plan: Plan) -> Iterator[tuple[str, float | int | str | bool | None]]:
    roadmap = plan.roadmap
    assert roadmap is not None
    yield "actions", len(plan.actions)
    yield "best", roadmap.best
    yield "year_usd", round(roadmap.course.year_usd)
    yield "per_week_loss_usd", None if roadmap.per_week_loss_usd is None else round(roadmap.per_week_loss_usd)
    yield "fixed_usd", round(roadmap.fixed.year_usd)


if __name__ == "__main__":
    main()

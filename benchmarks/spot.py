"""Cost of a deadline job on recorded spot availability, over the omniscient optimum.

The game is the referee's: 48 h of work on one node, deadline = ratio x 48 h; spot costs a third of on-demand; time runs in
steps of 585 s (3 probes), spot is up in a step if all its probes are; each launch costs one billed step without progress;
60 start times a zone. Our plan learns the market of a zone on the first half of its trace and is scored from start times in
the second half, like the baselines and the optimum beside it. A ratio is mean cost over mean optimum, zones averaged. What not
knowing the future costs at least is shown on paths drawn from the learned markets themselves (`single_zone_own_law`).

`joined_zones` is the referee's form of several zones: joined into one, no prices, no transfer. In `several_zones` each zone has
its own spot price, a launch in another zone than the last checkpoint's takes a billed step more, and the transfer of
the checkpoint costs 0.4 on-demand steps (10 GB at 0.02 USD against 3.06 USD an hour). Prices are the mean of recorded changes
of p3.2xlarge in that zone, else in its region, else in all, as shares of 3.06 USD.

Run: python -m benchmarks.spot [--data DIR]
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.reference.deadline_job import hindsight_cost, replay_deadline_job
from benchmarks.reference.fallback import Rule
from benchmarks.reference.spot_plan import Flags, draw_market, learn_market, plan_job
from benchmarks.reference.zone_job import run_zones, zones_in_hindsight
from benchmarks.reference.zone_plan import SLACKS, market_states, plan_zones
from benchmarks.traces import Floats, data_argument
from trimtab.units import S_PER_HR

DATASET = "aws-02-15-2023"
PROBE_S = 195
PROBES_PER_STEP = 3
STEP_S = PROBE_S * PROBES_PER_STEP
WORK = int(48 * S_PER_HR / STEP_S)
SPOT_PRICE = 1 / 3
RATIOS = (1.1, 1.25, 1.5, 2.0)
START_TIMES = 60
DRAWN_STEPS, DRAWN_STARTS, DRAW_SEED = 60_000, 100, 0
PRICED_TYPE, ON_DEMAND_USD_HR, NO_DISCOUNT = "p3.2xlarge", 3.06, 0.99
MOVE_COST = 0.4
OURS, OPTIMUM = "trimtab", "omniscient"
RULES = {"greedy spot + safety net": Rule.GREEDY, "uniform progress": Rule.UNIFORM_PROGRESS, OURS: Rule.PLAN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Mean cost over the start times, in on-demand steps, by policy; runs that missed their deadline."""

    cost: dict[str, float]
    missed: int


def load_probes(traces: Path) -> dict[str, Flags]:
    """Return each zone's probes in order of time: whether spot could be had."""
    table = pq.read_table(traces / "spot" / "skypilot_spot_availability.parquet")
    table = table.filter(pc.equal(table["dataset"].cast("string"), DATASET)).sort_by("t_s")
    zones = np.array(table["zone"].cast("string").to_pylist())
    up = table["available_nodes"].to_numpy() > 0
    return {str(zone): up[zones == zone] for zone in np.unique(zones)}


def load_zones(traces: Path) -> dict[str, Flags]:
    """Return availability per step of each zone: up where all of its probes are."""
    zones = {}
    for zone, up in load_probes(traces).items():
        steps = len(up) // PROBES_PER_STEP
        zones[zone] = np.asarray(up[: steps * PROBES_PER_STEP].reshape(steps, PROBES_PER_STEP).all(axis=1))
    return zones


def start_times(first: int, steps: int, deadline: int) -> list[int]:
    """Return evenly spread start steps from `first` on."""
    return [int(step) for step in np.linspace(first, steps - deadline - 1, START_TIMES)]


def score(up: Flags, ratio: float, *, learn: int, first: int) -> Score:
    """Score every rule on one zone: learn on the first `learn` steps, start at `first` or later."""
    deadline = int(WORK * ratio)
    plan = plan_job(learn_market(up[:learn]), work=WORK, deadline=deadline, spot_price=SPOT_PRICE)
    starts = start_times(first, len(up), deadline)
    cost, missed = {}, 0
    for name, rule in RULES.items():
        runs = [
            replay_deadline_job(
                up, start=start, work=WORK, deadline=deadline, spot_price=SPOT_PRICE, rule=rule, plan=plan
            )
            for start in starts
        ]
        cost[name] = float(np.mean([run.cost for run in runs]))
        missed += sum(not run.met for run in runs)
    best = [hindsight_cost(up[start : start + deadline], WORK, deadline, SPOT_PRICE) for start in starts]
    cost[OPTIMUM] = float(np.mean(best))
    return Score(cost=cost, missed=missed)


def own_law(zones: dict[str, Flags], ratio: float) -> float:
    """Return the plan's cost over the optimum on paths drawn from the very market that each zone's first half taught it."""
    deadline, found, best = int(WORK * ratio), [], []
    for up in zones.values():
        market = learn_market(up[: len(up) // 2])
        plan = plan_job(market, work=WORK, deadline=deadline, spot_price=SPOT_PRICE)
        path = draw_market(market, DRAWN_STEPS, DRAW_SEED)
        for start in np.linspace(0, len(path) - deadline - 1, DRAWN_STARTS).astype(int).tolist():
            job = replay_deadline_job(
                path, start=start, work=WORK, deadline=deadline, spot_price=SPOT_PRICE, rule=Rule.PLAN, plan=plan
            )
            found.append(job.cost)
            best.append(hindsight_cost(path[start : start + deadline], WORK, deadline, SPOT_PRICE))
    return float(np.mean(found) / np.mean(best))


def ratios(scores: list[Score]) -> dict[str, float]:
    """Return each policy's mean cost over the mean optimum."""
    best = np.mean([one.cost[OPTIMUM] for one in scores])
    return {name: float(np.mean([one.cost[name] for one in scores]) / best) for name in RULES}


def joined(zones: dict[str, Flags]) -> Flags:
    """Return where any zone is up."""
    shortest = min(len(up) for up in zones.values())
    return np.asarray(np.logical_or.reduce([up[:shortest] for up in zones.values()]))


def zone_prices(zones: list[str], traces: Path) -> Floats:
    """Return each zone's mean spot price as a share of on-demand: its own record, its region's, or all zones'."""
    table = pq.read_table(traces / "spot" / "aws_gpu_spot_price_changes_2019_2020.parquet")
    table = table.filter(pc.equal(table["instance_type"].cast("string"), PRICED_TYPE))
    where = np.array(table["zone"].cast("string").to_pylist())
    share = table["spot_usd_per_h"].to_numpy() / ON_DEMAND_USD_HR
    means = {str(zone): float(share[where == zone].mean()) for zone in np.unique(where)}
    sold = {zone: mean for zone, mean in means.items() if mean < NO_DISCOUNT}

    def price(zone: str) -> float:
        region = [mean for other, mean in sold.items() if other[:-1] == zone[:-1]]
        return sold.get(zone, float(np.mean(region or list(sold.values()))))

    return np.array([price(zone) for zone in zones])


def score_several(zones: dict[str, Flags], price: Floats) -> tuple[dict[str, float], int]:
    """Return cost over the optimum with transfer and prices, by deadline ratio, and missed deadlines."""
    shortest = min(len(up) for up in zones.values())
    up = np.ascontiguousarray(np.stack([one[:shortest] for one in zones.values()], axis=1))
    half = shortest // 2
    plan = plan_zones(up[:half], price=price, move_cost=MOVE_COST, work=WORK)
    slacks = np.array(SLACKS, dtype=np.int64)
    joint = market_states(up)
    found, missed = {}, 0
    for ratio in RATIOS:
        deadline = int(WORK * ratio)
        windows = [slice(start, start + deadline) for start in start_times(half, shortest, deadline)]
        runs = [
            run_zones(up[window], joint[window], plan.actions, plan.start, slacks, price, MOVE_COST, WORK)
            for window in windows
        ]
        best = [zones_in_hindsight(up[window], price, MOVE_COST, WORK) for window in windows]
        found[str(ratio)] = float(np.mean([run[0] for run in runs]) / np.mean(best))
        missed += sum(not run[1] for run in runs)
    return found, missed


def referee_error_frac(zones: dict[str, Flags], traces: Path) -> float | None:
    """Return the largest relative difference from the referee's recorded costs over all start times, None without a record."""
    path = traces / "baseline_spot.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as lines:
        recorded = {
            (line["deadline_ratio"], line["zone"], line["policy"]): float(line["cost"])
            for line in csv.DictReader(lines)
        }
    names = {"greedy spot + safety net": "greedy spot + safety net", "uniform progress": "uniform progress"}
    errors = []
    for ratio in RATIOS:
        for zone, up in zones.items():
            mine = score(up, ratio, learn=len(up) // 2, first=0).cost
            for name, theirs in {**names, OPTIMUM: "omniscient (DP)"}.items():
                if (str(ratio), zone, theirs) in recorded:
                    errors.append(abs(mine[name] / recorded[str(ratio), zone, theirs] - 1))
    return max(errors, default=None)


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    zones = load_zones(arguments.data)
    both = joined(zones)
    single: dict[str, dict[str, float]] = {}
    together: dict[str, dict[str, float]] = {}
    missed = 0
    for ratio in RATIOS:
        scores = [score(up, ratio, learn=len(up) // 2, first=len(up) // 2) for up in zones.values()]
        all_zones = score(both, ratio, learn=len(both) // 2, first=len(both) // 2)
        single[str(ratio)] = ratios(scores)
        together[str(ratio)] = ratios([all_zones])
        missed += sum(one.missed for one in scores) + all_zones.missed
        print(f"deadline x {ratio}: single zones {single[str(ratio)]}, joined {together[str(ratio)]}")
    several, late = score_several(zones, zone_prices(list(zones), arguments.data))
    print(f"several zones, with prices and transfer: {several}")
    drawn = {str(ratio): own_law(zones, ratio) for ratio in RATIOS}
    print(f"single zones drawn from the learned law: {drawn}")
    result = {
        "benchmark": "spot",
        "data": str(arguments.data),
        "single_zone": {ratio: value[OURS] for ratio, value in single.items()},
        "single_zone_own_law": drawn,
        "several_zones": several,
        "joined_zones": {ratio: value[OURS] for ratio, value in together.items()},
        "missed_deadlines": missed + late,
        "referee_max_error_frac": referee_error_frac(zones, arguments.data),
        "policies": {"single_zone": single, "joined_zones": together},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

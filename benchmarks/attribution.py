"""Attribution against enumeration of all orders, against the referees' four levers, and the coverage of sampled intervals.

python -m benchmarks.attribution [--referees ../shared/referees] [--data ../shared/data/traces] [--games 300]

`max_error_usd`: largest difference of a share from the exact one (fractions over all subsets), and of their sum from the joint
saving, in random games of up to 12 actions. `referee_max_error_frac`: largest difference from the referees' published
shares of the starting bill (null where their folder is absent).
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np

from trimtab.plan.actions.attribution import CONFIDENCE_FRAC, EXACT_PLAYERS, ShapleyShares, attribute
from trimtab.units import MICRO_PER_USD, usd

Value = Callable[[frozenset[int]], int]


def random_game(players: int, seed: int) -> Value:
    """Return a saving with crossing gains: single values, pairs of either sign, a cap; whole micro-dollars."""
    rng = np.random.default_rng(seed)
    alone = rng.integers(0, 50_000 * MICRO_PER_USD, players)
    pairs = rng.integers(-10_000 * MICRO_PER_USD, 5_000 * MICRO_PER_USD, (players, players))
    cap = int(alone.sum() * rng.uniform(0.5, 1.0))

    def value(some: frozenset[int]) -> int:
        chosen = sorted(some)
        crossed = sum(int(pairs[one, other]) for one, other in combinations(chosen, 2))
        return min(int(alone[chosen].sum()) + crossed, cap) if chosen else 0

    return value


def exact_shapley(value: Value, players: int) -> list[Fraction]:
    """Return the Shapley values as fractions, from every subset."""
    known = {
        frozenset(some): value(frozenset(some))
        for size in range(players + 1)
        for some in combinations(range(players), size)
    }
    shares = [Fraction(0)] * players
    for some, saving in known.items():
        for player in set(range(players)) - some:
            weight = Fraction(1, players * comb(players - 1, len(some)))
            shares[player] += weight * (known[some | {player}] - saving)
    return shares


def enumeration_error_usd(games: int) -> float:
    """Return the largest error over random games, of a share or of the sum."""
    worst = 0.0
    for seed in range(games):
        players = 1 + seed % (EXACT_PLAYERS if seed % 10 == 0 else EXACT_PLAYERS - 4)
        value = random_game(players, seed)
        shares = attribute(value, [list(range(players))], players, seed=seed)
        errors = [
            abs(share - exact) for share, exact in zip(shares.shapley, exact_shapley(value, players), strict=True)
        ]
        off = abs(sum(shares.shapley) - value(frozenset(range(players))))
        worst = max(worst, float(max(errors)), float(off))
    return worst / MICRO_PER_USD


def airport(costs: list[int]) -> tuple[Value, list[float]]:
    """Return the game whose value is the largest of its members', and its Shapley values in closed form.

    Littlechild and Owen (1973): each step in cost is shared equally by the members that reach it.
    """
    order = sorted(range(len(costs)), key=costs.__getitem__)
    shares, so_far, below = [0.0] * len(costs), 0.0, 0
    for place, player in enumerate(order):
        so_far += (costs[player] - below) / (len(costs) - place)
        shares[player], below = so_far, costs[player]
    return (lambda some: max((costs[player] for player in some), default=0)), shares


def coverage(games: int, players: int) -> tuple[float, float]:
    """Return the share of exact values inside the sampled interval, and the mean half width as a share of the joint saving."""
    inside, width = 0, 0.0
    for seed in range(games):
        costs = np.random.default_rng(seed).integers(MICRO_PER_USD, 1000 * MICRO_PER_USD, players).tolist()
        value, exact = airport(costs)
        shares = attribute(value, [list(range(players))], players, seed=seed)
        ends = zip(shares.shapley_low, exact, shares.shapley_high, strict=True)
        inside += sum(low <= share <= high for low, share, high in ends)
        width += (
            sum(high - low for low, high in zip(shares.shapley_low, shares.shapley_high, strict=True)) / 2 / max(costs)
        )
    return inside / (games * players), width / (games * players)


def referee_error_frac(referees: Path, traces: Path) -> float | None:
    """Attribute the referees' four levers with our code; return the largest difference from their table."""
    published = traces / "baseline_joint.csv"
    if not (referees / "baseline_joint.py").is_file() or not published.is_file():
        print(f"no {referees}/baseline_joint.py or no {published}: the referees' levers are skipped", file=sys.stderr)
        return None
    sys.path.insert(0, str(referees))
    joint = importlib.import_module("baseline_joint")
    with published.open(newline="") as file:
        rows = {row["trace"]: row for row in csv.DictReader(file)}
    rates = joint.load_rates(traces)
    return max(
        _trace_error(joint.subset_costs(joint.replica_load(rates[name], joint.PEAK_REPLICAS)), row, joint.LEVERS)
        for name, row in rows.items()
    )


def _trace_error(costs: dict[frozenset[str], float], row: dict[str, str], levers: tuple[str, ...]) -> float:
    """Return the largest difference from one line of the referees' table."""

    def value(some: frozenset[int]) -> int:
        return round((costs[frozenset()] - costs[frozenset(levers[at] for at in some)]) * MICRO_PER_USD)

    shares: ShapleyShares = attribute(value, [list(range(len(levers)))], len(levers), seed=0)
    ours = {"joint": usd(sum(shares.shapley))}
    for at, lever in enumerate(levers):
        ours |= {
            f"shapley_{lever}": usd(shares.shapley[at]),
            f"alone_{lever}": usd(shares.standalone[at]),
            f"last_in_{lever}": usd(shares.last_in[at]),
        }
    for name, number in ours.items():
        print(f"{row['trace']:>24} {name:<20} ours {number:.3f} referee {float(row[name]):.3f}", file=sys.stderr)
    return max(abs(number - float(row[name])) for name, number in ours.items())


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--referees", type=Path, default=Path("../shared/referees"), metavar="DIR")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/traces"), metavar="DIR")
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--sampled-players", type=int, default=20)
    arguments = parser.parse_args()
    covered, width = coverage(max(1, arguments.games // 5), arguments.sampled_players)
    result = {
        "games": arguments.games,
        "max_error_usd": enumeration_error_usd(arguments.games),
        "referee_max_error_frac": referee_error_frac(arguments.referees, arguments.data),
        "interval_nominal_frac": CONFIDENCE_FRAC,
        "interval_coverage_frac": covered,
        "interval_half_width_frac": width,
    }
    print(json.dumps({"benchmark": "attribution", "data": str(arguments.data), **result}))


if __name__ == "__main__":
    main()

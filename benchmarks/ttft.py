"""Time to first token by replay of the engine's scheduler: `python -m benchmarks.ttft --data measured.csv [--write]`.

Every row is predicted by constants that never saw its group (model family x chip): the serving model's tables are refitted
without the group, as in `benchmarks.predict`, and the three constants of a first token are chosen on the other groups' rows. A
row is a closed loop at a concurrency, replayed as it was run. Its clients all start at once, so the mean over a run is a share
of the first round, where all wait for all, and the rest of the later ones. InferenceX sends ten requests a client, whose share
is 0.1 (`--num-prompts` is ten times the concurrency in its README); for the other runs, whose length nobody states, the share
is a fourth constant. No answer to a user has it.

Rows whose load the replay finds beyond saturation (`beyond_saturation`: requests lose their cache, or wait for a place for
longer than they are then served) get no answer and count as `abstained`; `answering_all` has the errors with them.

The last line is one JSON object: the replay, the closed formula that `trimtab fit` finds ways by (`approximation`) on the same
rows, and their geometric mean, each with intervals and centres from other folds. With `--write` the constants, chosen on all
rows under the packaged tables, go to `src/trimtab/physics/data/first_token.json`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.fitted import Held, fit_tables, folds_of, kind_of, point_predictions, with_held_intervals
from benchmarks.perf_rows import Row, is_ttft, read_rows, serving_query
from benchmarks.refit import DATA, FORMAT_VERSION, SOURCE
from benchmarks.scores import coverage, mean, median, relative_errors, width_ratio
from benchmarks.serving_fit import row_weights
from trimtab.ledger.arrays import Flags
from trimtab.physics.fitted import Floats, Terms
from trimtab.physics.predict import coefficients_of, packaged
from trimtab.physics.serving import FirstTokenCosts, level_of
from trimtab.physics.serving_query import ServingQuery, serving_columns, serving_keys
from trimtab.replay.engine import Requests
from trimtab.replay.first_token import beyond_saturation, replay_deployment, spread_lengths
from trimtab.units import MS_PER_S

WAIT_SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
FIXED_S = (0.005, 0.02, 0.05, 0.1)
DELAY_STEPS = (0.0, 1.0, 2.0, 4.0, 6.0, 10.0, 16.0, 24.0)
FIRST_ROUND_FRACS = (0.1, 0.15, 0.2, 0.3)
ROUNDS = 10
"""Requests a client, as InferenceX sends them. The first is the round in which all start."""
SETTLED = 2
"""From this round on, where ends lie apart, the later rounds are averaged."""
SPREAD_FRAC = 0.2
"""InferenceX draws lengths from 0.8 of the nominal one up (`random-range-ratio 0.8`). The other runs have one length; their
answers are spread as far, since clients whose answers were equal to the token would go on in step for ever, as none do."""
CAPPED_LOG = 1.5
"""Errors beyond this logarithm count no more when constants are chosen: some measured means are of another regime."""
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One measured row as a question, with its numbers."""

    row: Row
    query: ServingQuery
    columns: Mapping[str, Floats]
    keys: Mapping[str, str]
    is_inferencex: bool

    @property
    def level(self) -> str:
        """Return the level by which constants differ."""
        return level_of(self.keys)

    @property
    def prefix_may_be_cached(self) -> bool:
        """Say whether the run repeats its prompts: its first tokens come faster than the board can read the prompts."""
        return self.row.source == "ree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The constants of a level, and the share of the first round in its runs."""

    costs: FirstTokenCosts
    first_round_frac: float


def asked_rows(rows: Sequence[Row]) -> list[Asked]:
    """Return the rows of time to first token."""
    found = []
    for row in rows:
        query = serving_query(row)
        if is_ttft(row) and query is not None:
            found.append(
                Asked(
                    row=row,
                    query=query,
                    columns=serving_columns([query]),
                    keys=serving_keys(query),
                    is_inferencex=is_inferencex(row),
                )
            )
    return found


def is_inferencex(row: Row) -> bool:
    """Say whether InferenceX ran it: the source names its runs by date or by `cfg`."""
    name = re.match(r"silicon id (\S+);", row.notes)
    return name is not None and re.search(r"^20\d\d_|cfg", name[1]) is not None


def requests_of(asked: Asked) -> Requests:
    """Return the requests of a row's run. Prompts that are repeated are found in the prefix cache."""
    query, number = asked.query, ROUNDS * int(asked.query.requests)
    drawn = np.random.default_rng(_SEED).random((2, number))
    prompts = np.full(number, round(query.input_tokens))
    answers = spread_lengths(query.output_tokens, SPREAD_FRAC, drawn[1])
    if asked.is_inferencex:
        # its generator draws from the nominal length downwards
        middle = 1 - SPREAD_FRAC / 2
        prompts = spread_lengths(query.input_tokens * middle, SPREAD_FRAC / middle, drawn[0])
        answers = spread_lengths(query.output_tokens * middle, SPREAD_FRAC / middle, drawn[1])
    return Requests(np.zeros(number), prompts, answers, prompts * asked.prefix_may_be_cached)


def rounds_s(asked: Asked, tables: Mapping[str, Terms]) -> Floats:
    """Return a row's mean time to first token of the first and of the later rounds, its time per token, and 1 where the load
    is beyond saturation, else 0: `(4,)`."""
    clients = int(asked.query.requests)
    coefficients = coefficients_of([asked.query], asked.columns, tables)
    replayed = replay_deployment(
        asked.columns, coefficients, requests_of(asked), clients=clients, max_num_seqs=max(clients, 8)
    )
    ttft_s = replayed.ttft_s
    step_s = float(np.nanmedian(replayed.tpot_s)) if asked.query.output_tokens > 1 else 0.0
    later_s = ttft_s[SETTLED * clients :].mean()
    return np.array([ttft_s[:clients].mean(), later_s, step_s, beyond_saturation(replayed)])


def predicted_s(asked: Sequence[Asked], rounds: Floats, chosen: Chosen) -> Floats:
    """Return the mean time to first token of rows, `(n, 4)` rounds; `(n,)`."""
    costs = chosen.costs
    first, later, step, _ = rounds.T
    share = np.where([one.is_inferencex for one in asked], 1 / ROUNDS, chosen.first_round_frac)
    waited = share * first + (1 - share) * later
    return np.asarray(costs.wait_scale * waited + costs.fixed_s + costs.delay_steps * step)


def choose(asked: Sequence[Asked], rounds: Floats) -> Chosen:
    """Return the constants of the least mean |ln(predicted / measured)|; a group of n rows counts n^0.4."""
    measured = np.log([one.row.value / MS_PER_S for one in asked])
    weights = row_weights([one.row.group for one in asked])
    best, least = None, np.inf
    for scale, fixed_s, steps, frac in product(WAIT_SCALES, FIXED_S, DELAY_STEPS, FIRST_ROUND_FRACS):
        costs = FirstTokenCosts(wait_scale=scale, fixed_s=fixed_s, delay_steps=steps)
        chosen = Chosen(costs=costs, first_round_frac=frac)
        errors = np.abs(np.log(predicted_s(asked, rounds, chosen)) - measured)
        cost = float(np.average(np.minimum(errors, CAPPED_LOG), weights=weights))
        if cost < least:
            best, least = chosen, cost
    assert best is not None
    return best


def constants(asked: Sequence[Asked], rounds: Floats) -> dict[str, Chosen]:
    """Return the constants of each level, and of each engine as a whole (`vllm|*`).

    Of rows whose prompts are computed and whose load is not beyond saturation.
    """
    usable = np.array([not one.prefix_may_be_cached for one in asked]) & (rounds[:, 3] == 0)
    names = np.array([one.level for one in asked])
    engines = np.array([one.keys["engine"] + "|*" for one in asked])
    found = {}
    for by in (names, engines):
        for level in np.unique(by[usable]):
            at = np.flatnonzero((by == level) & usable).tolist()
            found[str(level)] = choose([asked[i] for i in at], rounds[at])
    return found


def held_out(asked: Sequence[Asked], rows: Sequence[Row]) -> tuple[list[Held], list[Held], Flags]:
    """Return the errors of replay and approximation on each row when its group is held back, and which are saturated."""
    replayed, formula = np.full(len(asked), np.nan), np.full(len(asked), np.nan)
    saturated = np.zeros(len(asked), dtype=np.bool_)
    classes: list[tuple[str, ...]] = [()] * len(asked)
    serving = [row for row in rows if kind_of(row) == "serving"]
    groups = np.array([one.row.group for one in asked])
    for fold in folds_of(serving):
        held = np.isin(groups, list(fold))
        if not held.any():
            continue
        tables = fit_tables("serving", [row for row in serving if row.group not in fold])
        rounds = np.array([rounds_s(one, tables) for one in asked])
        seen = np.flatnonzero(~held).tolist()
        chosen = constants([asked[i] for i in seen], rounds[seen])
        tested = np.flatnonzero(held).tolist()
        values, levels = point_predictions("serving", tables, [asked[i].row for i in tested])
        for place, i in enumerate(tested):
            formula[i], classes[i] = values[place] / MS_PER_S, levels[place]
            level, engine = asked[i].level, asked[i].keys["engine"] + "|*"
            replayed[i] = predicted_s([asked[i]], rounds[i : i + 1], chosen[level if level in chosen else engine])[0]
            saturated[i] = rounds[i, 3] > 0
        print(f"{sorted(set(groups[held]))}: {held.sum()} rows", flush=True)
    pairs = [_held(asked, values, classes) for values in (replayed, formula)]
    return pairs[0], pairs[1], saturated


def _held(asked: Sequence[Asked], values: Floats, classes: Sequence[tuple[str, ...]]) -> list[Held]:
    errors = np.log(values) - np.log([one.row.value / MS_PER_S for one in asked])
    return [Held(one.row, float(error), keys) for one, error, keys in zip(asked, errors, classes, strict=True)]


def figures(held: Sequence[Held]) -> dict[str, object]:
    """Return errors, coverage and width of held-out predictions, all and by engine."""
    answers = with_held_intervals(held)
    rows = [one.row for one in held]
    by_engine = {
        name: {"rows": len(part), "median": _round(median(relative_errors(part, answers)))}
        for name in sorted({row.framework.casefold() for row in rows})
        if (part := [row for row in rows if row.framework.casefold() == name])
    }
    errors = relative_errors(rows, answers)
    return {
        "mape_frac": _round(mean(errors)),
        "median_frac": _round(median(errors)),
        "uncentred_median_frac": _round(median(np.abs(np.exp([one.log_error for one in held]) - 1))),
        "uncentred_mape_frac": _round(mean(np.abs(np.exp([one.log_error for one in held]) - 1))),
        "interval_coverage_frac": _round(coverage(rows, answers)),
        "high_over_low_median": _round(width_ratio(rows, answers)),
        "one_point_median_frac": _round(median(_one_point(held))),
        "by_engine": by_engine,
    }


def _one_point(held: Sequence[Held]) -> Floats:
    """Return the errors after calibrating on one other row of the same deployment: all ordered pairs."""
    series: dict[tuple[object, ...], list[float]] = {}
    for one in held:
        row = one.row
        key = (row.model, row.gpu, row.framework, row.version, row.precision, row.gpus, row.tensor, row.expert)
        series.setdefault(key, []).append(one.log_error)
    gaps = [np.abs(np.exp(np.subtract.outer(logs, logs)) - 1) for logs in map(np.array, series.values())]
    return np.concatenate([gap[~np.eye(len(gap), dtype=bool)] for gap in gaps])


def _round(value: float) -> float:
    return round(value, 4)


def _middle(one: Sequence[Held], other: Sequence[Held]) -> list[Held]:
    return [Held(a.row, (a.log_error + b.log_error) / 2, a.classes) for a, b in zip(one, other, strict=True)]


def write_constants(asked: Sequence[Asked], held: Sequence[Held]) -> None:
    """Write the constants of all rows under the packaged tables, with the quantiles of the held-out errors."""
    tables = packaged("serving").tables
    chosen = constants(asked, np.array([rounds_s(one, tables) for one in asked]))
    errors = [one.log_error for one in held]
    low, high = np.quantile(errors, [0.1, 0.9])
    content = {
        "version": FORMAT_VERSION,
        "source": f"{SOURCE}; first tokens by replay of the scheduler, 2026-11-23",
        "rows": len(held),
        "held_out_median_frac": _round(median(np.abs(np.exp(errors) - 1))),
        "low": _round(float(low)),
        "high": _round(float(high)),
        "costs": {
            name.replace("|*", "|"): {
                "wait_scale": one.costs.wait_scale,
                "fixed_s": one.costs.fixed_s,
                "delay_steps": one.costs.delay_steps,
            }
            # an engine with dense models (an empty kind) keeps their constants and not those of all
            for name, one in sorted(chosen.items())
            if not (name.endswith("|*") and name.replace("|*", "|") in chosen)
        },
    }
    path = DATA / "first_token.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured rows, columns of the perf data set")
    parser.add_argument("--write", action="store_true", help="write the packaged constants")
    options = parser.parse_args()
    rows = read_rows(options.data)
    asked = asked_rows(rows)
    replayed, formula, saturated = held_out(asked, rows)
    answered = [
        [one for one, is_beyond in zip(held, saturated, strict=True) if not is_beyond] for held in (replayed, formula)
    ]
    if options.write:
        write_constants(asked, answered[0])
    result = {
        "abstained": int(saturated.sum()),
        "replay": figures(answered[0]),
        "approximation": figures(answered[1]),
        "geometric_mean_of_both": figures(_middle(*answered)),
        "answering_all": {"replay": figures(replayed), "approximation": figures(formula)},
    }
    print(json.dumps({"benchmark": "ttft", "data": str(options.data), "rows": len(asked), **result}))


if __name__ == "__main__":
    main()

"""Useful share of paid spot time under the rule that the checkpoint runtime follows, on recorded V100 up-times.

The game is the referee's: an up period is an unbroken run of available probes and ends in an interruption; it begins with 3
minutes of restore, then alternates work and saves that stop the work; work since the last finished save is lost unless a
2-minute notice leaves time for one more. In `useful_frac_notices_missing` 10 % of the notices never come, or too late to use
(drawn with 20 seeds). Our rule learns the danger by age on the first half of each zone's up periods and is scored on the rest.
Beside it, on the same half: Young/Daly with notice, saving at notice only, and the fixed interval that is best in hindsight.

`worst_loss_s` is the most work that one interruption can destroy: the longest interval that the rule chose, and the save.

Run: python -m benchmarks.checkpoint_interval [--data DIR]
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from benchmarks.reference.useful_share import useful_frac
from benchmarks.spot import PROBE_S, load_probes
from benchmarks.traces import Floats, data_argument
from trimtab.units import S_PER_HR, S_PER_MIN
from trimtab_runtime.policies.checkpointing import (
    CheckpointRule,
    hazard_from_lifetimes,
    interval_s,
    young_daly_interval_s,
)

SAVE_MIN = (1, 2)
RESTORE_S = 3.0 * S_PER_MIN
NOTICE_S = 2.0 * S_PER_MIN
MISSING_FRAC = 0.1
LONGEST_S = 8.0 * S_PER_HR
SEEDS = 20
NEVER_S = 1e12
GRID_S = np.geomspace(1, 600, 200) * S_PER_MIN


def up_times_s(traces: Path) -> dict[str, Floats]:
    """Return the lengths of each zone's up periods."""
    found = {}
    for zone, up in load_probes(traces).items():
        edges = np.flatnonzero(np.diff(np.concatenate([[0], up, [0]]).astype(np.int8)))
        found[zone] = (edges[1::2] - edges[::2]).astype(float) * PROBE_S
    return found


def notices(count: int, missing_frac: float) -> list[list[bool]]:
    """Draw which interruptions are announced in time, once for each seed; once in all where none is missing."""
    if missing_frac <= 0:
        return [[True] * count]
    return [[bool(x) for x in np.random.default_rng(seed).random(count) >= missing_frac] for seed in range(SEEDS)]


def rule_for(lives_s: Floats, missing_frac: float) -> CheckpointRule:
    """Return the runtime's rule, with the danger by age of these lives and no slack beyond the game's exact times."""
    return CheckpointRule(
        hazard=hazard_from_lifetimes(lives_s.tolist()),
        notice_s=NOTICE_S,
        notice_missing_frac=missing_frac,
        min_interval_s=0.0,
        max_interval_s=LONGEST_S,
        save_slack=1.0,
        margin_s=0.0,
    )


def fixed_frac(lives_s: Floats, every_s: float, save_s: float, noticed: Floats) -> float:
    """Return the useful share under a fixed interval; `noticed` is the share of notices that come, life by life."""
    after_s = np.maximum(0.0, lives_s - RESTORE_S)
    saves = np.floor(after_s / (every_s + save_s))
    at_notice_s = np.maximum(0.0, after_s - saves * (every_s + save_s) - save_s)
    kept_s = saves * every_s + (noticed * at_notice_s if save_s <= NOTICE_S else 0.0)
    return float(kept_s.sum() / lives_s.sum())


def zone_scores(lives_s: Floats, save_s: float, missing_frac: float) -> dict[str, float]:
    """Learn on the first half of a zone's lives and return the useful share of the second, by policy."""
    split = len(lives_s) // 2
    fit_s, rest_s = lives_s[:split], lives_s[split:]
    drawn = notices(len(rest_s), missing_frac)
    noticed = np.mean(np.array(drawn, dtype=float), axis=0)
    rule = rule_for(fit_s, missing_frac)
    ours = [useful_frac(rest_s.tolist(), RESTORE_S, rule, save_s, flags) for flags in drawn]
    young_daly_s = young_daly_interval_s(save_s, float(fit_s.mean()))
    ages_s = np.geomspace(RESTORE_S, lives_s.max(), 200)
    return {
        "trimtab": float(np.mean(ours)),
        "young_daly_with_notice": fixed_frac(rest_s, young_daly_s, save_s, noticed),
        "at_notice_only": fixed_frac(rest_s, NEVER_S, save_s, noticed),
        "best_fixed_in_hindsight": max(fixed_frac(rest_s, every_s, save_s, noticed) for every_s in GRID_S),
        "worst_loss_s": max(interval_s(rule, age_s, save_s, save_s, 0.0) for age_s in ages_s) + save_s,
    }


def mean_scores(zones: dict[str, Floats], save_min: int, missing_frac: float) -> dict[str, float]:
    """Return each policy's mean over the zones, and the largest of their loss bounds."""
    scores = [zone_scores(lives_s, save_min * S_PER_MIN, missing_frac) for lives_s in zones.values()]
    means = {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}
    return {**means, "worst_loss_s": max(score["worst_loss_s"] for score in scores)}


def referee_error_frac(zones: dict[str, Floats], traces: Path) -> float | None:
    """Return the largest relative difference from the referee's Young/Daly shares, None where it left no record."""
    path = traces / "baseline_checkpoint.csv"
    if not path.is_file():
        return None
    errors = []
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            if line["zone"] in zones:
                lives_s, save_s = zones[line["zone"]], float(line["ckpt_min"]) * S_PER_MIN
                every_s = young_daly_interval_s(save_s, float(lives_s.mean()))
                for column, come in (("yd_useful", 0.0), ("yd_useful_notice", 1.0)):
                    mine = fixed_frac(lives_s, every_s, save_s, np.full(len(lives_s), come))
                    errors.append(abs(mine / float(line[column]) - 1))
    return max(errors, default=None)


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    zones = up_times_s(arguments.data)
    perfect = {str(save): mean_scores(zones, save, 0.0) for save in SAVE_MIN}
    missing = {str(save): mean_scores(zones, save, MISSING_FRAC) for save in SAVE_MIN}
    for name, scores in (("notices perfect", perfect), ("10 % of notices missing", missing)):
        for save, score in scores.items():
            print(f"{name}, {save} min a save: {score}")
    result = {
        "benchmark": "checkpoint_interval",
        "data": str(arguments.data),
        "useful_frac": {save: score["trimtab"] for save, score in perfect.items()},
        "useful_frac_notices_missing": {save: score["trimtab"] for save, score in missing.items()},
        "worst_loss_s": {save: score["worst_loss_s"] for save, score in missing.items()},
        "referee_max_error_frac": referee_error_frac(zones, arguments.data),
        "policies": {"notices_perfect": perfect, "notices_missing": missing},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

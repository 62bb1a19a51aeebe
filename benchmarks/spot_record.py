"""How well a fleet's own record of spot foretells the days that follow, blended with the stated odds.

From each zone's recorded probes, the share of time without spot in a few hours is blended with the assumed share as
`fleet.spot_record` does, and held against the share of the next three days; 40 moments a zone. The weight of the assumption
(`PRIOR_HR`) was chosen on the zones of February 2023; the zones of October 2022 and April 2023 are reported.

Losses likewise: how often nodes of a zone were lost, blended with the assumed rate, against those of the next three days. The
width of their interval (`LOSS_DRIFT`) was chosen on the same zones.

Run: python -m benchmarks.spot_record [--data DIR]
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.traces import Floats, data_argument
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.spot_record import PRIOR_HR, SpotRecord, spot_odds
from trimtab.units import S_PER_HR, S_PER_MIN

CHOSEN_ON = "aws-02-15-2023"
REPORTED_ON = ("aws-10-26-2022", "aws-04-19-2023", "aws-04-22-2023")
STEP_S = 10 * S_PER_MIN
STEPS_PER_HR = S_PER_HR // STEP_S
WATCHED_HR = (1, 3, 6, 12, 24, 48)
NEXT_HR = 72
MOMENTS = 40


def without_spot(traces: Path, datasets: tuple[str, ...]) -> list[Floats]:
    """Return for each zone of some recordings the steps of ten minutes: 1 where a probe failed, NaN where none was made."""
    table = pq.read_table(traces / "spot" / "skypilot_spot_availability.parquet").to_pandas()
    zones = []
    for _, probes in table[table["dataset"].isin(datasets)].groupby(["dataset", "zone"], observed=True):
        up = (probes["available_nodes"] > 0).groupby((probes["t_s"] // STEP_S).to_numpy()).min()
        zones.append(1.0 - up.reindex(range(int(up.index.max()) + 1)).to_numpy(dtype=np.float64))
    return zones


def errors(zones: list[Floats], watched_hr: int) -> dict[str, float]:
    """Return the root mean square errors of the record alone, of the stated odds and of both."""
    assumptions = Assumptions()
    misses: dict[str, list[float]] = {"record": [], "stated": [], "blended": []}
    for without in zones:
        watched, following = watched_hr * STEPS_PER_HR, NEXT_HR * STEPS_PER_HR
        if len(without) < watched + following:
            continue
        for first in np.linspace(0, len(without) - watched - following, MOMENTS).astype(int):
            seen = without[first : first + watched]
            known_hr = float(np.isfinite(seen).sum()) / STEPS_PER_HR
            if not known_hr:
                continue
            later = float(np.nanmean(without[first + watched : first + watched + following]))
            record = SpotRecord(
                known_hr=known_hr,
                without_hr=float(np.nansum(seen)) / STEPS_PER_HR,
                droughts=0,
                droughts_hr=0.0,
                node_hr=0.0,
                losses=0,
                losses_at_droughts=0,
            )
            misses["record"].append(float(np.nanmean(seen)) - later)
            misses["stated"].append(assumptions.spot_unavailable_frac - later)
            misses["blended"].append(spot_odds(record, assumptions, 0.0).unavailable_frac - later)
    return {name: round(float(np.sqrt(np.mean(np.square(values)))), 3) for name, values in misses.items()}


def loss_errors(zones: list[Floats], watched_hr: int) -> dict[str, float]:
    """Return how far expected losses an hour are from those that followed, and how often these lie in the interval.

    A step without spot after one with it is a loss: a node that had run would have gone.
    """
    stated = Assumptions(spot_droughts_take=False)
    off, inside, above = [], [], []
    for without in zones:
        watched, following = watched_hr * STEPS_PER_HR, NEXT_HR * STEPS_PER_HR
        for first in np.linspace(0, len(without) - watched - following, MOMENTS).astype(int):
            if len(without) < watched + following:
                break
            before, after = without[first : first + watched], without[first + watched : first + watched + following]
            (losses, node_hr), (later, later_hr) = _losses(before), _losses(after)
            if not later_hr:
                continue
            record = SpotRecord(
                known_hr=0.0,
                without_hr=0.0,
                droughts=0,
                droughts_hr=0.0,
                node_hr=node_hr,
                losses=losses,
                losses_at_droughts=0,
            )
            odds = spot_odds(record, stated, stated.spot_loss_per_hr)
            rate = later / later_hr
            off.append(abs(np.log(max(rate, 1 / later_hr) / odds.loss_per_hr)))
            inside.append(odds.loss_low_per_hr <= rate <= odds.loss_high_per_hr)
            above.append(rate > odds.loss_high_per_hr)
    return {
        "median_factor": round(float(np.exp(np.median(off))), 2),
        "interval_holds": round(float(np.mean(inside)), 3),
        "above": round(float(np.mean(above)), 3),
        "moments": len(off),
    }


def _losses(without: Floats) -> tuple[int, float]:
    """Return the losses of a zone's steps, and the hours that a node was up."""
    return int(((without[:-1] == 0) & (without[1:] == 1)).sum()), float((without == 0).sum()) / STEPS_PER_HR


def main() -> None:
    options = data_argument(__doc__).parse_args()
    chosen, reported = without_spot(options.data, (CHOSEN_ON,)), without_spot(options.data, REPORTED_ON)
    figures = {
        name: {str(hours): errors(zones, hours) for hours in WATCHED_HR}
        for name, zones in (("chosen_on", chosen), ("reported_on", reported))
    }
    for name, by_hours in figures.items():
        for hours, found in by_hours.items():
            print(f"{name}: {hours} h watched: {found}")
    losses = {
        name: {str(hours): loss_errors(zones, hours) for hours in (0, *WATCHED_HR)}
        for name, zones in (("chosen_on", chosen), ("reported_on", reported))
    }
    for name, of_losses in losses.items():
        for hours, measured in of_losses.items():
            print(f"{name}: losses, {hours} h watched: {measured}")
    told = {"data": str(options.data), "prior_hr": PRIOR_HR, "rms_error": figures, "losses": losses}
    print(json.dumps({"benchmark": "spot_record", **told}))


if __name__ == "__main__":
    main()

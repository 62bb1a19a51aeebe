"""Predicted against replayed saving: plan on a fit window, prove on the days after it, over many windows (rolling origin).

The error of a window is the difference of the two savings, a month, over the bill of the proof window before the plan. An
interval holds where the replayed saving lies in it. The drift that the intervals carry (`trimtab.plan.actions.intervals`) is
learnt from the fleets of one half, by place in the list, and what is reported as held out is the other half.

Run: python -m benchmarks.proof [--data DIR] [--quick] [--out FILE.csv]
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.proof_cases import History, histories, small_catalog
from benchmarks.traces import data_argument
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Planning, Settings
from trimtab.plan.actions.attribution import attribute
from trimtab.plan.actions.intervals import joint_saving
from trimtab.plan.planner import Planned, plan_of
from trimtab.plan.proof.proof_window import PlanOnWindow, prove
from trimtab.plan.prospects import judge
from trimtab.units import per_month, usd

SEED = 7
ANY_PAYBACK = Planning(min_saving_usd_mo=1.0, max_payback_mo=120.0)
"""Fleets of sixteen GPUs stand for larger ones: an action is not left out because it pays back late on so few."""
QUICK_STEP = 6
"""A quick run takes every sixth window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One predicted saving with its interval and what came of it, in dollars a month; `bill` is the proof window's."""

    fleet: str
    real: bool
    half: str
    origin: str
    what: str
    """`plan`, or the lever of an action."""
    predicted_usd_mo: float
    low_usd_mo: float
    high_usd_mo: float
    replayed_usd_mo: float
    bill_usd_mo: float
    standalone_usd_mo: float
    """What the action was predicted to save alone; of a plan, its saving."""

    @property
    def error_frac(self) -> float:
        """Return the error as a share of the bill."""
        return abs(self.predicted_usd_mo - self.replayed_usd_mo) / self.bill_usd_mo

    @property
    def held(self) -> bool:
        """Tell whether the interval held, to the cent."""
        return self.low_usd_mo - 0.01 <= self.replayed_usd_mo <= self.high_usd_mo + 0.01


def claims_of(history: History, half: str, *, every: int) -> Iterator[Claim]:
    """Plan and prove every window of a history, and yield what was claimed of the plan and of each action."""
    settings, catalog = Settings(planning=ANY_PAYBACK), small_catalog()
    for fit, proof in list(history.windows())[::every]:
        market = Market(
            catalog=catalog,
            at=fit.end.date(),
            max_term_years=settings.planning.max_term_years,
            assumptions=settings.assumptions,
        )
        earlier = build_fleet(history.bundle, settings, fit)
        planned = plan_of(judge(earlier, market, settings, seed=SEED, progress=_silent), _silent)
        later = build_fleet(history.bundle, settings, proof)
        after = PlanOnWindow(planned=planned, enacted=prove(planned, later, market, settings, seed=SEED).enacted)
        yield from _claims(history, half, fit, planned, after)


def _silent(stage: str, share: float) -> None:
    """Tell nobody."""


def _claims(history: History, half: str, fit: Window, planned: Planned, after: PlanOnWindow) -> Iterator[Claim]:
    hours, plan = after.enacted.fleet.window.hours, planned.plan
    whole = joint_saving(plan, speeds_as_predicted=True)
    everything = range(len(plan.actions))
    shares = attribute(after.saving, [list(everything)], len(plan.actions), seed=SEED).shapley if plan.actions else ()
    rows = [("plan", whole, whole.value, after.saving(frozenset(everything)))]
    rows += [
        (action.lever, action.saving_usd_mo, action.standalone_usd_mo, share)
        for action, share in zip(plan.actions, shares, strict=True)
    ]
    for what, estimate, alone, saved in rows:
        yield Claim(
            fleet=history.name,
            real=history.real,
            half=half,
            origin=f"{fit.end:%Y-%m-%dT%H}",
            what=what,
            predicted_usd_mo=estimate.value,
            low_usd_mo=estimate.low,
            high_usd_mo=estimate.high,
            replayed_usd_mo=per_month(usd(saved), hours),
            bill_usd_mo=per_month(usd(after.cost(frozenset())), hours),
            standalone_usd_mo=alone,
        )


def figures(claims: Sequence[Claim]) -> dict[str, float]:
    """Return the windows or actions, their median and 90th percentile of error, and how often intervals held."""
    errors = [claim.error_frac for claim in claims]
    return {
        "claims": len(claims),
        "median_error_frac": float(np.median(errors)),
        "p90_error_frac": float(np.quantile(errors, 0.9)),
        "interval_coverage_frac": float(np.mean([claim.held for claim in claims])),
        "interval_width_of_bill_frac": float(
            np.median([(claim.high_usd_mo - claim.low_usd_mo) / claim.bill_usd_mo for claim in claims])
        ),
    }


def main() -> None:
    arguments = _parser().parse_args()
    claims: list[Claim] = []
    for place, history in enumerate(histories(arguments.data)):
        half = "learn" if place % 2 == 0 else "held out"
        mine = list(claims_of(history, half, every=QUICK_STEP if arguments.quick else 1))
        claims += mine
        plans = [claim for claim in mine if claim.what == "plan"]
        if plans:
            print(f"{history.name:34s} {half:9s} {figures(plans)}", flush=True)
    if arguments.out:
        _write(arguments.out, claims)
    print(json.dumps({"benchmark": "proof", "data": str(arguments.data), **_summary(claims)}))


def _summary(claims: Sequence[Claim]) -> dict[str, object]:
    """Return the figures of whole plans held out, and beside them every other cut."""
    plans = [claim for claim in claims if claim.what == "plan"]
    held_out = [claim for claim in plans if claim.half == "held out"]
    actions = [claim for claim in claims if claim.what != "plan" and claim.half == "held out"]
    cuts = {
        "all_windows": plans,
        "real_windows": [claim for claim in plans if claim.real],
        "learn_windows": [claim for claim in plans if claim.half == "learn"],
        "held_out_actions": actions,
        **{
            f"held_out_{lever}": chosen
            for lever in sorted({claim.what for claim in actions})
            if (chosen := [claim for claim in actions if claim.what == lever])
        },
    }
    return {**figures(held_out), **{name: figures(chosen) for name, chosen in cuts.items() if chosen}}


def _write(path: Path, claims: Sequence[Claim]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.DictWriter(stream, fieldnames=list(Claim.__dataclass_fields__), lineterminator="\n")
        rows.writeheader()
        rows.writerows(asdict(claim) for claim in claims)


def _parser() -> argparse.ArgumentParser:
    parser = data_argument(__doc__)
    parser.add_argument("--quick", action="store_true", help=f"every {QUICK_STEP}th window only")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every claim as CSV")
    return parser


if __name__ == "__main__":
    main()

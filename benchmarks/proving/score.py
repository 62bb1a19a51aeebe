"""Claims held against the world: one verdict a fleet, one row a family, and the totals that are reported."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.proving.bound import bound_usd
from benchmarks.proving.claims import Claim, Silence, Target, audit, claim_again
from benchmarks.proving.enact import NotPlayed, enact
from benchmarks.proving.fleet import Fleet
from benchmarks.proving.parts import Family
from benchmarks.proving.world.clock import HOURS_PER_MONTH

COST_FRAC = 0.05
ANY_PAYBACK = ("--set", "planning.max_payback_mo=120", "--set", "planning.min_saving_usd_mo=1")
"""Fleets of a dozen GPUs stand for larger ones: an action is not left out because it pays back late on so few."""
_ROUNDING_FRAC = 1e-3
"""Bills are stated to the cent and judged to a thousandth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one fleet's claims. Dollars are of the proof window."""

    family: str
    seed: int
    frozen: bool
    workloads: int
    outcome: str
    """judged, refused, crashed, or not played."""
    message: str = ""
    claimed: int = 0
    """Targets that the proof says are kept."""
    kept: int = 0
    """Of those, kept in the world."""
    workloads_claimed: int = 0
    """Workloads of which at least one target is claimed."""
    before_usd: float = 0.0
    claimed_usd: float = 0.0
    true_usd: float = 0.0
    clairvoyant_usd: float = 0.0
    """What the audit states that a plan which knew the future could reach."""
    bound_usd: float = 0.0
    """What the work costs at least in the world."""
    bill_usd_mo: float = 0.0
    """Of the fit window."""
    unjudged_usd_mo: float = 0.0
    interval_holds: bool = False
    breaches: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    wall_s: float = 0.0
    """How long it took: make, audit, enact."""

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Verdict:
        """Read a line that `to_json` wrote."""
        fields = json.loads(text)
        fields |= {name: tuple(fields[name]) for name in ("breaches", "misses")}
        return Verdict(**fields)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return what must never happen: a claimed target broken, a breach of the audit's own sums, a crash."""
        crash = (f"CRASH {self.message}",) if self.outcome == "crashed" else ()
        return (*crash, *self.misses, *self.breaches)

    @property
    def cost_frac(self) -> float:
        """Return the true cost over the claimed one, less 1."""
        return self.true_usd / self.claimed_usd - 1 if self.claimed_usd > 0 else float("inf")

    @property
    def cost_holds(self) -> bool:
        """Tell whether the claimed cost was within 5 % of the true one."""
        return abs(self.cost_frac) <= COST_FRAC

    @property
    def realised_usd(self) -> float:
        """Return what the plan truly saves; nothing where it breaks a target that it claims."""
        return (
            self.before_usd - self.true_usd if self.kept == self.claimed else min(0.0, self.before_usd - self.true_usd)
        )

    def line(self) -> str:
        """Say it in a line."""
        if self.outcome != "judged":
            return f"{self.outcome}: {self.message}"
        saved = 1 - self.claimed_usd / self.before_usd, 1 - self.true_usd / self.before_usd
        parts = [
            f"{self.kept} of {self.claimed} claimed targets kept",
            f"saves {saved[0]:.1%} claimed, {saved[1]:.1%} true",
            f"cost {self.cost_frac:+.1%}",
            f"interval {'holds' if self.interval_holds else 'broken'}",
            *self.misses,
            *self.breaches,
        ]
        return "; ".join(parts)


def judge(family: Family, seed: int, days: int, folder: Path, *, again: bool = False) -> Verdict:
    """Make a fleet, audit it, enact its plan, and compare; `again` takes the audit that an earlier run left in the folder."""
    began = time.perf_counter()
    verdict = _judged(family, seed, days, folder, again=again)
    return replace(verdict, wall_s=round(time.perf_counter() - began, 1))


def _judged(family: Family, seed: int, days: int, folder: Path, *, again: bool) -> Verdict:
    fleet = family.make(seed, days)
    workloads = len(fleet.services) + len(fleet.runs)

    def silent(outcome: str, message: str) -> Verdict:
        return Verdict(
            family=family.name, seed=seed, frozen=family.frozen, workloads=workloads, outcome=outcome, message=message
        )

    claim = claim_again(folder, fleet.start) if again else _audited(fleet, folder)
    if isinstance(claim, Silence):
        return silent("crashed" if claim.crashed else "refused", claim.message)
    try:
        true = enact(fleet, claim)
    except NotPlayed as error:
        return silent("not played", str(error))
    claimed = [target for target in claim.targets if target.kept]
    missed = [target for target in claimed if true.attained[target] < target.required_frac]
    per_month = HOURS_PER_MONTH / claim.proof_hours
    saved_usd_mo = (true.before_usd - true.after_usd) * per_month
    return Verdict(
        family=family.name,
        seed=seed,
        frozen=family.frozen,
        workloads=workloads,
        outcome="judged",
        claimed=len(claimed),
        kept=len(claimed) - len(missed),
        workloads_claimed=len({target.workload for target in claimed}),
        before_usd=true.before_usd,
        claimed_usd=claim.after_usd,
        true_usd=true.after_usd,
        clairvoyant_usd=claim.clairvoyant_usd,
        bound_usd=bound_usd(fleet, claim),
        bill_usd_mo=claim.fit_bill_usd_mo,
        unjudged_usd_mo=claim.unjudged_usd_mo,
        interval_holds=claim.low_usd_mo - 0.01 <= saved_usd_mo <= claim.high_usd_mo + 0.01,
        breaches=_breaches(claim, true.before_usd, true.fit_bill_usd),
        misses=tuple(_miss(target, true.attained[target]) for target in missed),
    )


def _audited(fleet: Fleet, folder: Path) -> Claim | Silence:
    bundle = fleet.write(folder / "bundle")
    for name, text in fleet.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return audit(bundle, [*ANY_PAYBACK, *fleet.options], folder, fleet.start)


def _miss(target: Target, attained: float) -> str:
    limit = "" if target.limit_s is None else f" {target.limit_s:g} s"
    return (
        f"MISSED {target.workload} {target.metric}{limit}: {attained:.2%} true, {target.attained_frac:.2%} claimed, "
        f"{target.required_frac:.0%} required"
    )


def _breaches(claim: Claim, before_usd: float, fit_bill_usd: float) -> tuple[str, ...]:
    """Return where the audit's own sums depart from the world's, or from sense."""
    found = []
    fit = claim.fit_bill_usd_mo * claim.fit_hours / HOURS_PER_MONTH
    for what, said, true in (("fit", fit, fit_bill_usd), ("proof", claim.before_usd, before_usd)):
        if abs(said - true) > _ROUNDING_FRAC * max(true, 1.0):
            found.append(f"BREACH the {what} window cost ${true:,.2f}, the audit says ${said:,.2f}")
    if claim.after_usd > 1.5 * claim.before_usd:
        found.append(f"BREACH a plan that costs {claim.after_usd / claim.before_usd:.1f} times as much as nothing done")
    return tuple(found)


HEAD = (
    "family",
    "fleets",
    "claimed",
    "kept",
    "cost 5 %",
    "interval",
    "realised",
    "of bound",
    "breaches",
    "refused",
    "crashed",
    "not played",
    "s a fleet",
)
"""Columns of the table. Realised: the true saving over what the audit says was possible, and over the world's own bound."""


def row_of(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the row of a family with at least one verdict."""
    judged = [one for one in verdicts if one.outcome == "judged"]
    claimed, kept = sum(one.claimed for one in judged), sum(one.kept for one in judged)
    figures = totals(verdicts)
    realised = figures["realised_of_clairvoyant_frac"], figures["realised_of_bound_frac"]
    return [
        verdicts[0].family + ("" if verdicts[0].frozen else " (added after)"),
        str(len(verdicts)),
        str(claimed),
        str(kept),
        f"{sum(one.cost_holds for one in judged)}/{len(judged)}",
        f"{sum(one.interval_holds for one in judged)}/{len(judged)}",
        *("-" if share is None else f"{share:.0%}" for share in realised),
        str(sum(len(one.breaches) for one in judged)),
        *(str(sum(one.outcome == what for one in verdicts)) for what in ("refused", "crashed", "not played")),
        f"{figures['wall_s_a_fleet'] or 0:.0f}",
    ]


def totals(verdicts: Sequence[Verdict]) -> dict[str, float | int | None]:
    """Return the figures of the whole; a fleet that was not judged claims nothing, and no ratio leaves it out of `fleets`."""
    judged = [one for one in verdicts if one.outcome == "judged"]
    claimed = sum(one.claimed for one in judged)
    possible = sum(max(one.before_usd - one.clairvoyant_usd, 0.0) for one in judged)
    return {
        "fleets": len(verdicts),
        "judged": len(judged),
        "refused": sum(one.outcome == "refused" for one in verdicts),
        "crashed": sum(one.outcome == "crashed" for one in verdicts),
        "not_played": sum(one.outcome == "not played" for one in verdicts),
        "targets_claimed": claimed,
        "targets_kept_frac": _share(sum(one.kept for one in judged), claimed),
        "cost_within_5pct_frac": _share(sum(one.cost_holds for one in judged), len(judged)),
        "median_cost_error_frac": float(np.median([abs(one.cost_frac) for one in judged])) if judged else None,
        "conservation_breaches": sum(len(one.breaches) for one in judged),
        "interval_holds_frac": _share(sum(one.interval_holds for one in judged), len(judged)),
        "targets_claimed_frac": _share(
            sum(one.workloads_claimed for one in judged), sum(one.workloads for one in verdicts)
        ),
        "spend_judged_frac": _share(
            sum(one.bill_usd_mo - one.unjudged_usd_mo for one in judged), sum(one.bill_usd_mo for one in judged)
        ),
        "realised_of_clairvoyant_frac": _share(sum(one.realised_usd for one in judged), possible),
        "realised_of_bound_frac": _share(
            sum(one.realised_usd for one in judged), sum(max(one.before_usd - one.bound_usd, 0.0) for one in judged)
        ),
        "below_bound": sum(one.true_usd < one.bound_usd * (1 - _ROUNDING_FRAC) for one in judged),
        "wall_s_a_fleet": _share(sum(one.wall_s for one in verdicts), len(verdicts)),
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None

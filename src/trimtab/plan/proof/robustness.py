"""How a plan fares where the world departs from what it was made for: the proof again, with speeds off and more demand.

The plan stands as it is: its policies, its places, what it bought. Beside it goes the fleet as it is run today, on as many more
nodes as the demand takes. In arXiv 2604.07472 the exact plan loses most under errors of 1.5x while one with headroom holds:
what the headroom costs is told too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.scaled import scaled_fleet
from trimtab.fleet.settings import Settings
from trimtab.plan.model import Action, Proof, TargetResult
from trimtab.plan.planner import Planned
from trimtab.plan.proof.proof_window import prove
from trimtab.replay.outcomes.outcome import Stress
from trimtab.units import per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One way in which the world may depart: factors on speed and on demand."""

    name: str
    speed: float = 1.0
    demand: float = 1.0


_AT_ONCE = 2
"""Departures that are replayed at once."""
DEPARTURES = (
    Departure(name="speeds 20% lower", speed=0.8),
    Departure(name="speeds 20% higher", speed=1.2),
    Departure(name="demand 1.5x", demand=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stressed:
    """The proof under one departure."""

    departure: Departure
    saving_frac: float
    targets_kept: int
    targets: int
    missed: tuple[str, ...]
    """Workloads that miss a target which they keep where nothing departs."""
    bill_usd_mo: float
    """The bill under the plan there."""
    results: tuple[TargetResult, ...]
    """Every target there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """The plan under every departure, and what its headroom costs a month."""

    stressed: tuple[Stressed, ...]
    price_usd_mo: float
    """What a plan without headroom for demand, speed and targets would save besides on the fit window."""

    def fragile(self, action: Action) -> tuple[str, ...]:
        """Return the departures under which workloads of an action miss a target."""
        subjects = {change.subject for change in action.changes}
        return tuple(one.departure.name for one in self.stressed if subjects & {*one.missed})


def robustness(
    planned: Planned, proof: Proof, proof_fleet: Fleet, market: Market, settings: Settings, *, seed: int
) -> Robustness:
    """Prove a plan again under every departure; two at once, for compiled replays let go of the interpreter's lock."""
    missed = {(result.workload, result.target) for result in proof.targets if not result.kept}

    def stressed(departure: Departure) -> Stressed:
        fleet = scaled_fleet(proof_fleet, departure.demand)
        again = prove(planned, fleet, market, settings, seed=seed, stress=Stress(speed=departure.speed)).proof
        worse = {
            result.workload
            for result in again.targets
            if not result.kept and (result.workload, result.target) not in missed
        }
        return Stressed(
            departure=departure,
            saving_frac=again.saving_frac,
            targets_kept=sum(result.kept for result in again.targets),
            targets=len(again.targets),
            missed=tuple(sorted(worse)),
            bill_usd_mo=per_month(usd(again.after_micro_usd), again.window.hours),
            results=again.targets,
        )

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        found = tuple(pool.map(stressed, DEPARTURES))
    return Robustness(stressed=found, price_usd_mo=planned.plan.usd_mo(planned.headroom_micro_usd))

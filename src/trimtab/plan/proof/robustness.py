"""How a plan fares where the world departs from what it was made for: the proof again, at other speeds, demand and capacity.

The plan stands as it is: its policies, its places, what it bought. Beside it goes the fleet as it is run today, on as many more
nodes as the demand takes. In arXiv 2604.07472 the exact plan loses most under errors of 1.5x while one with headroom holds:
what the headroom costs is told too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from trimtab.deployment.effects import HedgeOnSpot, SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.scaled import scaled_fleet
from trimtab.fleet.settings import Settings
from trimtab.plan.model import Action, CapacityPicture, TargetResult
from trimtab.plan.planner import Planned
from trimtab.plan.proof.proof_window import ProofResult, prove
from trimtab.replay.outcomes.outcome import Stress
from trimtab.units import per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """One way in which the world may depart: factors on speed and on demand, capacity that is not there."""

    name: str
    speed: float = 1.0
    demand: float = 1.0
    no_capacity_hr: int = 0
    """Hours in which services get no further node, from the hour on after which the plan asks for most more."""
    zones_lost: int = 0
    metrics_late_s: float = 0.0


_AT_ONCE = 2
"""Departures that are replayed at once."""
DEPARTURES = (
    Perturbation(name="speeds 20% lower", speed=0.8),
    Perturbation(name="speeds 20% higher", speed=1.2),
    Perturbation(name="demand 1.5x", demand=1.5),
)
"""What every plan is proved under."""
NO_CAPACITY = Perturbation(name="no further node for services for 6 hours, at their steepest rise", no_capacity_hr=6)
"""For plans that scale services. How long capacity is short nobody publishes: six hours are most of a working day."""
LATE_METRICS = Perturbation(name="metrics two minutes late", metrics_late_s=120.0)
"""For plans that scale services: two scrapes a minute apart, where the second fails, and the rule behind them (assumed)."""
ZONE_LOST = Perturbation(name="one zone of spot lost for good", zones_lost=1)
"""For plans that serve from spot over several zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbedProof:
    """The proof under one departure."""

    departure: Perturbation
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

    stressed: tuple[PerturbedProof, ...]
    price_usd_mo: float
    """What a plan without headroom for demand, speed and targets would save besides on the fit window."""

    def fragile(self, action: Action) -> tuple[str, ...]:
        """Return the departures under which workloads of an action miss a target."""
        subjects = {change.subject for change in action.changes}
        return tuple(one.departure.name for one in self.stressed if subjects & {*one.missed})


def robustness(
    planned: Planned, proven: ProofResult, proof_fleet: Fleet, market: Market, settings: Settings, *, seed: int
) -> Robustness:
    """Prove a plan again under every departure that can touch it; two at once, for compiled replays let go of the lock."""
    missed = {(result.workload, result.target) for result in proven.proof.targets if not result.kept}

    def stressed(departure: Perturbation) -> PerturbedProof:
        fleet = scaled_fleet(proof_fleet, departure.demand)
        stress = Stress(
            speed=departure.speed,
            closed_hours=steepest_hours(proven.capacity, departure.no_capacity_hr),
            zones_lost=departure.zones_lost,
            metrics_late_s=departure.metrics_late_s,
        )
        again = prove(planned, fleet, market, settings, seed=seed, stress=stress).proof
        worse = {
            result.workload
            for result in again.targets
            if not result.kept and (result.workload, result.target) not in missed
        }
        return PerturbedProof(
            departure=departure,
            saving_frac=again.saving_frac,
            targets_kept=sum(result.kept for result in again.targets),
            targets=len(again.targets),
            missed=tuple(sorted(worse)),
            bill_usd_mo=per_month(usd(again.after_micro_usd), again.window.hours),
            results=again.targets,
        )

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        found = tuple(pool.map(stressed, (*DEPARTURES, *_of_capacity(planned))))
    return Robustness(stressed=found, price_usd_mo=planned.plan.usd_mo(planned.headroom_micro_usd))


def _of_capacity(planned: Planned) -> Iterator[Perturbation]:
    """Yield the departures of capacity that can touch a plan."""
    deployments = planned.deployments.values()
    if any(isinstance(one.scaling, SetReplicaPolicy) for one in deployments):
        yield NO_CAPACITY
        yield LATE_METRICS
    if any(isinstance(one.buying, HedgeOnSpot) and one.buying.zones > 1 for one in deployments):
        yield ZONE_LOST


def steepest_hours(services: Sequence[CapacityPicture], hours: int) -> tuple[int, int]:
    """Return the first hour of a stretch and the one after it: that in which services together come to hold most more GPUs."""
    held = np.sum([service.after_gpus for service in services], axis=0) if services else np.zeros(1)
    if not hours or len(held) <= hours:
        return 0, hours
    rise = [float(held[at + 1 : at + hours + 1].max() - held[at]) for at in range(len(held) - hours)]
    start = int(np.argmax(rise)) + 1
    return start, start + hours

"""How a plan fares where the world departs from what it was made for: the proof again, at other speeds, demand and capacity.

The plan stands as it is: its policies, its places, what it bought. Beside it goes the fleet as it is run today, on as many more
nodes as the demand takes. In arXiv 2604.07472 the exact plan loses most under errors of 1.5x while one with headroom holds:
what the headroom costs is stated too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import HedgeOnSpot, SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Fleet, Target
from trimtab.fleet.scaled import scaled_fleet
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import MeasuredStarts, SlowStarts
from trimtab.ledger.arrays import FloatArray
from trimtab.plan.model import Action, CapacityPicture, TargetResult
from trimtab.plan.planner import Planned
from trimtab.plan.program.fleet_problem import FleetBill
from trimtab.plan.proof.proof_window import ProofResult, deployed, enact, target_results
from trimtab.replay.compiled import side_by_side
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.jobs_outcome import asked_gpus
from trimtab.replay.outcomes.outcome import AS_PREDICTED, Case, Outcome, Stress
from trimtab.replay.outcomes.service_model import planned_start_of
from trimtab.units import per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """One way in which the world may depart: factors on speed and on demand, capacity that is not there, triggers that act."""

    name: str
    speed: float = 1.0
    demand: float = 1.0
    no_capacity_hr: int = 0
    """Hours in which services get no further node, from the hour on after which the plan asks for most more."""
    runs_no_capacity_hr: int = 0
    """Hours in which runs get none: those in which runs of most GPUs ask for some."""
    zones_lost: int = 0
    metrics_late_s: float = 0.0
    starts: SlowStarts = field(default_factory=SlowStarts)
    guards: bool = False
    """Whether the autoscalers' triggers on latency act, as they are emitted. No row plays the one on the KV cache: history
    does not say how full caches were."""


Guards = Mapping[str, tuple[Target, ...] | str]
"""By service that the plan scales: the targets whose latency its emitted autoscaler watches, or why it watches none."""
_NAMED = 3
"""Services that a sentence names."""
DEPARTURES = (
    Perturbation(name="speeds 20% lower", speed=0.8),
    Perturbation(name="speeds 20% higher", speed=1.2),
    Perturbation(name="demand 1.5x", demand=1.5),
)
"""What every plan is proved under."""
WITH_GUARDS = replace(DEPARTURES[0], name=f"{DEPARTURES[0].name}, with the guards that are emitted", guards=True)
"""For plans that scale services whose autoscalers watch latency: what these triggers are worth where replicas are slow."""
GUARDS_ALONE = Perturbation(name="as predicted, with the guards that are emitted", guards=True)
"""For the same plans: what the triggers cost where nothing departs, since five minutes may be late in an hour that is not."""
NO_CAPACITY = Perturbation(name="no new nodes for services for 6 hours, at their steepest rise", no_capacity_hr=6)
"""For plans that scale services. How long capacity stays short is not published: six hours are most of a working day."""
NO_CAPACITY_FOR_RUNS = Perturbation(
    name="no new nodes for runs for 6 hours, when they ask for most GPUs", runs_no_capacity_hr=6
)
"""For plans whose runs hold nodes only while they run, or run on spot."""
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
    runs_without_node: int = 0
    """Runs that waited while no node could be had."""
    longest_without_node_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """The plan under every departure, and what its headroom costs a month."""

    stressed: tuple[PerturbedProof, ...]
    price_usd_mo: float
    """What a plan without headroom for demand, speed and targets would save besides on the fit window."""
    notes: tuple[str, ...] = ()
    """What no departure could be made of, and why."""

    def fragile(self, action: Action) -> tuple[str, ...]:
        """Return the departures under which workloads of an action miss a target."""
        subjects = {change.subject for change in action.changes}
        return tuple(stressed.departure.name for stressed in self.stressed if subjects & {*stressed.missed})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _StressedWindow:
    """The proof window with its demand multiplied, and what the plan comes to in it where nothing else departs."""

    enacted: FleetBill
    in_force: Mapping[int, Deployment]
    before_micro_usd: int
    moving_micro_usd: int
    proven: bool
    """It is the window of the proof, whose outcomes are known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answer:
    """What a workload uses and attains under some stress."""

    evaluator: Evaluator
    outcome: Outcome
    results: tuple[TargetResult, ...]


def robustness(
    planned: Planned,
    proven: ProofResult,
    proof_fleet: Fleet,
    market: Market,
    settings: Settings,
    *,
    seed: int,
    starts: MeasuredStarts,
    guards: Guards,
) -> Robustness:
    """Prove a plan again under every departure that can touch it.

    `starts` are those that history measured. A workload is replayed once for all departures that are the same to it, and not
    at all where they leave it alone: the proof says what it attains then.
    """
    asked = _asked_for_runs(planned, proven)
    slow_starts, notes = _slow_starts(_scaled(planned), sorted(asked), starts, settings)
    departures = (
        DEPARTURES[0],
        *((WITH_GUARDS, GUARDS_ALONE) if any(isinstance(guarded, tuple) for guarded in guards.values()) else ()),
        *DEPARTURES[1:],
        *_of_capacity(planned, runs_ask=bool(asked)),
        *slow_starts,
    )
    asked_gpus_of_hr = sum(asked.values(), np.zeros(1))
    missed = {(result.workload, result.target) for result in proven.proof.targets if not result.kept}
    found: dict[Perturbation, PerturbedProof] = {}
    for demand in dict.fromkeys(departure.demand for departure in departures):
        world = _world(planned, proven, proof_fleet, market, settings, demand, seed=seed)
        rows = {
            departure: _stress(departure, proven, asked_gpus_of_hr)
            for departure in departures
            if departure.demand == demand
        }
        for departure, answers in zip(rows, _answers(world, rows, guards), strict=True):
            found[departure] = _perturbed(departure, answers, world, planned, missed)
    price_usd_mo = planned.plan.usd_mo(planned.headroom_micro_usd)
    return Robustness(
        stressed=tuple(found[departure] for departure in departures),
        price_usd_mo=price_usd_mo,
        notes=(*notes, *_unguarded(guards)),
    )


def _stress(departure: Perturbation, proven: ProofResult, asked_gpus_of_hr: FloatArray) -> Stress:
    """Return what a departure is to replays, but for the guards, which are each service's own."""
    return Stress(
        speed=departure.speed,
        closed_hours=steepest_hours(proven.capacity, departure.no_capacity_hr),
        runs_closed_hours=busiest_hours(asked_gpus_of_hr, departure.runs_no_capacity_hr),
        zones_lost=departure.zones_lost,
        metrics_late_s=departure.metrics_late_s,
        starts=departure.starts,
    )


def _world(
    planned: Planned,
    proven: ProofResult,
    proof_fleet: Fleet,
    market: Market,
    settings: Settings,
    demand: float,
    *,
    seed: int,
) -> _StressedWindow:
    """Return the window of the proof, or the same window with more or less demand."""
    if demand == 1.0:
        return _StressedWindow(
            enacted=proven.enacted,
            in_force=deployed(planned, proven.enacted),
            before_micro_usd=proven.proof.before_micro_usd,
            moving_micro_usd=proven.proof.moving_micro_usd,
            proven=True,
        )
    enacted = enact(planned, scaled_fleet(proof_fleet, demand), market, settings, seed=seed)
    in_force = deployed(planned, enacted)
    return _StressedWindow(
        enacted=enacted,
        in_force=in_force,
        before_micro_usd=enacted.bill({}, (), ()).total,
        moving_micro_usd=enacted.moving(in_force),
        proven=False,
    )


def _answers(
    world: _StressedWindow, rows: Mapping[Perturbation, Stress], guards: Guards
) -> Iterator[dict[int, _Answer]]:
    """Yield what each workload answers to each row; two at once, because compiled replays release the interpreter's lock."""

    def of_workload(index: int) -> list[_Answer]:
        evaluator, deployment = world.enacted.evaluators[index], world.in_force[index]
        guarded = guards.get(evaluator.case.workload.name)
        known: dict[Stress, _Answer] = {}
        answers = []
        for departure, stress in rows.items():
            watched = guarded if departure.guards and isinstance(guarded, tuple) else ()
            felt = evaluator.felt(deployment, replace(stress, guards=watched))
            if felt not in known:
                known[felt] = _answer(world, evaluator, deployment, felt)
            answers.append(known[felt])
        # no later row asks for what several of them shared
        evaluator.forget_replays()
        return answers

    by_workload = dict(zip(world.in_force, side_by_side(of_workload, world.in_force), strict=True))
    for row in range(len(rows)):
        yield {index: answers[row] for index, answers in by_workload.items()}


def _answer(world: _StressedWindow, evaluator: Evaluator, deployment: Deployment, felt: Stress) -> _Answer:
    """Return a workload's answer to what it feels of a stress: that of the proof where it feels nothing."""
    if not world.proven or felt != AS_PREDICTED:
        # no plan is made with this outcome, so its headroom is not needed
        evaluator = evaluator.stressed(replace(felt, with_headroom=False))
    outcome = evaluator.outcome(deployment)
    results = tuple(target_results(evaluator.case, deployment, outcome))
    return _Answer(evaluator=evaluator, outcome=outcome, results=results)


def _perturbed(
    departure: Perturbation,
    answers: Mapping[int, _Answer],
    world: _StressedWindow,
    planned: Planned,
    missed: Container[tuple[str, Target]],
) -> PerturbedProof:
    """Return the proof of one row; `missed` are the targets that the plan misses where nothing departs."""
    evaluators = {**world.enacted.evaluators, **{index: answer.evaluator for index, answer in answers.items()}}
    priced = world.enacted.answered_by(evaluators).bill(world.in_force, planned.released, planned.discounts)
    after, before = priced.total + world.moving_micro_usd, world.before_micro_usd
    results = tuple(result for answer in answers.values() for result in answer.results)
    outcomes = [answer.outcome for answer in answers.values()]
    worse = {
        result.workload for result in results if not result.kept and (result.workload, result.target) not in missed
    }
    return PerturbedProof(
        departure=departure,
        saving_frac=1 - after / before if before else 0.0,
        targets_kept=sum(result.kept for result in results),
        targets=len(results),
        missed=tuple(sorted(worse)),
        bill_usd_mo=per_month(usd(after), world.enacted.fleet.window.hours),
        results=results,
        runs_without_node=sum(outcome.runs_without_node for outcome in outcomes),
        longest_without_node_s=max([outcome.longest_without_node_s for outcome in outcomes], default=0.0),
    )


def _unguarded(guards: Guards) -> Iterator[str]:
    """Say which services that the plan scales get no guard, and why."""
    reasons = {name: reason for name, reason in sorted(guards.items()) if isinstance(reason, str)}
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, said in reasons.items() if said == reason]
        yield f"No guard on latency is emitted for {_named(names)}: {reason}."


def _of_capacity(planned: Planned, *, runs_ask: bool) -> Iterator[Perturbation]:
    """Yield the departures of capacity that can touch a plan."""
    deployments = planned.deployments.values()
    if _scaled(planned):
        yield NO_CAPACITY
        yield LATE_METRICS
    if runs_ask:
        yield NO_CAPACITY_FOR_RUNS
    if any(isinstance(deployment.buying, HedgeOnSpot) and deployment.buying.zones > 1 for deployment in deployments):
        yield ZONE_LOST


def _scaled(planned: Planned) -> list[Case]:
    """Return the services that the plan scales."""
    return [
        planned.cases[name]
        for name, deployment in sorted(planned.deployments.items())
        if isinstance(deployment.scaling, SetReplicaPolicy) or deployment.split is not None
    ]


def _slow_starts(
    scaled: Sequence[Case], runs: Sequence[str], starts: MeasuredStarts, settings: Settings
) -> tuple[tuple[Perturbation, ...], tuple[str, ...]]:
    """Return the departure in which all starts are as slow as the slowest tenth measured, and what was not measured.

    Nothing starts sooner there than the plan takes it to; where nothing starts later either, a note says so instead.
    """
    if not scaled and not runs:
        return (), ()
    slow, node_s = starts.slow, settings.assumptions.node_startup_s
    services = {case.workload.name: planned_start_of(case) for case in scaled}
    own_s = {name: slow.own_s[name] for name in (*services, *runs) if name in slow.own_s}
    unknown = sorted(services.keys() - own_s.keys())
    notes = []
    if slow.node_s is None:
        notes.append(
            f"How long a node takes to start was not measured: no pod on record waited for one. Plans assume {node_s:.0f} s; "
            "to measure it, collect with --context or --kube-dump while nodes come and go."
        )
    if unknown:
        notes.append(
            f"How long {_named(unknown)} takes to start on a running node was not measured: plans use the time in "
            f"workloads.yaml, else {settings.assumptions.service_cold_start_s:.0f} s."
        )
    told = [] if slow.node_s is None else [f"a node {slow.node_s:.0f} s, of {len(starts.node_s)}"]
    if own_s:
        told.append(_named([f"{name} {took:.0f} s, of {len(starts.own_s[name])}" for name, took in own_s.items()]))
    late = (
        (slow.node_s or 0.0) > node_s,
        any(own_s.get(name, 0.0) > planned_s for name, planned_s in services.items()),
        any(slow.run_start_s(name, node_s) > node_s for name in runs),
    )
    if any(late):
        return (
            Perturbation(name=f"starts as slow as the slowest tenth measured ({'; '.join(told)})", starts=slow),
        ), tuple(notes)
    if told:
        notes.append(
            f"The slowest tenth of starts measured ({'; '.join(told)}) took no longer than plans take them to."
        )
    return (), tuple(notes)


def _named(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return f"{', '.join(items[:_NAMED])}{more}"


def steepest_hours(services: Sequence[CapacityPicture], hours: int) -> tuple[int, int]:
    """Return the first hour of a stretch and the one after it: that in which services together come to hold most more GPUs."""
    held = np.sum([service.after_gpus for service in services], axis=0) if services else np.zeros(1)
    if not hours or len(held) <= hours:
        return 0, hours
    rise = [float(held[at + 1 : at + hours + 1].max() - held[at]) for at in range(len(held) - hours)]
    start = int(np.argmax(rise)) + 1
    return start, start + hours


def busiest_hours(asked: FloatArray, hours: int) -> tuple[int, int]:
    """Return the first hour of a stretch and the one after it: that in which most is asked for (n_hours,)."""
    if not hours or len(asked) <= hours:
        return 0, hours
    within = np.convolve(asked, np.ones(hours), mode="valid")
    start = int(np.argmax(within))
    return start, start + hours


def _asked_for_runs(planned: Planned, proven: ProofResult) -> dict[str, FloatArray]:
    """Return the GPUs of runs that ask for nodes in each hour of the proof window (n_hours,), by workload that has some."""
    asked = {}
    for evaluator in proven.enacted.evaluators.values():
        workload = evaluator.case.workload
        deployment = planned.deployments.get(workload.name)
        if deployment is not None and workload.kind in RUN_KINDS:
            asked[workload.name] = asked_gpus(evaluator.case, evaluator.place(deployment))
    return {name: gpus for name, gpus in asked.items() if gpus.any()}

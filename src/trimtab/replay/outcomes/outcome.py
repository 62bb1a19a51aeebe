"""What a workload would have used and kept under a deployment, whatever its kind, and what the change costs besides nodes.

The same functions judge the fit window (to plan) and the proof window (to prove): `Case` says whose history is replayed and
which targets and service law, both learnt on the fit window, apply. A workload that simply holds nodes (a notebook, or whatever
shows neither requests nor runs) is judged hour by hour.

own[o]   = hours / 730 * (traffic_usd_mo + (copy_usd + overlap_usd) / change_horizon_mo)
    entry[e] = hours / 730 * migration_weeks * engineer_week_usd / change_horizon_mo

An entry is another cloud: the work of going there is paid once, however many workloads go. The engineers' weeks of a lever are
not part of it, nor of any bill: the choice weighs them apart (`plan.effort`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetSchedule, UseSlots
from trimtab.deployment.placement import Placement, is_measured_same, resolve
from trimtab.fleet.market import Market
from trimtab.fleet.model import Target, Window, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import SlowStarts
from trimtab.ledger import best_count
from trimtab.ledger.arrays import IntArray
from trimtab.provenance import Estimate
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import HR_PER_MO, S_PER_HR, micro_usd, usd

_ROUNDING = 1e-9
_ROUND_TRIP = frozenset({TargetMetric.LATENCY, TargetMetric.TTFT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """How far the world departs from what the plan took it for: a factor on the speed of replicas and of moved runs.

    Runs that stay on their GPU keep their speed: it was measured, not predicted.
    """

    speed: float = 1.0
    closed_hours: tuple[int, int] = (0, 0)
    """From the first hour of the window to the second no node can be had for services: what runs stays, nothing starts."""
    runs_closed_hours: tuple[int, int] = (0, 0)
    """The same for runs: those that would start, or start again, wait."""
    zones_lost: int = 0
    """Zones of spot that give services nothing, of those that they use."""
    metrics_late_s: float = 0.0
    """How much later than measured what scaling rules see reaches them."""
    starts: SlowStarts = field(default_factory=SlowStarts)
    """How long starts take where that is longer than planned."""
    guards: tuple[Target, ...] = ()
    """Latency targets that the service's autoscaler watches besides demand, as its emitted triggers do."""
    with_headroom: bool = True
    """Whether what is attained with more demand at the low end of the speed is asked too; else `safe_frac` is `frac`."""


AS_PREDICTED = Stress()


class OutcomeStore(Protocol):
    """Keeps outcomes by key (`evaluate.outcome_key`)."""

    def get(self, key: str) -> Outcome | None:
        """Return a kept outcome."""
        ...

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Who holds whole GPUs of nodes with several, of one type: where they hold most, and how wide the widest of them are."""

    pool: Pool
    """The nodes of that type on which they hold most GPU time."""
    widest_gpus: int
    """The GPUs of the widest pod in the fleet that leaves others room on its node, as a power of two. Any may come to stand
    there, and a narrower one that stays where it is could leave a gap that no wide one fits into."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Whose history is replayed, over which window, against which targets and law."""

    workload: Workload
    window: Window
    targets: tuple[Target, ...]
    law: ServiceLaw | None
    settings: Settings
    seed: int
    stress: Stress = AS_PREDICTED
    store: OutcomeStore | None = None
    """Where outcomes are looked up before they are replayed."""
    type_speeds: Mapping[str, Estimate] = field(default_factory=dict)
    """How fast other types of GPU that its runs were on are beside its usual one, which placements are beside."""
    neighbours: Neighbours | None = None
    """Services and notebooks whose spare GPUs its runs could take; None where none hold such nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """A target and the share that was attained; `safe_frac` is that share at the low end of the speed estimate, and for
    services under more demand than history had."""

    target: Target
    frac: float
    safe_frac: float


def safe_required_frac(target: Target, margin_frac: float) -> float:
    """Return the share to attain under stress, so that a share of the allowed misses is left unused."""
    return 1 - (1 - target.required_frac) * (1 - margin_frac) - _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Node-seconds per hour (n_hours,), what was attained, and what spot cost it. Prices play no part in it."""

    on_demand: IntArray
    spot: IntArray
    attained: tuple[Attained, ...]
    interruptions: int = 0
    lost_gpu_hr: float = 0.0
    runs_without_node: int = 0
    """Runs that waited while no node could be had."""
    longest_without_node_s: float = 0.0
    booked: IntArray | None = None
    """Node-seconds per hour (n_hours,) in capacity blocks, paid whether used or not; None where none are booked."""
    booked_used_frac: float | None = None
    """The share of the booked node-seconds that runs used."""
    further: IntArray | None = None
    """Node-seconds per hour (n_hours,) on nodes behind its own, or on those of prefill; None where there are none."""
    gpus: IntArray | None = None
    """GPU-seconds per hour that were up (n_hours,), for pictures; None where nodes say it all."""
    replicas: IntArray | None = None
    """The most replicas held at once in each hour (n_hours,), of workloads that can share nodes; of runs, their pods."""
    kept_up: IntArray | None = None
    """Pods of runs on shared nodes that an hour found running, or just gone (n_hours,): none can be moved, and each may be on
    a node of its own. None of what is moved with the load."""
    most_replicas: int | None = None
    """The most replicas of a service at once in any replay that this rests on, under stress too; None where not known."""
    stopped: bool = False
    """A replay ended once a target was out of reach: what was attained is at most that; what was used is known only where
    every target is kept where nothing departs."""

    def missed(self, margin_frac: float) -> tuple[Target, ...]:
        """Return the targets that are not kept with that share of their allowed misses left unused."""
        return tuple(
            attained.target
            for attained in self.attained
            if attained.safe_frac < safe_required_frac(attained.target, margin_frac)
        )

    def usage(self, place: Placement) -> dict[Pool, IntArray]:
        """Return the node-seconds by the pool that is billed, at a place; of shared nodes, those that it fills alone."""
        by_pool = {place.pool: self.on_demand}
        if place.shared is not None and self.replicas is not None:
            # what is held beside others is billed with them, jointly
            by_pool = {place.pool: self._filled(place.shared, self.replicas) * S_PER_HR}
        for held in (place.spot, place.hedge):
            if held is not None:
                by_pool[held.pool] = self.spot
        if place.blocks is not None and self.booked is not None:
            by_pool[place.blocks.pool] = self.booked
        if place.further_pool is not None and self.further is not None:
            there = place.further_pool
            by_pool[there] = self.further + by_pool.get(there, 0)
        return {pool: seconds for pool, seconds in by_pool.items() if seconds.any()}

    def slots(self, place: Placement) -> dict[SharedPool, IntArray]:
        """Return the slots per hour that are held beside others at a place, on nodes that it does not fill alone.

        Taking full nodes out changes no bill, since ceil(q + r / S) = q + ceil(r / S), and makes the program's bound tight.
        """
        if place.shared is None or self.replicas is None:
            return {}
        shared = place.shared.shared
        filled = self._filled(place.shared, self.replicas)
        rest = self.replicas * place.shared.slots - filled * shared.slots_per_node
        held = {shared: rest} if rest.any() else {}
        return held if self.kept_up is None or not self.kept_up.any() else held | {shared.kept_up: self.kept_up}

    def _filled(self, slot: UseSlots, replicas: IntArray) -> IntArray:
        """Return the nodes per hour that replicas fill alone; none where slots of other kinds may stand between them, or others
        must move around pods that stay."""
        if slot.shared.room or self.kept_up is not None:
            return nothing_held(len(replicas))
        return np.asarray(replicas * slot.slots // slot.shared.slots_per_node, dtype=np.int64)


def targets_at(targets: Sequence[Target], place: Placement) -> tuple[Target, ...]:
    """Return what is left of each target for the service itself: a round trip to another region comes off latency limits.

    Time between tokens is not touched: a stream's round trip is paid once. A limit below the trip leaves nothing.
    """
    return tuple(
        replace(target, limit_s=max(0.0, target.limit_s - place.rtt_s))
        if target.limit_s is not None and place.rtt_s and target.metric in _ROUND_TRIP
        else target
        for target in targets
    )


def is_unchanged(workload: Workload, deployment: Deployment, target: Target) -> bool:
    """Return whether an undeclared target holds by itself: the replicas are the same, and no network path is longer."""
    longer = target.limit_s is not None and resolve(workload, deployment).rtt_s > 0
    if target.declared or longer:
        return False
    return same_replicas(workload, deployment) or (
        target.limit_s is not None and _as_many_while_up(workload, deployment)
    )


def _as_many_while_up(workload: Workload, deployment: Deployment) -> bool:
    """Return whether a service that had one replica has one or more whenever it is up, of the same kind.

    Its latency is then what it was, but for who waits for a start, as its owner allows.
    """
    scaling = deployment.scaling
    if not isinstance(scaling, SetReplicaPolicy) or not scaling.goes_to_none:
        return False
    had = held_replicas(workload).max(initial=0) if workload.service is None else workload.service.most_replicas
    return had <= 1 and same_replicas(workload, deployment.without("scaling"))


def same_replicas(workload: Workload, deployment: Deployment) -> bool:
    """Return whether a service keeps as many replicas as it had, each on as many GPUs of the same type, isolated from others.

    What it attains is then what it attained: "no worse than observed" holds by itself, whatever a replay's rounding says
    (`is_unchanged`: unless requests have a longer way).
    """
    if workload.kind is not WorkloadKind.SERVING or deployment.without("offering", "relocation", "sharing").changes:
        return False
    place = resolve(workload, deployment)
    return (
        place.speed.low == place.speed.value == 1.0
        # a tolerance, since GPUs of a pod may be fractions
        and place.gpus_per_pod >= workload.gpus_per_pod - 1e-9
        and (place.shared is None or not place.shared.shared.is_cut)
    )


def run_speed(case: Case, speed: Estimate) -> float:
    """Return the speed of a run beside its speed in history, by the estimate of it; what was measured is under no stress."""
    return speed.value if is_measured_same(speed) else speed.value * case.stress.speed


def held_usage(workload: Workload, place: Placement) -> IntArray:
    """Return the node-seconds per hour (n_hours,) of holding there what history held, in whole nodes.

    Present nodes stay as full as they were, and stay up while nothing runs on them. So do those elsewhere, but for no more
    runs or replicas than history ever had at once, however much of its nodes they left empty.
    """
    now = resolve(workload, AS_IT_IS)
    # what the nodes held, counted in runs or replicas that they have room for
    runs = workload.held_node_seconds / S_PER_HR * now.pods_per_node / now.nodes_per_pod
    if place.leaves:
        runs = np.minimum(runs, held_replicas(workload).max(initial=0))
    # a quotient that exceeds a whole number by rounding only asks for no further node
    nodes = np.ceil(runs / place.pods_per_node - 1e-6) * place.nodes_per_pod
    return np.asarray(nodes * S_PER_HR, dtype=np.int64)


def held_replicas(workload: Workload) -> IntArray:
    """Return how many replicas or runs history held in each hour (n_hours,), on the high side."""
    held = workload.gpu_seconds / S_PER_HR / workload.gpus_per_pod
    return np.asarray(np.ceil(held - 1e-6), dtype=np.int64)


def held_as(place: Placement, seconds: IntArray) -> tuple[IntArray, IntArray]:
    """Return node-seconds as (on demand, spot), by how the place is held."""
    nothing = nothing_held(len(seconds))
    return (seconds, nothing) if place.spot is None else (nothing, seconds)


@lru_cache(maxsize=16)
def nothing_held(hours: int) -> IntArray:
    """Return no node-seconds by hour (n_hours,), one array for all outcomes: half of what they hold would be zeros."""
    nothing = np.zeros(hours, dtype=np.int64)
    nothing.flags.writeable = False
    return nothing


def speed_attained(target: Target, ratio: float, low_ratio: float) -> Attained:
    """Judge a throughput target by the speed ratio reached, and by that ratio at the low end of the speed estimate."""
    return Attained(target=target, frac=min(1.0, ratio), safe_frac=min(1.0, low_ratio))


def felt_by_hours(place: Placement, stress: Stress) -> Stress:
    """Return what of a stress `hours_outcome` reads: the speed at a place where it was not measured."""
    return Stress() if is_measured_same(place.speed) else Stress(speed=stress.speed)


def hours_outcome(case: Case, place: Placement) -> Outcome:
    """Hold the nodes in the hours of the timetable; throughput is the share of history's measured activity that
    falls into them: what was not measured counts for neither side."""
    # hours of the window, not of the week: a timetable is laid over them
    usage = held_usage(case.workload, place)
    up = np.ones(case.window.hours, dtype=bool)
    if isinstance(place.holding, SetSchedule):
        up = np.isin(case.window.week_hours(), place.holding.hours_of_week)
    busy = np.nan_to_num(case.workload.activity.busy_gpus)
    ratio = float(busy[up].sum() / busy.sum()) if busy.sum() > 0 else 1.0
    # a faster place does not do more than what there was to do
    speed = min(1.0, run_speed(case, place.speed))
    on_demand, spot = held_as(place, np.where(up, usage, 0))
    return Outcome(
        on_demand=on_demand,
        spot=spot,
        attained=tuple(
            speed_attained(target, ratio * speed, ratio * speed * place.speed.low / place.speed.value)
            for target in case.targets
            if target.metric is TargetMetric.THROUGHPUT
        ),
        replicas=np.where(up, held_replicas(case.workload), 0),
    )


_LEAST_HORIZON_MO = 1.0


def own_micro_usd(workload: Workload, deployment: Deployment, market: Market, settings: Settings, hours: int) -> int:
    """Return what a workload's deployment costs besides nodes over so many hours, in micro-dollars."""
    overlap_hr = settings.assumptions.rollout_overlap_hr
    if deployment.relocation is None and not overlap_hr:
        return 0
    place = resolve(workload, deployment)
    # traffic goes on every month; the copy is paid once and spread
    if place.move is not None:
        return _over(hours, place.move.traffic_usd_mo + _spread_usd_mo(place.move.once_usd, settings))
    # the same nodes, or nodes that are paid anyway: no second place is billed while both are up
    same = place.shared is None and place.pool.instance_type == workload.pool.instance_type
    if same or workload.pool.capacity_type.paid_anyway:
        return 0
    # for the overlap the old place is up too, at its mean use
    home_usd_hr = usd(market.rate(workload.pool)) * float(workload.held_node_seconds.mean()) / S_PER_HR
    return _over(hours, _spread_usd_mo(overlap_hr * home_usd_hr, settings))


_NO_CLOUD: frozenset[str] = frozenset()
"""One object for all ways: an empty frozenset takes 216 bytes."""


def entries_of(workload: Workload, deployment: Deployment) -> frozenset[str]:
    """Return the other clouds that a workload's deployment needs."""
    move = None if deployment.relocation is None else resolve(workload, deployment).move
    return _NO_CLOUD if move is None or move.cloud is None else frozenset({move.cloud})


def entry_micro_usd(settings: Settings, hours: int) -> int:
    """Return what going to another cloud costs over so many hours, in micro-dollars."""
    return _over(hours, _spread_usd_mo(entry_usd(settings), settings))


def entry_usd(settings: Settings) -> float:
    """Return what going to another cloud costs once."""
    return settings.alternatives.migration_weeks * settings.planning.engineer_week_usd


def alone_cost(usage: Mapping[Pool, IntArray], market: Market) -> int:
    """Return what a use costs with the commitments that are best for it alone, in micro-dollars."""
    total = 0
    for pool, seconds in usage.items():
        rate, price = market.rate(pool), market.commitment(pool)
        # a commitment that is no cheaper than on demand is never bought
        if price is None or micro_usd(price.usd_hr) >= rate:
            total += rate * int(seconds.sum()) // S_PER_HR
            continue
        committed = micro_usd(price.usd_hr)
        count = best_count(seconds, rate, committed)
        # what the committed nodes do not cover is on demand
        beyond = (seconds - count * S_PER_HR).clip(min=0)
        total += count * committed * len(seconds) + rate * int(beyond.sum()) // S_PER_HR
    return total


def _spread_usd_mo(once_usd: float, settings: Settings) -> float:
    return once_usd / max(settings.planning.change_horizon_mo, _LEAST_HORIZON_MO)


def _over(hours: int, usd_mo: float) -> int:
    return micro_usd(usd_mo * hours / HR_PER_MO)

"""Share nodes with other workloads: whole GPUs of a larger node, MIG slices that fit, or, where allowed, shares of GPUs.

The first two are isolated by hardware. MPS shares and time slices are offered to services whose owner admits them only.

Runs take whole GPUs of the nodes on which services of the same type of GPU stand: what these leave over is paid anyway. They
start as they come, or wait for an hour where they may, and no pod of theirs is moved or pushed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from trimtab.catalog import Gpu, Lifecycle
from trimtab.catalog.kinds import Isolation
from trimtab.catalog.mig import Slices, slices_of
from trimtab.catalog.pools import SharedPool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Effect, UseSlots
from trimtab.deployment.fitting import speed_on
from trimtab.deployment.placement import resolve, slot_gpus
from trimtab.fleet.activity import busiest_hour_frac, working_frac
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import RUN_KINDS, Target, Workload
from trimtab.fleet.reach import asked_isolation, offerings_at_home, offerings_elsewhere
from trimtab.fleet.settings import Assumptions, Effort
from trimtab.ledger.arrays import IntArray
from trimtab.levers import idle_release
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    memory_peak,
    speed_fact,
    usual_reason,
)
from trimtab.levers.schedule import deferrals
from trimtab.physics.colocation import (
    AS_MET,
    MET_BOTH_WAYS,
    MPS_CAPABILITY,
    is_safe_pair,
    left_frac,
    met_frac,
    mps_share,
    speed_beside,
    time_slice,
)
from trimtab.physics.formats import WeightFormat
from trimtab.physics.transfer import SAME_SPEED, work_ratio
from trimtab.provenance import Estimate
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.tables.workloads import WorkloadKind, cluster_of
from trimtab.units import HR_PER_MO, usd

NAME = "sharing"
SHARERS = frozenset({WorkloadKind.SERVING, WorkloadKind.NOTEBOOK})
"""Kinds that hold their GPUs for long."""
RUNS_BESIDE = RUN_KINDS - {WorkloadKind.TRAINING}
"""Kinds that come and go on whole GPUs that the others leave over; training fills nodes of its own."""
SHARES = (2, 3, 4, 8)
"""Equal shares that a GPU without hardware isolation is offered in."""
BUSY_CLASSES = (0.05, 0.10, 0.15, 0.20, 0.25, 0.33, 0.50)
"""Shares of an hour that a workload in time slices may be busy at most: those of one class are put together."""
_CLASSES = 3
"""A workload is offered the least busy classes that hold it: in busier ones it waits more, for the sake of ever fewer."""
_LEFT_FRAC = 0.25
"""Time slices are offered where the others leave at least this much of a GPU's time."""
_LOOSER = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Multiples of the present limits that are tried to share a GPU; a service that would need more is not asked."""
_SLICES_TRIED = 5
_REPLAYS = 2
"""The law says which multiples are hopeless; of the others the least few are replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOffers:
    """The slots that fit, and how many were refused for which reason."""

    fitting: tuple[UseSlots, ...]
    refused: Counter[str]


def propose(
    workload: Workload,
    market: Market,
    assumptions: Assumptions,
    isolation: Isolation = Isolation.HARDWARE,
    *,
    stored: WeightFormat | None = None,
    offerings: Sequence[Offering] | None = None,
) -> SlotOffers:
    """Judge every kind of slot on the smallest node of each GPU type in the workload's region, and on its present nodes.

    `offerings` are other nodes to judge instead, the smallest of each GPU type in each region.

    A slot is worth a look if its part of a full node costs less than a replica does now, and if its owner admits what keeps
    its neighbours away (`isolation`). With weights `stored` another way it may fit where it does not today; speeds are those
    of the present format.
    """
    source = market.gpu(workload.gpu)
    if source is None or workload.kind not in SHARERS:
        return SlotOffers(fitting=(), refused=Counter())
    if workload.gpus_per_pod < 1:
        return SlotOffers(fitting=(), refused=Counter({"it runs on a part of a GPU already": 1}))
    fitting, refused = [], Counter[str]()
    home = resolve(workload, AS_IT_IS)
    now = market.rate(workload.pool) * home.nodes_per_pod / home.pods_per_node
    busy_frac = busiest_hour_frac(workload)
    for offering in _nodes(workload, offerings_at_home(workload, market) if offerings is None else offerings):
        for slot in _slots(workload, offering, market, isolation):
            if offering.rate_micro_usd_hr * slot.slots / slot.shared.slots_per_node > now:
                refused["a slot costs more than a replica does now"] += 1
                continue
            verdict = _speed(workload, source, offering, slot.board, market, assumptions, stored)
            if isinstance(verdict, str):
                refused[verdict] += 1
            elif busy_frac > slot.shared.busy_frac * verdict.high:
                refused["busy for longer than others in those time slices allow for"] += 1
            else:
                fitting.append(slot.effect(workload, verdict, work_ratio(source, slot.board)))
    quiet = [slot for slot in fitting if _quieter(slot, fitting) < _CLASSES]
    refused["busier neighbours than it has to accept"] += len(fitting) - len(quiet)
    worth = [slot for slot in quiet if not any(_better(other, slot, market) for other in quiet)]
    refused["a slot that is no slower costs less, on a node that costs less"] += len(quiet) - len(worth)
    return SlotOffers(fitting=tuple(worth), refused=+refused)


def beside_services(case: Case, market: Market) -> UseSlots | None:
    """Return the whole GPUs that runs could have on the nodes of services with the same type of GPU; None where they cannot.

    A run's slot is as wide as the widest pod that may come there: sizes that divide one another leave no gap beside pods that
    stay where they are.
    """
    workload, neighbours, jobs = case.workload, case.neighbours, case.workload.jobs
    if workload.kind not in RUNS_BESIDE or jobs is None or not jobs.count or neighbours is None:
        return None
    there = (offering for offering in offerings_at_home(workload, market) if offering.pool == neighbours.pool)
    offering, widths = next(there, None), jobs.gpus / jobs.pods
    if offering is None or workload.pool.capacity_type.paid_anyway or widths.min() < 1:
        return None
    shared = SharedPool(offering.pool, offering.gpus_per_node)
    slot = _Slot(shared=shared, slots=slot_gpus(float(widths.max())), board=offering.gpu, offering=offering)
    return wide_enough(slot.effect(workload, SAME_SPEED, SAME_SPEED), case)


def wide_enough(slot: UseSlots, case: Case) -> UseSlots | None:
    """Return a run's slot of whole GPUs as wide as any pod that may come there; None where that is no part of a node."""
    widest = 1 if case.neighbours is None else case.neighbours.widest_gpus
    gpus, most = max(slot.slots, widest), slot.shared.slots_per_node
    return replace(slot, slots=gpus) if gpus < most and most % gpus == 0 else None


def _runs_beside(ask: LeverRequest) -> UseSlots | None:
    return beside_services(ask.case, ask.market)


def slots_on(workload: Workload, offering: Offering, market: Market, assumptions: Assumptions) -> Iterator[UseSlots]:
    """Yield every slot of a node in which a workload runs, whatever it costs, whoever admits it and whoever is beside it."""
    source = market.gpu(workload.gpu)
    if source is None or workload.gpus_per_pod < 1:
        return
    for slot in _slots(workload, offering, market, Isolation.NONE):
        speed = _speed(workload, source, offering, slot.board, market, assumptions, None)
        if isinstance(speed, Estimate):
            yield slot.effect(workload, speed, work_ratio(source, slot.board))


def _quieter(slot: UseSlots, fitting: Sequence[UseSlots]) -> int:
    """Return in how many classes of less busy neighbours it could have the same slot."""
    return sum(
        replace(slot.shared, busy_frac=other.shared.busy_frac) == other.shared
        and other.slots == slot.slots
        and other.shared.busy_frac < slot.shared.busy_frac
        for other in fitting
    )


def _better(one: UseSlots, other: UseSlots, market: Market) -> bool:
    """Return whether a slot beats another of its kind in price, price of a whole node, and speed; equals stay."""
    if _kind(one) != _kind(other):
        return False
    mine, theirs = (_in_all(slot, market) for slot in (one, other))
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _kind(slot: UseSlots) -> tuple[object, ...]:
    """Return what two slots must have in common for one to take the other's place: of time slices also the neighbours."""
    shared = slot.shared
    turns = (shared.busy_frac, shared.slots_per_node // slot.gpus_per_node, slot.slots) if slot.others else ()
    return (shared.kept_apart_by, slot.pool.provider, slot.pool.region, *turns)


def _in_all(slot: UseSlots, market: Market) -> tuple[float, ...]:
    node = market.rate(slot.pool)
    return (node * slot.slots / slot.shared.slots_per_node, node, -slot.speed.low, -slot.speed.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """One kind of slot, how many a replica needs, and the board that it is to a program."""

    shared: SharedPool
    slots: int
    board: Gpu
    offering: Offering

    def effect(self, workload: Workload, speed: Estimate, work_speed: Estimate) -> UseSlots:
        return UseSlots(
            # only who is in the same cluster can stand on the same node
            shared=replace(self.shared, cluster=cluster_of(workload.name)),
            gpu=self.offering.gpu.name,
            gpus_per_node=self.offering.gpus_per_node,
            slots=self.slots,
            memory_gib=self.board.memory_gib,
            speed=speed,
            work_speed=work_speed,
        )


def _nodes(workload: Workload, offerings: Sequence[Offering]) -> Iterator[Offering]:
    """Yield the nodes that could be shared: the smaller a node, the less of it is left over; of equals the cheapest."""
    smallest: dict[tuple[str, str, str], Offering] = {}
    for offering in offerings:
        known = smallest.setdefault(_gpu_and_region(offering), offering)
        if offering.gpus_per_node < known.gpus_per_node:
            smallest[_gpu_and_region(offering)] = offering
    yield from smallest.values()
    here = [
        offering
        for offering in offerings
        if offering.pool == workload.pool and offering is not smallest[_gpu_and_region(offering)]
    ]
    yield from here


def _gpu_and_region(offering: Offering) -> tuple[str, str, str]:
    return (offering.gpu.name, offering.pool.provider, offering.pool.region)


def _slots(workload: Workload, offering: Offering, market: Market, isolation: Isolation) -> Iterator[_Slot]:
    """Yield every kind of slot of a node whose neighbours are kept apart as is asked for."""
    gpus = _divisor(offering.gpus_per_node, workload.gpus_per_pod)
    if gpus is not None:
        yield _Slot(
            shared=SharedPool(offering.pool, offering.gpus_per_node),
            slots=gpus,
            board=offering.gpu,
            offering=offering,
        )
    if workload.gpus_per_pod <= 1:
        for cut in slices_of(offering.gpu, market.catalog.mig_table):
            yield _slice_slot(offering, cut)
        if workload.kind is WorkloadKind.SERVING and offering.gpu.compute_capability is not None:
            yield from _mps_slots(offering) if isolation.admits(Isolation.MPS) else ()
            yield from _time_slots(offering) if isolation.admits(Isolation.TIME_SLICING) else ()


def _slice_slot(offering: Offering, cut: Slices) -> _Slot:
    shared = SharedPool(
        offering.pool,
        cut.per_gpu * offering.gpus_per_node,
        cut.profile.name,
        takes=cut.takes,
        room=tuple(room * offering.gpus_per_node for room in cut.room),
    )
    return _Slot(shared=shared, slots=1, board=cut.slice, offering=offering)


def _mps_slots(offering: Offering) -> Iterator[_Slot]:
    """Yield MPS shares, one a replica: the device plugin refuses to give out more."""
    for shares in SHARES if (offering.gpu.compute_capability or 0.0) >= MPS_CAPABILITY else ():
        shared = SharedPool(offering.pool, shares * offering.gpus_per_node, isolation=Isolation.MPS.value)
        yield _Slot(shared=shared, slots=1, board=mps_share(offering.gpu, shares), offering=offering)


def _time_slots(offering: Offering) -> Iterator[_Slot]:
    """Yield time slices by how busy each workload may be: one a replica, or several where they must be of the same GPU."""
    for shares, busy_frac in product(SHARES, BUSY_CLASSES):
        if left_frac(shares - 1, busy_frac) < _LEFT_FRAC:
            continue
        shared = SharedPool(
            offering.pool,
            shares * offering.gpus_per_node,
            isolation=Isolation.TIME_SLICING.value,
            busy_frac=busy_frac,
        )
        for held in (1, 2, 4) if offering.gpus_per_node == 1 else (1,):
            if held < shares and shares % held == 0:
                board = time_slice(offering.gpu, shares, held)
                yield _Slot(shared=shared, slots=held, board=board, offering=offering)


def _divisor(gpus_per_node: int, gpus: float) -> int | None:
    """Return the least power of two that holds a replica and divides the node's GPUs; None where that takes all of them."""
    size = slot_gpus(gpus)
    return size if size < gpus_per_node and gpus_per_node % size == 0 else None


def _speed(
    workload: Workload,
    source: Gpu,
    offering: Offering,
    board: Gpu,
    market: Market,
    assumptions: Assumptions,
    stored: WeightFormat | None,
) -> Estimate | str:
    """Return the speed on a slot, or why the workload cannot go there."""
    if board == source:
        return SAME_SPEED
    if offering.cpu_arch != (market.cpu_arch(workload.pool) or offering.cpu_arch):
        return "another CPU architecture: images would have to be rebuilt"
    if offering.lifecycle is not Lifecycle.CURRENT and offering.gpu != source:
        return "previous generation"
    found = speed_on(workload, source, board, assumptions, stored)
    return SAME_SPEED if board.name == source.name and isinstance(found, Estimate) else found


def asked(ask: LeverRequest) -> Isolation:
    """Return what must keep a workload apart from others."""
    return asked_isolation(ask.workload.spec, ask.settings.limits.isolation)


def shares(ask: LeverRequest) -> SlotOffers:
    """Return the slots at home that hold a workload as it is."""
    return propose(ask.workload, ask.market, ask.assumptions, asked(ask))


def _shares_elsewhere(ask: LeverRequest) -> SlotOffers:
    elsewhere = offerings_elsewhere(ask.workload, ask.market)
    return propose(ask.workload, ask.market, ask.assumptions, asked(ask), offerings=elsewhere)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the slots at home, and those on the nodes that a move goes to; for runs, with when they take them."""
    if not base.changes:
        for slots in ask.once(shares).fitting:
            yield base.plus((NAME, slots))
        if (beside := ask.once(_runs_beside)) is not None:
            at_once, waiting = (turns(ask.workload, ask.assumptions) for turns in (idle_release.propose, deferrals))
            for turn in (*at_once, *waiting):
                yield base.plus((NAME, beside), (NAME, turn))
    elif base.relocation is not None:
        for slots in ask.once(_shares_elsewhere).fitting:
            if slots.pool == base.relocation.pool:
                yield base.plus((NAME, slots))


def _refused(ask: LeverRequest) -> Counter[str]:
    return ask.once(shares).refused


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say why a workload keeps nodes of its own: of the largest services that no slice holds, what limits one would keep.

    Of runs nothing is said where no services leave GPUs of their type over.
    """
    if ask.workload.kind in RUNS_BESIDE:
        return None if ask.once(_runs_beside) is None else usual_reason(NAME, ask, judged)
    if ask.among_largest and not any(shared.profile for way in judged.candidates for shared in way.slots):
        isolated = propose(ask.workload, ask.market, ask.assumptions).fitting
        looser = looser_target(ask.case, isolated, ask.market)
        if looser is not None:
            return looser
    return usual_reason(NAME, ask, judged, otherwise="no other node to share holds it within its targets, or for less")


def looser_target(case: Case, slots: Sequence[UseSlots], market: Market) -> str | None:
    """Say which limits the cheapest slice would keep, and at what cost; None where none keeps any that is tried."""
    limited = [target for target in case.targets if target.limit_s is not None]
    if not limited:
        return None
    able = sorted((slot for slot in slots if _takes_the_peak(case, slot)), key=lambda slot: _usd_mo(slot, market))
    for slot in able[:_SLICES_TRIED]:
        factor = _least_factor(case, slot)
        if factor is not None:
            return _in_words(case.workload, slot, limited[0], factor, market)
    return None


def _takes_the_peak(case: Case, slot: UseSlots) -> bool:
    """Return whether one slice serves what one GPU was observed to serve at its busiest, with the headroom that plans leave."""
    growth = 1 + case.settings.planning.demand_headroom_frac
    return bool(slot.shared.profile) and case.law is not None and case.law.seen_activity_load * growth <= slot.speed.low


def _least_factor(case: Case, slot: UseSlots) -> float | None:
    alone = Deployment.of((NAME, slot))
    cases = {
        factor: replace(case, targets=tuple(_scaled(target, factor) for target in case.targets)) for factor in _LOOSER
    }
    hopeful = [factor for factor, looser in cases.items() if Evaluator(case=looser).hopeless(alone) is None]
    return next((factor for factor in hopeful[:_REPLAYS] if Evaluator(case=cases[factor]).keeps_targets(alone)), None)


def _scaled(target: Target, factor: float) -> Target:
    return target if target.limit_s is None else replace(target, limit_s=target.limit_s * factor)


def _usd_mo(slot: UseSlots, market: Market) -> float:
    """Return what a replica's part of a full shared node costs a month."""
    return usd(market.rate(slot.pool)) * HR_PER_MO * slot.slots / slot.shared.slots_per_node


def _in_words(workload: Workload, slot: UseSlots, first: Target, factor: float, market: Market) -> str:
    now_usd_mo = usd(market.rate(workload.pool)) * HR_PER_MO * workload.gpus_per_pod / workload.gpus_per_node
    limit_s = (first.limit_s or 0.0) * factor
    return (
        f"too slow for its targets: a {slot.shared.profile} slice of a {slot.gpu} runs it at x{slot.speed.value:.2f}, for "
        f"${_usd_mo(slot, market):,.0f} a month of a full node, not ${now_usd_mo:,.0f}; declare {first.metric.value} "
        f"p{first.required_frac * 100:g} <= {limit_s:.3g} s ({factor:g} x the limit) in workloads.yaml if that is enough"
    )


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for slot in applied.effects:
        if isinstance(slot, UseSlots):
            yield from _facts(slot, applied.workload)
            if applied.workload.kind in RUNS_BESIDE and applied.outcome.replicas is not None:
                yield _taken_at_once(slot, applied.outcome.replicas)


def _facts(slot: UseSlots, workload: Workload) -> Iterator[Fact]:
    room = f"{slot.memory_gib * slot.slots:.1f} GiB seen of {slot.shared}"
    yield memory_peak(workload, room)
    yield Fact("GPU busy", "demand.running_mean, gpu_usage", f"{working_frac(workload):.0%}")
    yield speed_fact(f"speed on {slot.shared}", slot.speed)
    if slot.others:
        yield from _turns(slot, workload)
    if not slot.shared.is_isolated:
        yield Fact("kept apart from others by", "declared isolation", slot.shared.isolation)
        yield Fact("may be stopped by a fault of", "no hardware isolation", "everybody on its GPU")


def _taken_at_once(slot: UseSlots, pods: IntArray) -> Fact:
    """Say how many GPUs runs take at once: what services leave over costs nothing, what goes beyond it brings up nodes."""
    gpus = pods * slot.slots
    value = f"{gpus.max(initial=0)} in the fullest hour, {gpus.mean():.2g} on average, a pod counted as {slot.slots}"
    return Fact("GPUs of shared nodes that its runs take at once", "replay of its runs by hour", value)


def _turns(slot: UseSlots, workload: Workload) -> Iterator[Fact]:
    """Say how often a request would find others busy, and how long the workload itself keeps the GPU."""
    limit = f"<= {slot.shared.busy_frac:.0%}, as of everybody there"
    usual, careful = (1 - met_frac(slot.others, slot.shared.busy_frac, ways)[0] for ways in (AS_MET, MET_BOTH_WAYS))
    mine = f"{busiest_hour_frac(workload):.0%}"
    yield Fact("busy in its busiest hour, on its GPU now", "gpu_usage by hour", mine, limit)
    yield Fact(f"requests that meet others, of {slot.others}", "physics", f"{usual:.0%}-{careful:.0%}")
    if slot.others == 1:
        # the measured pairs were of runs, not of requests: no target is compared with it
        beside = speed_beside(busiest_hour_frac(workload), slot.shared.busy_frac)
        safe = is_safe_pair(busiest_hour_frac(workload), slot.shared.busy_frac)
        told = f"{beside.low:.0%}-{min(1.0, beside.high):.0%} of its speed alone"
        yield Fact(
            "whole work beside another so busy, in that hour",
            "measured pairs of runs",
            f"{told}{'' if safe else ', not called safe'}",
            "called safe where 10% is lost at most, and 25% with great care",
        )


def _canary(effect: Effect) -> tuple[str, ...]:
    if not isinstance(effect, UseSlots):
        return (
            "Let one run take GPUs beside the services: see that it begins in time, and that they answer as before.",
        )
    if not effect.shared.is_isolated:
        return (
            f"Run one replica alone on a shared GPU of {effect.pool.instance_type}, beside the present ones, for a day.",
            "Cap its memory in its own settings (vLLM --gpu-memory-utilization, PyTorch set_per_process_memory_fraction).",
            "Add its neighbours one at a time through a peak each; go on while every one of them keeps its targets.",
            "Kill one of them by hand, and fill its memory: see what the others do before they carry traffic.",
        )
    place = f"a {effect.shared.profile} slice" if effect.shared.profile else "a shared node"
    return (
        f"Run one replica in {place} of {effect.pool.instance_type} beside the present ones for a day.",
        "Compare its latency and peak memory with the prediction; go on if both are within the interval.",
        "Move one workload at a time; give a node back when nothing is left on it.",
    )


LEVER = Lever(
    name=NAME,
    title="Share nodes",
    meaning="Puts several workloads on the same nodes: whole GPUs (also runs beside services), MIG slices or, where the owner "
    "admits it, shares of GPUs",
    ends="less work than fills a GPU of its own",
    page="how-to/share-gpus.md",
    stage=CompositionStage.PLACE,
    kinds=SHARERS | RUNS_BESIDE,
    effort=Effort(weeks=1.0, per="class", first_weeks=1.0),
    first_steps=(
        EffortStep("the device plugin with its sharing or MIG layout, on a pool of its own", 3.0),
        EffortStep("memory caps, and what neighbours do when one dies", 2.0),
    ),
    steps=(
        EffortStep("read the emitted patches, and have them merged", 1.0),
        EffortStep("a day of one replica alone on a shared node", 1.0),
        EffortStep("neighbours one at a time, through a peak each", 3.0),
    ),
    risk=Risk.MEDIUM,
    rollback="point the node selectors back to the nodes before and ask for whole GPUs again; "
    "keep the old node pool a week; a GPU that was cut is made whole when it is empty",
    canary=_canary,
    ways=_ways,
    refused=_refused,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=4,
)

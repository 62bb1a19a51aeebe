"""Resolves where a workload runs under a deployment, on how many GPUs, how fast, and what one replica serves.

Options are replayed, billed, bounded, emitted and verified on what `resolve` returns, and on nothing else. Effects that
say where are weighed in a fixed order, whatever order they were stated in:

1. home: the pool, node and GPUs that history had;
2. a GPU count, on nodes that hold it;
3. another offering, or that of a move elsewhere, which goes over it; only if its weights fit there as they will be stored;
4. a memory plan of training, or another number of GPUs a replica of a service, which names its own GPUs;
5. slots of shared nodes, where they lie in the region that 1-4 lead to;
6. nodes of another type behind those that 1-4 lead to, where it is for these that they were offered;
7. how nodes are bought, where that is sold for the nodes that 1-5 lead to.

Prefill and decode apart name their nodes, replicas and formats themselves: nothing else comes in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from trimtab.catalog import Gpu
from trimtab.catalog.mig import slices_of
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    BookBlocks,
    Buying,
    HedgeOnSpot,
    Holding,
    OverflowTo,
    Relocate,
    Scaling,
    ServingHalf,
    SetBatchPolicy,
    SetCapacityType,
    SetPrecision,
    SetReplicaGpus,
    SetReplicaPolicy,
    SetSchedule,
    ShortenStart,
    SplitServing,
    UseOffering,
    UseSlots,
)
from trimtab.fleet.market import Market
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.physics.colocation import BatchCurve, left_frac, mps_share, time_slice
from trimtab.physics.predict import PAIR_SPREAD
from trimtab.physics.transfer import SAME_SPEED, Z_80
from trimtab.provenance import Basis, Estimate, inverse, product

_NO_POOL = Pool("", "", "")
_ROUNDING = 1e-9
"""Of a GPU: shares of GPUs are sums of floats."""


class Home(Protocol):
    """Where a workload runs today."""

    @property
    def pool(self) -> Pool:
        """Its nodes."""
        ...

    @property
    def gpu(self) -> str | None:
        """Their GPU; None if unknown."""
        ...

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node."""
        ...

    @property
    def gpus_per_pod(self) -> float:
        """GPUs that a pod holds: a replica, or one of those that a run consists of."""
        ...

    @property
    def home_speed(self) -> Estimate:
        """How fast it is on their GPU alone, beside all types together that history has it on; 1 if there is one type."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeNodes:
    """A home by itself, where no more is known of a workload."""

    pool: Pool
    gpu: str | None
    gpus_per_node: int
    gpus_per_pod: float
    home_speed: Estimate = SAME_SPEED


class ResizedPods(NamedTuple):
    """Pods that held `before` GPUs hold `gpus`; those of other sizes stay as they are."""

    before: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A deployment resolved for one workload: its nodes, what a run or replica holds of them, and how fast it is there.

    Speeds are relative to the present GPU. What was stated and comes to nothing there (slots of another region, blocks of
    other nodes) is None.
    """

    pool: Pool
    """The nodes on demand, or those that slots lie on."""
    gpu: str | None
    gpus_per_node: int
    gpus_per_pod: float
    """GPUs of the usual pod there."""
    resized: ResizedPods | None
    """The pods that hold another number of GPUs there; None if each keeps its own."""
    speed: Estimate
    work_speed: Estimate
    """The speed of work that keeps the GPU itself busy."""
    shared: UseSlots | None
    overflow: OverflowTo | None
    """The nodes behind its own, of which it then has so many at most; speeds are those of the slower type."""
    spot: SetCapacityType | None
    hedge: HedgeOnSpot | None
    blocks: BookBlocks | None
    """The capacity blocks of its own nodes that it holds."""
    move: Relocate | None
    """How it came to another region or cloud; None at home."""
    precision: SetPrecision | None
    batching: SetBatchPolicy | None
    start: ShortenStart | None
    scaling: Scaling | None
    holding: Holding | None
    leaves: bool
    """Whether it goes to other nodes, or to slots, so that a new format's speed there counts."""
    quota_nodes: int | None = None
    """The most nodes at once that a stated quota allows there; None if none is stated."""
    further_quota_nodes: int | None = None
    """The same of the nodes behind them."""
    split: SplitServing | None = None
    """Prefill and decode on nodes of their own: its nodes are then those of decode, and `halves` says all."""
    replica_gpus: SetReplicaGpus | None = None
    """How a replica on another number of GPUs serves: its capacity and times are its own, and none that history had."""
    type_speeds: tuple[tuple[str, Estimate], ...] = ()
    """How fast runs that were on another type of GPU than usual are there, beside how fast they were; others have `speed`."""

    def with_types(self, speeds: Mapping[str, Estimate]) -> Placement:
        """Return the placement for runs of which some were on other types of GPU, of such `speeds` beside the usual one."""
        there = {
            gpu: SAME_SPEED if gpu == self.gpu and self.resized is None else product(self.speed, inverse(speed))
            for gpu, speed in speeds.items()
        }
        return replace(self, type_speeds=tuple(sorted(there.items())))

    def speeds_of(self, gpus: Sequence[str], runs: int) -> list[Estimate]:
        """Return the speed of each run (n_runs,) there, beside its own in history; `gpus`: the types they were on, if known."""
        known = dict(self.type_speeds)
        return [known.get(gpu, self.speed) for gpu in gpus] if gpus else [self.speed] * runs

    @property
    def further_pool(self) -> Pool | None:
        """Return the nodes of another kind that it holds beside its own: those behind them, or those of prefill."""
        if self.split is not None:
            return self.split.prefill.nodes.pool
        return None if self.overflow is None else self.overflow.further.pool

    @property
    def halves(self) -> tuple[Placement, Placement]:
        """Return the places of prefill and decode; raises ValueError where they are not apart."""
        if self.split is None:
            raise ValueError("prefill and decode have no places of their own")
        return _half(self.split.prefill), _half(self.split.decode)

    @property
    def rtt_s(self) -> float:
        """Return what each request gains on its way to another region."""
        return 0.0 if self.move is None else self.move.rtt_s

    def pod_gpus(self, now: FloatArray) -> FloatArray:
        """Return how many GPUs pods hold there (n,), by how many each holds now."""
        if self.resized is None:
            return now
        return np.where(np.abs(now - self.resized.before) <= _ROUNDING, self.resized.gpus, now)

    def nodes_of(self, pods: IntArray, gpus: FloatArray) -> IntArray:
        """Return the whole nodes of runs (n_runs,) that consist of so many pods, which hold so many GPUs each there.

        Pods of a run stand side by side where a node has room; one that is wider than a node takes several.
        """
        return np.asarray(
            np.ceil(pods / pods_beside(self.gpus_per_node, gpus)) * _wide(self.gpus_per_node, gpus), dtype=np.int64
        )

    @property
    def nodes_per_pod(self) -> int:
        """Return how many whole nodes the usual pod needs."""
        return int(_wide(self.gpus_per_node, self.gpus_per_pod))

    @property
    def pods_per_node(self) -> int:
        """Return how many of the usual pods a node holds; 1 if a pod spans nodes."""
        return int(pods_beside(self.gpus_per_node, self.gpus_per_pod))

    @property
    def holds_several(self) -> bool:
        """Return whether a node of its own, or one behind, holds several of the usual pods; nodes with slots are shared."""
        return self.shared is None and max(self.pods_per_node, self.further_pods_per_node) >= 2

    @property
    def comes_and_goes(self) -> bool:
        """Return whether the number of its replicas changes with demand or the hour."""
        return (
            self.split is not None
            or isinstance(self.scaling, SetReplicaPolicy)
            or isinstance(self.holding, SetSchedule)
        )

    @property
    def quota_pods(self) -> int | None:
        """Return how many pods the quota has room for; None if none is stated."""
        if self.split is not None:
            return None
        if self.overflow is not None:
            further = self.further_quota_nodes
            return None if further is None else self.first_pods + further * self.further_pods_per_node
        if self.quota_nodes is None:
            return None
        if self.shared is not None:
            return self.quota_nodes * self.shared.shared.slots_per_node // self.shared.slots
        return self.pods_on(self.quota_nodes)

    def pods_on(self, nodes: int) -> int:
        """Return how many of the usual pods so many nodes hold."""
        return nodes * self.pods_per_node // self.nodes_per_pod

    @property
    def first_pods(self) -> int:
        """Return how many pods run on its own nodes before others go to those behind them; 0 without any behind them."""
        return 0 if self.overflow is None else self.pods_on(self.overflow.first_nodes)

    @property
    def further_pods_per_node(self) -> int:
        """Return how many of the usual pods one of the nodes behind its own, or of prefill's, holds; 1 without such nodes."""
        if self.split is not None:
            return _half(self.split.prefill).pods_per_node
        return 1 if self.overflow is None else int(pods_beside(self.overflow.further.gpus_per_node, self.gpus_per_pod))

    @property
    def left_frac(self) -> float:
        """Return the share of its GPU's time that time-sliced neighbours leave to it; 1 without neighbours."""
        if self.shared is None or not self.shared.others:
            return 1.0
        return left_frac(self.shared.others, self.shared.shared.busy_frac)

    def batch_curve(self, *, low: bool = False) -> BatchCurve | None:
        """Return the times of batches there; None if it does not batch. `low`: at the low end of its speed."""
        if self.batching is None:
            return None
        speed = self.speed.low if low else self.speed.value
        work_speed = self.work_speed.low if low else self.work_speed.value
        if low and self.batching.basis is Basis.MODELLED:
            # this engine's batches were not measured: the cost of further requests is as uncertain as a speed between two GPUs
            work_speed /= math.exp(Z_80 * PAIR_SPREAD)
        return self.batching.curve.carried(speed, work_speed)

    def replica_req_s(self, alone_req_s: float, *, low: bool = False, faster_counts: bool = True) -> float:
        """Return the requests a second that one replica serves there at full activity.

        `alone_req_s` is what it serves today, one request at a time as measured; full batches go by their own times. Who
        takes turns with others has only the time that they leave. `low`: at the low end of its speed. `faster_counts`: whether
        a faster GPU serves more, or something beside it may be full first (`ServiceLaw.faster_counts`).
        """
        curve = self.batch_curve(low=low)
        if self.batching is not None and curve is not None:
            return curve.most_req_s(self.batching.max_batch) * self.left_frac
        speed = self.speed.low if low else self.speed.value
        if self.replica_gpus is not None:
            return alone_req_s * self.replica_gpus.times_today * speed
        return alone_req_s * self.left_frac * (speed if faster_counts else min(speed, 1.0))

    def as_replayed(self, *, within_quota: bool = True) -> Placement:
        """Return the placement as a replay sees it: without names, prices and texts, which may differ between equal placements.

        Replays are given nothing else, so that this is all that an outcome depends on besides its case.
        `within_quota`: whether a replay waits for nodes within a quota; else that bounds rules alone.
        """
        return replace(
            self,
            quota_nodes=self.quota_nodes if within_quota else None,
            further_quota_nodes=self.further_quota_nodes if within_quota else None,
            pool=_NO_POOL,
            gpu=None,
            type_speeds=tuple((gpu, _unsaid(speed)) for gpu, speed in self.type_speeds),
            speed=_unsaid(self.speed),
            work_speed=_unsaid(self.work_speed),
            shared=None if self.shared is None else _turns(self.shared),
            overflow=None if self.overflow is None else _behind(self.overflow),
            split=None if self.split is None else _unplaced(self.split),
            replica_gpus=None
            if self.replica_gpus is None
            else replace(self.replica_gpus, nodes=_unnamed(self.replica_gpus.nodes)),
            spot=None if self.spot is None else replace(self.spot, pool=_NO_POOL),
            hedge=None if self.hedge is None else replace(self.hedge, pool=_NO_POOL),
            blocks=None
            if self.blocks is None
            else replace(self.blocks, pool=_NO_POOL, rate_micro_usd_hr=0, on_demand_micro_usd_hr=0),
            move=None if self.move is None else _longer_way(self.move),
            precision=None,
            batching=None if self.batching is None else replace(self.batching, before=0, model=None),
        )


def slot_gpus(gpus: float) -> int:
    """Return the least power of two that holds a pod of so many GPUs: such sizes divide one another, so that they fill nodes.

    >>> [slot_gpus(gpus) for gpus in (1.0, 2.0, 3.0, 5.0)]
    [1, 2, 4, 8]
    """
    size = 1
    while size < gpus - _ROUNDING:
        size *= 2
    return size


def is_measured_same(speed: Estimate) -> bool:
    """Return whether a speed is the one that was measured, not a predicted one."""
    return speed.low == speed.value == 1.0 and speed.basis is Basis.MEASURED


def pods_beside(gpus_per_node: int, gpus: FloatArray | float) -> FloatArray:
    """Return how many pods of so many GPUs a node holds, at least one."""
    return np.maximum(1.0, np.floor(gpus_per_node / gpus + _ROUNDING))


def _wide(gpus_per_node: int, gpus: FloatArray | float) -> FloatArray:
    """Return how many nodes a pod of so many GPUs spans."""
    return np.maximum(1.0, np.ceil(gpus / gpus_per_node - _ROUNDING))


def _unsaid(estimate: Estimate) -> Estimate:
    """Return an estimate without its words, and without its upper end, which no replay reads."""
    return replace(estimate, high=estimate.value, because="")


def _turns(slots: UseSlots) -> UseSlots:
    """Return slots reduced to their time sharing; location and hardware only matter for the bill."""
    turns = SharedPool(_NO_POOL, slots.others + 1, isolation=slots.shared.isolation, busy_frac=slots.shared.busy_frac)
    return UseSlots(
        shared=turns if slots.others else SharedPool(_NO_POOL, 1),
        gpu="",
        gpus_per_node=1,
        slots=1,
        memory_gib=0.0,
        speed=SAME_SPEED,
        work_speed=SAME_SPEED,
    )


def _behind(overflow: OverflowTo) -> OverflowTo:
    """Return the shape of nodes behind its own; how fast they are is part of the placement's speed."""
    further = UseOffering(pool=_NO_POOL, gpu="", gpus_per_node=overflow.further.gpus_per_node, speed=SAME_SPEED)
    return OverflowTo(pool=_NO_POOL, first_nodes=overflow.first_nodes, further=further)


def _unnamed(nodes: UseOffering) -> UseOffering:
    return UseOffering(pool=_NO_POOL, gpu="", gpus_per_node=nodes.gpus_per_node, speed=_unsaid(nodes.speed))


def _unplaced(split: SplitServing) -> SplitServing:
    """Return both halves without names: which nodes hold them and what carries their caches is part of their times."""
    prefill, decode = (replace(half, nodes=_unnamed(half.nodes)) for half in (split.prefill, split.decode))
    return replace(split, prefill=prefill, decode=decode, model="", prompt_mb=0.0, link_gb_s=0.0, link="")


def _longer_way(move: Relocate) -> Relocate:
    """Return a move by the longer way of its requests."""
    return Relocate(
        to=UseOffering(pool=_NO_POOL, gpu="", gpus_per_node=1, speed=SAME_SPEED),
        home=_NO_POOL,
        rtt_s=move.rtt_s,
        data_gib=0.0,
        traffic_gib_mo=0.0,
        copy_usd=0.0,
        overlap_usd=0.0,
        traffic_usd_mo=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """The place and speed so far: the state that each step of `resolve` may change."""

    pool: Pool
    gpu: str | None
    gpus_per_node: int
    gpus: float
    resized: ResizedPods | None = None
    speed: Estimate = SAME_SPEED
    work_speed: Estimate = SAME_SPEED


def resolve(home: Home, deployment: Deployment) -> Placement:
    """Return where a workload runs under a deployment, and how fast."""
    if deployment.split is not None:
        return replace(_half(deployment.split.decode), split=deployment.split, scaling=None)
    ground = _Ground(pool=home.pool, gpu=home.gpu, gpus_per_node=home.gpus_per_node, gpus=home.gpus_per_pod)
    count, memory = deployment.gpu_count, deployment.memory
    if count is not None:
        resized = ResizedPods(float(count.before), float(count.gpus))
        ground = replace(ground, pool=count.pool, gpus_per_node=count.gpus_per_node, resized=resized)
        if round(home.gpus_per_pod) == count.before:
            ground = replace(ground, gpus=float(count.gpus))
    offering = _offering(deployment)
    if offering is not None:
        ground = _on_offering(ground, offering)
    if memory is not None:
        ground = _Ground(
            pool=memory.pool,
            gpu=memory.gpu,
            gpus_per_node=memory.gpus_per_node,
            gpus=float(memory.gpus),
            resized=ResizedPods(float(memory.before), float(memory.gpus)),
            speed=memory.speed,
            work_speed=memory.speed,
        )
    served = deployment.replica_gpus
    if served is not None:
        resized = ResizedPods(float(served.before), float(served.gpus))
        ground = replace(_on_offering(ground, served.nodes), gpus=float(served.gpus), resized=resized)
    shared = _slots(ground.pool, deployment)
    if shared is not None:
        ground = _in_slots(shared)
    leaves = offering is not None or shared is not None or served is not None
    overflow = None if shared is not None else _overflow(ground.pool, deployment)
    speed, work_speed = _in_format(ground, deployment.precision, there=leaves)
    if overflow is not None:
        further = overflow.further
        speed, work_speed = slower(speed, further.speed), slower(work_speed, further.work_speed or further.speed)
    if deployment.changes and not is_measured_same(home.home_speed):
        # as it is, it stays on every type that its history is of
        speed, work_speed = product(speed, home.home_speed), product(work_speed, home.home_speed)
    bought = None if shared is not None or overflow is not None else deployment.buying
    on_spot = _on_spot(ground.pool, bought)
    return Placement(
        pool=ground.pool,
        gpu=ground.gpu,
        gpus_per_node=ground.gpus_per_node,
        gpus_per_pod=ground.gpus,
        resized=ground.resized,
        speed=speed,
        work_speed=work_speed,
        shared=shared,
        overflow=overflow,
        spot=on_spot if isinstance(on_spot, SetCapacityType) else None,
        hedge=on_spot if isinstance(on_spot, HedgeOnSpot) else None,
        blocks=_blocks(ground.pool, bought),
        move=None if offering is None else deployment.relocation,
        precision=deployment.precision,
        batching=deployment.batching,
        start=deployment.start,
        scaling=deployment.scaling,
        holding=deployment.holding,
        leaves=leaves,
        replica_gpus=served,
    )


def _half(half: ServingHalf) -> Placement:
    """Return where the replicas of prefill or decode run; its speed is 1, with the doubt of the predicted times."""
    return Placement(
        pool=half.nodes.pool,
        gpu=half.nodes.gpu,
        gpus_per_node=half.nodes.gpus_per_node,
        gpus_per_pod=float(half.gpus),
        resized=None,
        speed=half.nodes.speed,
        work_speed=half.nodes.speed,
        shared=None,
        overflow=None,
        spot=None,
        hedge=None,
        blocks=None,
        move=None,
        precision=None,
        batching=None,
        start=None,
        scaling=half.scaling,
        holding=None,
        leaves=True,
    )


def without_effect(deployment: Deployment, place: Placement) -> dict[str, str]:
    """Return effects without a result at the deployment's place: the dimension, and what each one needs.

    So it is where a part of a plan is enacted without the rest that it rests on.
    """
    found = {}
    elsewhere = None if deployment.relocation is None else deployment.relocation.to
    for dimension, offering in (("offering", deployment.offering), ("relocation", elsewhere)):
        if offering is not None and not _holds_weights(offering, deployment):
            found[dimension] = "the nodes hold its weights in fewer bits only: change their format with it"
    slots = deployment.sharing
    if slots is not None and place.shared is None:
        tight = not _holds_weights(slots, deployment)
        needs = "hold its weights in fewer bits only: change their format" if tight else "lie elsewhere: move it there"
        found["sharing"] = f"the slots {needs} with it"
    if deployment.overflow is not None and place.overflow is None:
        found["overflow"] = f"it does not run on nodes of {deployment.overflow.pool}: move it there with it"
    if deployment.buying is not None and not (place.spot or place.hedge or place.blocks):
        found["buying"] = f"it does not run on nodes of {deployment.buying.pool}: move it there with it"
    return found


def slot_board(slots: UseSlots, market: Market) -> Gpu | None:
    """Return what a slot is to a program: the GPU itself, or one slice of it; None if the catalog does not know it."""
    gpu = market.gpu(slots.gpu)
    if gpu is None or not slots.shared.is_cut:
        return gpu
    if slots.others:
        return time_slice(gpu, slots.per_gpu, slots.slots)
    if not slots.shared.is_isolated:
        return mps_share(gpu, slots.per_gpu)
    cuts = slices_of(gpu, market.catalog.mig_table)
    return next((cut.slice for cut in cuts if cut.profile.name == slots.shared.profile), None)


def board_of(place: Placement, market: Market) -> Gpu | None:
    """Return the GPU or slice on which a program runs at a place; None if the catalog does not know it."""
    return market.gpu(place.gpu) if place.shared is None else slot_board(place.shared, market)


def _offering(deployment: Deployment) -> UseOffering | None:
    """Return the offering that a deployment goes to: a move's own goes over another; none that cannot hold the weights."""
    offering = deployment.offering if deployment.relocation is None else deployment.relocation.to
    return offering if offering is not None and _holds_weights(offering, deployment) else None


def _holds_weights(place: UseOffering | UseSlots, deployment: Deployment) -> bool:
    return deployment.precision is not None or not place.only_quantized


def _on_offering(ground: _Ground, offering: UseOffering) -> _Ground:
    return replace(
        ground,
        pool=offering.pool,
        gpu=offering.gpu,
        gpus_per_node=offering.gpus_per_node,
        speed=offering.speed,
        work_speed=offering.work_speed or offering.speed,
    )


def _slots(pool: Pool, deployment: Deployment) -> UseSlots | None:
    """Return the slots that a deployment runs in; those of a region that it does not go to are not there for it."""
    slots = deployment.sharing
    if slots is None or not slots.pool.is_beside(pool) or not _holds_weights(slots, deployment):
        return None
    return slots


def _overflow(pool: Pool, deployment: Deployment) -> OverflowTo | None:
    """Return the nodes behind those of a pool; none for others, or where weights are stored in a format tried on one type."""
    overflow = deployment.overflow
    return overflow if overflow is not None and overflow.pool == pool and deployment.precision is None else None


def slower(one: Estimate, other: Estimate) -> Estimate:
    """Return the speed of work that waits for the slower of two GPUs, each end by itself; in words it is the slower one's."""
    first = one if one.value <= other.value else other
    return replace(first, low=min(one.low, other.low), high=min(one.high, other.high))


def _in_slots(slots: UseSlots) -> _Ground:
    return _Ground(
        pool=slots.pool,
        gpu=slots.gpu,
        gpus_per_node=slots.gpus_per_node,
        gpus=slots.gpus,
        speed=slots.speed,
        work_speed=slots.work_speed,
    )


def _in_format(ground: _Ground, precision: SetPrecision | None, *, there: bool) -> tuple[Estimate, Estimate]:
    """Return the speeds with weights stored another way: of the format over the present one, on the GPU that it runs on."""
    if precision is None:
        return ground.speed, ground.work_speed
    speed = product(ground.speed, precision.speed_there if there else precision.speed)
    further = precision.work_speed_there if there else precision.work_speed
    return speed, ground.work_speed if further is None else product(ground.work_speed, further)


def _on_spot(pool: Pool, bought: Buying | None) -> SetCapacityType | HedgeOnSpot | None:
    """Return spot nodes of the place itself, whatever type they were offered for; none in another region."""
    if not isinstance(bought, SetCapacityType | HedgeOnSpot) or not bought.pool.is_beside(pool):
        return None
    return replace(bought, pool=pool.held_as(bought.pool.capacity_type))


def _blocks(pool: Pool, bought: Buying | None) -> BookBlocks | None:
    """Return capacity blocks of the place's own nodes; a calendar for others was learnt on another need."""
    if not isinstance(bought, BookBlocks) or bought.pool != pool.held_as(bought.pool.capacity_type):
        return None
    return bought

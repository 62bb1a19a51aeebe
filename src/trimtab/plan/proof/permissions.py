"""What could be declared of a workload and was not: each permission, what history says of it, and what its owner gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from trimtab.catalog.kinds import Isolation
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas, ShortenStart
from trimtab.deployment.placement import Placement
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.reach import asked_isolation
from trimtab.fleet.starts import FEWEST
from trimtab.fleet.targets import observed_s, targets_of
from trimtab.levers import faster_start, quantization, right_size, scale_to_zero
from trimtab.levers.lever import LeverRequest
from trimtab.physics.formats import WeightFormat
from trimtab.plan.proof.permitted_ways import (
    Ways,
    bought_ways,
    closed_ways,
    held_ways,
    quantized_ways,
    shared_ways,
    sleeping_ways,
    spot_ways,
)
from trimtab.replay.outcomes.evaluate import Evaluator, law_of
from trimtab.replay.outcomes.jobs_outcome import undeclared_checkpoints
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.replay.outcomes.service_model import cold_start_of, demand_of, planned_start_of
from trimtab.replay.outcomes.service_outcome import outside_hours
from trimtab.tables.workloads import (
    DeclaredOpenHours,
    DeclaredTarget,
    TargetMetric,
    Weekday,
    WorkloadKind,
    WorkloadSpec,
)
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR, S_PER_MIN

_P95 = 0.95
_LOOSER = (4.0, 2.0)
"""Multiples of the observed p95 that are asked about, the loosest first: if that frees nothing, none does."""
_PRICED = (8.0, 4.0, 3.0, 2.0, 1.5, 1.2)
"""Times the observed p95: the limits whose prices are shown side by side."""
_SHARERS_LOOSER = (8.0, 4.0, None)
"""Likewise of those who share a GPU, where each waits for the others; last, without any limit."""
_ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0)
_BUSY_ALONE = 1.0
"""Busy GPUs, on average, beyond which a service gains nothing by sharing one."""
_KEPT = 2
"""Replicas that a plan keeps where a single one is not permitted."""
_MOST_REFUSED_FRAC = 0.05
"""Hours are no candidates for closing where more than this share of the requests comes outside them."""
_MOST_OPEN_FRAC = 0.75
"""Nor where it would be open for more of the week."""
_WORKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri")
_WEEK: tuple[Weekday, ...] = (*_WORKDAYS, "sat", "sun")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedWorkloadState:
    """A workload as the plan has it."""

    evaluator: Evaluator
    market: Market
    deployment: Deployment
    formats_save: bool
    """Whether some service of the fleet was said to save with a format that has not been evaluated."""

    @property
    def case(self) -> Case:
        """Return the workload as it was declared."""
        return self.evaluator.case

    @property
    def place(self) -> Placement:
        """Return where it runs."""
        return self.evaluator.place(self.deployment)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Permission:
    """One declaration that is missing, and what would follow from it."""

    name: str
    """As the field of workloads.yaml is called; `latency` for a target."""
    asked_of: Case
    """The workload as it was declared."""
    fields: Mapping[str, object]
    """The fields to declare in addition, plain values as YAML has them."""
    case: Case = field(init=False)
    """The workload as if they were declared."""
    known: str
    """What history says about it."""
    permits: str
    """What would be declared, in words."""
    ways: Ways
    needs: Callable[[Deployment], bool]
    """Return whether a way is possible only with the permission."""
    price: Callable[[Deployment, Outcome], str]
    """Say what its owner gives up."""
    is_stricter: bool = False
    """Whether it frees nothing where the permission before it in its sequence does not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "case", declared(self.asked_of, self.fields))


def permissions(now: PlannedWorkloadState) -> Iterator[Sequence[Permission]]:
    """Yield what could be declared of a workload: of each sequence one is enough, the one that frees the most first."""
    case = now.case
    spec, kind = case.workload.spec, case.workload.kind
    if case.workload.pool.capacity_type.paid_anyway:
        return
    if kind in RUN_KINDS and case.workload.jobs is not None:
        if spec.interruptible is None and case.settings.limits.use_spot:
            yield [_interruptible_runs(case)]
    elif kind is WorkloadKind.SERVING:
        near = _near(now)
        yield _limits(now, near)
        spread = now.place.pods_per_node < demand_of(case).most_replicas
        if spec.interruptible is None and case.settings.limits.use_spot and spread:
            yield [_interruptible_service(now)]
        if spec.min_replicas is None and _rests_on_two(now):
            yield [_one_replica(now, near)]
        if spec.min_replicas is None and spec.open_hours is None:
            yield from _no_replica(now, near)
        if spec.quantize is None and spec.quality is None and now.formats_save:
            yield from _formats(now)
        if spec.open_hours is None:
            yield from _hours(now)
        if spec.cold_start_s is None:
            yield from _shorter_starts(now, near)


def askable(case: Case) -> bool:
    """Return whether anything could be declared of a workload that admits more."""
    workload = case.workload
    runs = workload.kind in RUN_KINDS and workload.jobs is not None and workload.spec.interruptible is None
    return not workload.pool.capacity_type.paid_anyway and (runs or workload.kind is WorkloadKind.SERVING)


def _near(now: PlannedWorkloadState) -> tuple[Deployment, ...]:
    """Return the places of its own in its own region, as worked out once for all permissions."""
    ask = LeverRequest(evaluator=now.evaluator, market=now.market, among_largest=False)
    return (AS_IT_IS, *right_size.LEVER.ways(AS_IT_IS, ask))


def _rests_on_two(now: PlannedWorkloadState) -> bool:
    """Return whether the plan keeps a second replica at some hour only because a single replica is not permitted."""
    place = now.place
    if place.holds_several:
        return False
    if not now.deployment.changes:
        return demand_of(now.case).most_replicas == _KEPT
    outcome = now.evaluator.outcome(now.deployment)
    if outcome.gpus is None or not outcome.gpus.size:
        return _floor(now.deployment) == _KEPT
    return float(outcome.gpus.min()) / S_PER_HR / place.gpus_per_pod < _KEPT + 0.5


def declared(case: Case, fields: Mapping[str, object]) -> Case:
    """Return a case as it would be with some more fields declared."""
    workload = case.workload
    said = workload.spec.model_dump(mode="json", exclude_unset=True)
    spec = WorkloadSpec.model_validate({**said, **fields})
    targets = targets_of(spec, workload.kind, workload.service, workload.jobs, case.settings.assumptions)
    asked = replace(workload, spec=spec, targets=targets)
    if targets == workload.targets:
        return replace(case, workload=asked)
    law = law_of(asked, case.settings)
    return replace(case, workload=asked, targets=targets, law=case.law if isinstance(law, str) else law)


def _interruptible_runs(case: Case) -> Permission:
    jobs = case.workload.jobs
    assert jobs is not None
    length_hr = np.median(jobs.end_s - jobs.start_s) / S_PER_HR if jobs.count else 0.0
    fields: dict[str, object] = {"interruptible": True}
    if case.workload.spec.checkpoint is None:
        fields["checkpoint"] = asdict(undeclared_checkpoints(jobs, case.settings.assumptions))
    return Permission(
        name="interruptible",
        asked_of=case,
        fields=fields,
        known=f"{jobs.count:,} runs, {length_hr:.2g} h at the median, not declared interruptible",
        permits="runs that save and go on elsewhere",
        ways=bought_ways,
        needs=lambda way: way.buying is not None,
        price=lambda _, outcome: (
            f"{outcome.interruptions:,} interruptions in {case.window.days:.0f} days, "
            f"{outcome.lost_gpu_hr:,.0f} GPU-hours done twice"
        ),
    )


def _interruptible_service(now: PlannedWorkloadState) -> Permission:
    case = now.case
    return Permission(
        name="interruptible",
        asked_of=case,
        fields={"interruptible": True},
        known=f"up to {_count(demand_of(case).most_replicas, 'replica')}, no word on whether one may be lost",
        permits="replicas that may be interrupted",
        ways=lambda ask: spot_ways(ask, now.deployment),
        needs=lambda way: way.buying is not None,
        price=lambda _, outcome: (
            f"in {case.window.days:.0f} days replicas are lost {outcome.interruptions:,} times, with minutes of notice"
        ),
    )


def _limits(now: PlannedWorkloadState, near: Sequence[Deployment]) -> list[Permission]:
    """Return the permissions of `latency_ladder`."""
    return [permission for _, permission in _limit_permissions(now, near, _LOOSER)]


def latency_ladder(now: PlannedWorkloadState) -> list[tuple[float, Permission]]:
    """Return latency limits in seconds, each with its permission, the loosest first; none where no latency was measured."""
    return _limit_permissions(now, _near(now), _PRICED)


def _limit_permissions(
    now: PlannedWorkloadState, near: Sequence[Deployment], factors: Sequence[float]
) -> list[tuple[float, Permission]]:
    seen_s = observed_p95_s(now.case)
    if seen_s is None:
        return []

    def of(limit_s: float) -> Permission:
        return Permission(
            name="latency",
            asked_of=now.case,
            fields=_limit(now.case, limit_s),
            known=f"p95 {seen_s:.2g} s observed, no latency limit declared",
            permits=f"a limit of {limit_s:g} s",
            ways=lambda ask: held_ways(ask, now.deployment, near),
            needs=lambda way: not now.evaluator.keeps_targets(way),
            price=lambda *_: "p95 may rise to it, and nothing bounds p99",
            is_stricter=True,
        )

    return [(limit_s, of(limit_s)) for limit_s in dict.fromkeys(rounded(factor * seen_s) for factor in factors)]


def observed_p95_s(case: Case) -> float | None:
    """Return the observed p95 of a service of which no latency limit is declared; None where none was measured."""
    if {target.metric for target in case.workload.spec.targets or ()} & {TargetMetric.LATENCY, TargetMetric.TTFT}:
        return None
    return observed_s(TargetMetric.LATENCY, _P95, case.workload.service, None) or None


def _limit(case: Case, limit_s: float) -> dict[str, object]:
    """Return the targets to declare: those that are, and a limit of the p95."""
    kept = case.workload.spec.model_dump(mode="json", exclude_unset=True).get("targets") or []
    target = DeclaredTarget(metric=TargetMetric.LATENCY, quantile=_P95, limit_s=limit_s)
    return {"targets": [*kept, target.model_dump(mode="json", exclude_none=True)]}


def rounded(value: float) -> float:
    """Return a number that people would write, no less than this one but for a tenth.

    >>> rounded(0.16), rounded(0.32), rounded(7.0)
    (0.15, 0.3, 8.0)
    """
    size = 10.0 ** np.floor(np.log10(value))
    return float(f"{next(digit for digit in _ROUND if digit * 1.1 >= value / size) * size:.3g}")


def _one_replica(now: PlannedWorkloadState, near: Sequence[Deployment]) -> Permission:
    case = now.case
    return Permission(
        name="min_replicas",
        asked_of=case,
        fields={"min_replicas": 1},
        known=f"up to {_count(demand_of(case).most_replicas, 'replica')}, two kept at all times, for nothing else is said",
        permits="one replica at quiet hours",
        ways=lambda ask: held_ways(ask, now.deployment, near),
        needs=lambda way: _floor(way) == 1,
        price=lambda *_: (
            f"if the last one's node is lost, nothing answers for {cold_start_of(case) / S_PER_MIN:.0f} min"
        ),
    )


def _no_replica(now: PlannedWorkloadState, near: Sequence[Deployment]) -> Iterator[Sequence[Permission]]:
    """Yield the permission to keep no replica at all, for a service without requests for longer than a start takes."""
    case = now.case
    wakes_on = {"query": _example_query(case.workload), "hold_s": _whole_minutes(cold_start_of(case) + S_PER_MIN)}
    fields: dict[str, object] = {"min_replicas": 0, "wakes_on": wakes_on}
    asked = declared(case, fields)
    if case.workload.service is None or scale_to_zero.impossible(asked) is not None:
        return
    idle_hr = scale_to_zero.longest_idle_s(case.workload.service) / S_PER_HR
    yield [
        Permission(
            name="min_replicas",
            asked_of=case,
            fields=fields,
            known=f"up to {idle_hr:.2g} h without a request, a replica kept at all times, for nothing else is said",
            permits="no replica while no requests arrive",
            ways=lambda ask: sleeping_ways(ask, now.deployment, near),
            needs=lambda way: isinstance(way.scaling, SetReplicaPolicy) and way.scaling.goes_to_none,
            price=lambda _, outcome: _who_waits(case, outcome),
        )
    ]


def _example_query(workload: Workload) -> str:
    """Return what the KEDA HTTP add-on (0.14 on) counts in flight, held requests included, for its route."""
    name = workload.name.partition("/")[2] or workload.name
    return f'sum(interceptor_request_concurrency{{route_namespace="{workload.namespace}",route_name="{name}"}})'


def _whole_minutes(seconds: float) -> float:
    return float(np.ceil(seconds / S_PER_MIN) * S_PER_MIN)


def _who_waits(case: Case, outcome: Outcome) -> str:
    late = [1 - attained.frac for attained in outcome.attained if attained.target.metric is TargetMetric.THROUGHPUT]
    share = f" ({late[0]:.2%} of requests wait more than a minute)" if late else ""
    return (
        f"who asks first waits up to {cold_start_of(case) / S_PER_MIN:.0f} min for a start{share}; a gateway or a queue must "
        "hold requests and be what the query counts: the one shown is of the KEDA HTTP add-on"
    )


def _floor(way: Deployment) -> int | None:
    scaling = way.scaling
    if isinstance(scaling, SetReplicas):
        return scaling.replicas
    return scaling.hpa.min_replicas if isinstance(scaling, SetReplicaPolicy) else None


def _formats(now: PlannedWorkloadState) -> Iterator[Sequence[Permission]]:
    """Yield the formats that are neither accepted nor rejected, the fewest bits first."""
    case = now.case
    formats = quantization.formats_of(case.workload)
    if isinstance(formats, str):
        return
    model = case.workload.spec.model or formats.model.architecture.name
    known = f"{model} in {formats.model.stored.value}, no other format accepted"
    yield [_format(now, stored, known) for stored in reversed(formats.unknown)]


def _format(now: PlannedWorkloadState, stored: WeightFormat, known: str) -> Permission:
    return Permission(
        name="quantize",
        asked_of=now.case,
        fields={"quantize": [stored.value]},
        known=known,
        permits=f"weights in {stored.value}",
        ways=lambda ask: quantized_ways(ask, now.deployment),
        needs=lambda way: way.precision is not None,
        price=lambda *_: "answers may change: have them evaluated first",
    )


def _hours(now: PlannedWorkloadState) -> Iterator[Sequence[Permission]]:
    """Yield the shortest hours outside of which few requests come; nothing where they come at all hours."""
    case = now.case
    if case.workload.service is None:
        return
    best: tuple[int, DeclaredOpenHours] | None = None
    came = _requests_by_week_hour(case)
    for days in (_WORKDAYS, _WEEK):
        for length in range(1, HR_PER_DAY):
            for first in range(HR_PER_DAY - length + 1):
                hours = DeclaredOpenHours(days=days, from_hour=first, to_hour=first + length)
                refused = 1 - came[list(hours.hours_of_week)].sum()
                held = len(hours.hours_of_week)
                if refused <= _MOST_REFUSED_FRAC and (best is None or held < best[0]):
                    best = held, hours
    if best is None or best[0] > _MOST_OPEN_FRAC * HR_PER_WEEK:
        return
    fields = {"open_hours": best[1].model_dump(mode="json")}
    outside = outside_hours(declared(case, fields))
    yield [
        Permission(
            name="open_hours",
            asked_of=case,
            fields=fields,
            known=f"nearly all requests come in {best[0]} of the week's {HR_PER_WEEK} hours",
            permits="closing outside them",
            ways=lambda ask: closed_ways(ask, now.deployment),
            needs=lambda way: way.holding is not None,
            price=lambda *_: f"requests outside them are refused: {outside}",
        )
    ]


def _requests_by_week_hour(case: Case) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the share of requests by hour of the week (168,)."""
    service = case.workload.service
    assert service is not None
    hours = (np.arange(len(service.arrivals)) * service.step_s // S_PER_HR).astype(np.int64)
    counted = np.nan_to_num(service.arrivals)
    came = np.bincount((hours + case.window.first_week_hour) % HR_PER_WEEK, weights=counted, minlength=HR_PER_WEEK)
    return np.asarray(came / max(came.sum(), 1.0), dtype=np.float64)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def sharers(every: Sequence[PlannedWorkloadState]) -> Iterator[list[Permission]]:
    """Yield what services that keep no GPU busy alone would have to permit together to share GPUs, the loosest first.

    Where no latency limit is declared a service may answer no later than it does, which sharing does not keep: limits are asked
    for too.
    """
    quiet = [now for now in every if _is_quiet(now) and _is_kept_apart(now)]
    unlimited = any(observed_p95_s(now.case) is not None for now in quiet)
    for looser in _SHARERS_LOOSER if unlimited else (None,):
        yield [_sharer(now, looser) for now in quiet]


def _is_kept_apart(now: PlannedWorkloadState) -> bool:
    """Return whether a service is kept apart by hardware because no isolation is declared for it."""
    spec, stated = now.case.workload.spec, now.case.settings.limits.isolation
    return spec.isolation is None and asked_isolation(spec, stated) is Isolation.HARDWARE


def _is_quiet(now: PlannedWorkloadState) -> bool:
    """Return whether a service of one GPU a replica keeps less than one busy: then it may gain by sharing one."""
    workload = now.case.workload
    busy = workload.activity.busy_gpus
    if workload.kind is not WorkloadKind.SERVING or workload.gpus_per_pod > 1 or not np.isfinite(busy).any():
        return False
    return float(np.nanmean(busy)) <= _BUSY_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShorterStart:
    """A part of a service's start on a node that could be shorter, by how much as its own starts were measured."""

    shorter_s: float
    known: str
    permits: str
    price: str


def _shorter_starts(now: PlannedWorkloadState, near: Sequence[Deployment]) -> Iterator[Sequence[Permission]]:
    """Yield loads that are as short as the shortest: ways that keep the targets only with them, the shortest start first.

    What is declared is no wish of its owner's but what a start then takes. What enough starts show is an option of the plan
    (`levers.faster_start`): images are asked about together with loads, where the plan does not have them by themselves.
    """
    start_s, images = now.case.workload.start_s, faster_start.without_pulls(now.case)
    load = _short_load(now.case.workload)
    if start_s is None or load is None or planned_start_of(now.case) != start_s:
        return
    if load.shorter_s < faster_start.LEAST_SHORTER_FRAC * start_s:
        return
    both = [] if images is None else [[_pulls(images, now.case.workload), load]]
    alone = [] if now.deployment.start is not None else [[load]]
    yield [_shorter_start(now, near, start_s, parts) for parts in (*both, *alone)]


def _pulls(images: ShortenStart, workload: Workload) -> _ShorterStart:
    return _ShorterStart(
        shorter_s=images.saved_s,
        known=f"pulls of images {images.saved_s:.0f} s",
        permits="images on each node's disk",
        price=f"the images of {workload.name} on every node's disk",
    )


def _short_load(workload: Workload) -> _ShorterStart | None:
    """Return how much shorter loads could be, where one or two were far shorter than the others: too few to plan with."""
    if workload.load_s is None or not 0 < len(workload.short_loads_s) < FEWEST:
        return None
    shortest_s = min(workload.short_loads_s)
    return _ShorterStart(
        shorter_s=workload.load_s - shortest_s,
        known=f"{workload.load_s:.0f} s from its containers' start to ready, {shortest_s:.0f} s in the shortest",
        permits="weights on the node's disk or streamed and the compile cache kept, so that all load as the shortest did",
        price=f"the weights of {workload.name} on every node's disk or a store that streams them, and a volume for what it "
        "compiles; find out first what made its shortest start short",
    )


def _shorter_start(
    now: PlannedWorkloadState, near: Sequence[Deployment], start_s: float, parts: Sequence[_ShorterStart]
) -> Permission:
    left_s = max(start_s - sum(part.shorter_s for part in parts), 0.0)
    price = "; ".join(part.price for part in parts)
    return Permission(
        name="cold_start_s",
        asked_of=now.case,
        fields={"cold_start_s": round(left_s, 1)},
        known=f"starts of {start_s:.0f} s on a node, of which {' and '.join(part.known for part in parts)}",
        permits=f"{' and '.join(part.permits for part in parts)} ({left_s:.0f} s)",
        ways=lambda ask: held_ways(ask, now.deployment, near),
        needs=lambda way: not now.evaluator.keeps_targets(way),
        price=lambda *_: price,
    )


def _sharer(now: PlannedWorkloadState, looser: float | None) -> Permission:
    seen_s = None if looser is None else observed_p95_s(now.case)
    limit = {} if looser is None or seen_s is None else _limit(now.case, rounded(looser * seen_s))
    return Permission(
        name="isolation",
        asked_of=now.case,
        fields={"isolation": "none", **limit},
        known="less than one GPU busy on average, kept apart by hardware because nothing else is said",
        permits="sharing GPUs without isolation by hardware"
        + (f", at up to about {looser:g}x the p95 observed" if limit else ""),
        ways=lambda ask: shared_ways(ask, now.deployment),
        needs=lambda way: way.sharing is not None,
        price=lambda *_: "requests wait for one another, and a fault of one stops all on its GPU",
        is_stricter=True,
    )

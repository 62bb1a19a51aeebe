"""A lever: a record of everything known about one way to save, with functions that propose and explain it.

Ways of running a workload are composed stage by stage (`plan.options.composition`): a place, a form of serving, a way of
holding replicas or nodes, a way of buying them. A lever says in which stage it stands and, from a way so far, which ways go on
from it. What a way saves and whether it keeps its targets a replay decides, never the lever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar, cast

from trimtab.catalog import Gpu
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, WorkloadEffect
from trimtab.deployment.placement import Placement
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions, Effort, Settings
from trimtab.ledger import Bill, Commitment
from trimtab.ledger.arrays import IntArray
from trimtab.physics.formats import oldest_software
from trimtab.provenance import Estimate
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR

_T = TypeVar("_T")


class CompositionStage(Enum):
    """What a lever decides, in the order of composition."""

    PLACE = "place"
    """Where a workload runs, on how many GPUs, with its weights stored how."""
    HOLD = "hold"
    """How many replicas or nodes are held, and when."""
    FORM = "form"
    """How a replica serves requests, and how many replicas then do."""
    BUY = "buy"
    """How nodes are bought, for ways that keep their targets on demand."""
    FLEET = "fleet"
    """Nodes and purchases that are no workload's own: not composed, but chosen beside."""


class Risk(Enum):
    """How much can go wrong, and whether it can be undone."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Fact(NamedTuple):
    """A line of evidence: a statistic, its source, its value, and the threshold."""

    what: str
    query: str
    value: str
    threshold: str = ""


class KeptWay(Protocol):
    """An option for running a workload that keeps its targets, with its usage."""

    @property
    def deployment(self) -> Deployment: ...

    @property
    def usage(self) -> Mapping[Pool, IntArray]: ...

    @property
    def slots(self) -> Mapping[SharedPool, IntArray]: ...

    @property
    def own_micro_usd(self) -> int: ...

    @property
    def needs(self) -> frozenset[str]: ...


@dataclass(slots=True, kw_only=True, eq=False)
class LeverRequest:
    """A request to a lever: one workload, its replays, and the market."""

    evaluator: Evaluator
    market: Market
    among_largest: bool = True
    """Whether it is one of the fleet's largest, for which costly questions are asked."""
    owned_nodes: Mapping[Pool, int] = field(default_factory=dict)
    """Nodes under commitments that run already, by pool: paid whether used or not."""
    _worked_out: dict[object, object] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """Return whose history is replayed, against which targets."""
        return self.evaluator.case

    @property
    def workload(self) -> Workload:
        """Return the workload."""
        return self.case.workload

    @property
    def settings(self) -> Settings:
        """Return the settings."""
        return self.case.settings

    @property
    def assumptions(self) -> Assumptions:
        """Return the assumptions."""
        return self.case.settings.assumptions

    def once(self, work: Callable[[LeverRequest], _T]) -> _T:
        """Return what a function works out of this workload, worked out the first time that it is requested."""
        if work not in self._worked_out:
            self._worked_out[work] = work(self)
        return cast("_T", self._worked_out[work])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedWays:
    """The result for a workload's options: those that keep their targets, and which levers' missed one."""

    kept: Sequence[KeptWay]
    """All that keep their targets."""
    candidates: Sequence[KeptWay]
    """Those that are cheapest at some prices."""
    missed: Mapping[str, int]
    """Number of options that missed a target, by lever."""
    waiting: Sequence[KeptWay] = ()
    """Options that were not replayed, because even a lower bound of their usage is in no better plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AppliedLever:
    """A lever's part in a planned deployment: what evidence is drawn from."""

    lever: str
    evaluator: Evaluator
    market: Market
    deployment: Deployment
    place: Placement
    outcome: Outcome

    @property
    def workload(self) -> Workload:
        """Return the workload."""
        return self.evaluator.case.workload

    @property
    def effects(self) -> tuple[WorkloadEffect, ...]:
        """Return the lever's own effects."""
        return tuple(self.deployment.of_lever(self.lever))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetPurchase:
    """A purchase or release for the whole fleet, and the bill under the rest of the plan."""

    discounts: tuple[Commitment, ...]
    owned: tuple[Commitment, ...]
    left: Bill
    rates: Callable[[Iterable[Pool]], Mapping[Pool, int]]


def _no_ways(base: Deployment, ask: LeverRequest) -> Iterable[Deployment]:
    """Propose nothing by workload."""
    return ()


def _nothing_refused(ask: LeverRequest) -> Mapping[str, int]:
    """Refuse nothing before composition."""
    return Counter()


def _no_facts(applied: AppliedLever) -> Iterable[Fact]:
    """Add no evidence beyond what every action shows: activity, and the replay's result."""
    return ()


def _no_fleet_facts(bought: FleetPurchase) -> Iterable[Fact]:
    return ()


def _unsaid(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say nothing of a lever that is not in the plan."""
    return None


class EffortStep(NamedTuple):
    """A piece of a lever's work, and the working days that it takes one engineer who has what `emit` wrote."""

    what: str
    days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One way to save, and everything known about it.

    `ways(base, ask)` yields the ways that go on from `base` with this lever; none where it does not apply. It proposes effects
    of the closed set only (`deployment.effects`), each under the lever's own name. `why_not(ask, judged)` says why it is not in
    a workload's plan, or None where that is not worth a line.
    """

    name: str
    """As users write it: `right-size`."""
    title: str
    """As a heading: `Right-size`."""
    meaning: str
    """What it does, in a sentence without its full stop."""
    page: str
    """The page of `docs/` that says more."""
    stage: CompositionStage
    kinds: frozenset[WorkloadKind]
    """The kinds of workloads that it serves; empty for what belongs to no workload own."""
    effort: Effort
    """Engineer-weeks: a planning assumption of this project, to be overridden by the team's own (`efforts` in the settings)."""
    first_steps: tuple[EffortStep, ...] = ()
    """What its first use in a fleet takes, which makes up `effort.first_weeks`; empty if not specified."""
    steps: tuple[EffortStep, ...] = ()
    """What each further use takes, which makes up `effort.weeks`."""
    risk: Risk
    rollback: str
    """How to undo it, in a clause."""
    canary: Callable[[Effect], tuple[str, ...]]
    """The steps that try one of its effects on a small part first."""
    reversible: bool = True
    """Whether it can be undone before a term ends."""
    ways: Callable[[Deployment, LeverRequest], Iterable[Deployment]] = _no_ways
    refused: Callable[[LeverRequest], Mapping[str, int]] = _nothing_refused
    """How many places were refused before any replay, by the reason."""
    evidence: Callable[[AppliedLever], Iterable[Fact]] = _no_facts
    fleet_evidence: Callable[[FleetPurchase], Iterable[Fact]] = _no_fleet_facts
    why_not: Callable[[LeverRequest, JudgedWays], str | None] = _unsaid
    drift_frac: float | None = None
    """80 % quantile of |replayed - predicted| / |predicted| of an action's share of the saving when plans met later weeks
    (`python -m benchmarks.proof`, 2026-11-22, 14 to 36 actions each); None if no fleet of the benchmark used it."""
    ends: str = ""
    """The cause of low activity that it removes; empty if none."""
    guide_order: int = 6
    """Its place in the order that guides give whatever the fleet: autoscale 0, right-size 1, capacity 2, quantize 3, MIG 4,
    taints 5, the long tail 6."""


def fewest(keeps: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the least number of `low` to `high` that keeps, where more never serves worse; None if not even `high` does."""
    if high < low or not keeps(high):
        return None
    return low + bisect_left(range(low, high), True, key=keeps)


def fewest_from(keeps: Callable[[int], bool], likely: int, high: int) -> int | None:
    """Return the least number of `likely` to `high` that keeps, as `fewest` does; looked for from `likely` on."""
    step, below = 1, likely - 1
    while below < high:
        count = min(below + step, high)
        if keeps(count):
            return below + 1 + bisect_left(range(below + 1, count), True, key=keeps)
        below, step = count, 2 * step
    return None


def usual_reason(
    lever: str, ask: LeverRequest, judged: JudgedWays, *, own: str | None = None, otherwise: str = "nothing to change"
) -> str:
    """Explain why a lever that applies to a workload is not in its plan, from the lever itself or from the rejected options.

    Nodes that are paid for anyway come before both.
    """
    pool = ask.workload.pool
    if pool.capacity_type.paid_anyway:
        return f"on {pool.capacity} nodes, paid for whether used or not: leaving them saves nothing"
    if own is not None:
        return own
    if is_candidate(lever, judged):
        return "possible, but more expensive than the plan"
    if any(lever in way.deployment.levers for way in judged.waiting):
        return "more expensive than the plan even at a lower bound of its usage"
    return "every variant misses a target in replay" if judged.missed.get(lever) else otherwise


def is_candidate(lever: str, judged: JudgedWays) -> bool:
    """Return whether some way with a lever keeps its targets and is not beaten at every price."""
    return any(lever in way.deployment.levers for way in judged.candidates)


def speed_fact(what: str, speed: Estimate) -> Fact:
    """Return a speed relative to the present one, with its interval and what it is known from."""
    return Fact(what, speed.because, f"x{speed.value:.2f} ({speed.low:.2f}-{speed.high:.2f})")


def software_fact(home: Gpu | None, there: Gpu | None) -> Iterator[Fact]:
    """Yield what image and nodes must have to run on another architecture; nothing where it is today's, or not known."""
    if there is None or (home is not None and home.architecture == there.architecture):
        return
    oldest = oldest_software(there)
    if oldest is not None:
        yield Fact(f"needed of image and nodes on {there.name}", "CUDA release notes, table 3", oldest)


def memory_peak(workload: Workload, threshold: str = "", what: str = "memory peak") -> Fact:
    """Return the most memory that was seen on a GPU of a workload."""
    peak = workload.activity.memory_peak_gib
    value = "not measured" if peak is None else f"{peak:.1f} GiB"
    return Fact(what, "gpu_usage.memory_used_gib_max", value, threshold)


def held_and_used(workload: Workload) -> Fact:
    """Return for how long nodes were held for a workload, and for how long it used them."""
    held = workload.held_node_seconds.sum() / S_PER_HR
    used = workload.gpu_seconds.sum() / S_PER_HR / workload.gpus_per_node
    return Fact("node-hours held / used", "nodes, allocations", f"{held:,.0f} / {used:,.0f}")

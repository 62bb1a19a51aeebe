"""Every way to run each workload that fits and keeps its targets, and why the others were dropped.

Ways that differ in the load at which they keep replicas alone form a *queue*, the hottest first: each of them holds, at the
lower bound of its use, no fewer replicas at any time than the one before it (`replay.outcomes.least_held`). Only the first of a
queue is bounded, and waits for its replay. What its bound shows holds for all behind it: where that is in no better plan, none
of them is, and none is looked at. Once it was replayed, the next one waits.

`Coupling` says which pools make one workload's use another's concern (those with a commitment, a quota, or all where spot is
limited), so that pruning one workload's ways drops none that another could need. `unkept` names declared targets that a
workload misses today and that nothing on offer keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas
from trimtab.fleet.market import Market
from trimtab.fleet.model import Target
from trimtab.fleet.reach import Quota, quotas_of
from trimtab.fleet.settings import Limits
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import IntArray
from trimtab.ledger.commitments import nodes_committed
from trimtab.levers import replica_count
from trimtab.levers.lever import JudgedWays, LeverRequest
from trimtab.levers.registry import serving
from trimtab.plan.options.composition import Candidate, Veto, at_place, bought, candidate_of
from trimtab.plan.options.unneeded import UnneededPlaces
from trimtab.replay.outcomes.evaluate import MISSES, MISSES_ON_DEMAND, Evaluator, Replayed
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import demand_of, floor_replicas
from trimtab.replay.outcomes.service_outcome import baseline_attained
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR

VETOED = "no safer than a way that missed a target on unseen history"
NO_FEWER = "never holds fewer replicas than those that keep the targets there"
AT_LEAST = "not replayed: another costs no more than a lower bound of it"
BEHIND = "not replayed: uses no less, at a lower bound, than one that was not chosen"
_WHERE = ("offering", "relocation", "overflow", "sharing", "gpu_count", "replica_gpus", "precision")
"""What a deployment changes of where replicas run, and on what; all else stays as history had it."""
_Where = TypeVar("_Where", Pool, SharedPool)


class WayReplayed(NamedTuple):
    """The result of the replay of a way that waited."""

    candidate: Candidate | None
    """The candidate that it makes; None where it makes none."""
    following: Candidate | None = None
    """The way that waits in its place."""


class Judge(Protocol):
    """Replays ways that wait, one by one."""

    def copy(self) -> Judge:
        """Return a judge that goes on from here, and leaves this one as it is."""
        ...

    def replay(self, way: Candidate, *, with_headroom: bool = True) -> WayReplayed:
        """Replay a way that waits."""
        ...

    def judged(self) -> WorkloadOptions:
        """Return the options as they are known by now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class WorkloadOptions:
    """A workload's candidates that keep its targets; how many were considered; how many were dropped for which reason."""

    evaluator: Evaluator
    candidates: tuple[Candidate, ...]
    considered: int
    dropped: Counter[str]
    missed: Counter[str]
    """Candidates that missed a target, by each lever in them."""
    without_headroom: tuple[Candidate, ...] = ()
    """The candidates of a planner without headroom: all that keep the targets where everything goes as predicted."""
    waiting: tuple[Candidate, ...] = ()
    """Ways not replayed yet, with a lower bound of what each could use; none of them is known to keep the targets."""
    queued: int = 0
    """How many more ways there are behind those that wait."""
    refused: tuple[Candidate, ...] = ()
    """Ways that waited and miss a margin, likewise: a planner without headroom might take them, replayed where all goes as
    predicted."""
    why_not: Mapping[str, str] | None = None
    """Why a lever would not be in this workload's plan, by lever, in its own words; those with nothing to say are left out.
    None until the reasons are asked for (`explained`)."""
    sieve: Judge | None = None
    """What judged them, and can go on with those that wait."""

    def explained(self) -> WorkloadOptions:
        """Return the options with why each lever would not be in the plan, and the replays forgotten.

        Where nothing keeps a declared target that history missed as well, the ways that wait are replayed first: that is said.
        """
        if self.why_not is not None or not isinstance(self.sieve, OptionFilter):
            return self
        if self.waiting and not self.candidates and any(_missed_declared(self.evaluator.case)):
            sieve = self.sieve.copy()
            while sieve.waiting:
                sieve.replay(sieve.waiting[0])
            return sieve.judged().explained()
        ask = self.sieve.ask
        judged = JudgedWays(
            kept=self.sieve.kept,
            candidates=self.candidates,
            missed=self.missed,
            waiting=self.waiting,
        )
        said = {lever.name: lever.why_not(ask, judged) for lever in serving(ask.workload.kind)}
        ask.evaluator.forget_replays()
        return replace(self, why_not={name: reason for name, reason in said.items() if reason is not None})


def options_of(
    case: Case,
    market: Market,
    owned: Sequence[Commitment] = (),
    *,
    among_largest: bool = True,
    evaluator: Evaluator | None = None,
    veto: Veto | None = None,
    unneeded: UnneededPlaces | None = None,
    as_needed: bool = False,
) -> WorkloadOptions:
    """Enumerate, replay and filter a workload's candidates; what is `owned` couples the pools that it may cover.

    An `evaluator` of the same case replays nothing twice; a `veto` leaves out ways that keep the targets; places that no plan
    of its fleet needs are left out. `as_needed`: ways whose least use is known without a replay wait for one. Nothing is
    explained yet (`WorkloadOptions.explained`).
    """
    ask = LeverRequest(
        evaluator=evaluator or Evaluator(case=case),
        market=market,
        among_largest=among_largest,
        owned_nodes=nodes_committed(owned),
    )
    levers = serving(case.workload.kind)
    refused = sum((Counter(lever.refused(ask)) for lever in levers), start=Counter[str]())
    sieve = OptionFilter(
        ask=ask,
        coupling=Coupling.of(case.settings.limits, market, owned),
        dropped=refused,
        considered=sum(refused.values()),
        veto=veto,
        as_needed=as_needed,
    )
    for place, reason in (unneeded or UnneededPlaces()).reasons(ask):
        if reason is not None:
            sieve.drop(reason)
        else:
            ways = at_place(place, ask)
            for queue in _queues(ways) if as_needed else ((way,) for way in ways):
                _judge(sieve, queue)
    found = sieve.judged()
    if not as_needed:  # no more is replayed
        ask.evaluator.forget_replays()
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedWorkload:
    """A workload's ways as another process judged them: all but what is there anyway, so that little is sent back."""

    considered: int
    dropped: Counter[str]
    missed: Counter[str]
    kept: Sequence[Candidate]
    without_headroom: Sequence[Candidate]
    standing: frozenset[Deployment]
    waiting: Sequence[Candidate]
    behind: Mapping[Candidate, Sequence[Deployment]]
    replayed: Replayed

    @classmethod
    def of(cls, options: WorkloadOptions) -> JudgedWorkload:
        """Return options in the form in which they are sent, before they are explained (`explained`)."""
        sieve = options.sieve
        if not isinstance(sieve, OptionFilter):
            raise TypeError(f"{options.evaluator.case.workload.name}: its ways were not judged by a sieve")
        return cls(
            considered=sieve.considered,
            dropped=sieve.dropped,
            missed=sieve.missed,
            kept=sieve.kept,
            without_headroom=sieve.without_headroom,
            standing=frozenset(sieve.standing),
            waiting=sieve.waiting,
            behind=sieve.behind,
            replayed=options.evaluator.replayed(),
        )

    def options(self, ask: LeverRequest, owned: Sequence[Commitment]) -> WorkloadOptions:
        """Return the options, as if they had been judged here for the same workload in the same world."""
        ask.evaluator.take(self.replayed)
        return OptionFilter(
            ask=ask,
            coupling=Coupling.of(ask.settings.limits, ask.market, owned),
            dropped=self.dropped,
            considered=self.considered,
            kept=[*self.kept],
            without_headroom=[*self.without_headroom],
            missed=self.missed,
            standing={*self.standing},
            as_needed=True,
            waiting=[*self.waiting],
            behind={**self.behind},
        ).judged()


def _queues(ways: Iterator[Deployment]) -> Iterator[Sequence[Deployment]]:
    """Yield ways one after the other, and such that differ in the load of replicas alone together, the hottest first."""
    queue: list[Deployment] = []
    for way in ways:
        if queue and not _differ_in_load(queue[-1], way):
            yield sorted(queue, key=_load_frac, reverse=True)
            queue = []
        queue.append(way)
    if queue:
        yield sorted(queue, key=_load_frac, reverse=True)


def _differ_in_load(one: Deployment, other: Deployment) -> bool:
    """Return whether two ways are the same but for the load at which they keep replicas."""
    rule, another = one.scaling, other.scaling
    if not isinstance(rule, SetReplicaPolicy) or not isinstance(another, SetReplicaPolicy):
        return False
    return rule.differs_in_load(another) and one.owed_to == other.owed_to and one.alike_but_scaling(other)


def _load_frac(way: Deployment) -> float:
    return way.scaling.hpa.target_frac if isinstance(way.scaling, SetReplicaPolicy) else 0.0


def _judge(sieve: OptionFilter, queue: Sequence[Deployment]) -> None:
    """Take ways on demand, in the order of a queue, and the other ways to buy the nodes of those that keep their targets."""
    ask = sieve.ask
    for place, way in enumerate(queue):
        buys = tuple(bought(way, ask))
        if not buys and way.changes:
            sieve.line_up(queue[place:])
            return
        stays = way if not way.changes and buys and ask.evaluator.keeps_targets(way) else None
        kept = sieve.kept_way(way) if way.changes else stays
        if kept is None:
            sieve.drop(MISSES_ON_DEMAND, len(buys))
        else:
            for other in buys if kept is way else bought(kept, ask):
                sieve.keeps(other)


def _most_replicas(ask: LeverRequest) -> int:
    return demand_of(ask.case).most_replicas


def _floor(ask: LeverRequest) -> int:
    return floor_replicas(ask.case)


@dataclass(slots=True, kw_only=True, eq=False)
class OptionFilter:
    """Judges ways one after the other, and counts."""

    ask: LeverRequest
    coupling: Coupling
    dropped: Counter[str]
    considered: int
    kept: list[Candidate] = field(default_factory=list)
    without_headroom: list[Candidate] = field(default_factory=list)
    """Those that miss a target's margin only."""
    missed: Counter[str] = field(default_factory=Counter)
    veto: Veto | None = None
    standing: set[Deployment] = field(default_factory=set)
    """Candidates that hold at all times as many replicas as history had at most."""
    as_needed: bool = False
    waiting: list[Candidate] = field(default_factory=list)
    """Ways at a lower bound of their use, to be replayed where the joint choice asks for them."""
    behind: dict[Candidate, Sequence[Deployment]] = field(default_factory=dict)
    """Those that stand behind each of them in its queue."""
    refused: list[Candidate] = field(default_factory=list)
    """Those of them that miss a target's margin; whether they miss the target itself is not known."""
    compared: frozenset[Candidate] = frozenset()
    """Candidates that beat none of the ways that wait or are refused: those that were compared with them before."""

    def copy(self) -> OptionFilter:
        """Return a sieve that goes on from here, and leaves this one as it is."""
        return replace(
            self,
            dropped=self.dropped.copy(),
            kept=[*self.kept],
            without_headroom=[*self.without_headroom],
            missed=self.missed.copy(),
            standing={*self.standing},
            waiting=[*self.waiting],
            behind={**self.behind},
            refused=[*self.refused],
        )

    def replay(self, way: Candidate, *, with_headroom: bool = True) -> WayReplayed:
        """Replay a way that waits; the next of its queue waits from then on.

        `with_headroom`: only one that keeps the margin of every target; what misses a margin waits on, in case it is asked for
        without.
        """
        found = (self.kept,) if with_headroom else (self.kept, self.without_headroom)
        before = [len(candidates) for candidates in found]
        if way in self.refused:
            self.refused.remove(way)
            self._takes(way.deployment, keeps=False)
        else:
            self.waiting.remove(way)
            if with_headroom and self.ask.evaluator.fails_under_stress(way.deployment):
                self._misses(way.deployment)
                self.refused.append(way)
                self._instead_of(way.deployment)
            else:
                self.kept_way(way.deployment)
        added = [candidate for candidates, count in zip(found, before, strict=True) for candidate in candidates[count:]]
        following = self.line_up(self.behind.pop(way, ()))
        return WayReplayed(candidate=added[0] if added else None, following=following)

    def line_up(self, queue: Sequence[Deployment]) -> Candidate | None:
        """Take ways each of which holds no fewer replicas than the one before, as far as bounds tell, up to one that waits.

        Return that one; the others stand behind it.
        """
        # they differ in how replicas are scaled alone
        if queue and self._is_refused(queue[0], self.ask.evaluator.hopeless_anyhow(queue[0]), len(queue)):
            return None
        for place, way in enumerate(queue):
            if self.holds_no_fewer(way):
                self.drop(NO_FEWER)
                continue
            if self._is_hopeless(way):
                continue
            waiting = self._at_least(way)
            if waiting is not None:
                self.waiting.append(waiting)
                if place + 1 < len(queue):
                    self.behind[waiting] = queue[place + 1 :]
                return waiting
            if not self._keeps(way):
                self._instead_of(way)
        return None

    def tries(self, way: Deployment, is_worth: Callable[[Candidate], bool]) -> None:
        """Replay a way, and take the candidate that it makes if that keeps every target's margin and is worth it."""
        evaluator = self.ask.evaluator
        if evaluator.hopeless(way) is not None or not evaluator.keeps_targets(way):
            return
        outcome = evaluator.judged(way)
        candidate = candidate_of(evaluator, way, outcome, self.ask.market)
        refused = self.veto is not None and self.veto.refuses(way, outcome)
        if candidate is not None and not refused and is_worth(candidate):
            self.kept.append(candidate)
            self.considered += 1

    def judged(self) -> WorkloadOptions:
        """Return what was let through so far, less what others beat; waiting ways that they beat are dropped for good."""
        market, coupling = self.ask.market, self.coupling
        candidates, dominated = undominated(self.kept, market, coupling)
        # all that waits now was there when those before were compared with it
        rivals = _Rivals([candidate for candidate in candidates if candidate not in self.compared], market, coupling)
        self.compared |= {*candidates}
        beaten = [way for way in self.waiting if rivals.beat(way)]
        for way in beaten:
            # and so are those behind it, which ask for the same work
            self.waiting.remove(way)
            self.drop(AT_LEAST, 1 + len(self.behind.pop(way, ())))
        self.refused = [way for way in self.refused if not rivals.beat(way)]
        loose = [*candidates, *self.without_headroom]
        queued = sum(len(queue) for queue in self.behind.values())
        self.ask.evaluator.forget_histories()
        return WorkloadOptions(
            evaluator=self.ask.evaluator,
            candidates=candidates,
            considered=self.considered + len(self.waiting) + queued,
            dropped=self.dropped + dominated,
            missed=self.missed,
            without_headroom=undominated(loose, market, coupling)[0] if self.without_headroom else candidates,
            waiting=tuple(self.waiting),
            queued=queued,
            refused=tuple(self.refused),
            sieve=self,
        )

    def holds_no_fewer(self, way: Deployment) -> bool:
        """Tell, before any replay, that a way never uses less in any hour than a candidate that asks for less work.

        So it does where it scales what would keep the targets unscaled, and never below that number.
        """
        scaling = way.scaling
        return (
            isinstance(scaling, SetReplicaPolicy | SetReplicas)
            and scaling.least >= self.ask.once(_most_replicas)
            and way.without("scaling") in self.standing
        )

    def kept_way(self, way: Deployment) -> Deployment | None:
        """Take a way, or what is there instead where it misses a target; return the one that keeps them, if either does."""
        return way if self.keeps(way) else self._instead_of(way)

    def _instead_of(self, way: Deployment) -> Deployment | None:
        """Take what keeps the targets in place of a way that misses one: more replicas, where their number is not scaled."""
        other = replica_count.instead(way, self.ask) if isinstance(way.scaling, SetReplicas) else None
        return other if other is not None and self.keeps(other) else None

    def keeps(self, way: Deployment) -> bool:
        """Return whether a way keeps the targets, in replay, and take the candidate that it makes."""
        return not self._is_hopeless(way) and self._keeps(way)

    def _is_hopeless(self, way: Deployment) -> bool:
        return self._is_refused(way, self.ask.evaluator.hopeless(way))

    def _is_refused(self, way: Deployment, reason: str | None, count: int = 1) -> bool:
        """Return whether a way, with others that differ in scaling alone, is refused without a replay, and count why."""
        if reason is not None and way.relocation is not None:
            self.missed[dict(way.owed_to)["relocation"]] += count
        if reason is None and self.veto is not None and self.veto.keeps:  # whatever it attains
            reason = VETOED
            for lever in way.levers:
                self.missed[lever] += count
        if reason is not None:
            self.drop(reason, count)
        return reason is not None

    def _keeps(self, way: Deployment) -> bool:
        keeps = self.ask.evaluator.keeps_targets(way)
        if not keeps:
            self._misses(way)
        return self._takes(way, keeps=keeps)

    def _misses(self, way: Deployment) -> None:
        self.drop(MISSES)
        self.missed.update(way.levers)

    def _takes(self, way: Deployment, *, keeps: bool) -> bool:
        """Take the candidate that a way makes, which `keeps` the margins of its targets or not; return whether it does."""
        evaluator = self.ask.evaluator
        outcome = evaluator.judged(way)
        if not keeps and any(attained.frac < attained.target.required_frac for attained in outcome.attained):
            return False
        if self.veto is not None and self.veto.refuses(way, outcome):
            self.drop(VETOED)
            self.missed.update(way.levers)
            return keeps
        candidate = candidate_of(evaluator, way, outcome, self.ask.market)
        if candidate is not None:
            (self.kept if keeps else self.without_headroom).append(candidate)
            self.considered += keeps
            if keeps and way == way.only(*_WHERE):
                self.standing.add(way)
        elif keeps:
            self.drop("fills whole nodes alone: nothing to share")
        return keeps

    def _is_unsure(self, way: Deployment) -> bool:
        """Return whether a way has another number of replicas, or as many as history had where fewer might do."""
        if way.scaling is not None:
            return True
        is_service = self.ask.workload.kind is WorkloadKind.SERVING
        return is_service and way == way.only(*_WHERE) and self.ask.once(_most_replicas) > self.ask.once(_floor)

    def _at_least(self, way: Deployment) -> Candidate | None:
        """Return a way at a lower bound of its use; None where it need not wait, or where that is not known well enough."""
        evaluator = self.ask.evaluator
        if not self.as_needed or not self._is_unsure(way):
            return None
        if isinstance(way.scaling, SetReplicaPolicy) and way.scaling.goes_to_none:
            # of these it is known when a replica is up, but not how many: too little to tell many rules apart
            return None
        least = evaluator.least(way)
        candidate = None if least is None else candidate_of(evaluator, way, least, self.ask.market)
        # what it uses is all that the choice asks of it
        return candidate and replace(candidate, outcome=replace(candidate.outcome, gpus=None, replicas=None))

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what is refused."""
        self.considered += count
        self.dropped[reason] += count


def undominated(
    candidates: list[Candidate], market: Market, coupling: Coupling
) -> tuple[tuple[Candidate, ...], Counter[str]]:
    """Drop candidates that another beats at every price: one of higher fixed cost, or one that uses no less in any hour.

    Nothing is lost: in any plan the better one can take the other's place, at no more cost, within the same limits, and asking
    nothing else of the team.
    """
    dropped: Counter[str] = Counter()
    alone = [candidate for candidate in candidates if coupling.is_alone(candidate)]
    others = [candidate for candidate in candidates if candidate not in alone]
    fixed: list[Candidate] = []
    for candidate in sorted(
        alone, key=lambda candidate: (list_cost(candidate, market), len(candidate.needs), _effort(candidate))
    ):
        if any(_asks_no_more(other, candidate) for other in fixed):
            dropped["more expensive, and no commitment can change that"] += 1
        else:
            fixed.append(candidate)
    kept: list[Candidate] = []
    for candidate in sorted(
        others,
        key=lambda candidate: (_size(candidate), candidate.own_micro_usd, len(candidate.needs), _effort(candidate)),
    ):
        if any(_beats(other, candidate, coupling) for other in kept):
            dropped["uses no less in any hour than another"] += 1
        else:
            kept.append(candidate)
    return (*fixed, *kept), dropped


class _Rivals:
    """Candidates with which the waiting ways are compared, one way after the other."""

    def __init__(self, candidates: Sequence[Candidate], market: Market, coupling: Coupling) -> None:
        self._candidates, self._market, self._coupling = candidates, market, coupling
        alone = (candidate for candidate in candidates if coupling.is_alone(candidate))
        self._fixed = [(list_cost(candidate, market), candidate) for candidate in alone]

    def beat(self, way: Candidate) -> bool:
        """Return whether a candidate beats a way at every price, even at a lower bound of the way's use."""
        if self._coupling.is_alone(way):
            cost = list_cost(way, self._market)
            return any(known <= cost and _asks_no_more(candidate, way) for known, candidate in self._fixed)
        return any(_beats(candidate, way, self._coupling) for candidate in self._candidates)


def _effort(candidate: Candidate) -> float:
    return sum(candidate.effort.values())


def _asks_no_more(one: Candidate, other: Candidate) -> bool:
    """Return whether one candidate needs no entry and asks for no work that another does not."""
    return one.needs <= other.needs and one.effort.keys() <= other.effort.keys()


def fixed_cost(usage: Mapping[Pool, IntArray], market: Market) -> int:
    """Return what a use costs at its pools' rates, before commitments, in micro-dollars times seconds."""
    return sum(market.rate(pool) * int(seconds.sum()) for pool, seconds in usage.items())


def list_cost(candidate: Candidate, market: Market) -> int:
    """Return what a way costs before commitments, with what is paid for it alone, in micro-dollars times seconds."""
    return fixed_cost(candidate.usage, market) + candidate.own_micro_usd * S_PER_HR


def _size(candidate: Candidate) -> int:
    """Return a number that is never larger for a candidate that beats another."""
    return sum(int(held.sum()) for held in (*candidate.usage.values(), *candidate.slots.values()))


def _beats(one: Candidate, other: Candidate, coupling: Coupling) -> bool:
    if not _asks_no_more(one, other) or (coupling.limits_spot and (one.slots or other.slots)):
        return False
    if one.own_micro_usd > other.own_micro_usd:
        return False
    # sums over all hours come last: few pairs get there
    return (
        _within(one.usage, other.usage)
        and _within(one.slots, other.slots)
        and coupling.spot_excess_s(one.usage) <= coupling.spot_excess_s(other.usage)
    )


def _within(one: Mapping[_Where, IntArray], other: Mapping[_Where, IntArray]) -> bool:
    return one.keys() <= other.keys() and all(bool(np.all(one[where] <= other[where])) for where in one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """A market's commitments and a plan's limits, as far as pruning one workload's options must know them."""

    market: Market
    quotas: tuple[Quota, ...]
    spot_max_frac: float
    owned: frozenset[Pool]
    """Pools that a commitment which is held already may cover."""

    @classmethod
    def of(cls, limits: Limits, market: Market, owned: Iterable[Commitment]) -> Coupling:
        """Return the coupling under some limits and what is held already."""
        return cls(
            market=market,
            quotas=quotas_of(limits.quotas),
            spot_max_frac=limits.spot_max_frac,
            owned=frozenset(pool for commitment in owned for pool in commitment.offer.rates_micro_usd_hr),
        )

    @property
    def limits_spot(self) -> bool:
        """Return whether the share of spot is limited."""
        return self.spot_max_frac < 1

    def couples(self, pool: Pool) -> bool:
        """Return whether use of a pool touches other workloads: then its cost in one hour is not a fixed sum."""
        return (
            self.limits_spot
            or pool in self.owned
            or self.market.committed_rate(pool) is not None
            or any(quota.holds_for(pool) for quota in self.quotas)
        )

    def is_alone(self, candidate: Candidate) -> bool:
        """Return whether a candidate's cost is a fixed sum, whatever other workloads do."""
        return not candidate.slots and not any(self.couples(pool) for pool in candidate.usage)

    def spot_excess_s(self, usage: Mapping[Pool, IntArray]) -> float:
        """Return a use's node-seconds on spot beyond the allowed share of it; 0 where spot is not limited."""
        if not self.limits_spot:
            return 0.0
        spot = sum(int(use.sum()) for pool, use in usage.items() if pool.capacity_type is CapacityType.SPOT)
        return spot - self.spot_max_frac * sum(int(use.sum()) for use in usage.values())


def unkept(options: Sequence[WorkloadOptions | None]) -> Iterator[str]:
    """Say of each workload that no option keeps a declared target which history missed as well."""
    for judged in options:
        if judged is None or judged.candidates or not judged.missed:
            continue
        case = judged.evaluator.case
        for target, had in _missed_declared(case):
            yield (
                f"{case.workload.name} declares {target.metric.value} <= {target.limit_s:.3g} s for "
                f"{target.required_frac:.0%} of requests; history kept that for {had:.1%}, and none of the "
                f"{judged.considered:,} options keeps it: left as it is. Loosen the target, or measure in finer buckets"
            )


def _missed_declared(case: Case) -> Iterator[tuple[Target, float]]:
    """Yield the declared targets that history missed, with the share that it had."""
    for target in case.targets:
        had = baseline_attained(case, target)
        if target.declared and had is not None and had < target.required_frac:
            yield target, had

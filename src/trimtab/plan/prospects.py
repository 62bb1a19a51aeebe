"""What a plan is chosen from: every workload's options over the fit window, in one world, and in others beside it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.reach import without_quota
from trimtab.fleet.settings import Settings
from trimtab.ledger import Commitment
from trimtab.levers.lever import LeverRequest
from trimtab.plan.needed_replays import Workers, judged_by
from trimtab.plan.options.composition import Veto
from trimtab.plan.options.unneeded import UnneededPlaces, unneeded_by
from trimtab.plan.options.workload_options import WorkloadOptions, options_of
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.couplings.quotas import PoolQuota
from trimtab.plan.program.fleet_problem import fleet_problem
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Case, OutcomeStore

_ASKED_MORE = 20
"""Workloads, the largest ones, for which costly questions are asked: the nearest target that sharing would keep."""

Progress = Callable[[str, float], None]
"""Told the stage and the share of it that is done."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prospects:
    """What a plan is chosen from: every workload's options over the fit window, and the world in which they were judged."""

    fleet: Fleet
    market: Market
    settings: Settings
    seed: int
    cases: Mapping[str, Case | str]
    options: tuple[WorkloadOptions | None, ...]
    owned: tuple[Commitment, ...]
    vetoes: Mapping[str, Veto] = field(default_factory=dict)
    """Ways that the proof showed to miss their targets, by workload."""
    unneeded: UnneededPlaces = field(default_factory=UnneededPlaces)
    """Places that no plan needs."""
    explains: bool = True
    """Whether a plan says why levers are not in it, which takes replays of its own, and how its year compares with others."""

    def with_vetoes(self, vetoes: Mapping[str, Veto]) -> Prospects:
        """Return the options less those that vetoes leave out, by workload; replays are not made again."""
        together = replace(self, vetoes={**self.vetoes, **vetoes})
        return together._judged_anew({workload.name for workload in self.fleet.workloads if workload.name in vetoes})

    def is_in(self, fleet: Fleet, market: Market, settings: Settings) -> bool:
        """Return whether these are prospects of a fleet, its targets aside, in this market under these settings."""
        declared = (known.spec == now.spec for known, now in zip(self.fleet.workloads, fleet.workloads, strict=True))
        return market is self.market and settings == self.settings and all(declared)

    def with_other_targets(self, fleet: Fleet, cases: Mapping[str, Case | str]) -> Prospects:
        """Return the prospects of the same fleet with other targets of the workloads whose cases are given.

        All others keep their options, with what is known of them; what the proof refused is offered once more.
        """

        def started_over(name: str, judged: WorkloadOptions | None) -> WorkloadOptions | None:
            case = cases.get(name)
            return judged and (replace(judged, evaluator=Evaluator(case=case)) if isinstance(case, Case) else judged)

        names = [workload.name for workload in fleet.workloads]
        known = replace(
            self,
            fleet=fleet,
            cases={**self.cases, **cases},
            options=tuple(started_over(name, judged) for name, judged in zip(names, self.options, strict=True)),
            vetoes={},
        )
        return known._judged_anew({*cases, *self.vetoes})

    def stand_under(self, limit: Limit) -> frozenset[str]:
        """Return the workloads that a quota held back in some replay."""
        if not isinstance(limit, PoolQuota):
            return frozenset()
        evaluators = [judged.evaluator for judged in self.options if judged is not None]
        return frozenset(known.case.workload.name for known in evaluators if known.stood_under(limit.nodes))

    def without_quota(self, quota: PoolQuota) -> Prospects:
        """Return the prospects where one quota is not there: workloads that it held back are judged again."""
        regions = {pool.region for pool in self.fleet.usage.pools}.union(*self.market.catalog.regions.values())
        text = without_quota(self.settings.limits.quotas, quota.pool, regions)
        settings = replace(self.settings, limits=replace(self.settings.limits, quotas=text))
        market = replace(self.market, limits=settings.limits)
        free = {
            judged.evaluator.case.workload.name
            for judged in self.options
            if judged is not None and judged.evaluator.case.settings.limits.quotas == text
        }
        return replace(self, settings=settings, market=market)._judged_anew(self.stand_under(quota) - free)

    def evaluators_under(self, settings: Settings, fleet: Fleet) -> dict[str, Evaluator]:
        """Return, by workload, evaluators under settings that differ in limits alone, which replay nothing twice.

        Of the same fleet, whose workloads may be declared to go elsewhere too.
        """
        return {
            workload.name: judged.evaluator.anew(settings, workload.spec)
            for workload, judged in zip(fleet.workloads, self.options, strict=True)
            if judged is not None
        }

    def problem(self, rows: Sequence[WorkloadOptions | None]) -> Problem:
        """Return the joint problem of some options of these workloads."""
        return fleet_problem(self.fleet, rows, self.market, self.settings.limits, self.owned)

    def _judged_anew(self, names: Container[str]) -> Prospects:
        """Return some workloads' options once more, in the world of these settings; what was replayed is not again."""
        largest = _largest(self.fleet)
        asks = [self._ask(judged) for judged in self.options if judged is not None]
        unneeded = unneeded_by(asks, self.fleet.usage.pools, self.owned, self.vetoes)
        outdated = self.unneeded.outdated(unneeded)  # where one stands no more, others may need those nodes

        def anew(judged: WorkloadOptions) -> WorkloadOptions:
            name = judged.evaluator.case.workload.name
            evaluator = self._ask(judged).evaluator
            return options_of(
                evaluator.case,
                self.market,
                self.owned,
                among_largest=name in largest,
                evaluator=evaluator,
                veto=self.vetoes.get(name),
                unneeded=unneeded,
                as_needed=_as_needed(self.settings),
            )

        options = tuple(
            anew(judged)
            if judged is not None and (workload.name in names or any(judged.dropped[reason] for reason in outdated))
            else judged
            for workload, judged in zip(self.fleet.workloads, self.options, strict=True)
        )
        return replace(self, options=options, unneeded=unneeded)

    def _ask(self, judged: WorkloadOptions) -> LeverRequest:
        """Return a workload as levers are asked about it in the world of these settings."""
        known = judged.evaluator
        # under the same settings its case stays the very one that others know it by
        evaluator = known if known.case.settings is self.settings else known.under(self.settings)
        return LeverRequest(evaluator=evaluator, market=self.market, among_largest=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlierWork:
    """What was done with a history before it is judged, so that nothing is learnt or replayed twice."""

    laws: Fleet | None = None
    """The fleet on which services' laws are learnt, where another is judged."""
    learnt: Mapping[str, Case | str] | None = None
    """The cases that were learnt on it already, whose laws are kept."""
    replayed: Prospects | None = None
    """The same fleet's prospects at other prices or under other limits: only workloads with other targets are replayed. In the
    same market under the same settings the others are not judged again either."""


def judge(
    fleet: Fleet,
    market: Market,
    settings: Settings,
    *,
    seed: int,
    progress: Progress,
    owned: tuple[Commitment, ...] = (),
    earlier: EarlierWork | None = None,
    store: OutcomeStore | None = None,
    explains: bool = True,
    workers: Workers | None = None,
) -> Prospects:
    """Replay every workload's options over the (fit) window.

    `owned` commitments are paid whatever is planned. What `earlier` work knows is not worked out again, and replays are looked
    up in `store` first. Whether the plan `explains` what it leaves out changes nothing else of it. `workers` do what can be
    done elsewhere; where the share of spot is limited, and of what was replayed already, nothing is.
    """
    earlier = earlier or EarlierWork()
    laws, replayed = earlier.laws, earlier.replayed
    if replayed is None:
        cases = cases_of(fleet, settings, seed, market=market, laws=laws, store=store, learnt_before=earlier.learnt)
        evaluators = {name: Evaluator(case=case) for name, case in cases.items() if isinstance(case, Case)}
    else:
        former = {workload.name: workload for workload in replayed.fleet.workloads}
        anew = {workload.name for workload in fleet.workloads if workload.targets != former[workload.name].targets}
        known = laws or fleet
        others = cases_of(_only(fleet, anew), settings, seed, market=market, laws=_only(known, anew), store=store)
        if replayed.is_in(fleet, market, settings):
            return replace(replayed.with_other_targets(fleet, others), explains=explains)
        evaluators = replayed.evaluators_under(settings, fleet)
        cases = {name: evaluators[name].case if name in evaluators else case for name, case in replayed.cases.items()}
        cases |= others
        evaluators |= {name: Evaluator(case=case) for name, case in others.items() if isinstance(case, Case)}
    asks = {name: LeverRequest(evaluator=evaluator, market=market) for name, evaluator in evaluators.items()}
    unneeded = unneeded_by(list(asks.values()), fleet.usage.pools, owned)
    judged = [evaluators.get(workload.name) for workload in fleet.workloads]
    there = workers if replayed is None and _as_needed(settings) else None
    return Prospects(
        fleet=fleet,
        market=market,
        settings=settings,
        seed=seed,
        cases=cases,
        options=tuple(_options(fleet, judged, market, owned, unneeded, progress, there)),
        owned=owned,
        unneeded=unneeded,
        explains=explains,
    )


def _only(fleet: Fleet, names: Container[str]) -> Fleet:
    return replace(fleet, workloads=tuple(workload for workload in fleet.workloads if workload.name in names))


def _options(
    fleet: Fleet,
    evaluators: Sequence[Evaluator | None],
    market: Market,
    owned: tuple[Commitment, ...],
    unneeded: UnneededPlaces,
    progress: Progress,
    workers: Workers | None,
) -> list[WorkloadOptions | None]:
    """Return every workload's options, in the fleet's order."""
    names = _largest(fleet)
    asks = [
        LeverRequest(evaluator=evaluator, market=market, among_largest=evaluator.case.workload.name in names)
        for evaluator in evaluators
        if evaluator is not None
    ]
    if workers is None:
        found = _judged_here(asks, market, owned, unneeded)
    else:
        found = judged_by(workers, asks, market, owned, unneeded)
    options: list[WorkloadOptions | None] = []
    for number, (workload, evaluator) in enumerate(zip(fleet.workloads, evaluators, strict=True)):
        progress(f"replaying options of {workload.name}", number / len(fleet.workloads))
        options.append(None if evaluator is None else next(found))
    return options


def _judged_here(
    asks: Sequence[LeverRequest], market: Market, owned: tuple[Commitment, ...], unneeded: UnneededPlaces
) -> Iterator[WorkloadOptions]:
    """Yield the options of workloads, in order.

    One after the other: most of it holds the interpreter's lock, and two threads take turns at a third more processor time.
    """
    for ask in asks:
        yield options_of(
            ask.case,
            market,
            owned,
            among_largest=ask.among_largest,
            evaluator=ask.evaluator,
            unneeded=unneeded,
            as_needed=_as_needed(ask.settings),
        )


def _largest(fleet: Fleet) -> frozenset[str]:
    """Return the workloads for which costly questions are asked."""
    largest = sorted(fleet.workloads, key=lambda workload: -workload.gpu_hours)[:_ASKED_MORE]
    return frozenset(workload.name for workload in largest)


def _as_needed(settings: Settings) -> bool:
    """Return whether ways wait for their replays: not where the share of spot is limited, since what uses less may break it."""
    return settings.limits.spot_max_frac >= 1

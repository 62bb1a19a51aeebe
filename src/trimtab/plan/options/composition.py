"""Every consistent way to run a workload, and the rules that make one consistent.

A way is a place x a form of serving x a way of holding replicas or nodes x how the nodes are bought:

1. *Place* (`plan.outcomes.places`): where, and with weights stored how.
2. *Form*: requests as today, or in batches that fit the memory which is left there. What runs is no service has no form.
   Nobody has measured how batches take turns with others': none in time slices.
3. *Holding*: as today, scaled, released when idle, or by timetable: one of them. Batches bring their own number of replicas,
   or an autoscaler whose rule does not rest on the law of one request at a time.
4. *Buying*: on demand; on spot where somebody declared the workload interruptible and spot costs less. Only what keeps its
   targets on demand goes on spot; slots of shared nodes are held on demand. Runs may hold nodes in capacity blocks instead
   (`plan.options.block_options`), where what they would use on demand keeps the targets.

Nobody else decides what goes together: the planner's bound holds over all of these ways that keep their targets in replay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import Effect
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever
from trimtab.levers import autoscaling, batching, deferral, idle_release, schedule, spot
from trimtab.plan.options.batch_options import batched_ways
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Effects, placement
from trimtab.plan.outcomes.places import Where
from trimtab.plan.outcomes.service_outcome import cold_start_of, demand_of
from trimtab.tables.workloads import TargetMetric, WorkloadKind


def on_demand(evaluator: Evaluator, market: Market, places: Sequence[Where]) -> Iterator[dict[Lever, Effect]]:
    """Yield every way on demand; first the one without effects: everything as it is."""
    case = evaluator.case
    ways = ways_to_hold(case)
    profile = batching.profile_of(case.workload, market.gpu(case.workload.gpu))
    for where in places:
        yield from ({**where, **how} for how in ways)
        if not isinstance(profile, str):
            yield from ({**where, **how} for how in batched_ways(evaluator, where, profile, market))


def ways_to_hold(case: Case) -> list[dict[Lever, Effect]]:
    """Return how replicas or nodes may be held: as they are, scaled, released, or by timetable."""
    workload, settings = case.workload, case.settings
    ways: list[dict[Lever, Effect]] = [{}]
    if workload.kind is WorkloadKind.SERVING:
        scalers = autoscaling.propose(workload, demand_of(case), cold_start_of(case))
        ways += [{Lever.AUTOSCALING: scaler} for scaler in scalers]
    ways += [{Lever.IDLE_RELEASE: release} for release in idle_release.propose(workload, settings.assumptions)]
    required_frac = _throughput_required(case)
    tables = schedule.propose(workload, case.window, settings.bands, settings.assumptions, required_frac)
    return ways + [{Lever.SCHEDULE: one} for one in (*tables, *deferral.propose(workload, settings.assumptions))]


def _throughput_required(case: Case) -> float:
    """Return the share of activity that a timetable must hold, with the plan's margin."""
    required = [target.required_frac for target in case.targets if target.metric is TargetMetric.THROUGHPUT]
    margin = case.settings.planning.target_margin_frac
    return 1 - (1 - max(required, default=0.0)) * (1 - margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOffers:
    """A workload's ways to run from spot, by the nodes that they would be on demand."""

    case: Case
    by_nodes: Mapping[Pool, Sequence[Effect]] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, market: Market) -> SpotOffers:
        """Return what the market offers; nothing where nobody declared the workload interruptible, or spot is ruled out."""
        by_nodes: dict[Pool, list[Effect]] = defaultdict(list)
        if case.settings.limits.use_spot:
            for offer in spot.offers(case.workload, market, case.settings.assumptions):
                by_nodes[offer.pool.nodes].append(offer)
        return cls(case=case, by_nodes=by_nodes)

    def for_place(self, effects: Effects) -> Sequence[Effect]:
        """Return the ways to hold a place on spot; none for slots of shared nodes."""
        place = placement(self.case.workload, effects)
        return () if place.shared is not None else self.by_nodes.get(place.pool.nodes, ())

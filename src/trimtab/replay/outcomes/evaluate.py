"""One place that replays a workload under a deployment, whatever its kind, and remembers what it replayed.

An outcome is found again by all that it depends on, and prices are not part of that: a changed price, quota or budget finds
every outcome; a changed history, target or assumption finds none. Nor does a changed program: outcomes are kept by program
(`OutcomeStore`), since no list of what a replay runs stays whole.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date
from enum import Enum
from functools import lru_cache

import numpy as np
from pydantic import BaseModel

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.deployment.fitting import home_speed, speeds_of_types
from trimtab.deployment.placement import Placement, ResizedPods, resolve, slot_gpus
from trimtab.fleet.law_limit import tested_activity_law, tested_law
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Fleet, Workload
from trimtab.fleet.reach import quota_of_pools, quotas_of
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Settings
from trimtab.fleet.token_work import TokenWork, in_tokens, token_work
from trimtab.ledger.arrays import IntArray
from trimtab.policies.scaling import HpaPolicy, Metric
from trimtab.replay.outcomes.jobs_outcome import felt_by_runs, jobs_outcome, nodes_of_runs
from trimtab.replay.outcomes.outcome import (
    Case,
    Neighbours,
    Outcome,
    OutcomeStore,
    Stress,
    felt_by_hours,
    hours_outcome,
    is_unchanged,
    same_replicas,
    targets_at,
)
from trimtab.replay.outcomes.replica_law import leaves_enough, replica_law
from trimtab.replay.outcomes.service_outcome import (
    felt_by_service,
    least_number,
    least_outcome,
    outcome_under_stress,
    seconds_placed,
    service_outcome,
)
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.replay.outcomes.split_outcome import (
    split_outcome,
    split_seconds_placed,
    split_under_stress,
    too_slow_apart,
)
from trimtab.tables.workloads import TargetMetric, WorkloadKind, WorkloadSpec, cluster_of
from trimtab.units import S_PER_HR, usd

_STAY = frozenset({WorkloadKind.SERVING, WorkloadKind.NOTEBOOK})
"""Kinds that hold their GPUs for long."""
MISSES = "misses a target in replay"
MISSES_ON_DEMAND = "on spot, where it misses a target on demand already"
_STOPPED, _UNDER_STRESS = "stopped", "under stress"
"""Outcomes that are kept apart from whole ones: of replays that ended early, and of the replay under stress alone."""


def law_of(workload: Workload, settings: Settings) -> ServiceLaw | str | None:
    """Return a service's law, why it has none, or None for what is no service."""
    if workload.kind is not WorkloadKind.SERVING:
        return None
    healthy = settings.bands.healthy_frac
    if workload.service is not None:
        tokens = token_work(workload)
        counted = in_tokens(workload.service, tokens) if isinstance(tokens, TokenWork) else workload.service
        law = tested_law(replace(workload, service=counted), healthy)
        return law if isinstance(law, str) else replace(law, tokens=tokens)
    return "no activity was measured" if workload.activity.signal == "none" else tested_activity_law(workload, healthy)


def known_by_its_runs(workload: Workload) -> bool:
    """Return whether when a workload needs nodes is known without any reading of its GPUs: by its runs."""
    return workload.kind in RUN_KINDS and workload.jobs is not None


def _unlisted(pool: Pool, micro_usd_hr: int) -> str:
    if micro_usd_hr:
        return (
            f"no list has a price of its nodes, {pool}: they cost what the bill says, ${usd(micro_usd_hr):,.2f} an hour"
        )
    return f"no price is known for its nodes, {pool}"


def cases_of(
    fleet: Fleet,
    settings: Settings,
    seed: int,
    *,
    market: Market | None = None,
    laws: Fleet | None = None,
    store: OutcomeStore | None = None,
    learnt_before: Mapping[str, Case | str] | None = None,
) -> dict[str, Case | str]:
    """Return a case per workload on the window it was learnt on, or the reason why it cannot be judged.

    Laws are learnt on `laws`, a fleet of the same workloads, where that is given; those of cases that were `learnt_before` on
    the same fleet are not learnt again. How types of GPU compare, where runs of
    one workload were on several, is asked of the `market`'s catalog; without it such a workload is not judged.
    """
    cases: dict[str, Case | str] = {}
    neighbours = neighbours_of(fleet)
    for workload, learnt in zip(fleet.workloads, (laws or fleet).workloads, strict=True):
        before = (learnt_before or {}).get(workload.name)
        law = before.law if isinstance(before, Case) else law_of(learnt, settings)
        # a pool that no list prices cannot be compared with others
        if workload.pool in fleet.carried_micro_usd_hr:
            cases[workload.name] = _unlisted(workload.pool, fleet.carried_micro_usd_hr[workload.pool])
        elif workload.gpu in fleet.unknown_gpus:
            cases[workload.name] = (
                f"GPU model {workload.gpu} is not in the catalog: its nodes are billed and left as they are"
            )
        elif isinstance(law, str):
            cases[workload.name] = law
        elif workload.activity.signal == "none" and not known_by_its_runs(workload):
            cases[workload.name] = "no GPU activity was measured"
        elif isinstance(speeds := speeds_of_types(learnt, market), str):
            cases[workload.name] = speeds
        else:
            cases[workload.name] = Case(
                workload=replace(workload, home_speed=home_speed(learnt, market)),
                window=fleet.window,
                targets=workload.targets,
                law=law,
                settings=settings,
                seed=seed,
                store=store,
                type_speeds=speeds,
                neighbours=neighbours.get((cluster_of(workload.name), workload.gpu)),
            )
    return cases


def neighbours_of(fleet: Fleet) -> dict[tuple[str, str | None], Neighbours]:
    """Return, by cluster and type of GPU, where services and notebooks hold whole GPUs and leave others room on their nodes."""
    beside = [workload for workload in fleet.workloads if _leaves_room(workload)]
    widest = max((slot_gpus(workload.gpus_per_pod) for workload in beside), default=1)
    held: dict[tuple[str, str | None], Counter[Pool]] = {}
    for workload in beside:
        if workload.gpu is not None and workload.kind in _STAY and not workload.pool.capacity_type.paid_anyway:
            held.setdefault((cluster_of(workload.name), workload.gpu), Counter())[workload.pool] += round(
                workload.gpu_hours
            )
    return {
        there: Neighbours(pool=max(sorted(pools), key=lambda pool: pools[pool]), widest_gpus=widest)
        for there, pools in held.items()
    }


def _leaves_room(workload: Workload) -> bool:
    """Return whether a workload could be one of several on a node of its type: training has nodes of its own."""
    if workload.kind is WorkloadKind.TRAINING or workload.gpus_per_pod < 1:
        return False
    return slot_gpus(workload.gpus_per_pod) < workload.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """All that an evaluator has replayed, to be taken by one of the same case in another process."""

    known: Mapping[Placement, Outcome]
    judged: Mapping[Placement, Outcome]
    """Outcomes of replays that ended once a target was out of reach."""
    refused: Mapping[Placement, Outcome]
    """What was replayed under stress alone, which a target did not bear."""
    replays: ServiceReplays


@dataclass(slots=True, eq=False)
class _Placed:
    """A deployment at its place, and what all that differ from it in their scaling alone have in common."""

    deployment: Deployment
    there: Placement
    """The place, perhaps under another scaling: most ways are refused before one asks for their own."""
    is_service: bool
    too_slow: str | None = None
    is_speed_judged: bool = False
    _seen: Placement | None = None
    """The place as a replay sees it, perhaps under another scaling; None until one asks: most ways are refused before."""

    @property
    def place(self) -> Placement:
        """Return the place under its own scaling; prefill and decode apart bring theirs."""
        if self.there.scaling is not self.deployment.scaling and self.there.split is None:
            self.there = replace(self.there, scaling=self.deployment.scaling)
        return self.there

    def seen(self) -> Placement:
        """Return the place as a replay sees it; of a service without quotas, which bound its rule and not its replay."""
        if self._seen is None:
            self._seen = self.place.as_replayed(within_quota=not self.is_service)
        elif self._seen.scaling is not self.place.scaling:
            self._seen = replace(self._seen, scaling=self.place.scaling)
        return self._seen

    def scaled_as(self, deployment: Deployment) -> _Placed | None:
        """Return another deployment at the same place; None where it differs in more than its scaling."""
        if not self.deployment.alike_but_scaling(deployment):
            return None
        return _Placed(
            deployment,
            self.there,
            self.is_service,
            self.too_slow,
            self.is_speed_judged,
            self._seen,
        )


@dataclass(slots=True)
class Evaluator:
    """Replays a case under deployments; those that differ in price alone share one replay (`Placement.as_replayed`)."""

    case: Case
    _known: dict[Placement, Outcome] = field(default_factory=dict)
    _judged: dict[Placement, Outcome] = field(default_factory=dict)
    _refused: dict[Placement, Outcome] = field(default_factory=dict)
    _least: dict[Placement, Outcome | None] = field(default_factory=dict)
    """What each would use at least, None where unknown; shared with evaluators that start afresh under other limits."""
    _reached: set[int] = field(default_factory=set, repr=False, compare=False)
    """Quotas, in nodes, that limited a replay."""
    _replays: ServiceReplays = field(default_factory=ServiceReplays)
    _digest: str = ""
    _before: Evaluator | None = field(default=None, repr=False, compare=False)
    """One of the same case, in another world in which it replays alike."""
    # of one deployment several things are asked, one after the other
    _here: _Placed | None = field(default=None, repr=False, compare=False)
    _placed: _Placed | None = field(default=None, repr=False, compare=False)
    _too_cramped: dict[tuple[bool, int, ResizedPods | None, bool], str | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def place(self, deployment: Deployment) -> Placement:
        """Return where the workload runs, and how many nodes a quota allows it there."""
        return self._at(deployment).place

    def _as_replayed(self, deployment: Deployment) -> Placement:
        return self._at(deployment).seen()

    def _at(self, deployment: Deployment) -> _Placed:
        if not deployment.owed_to:
            self._here = self._here or self._anew_at(deployment)
            return self._here
        last = self._placed
        if last is None or last.deployment is not deployment:
            # the many ways of scaling at one place come one after the other
            beside = None if last is None else last.scaled_as(deployment)
            last = self._placed = beside or self._anew_at(deployment)
        return last

    def _anew_at(self, deployment: Deployment) -> _Placed:
        return _Placed(deployment, self._resolved(deployment), self.case.workload.kind is WorkloadKind.SERVING)

    def _resolved(self, deployment: Deployment) -> Placement:
        place = resolve(self.case.workload, deployment)
        if self.case.type_speeds and deployment.changes:  # as it is, each run stays on the type that it was on
            place = place.with_types(self.case.type_speeds)
        quotas = quotas_of(self.case.settings.limits.quotas)
        if not quotas:
            return place
        behind = place.further_pool
        nodes = quota_of_pools(quotas, {place.pool, behind or place.pool})
        further = None if behind is None else nodes.get(behind)
        return replace(place, quota_nodes=nodes.get(place.pool), further_quota_nodes=further)

    def under(self, settings: Settings) -> Evaluator:
        """Return an evaluator of the same case under settings that differ in limits alone: what was replayed stays known."""
        # outcomes hold neither prices nor limits, so they stay true
        return Evaluator(
            case=replace(self.case, settings=settings),
            _known=self._known,
            _judged=self._judged,
            _refused=self._refused,
            _least=self._least,
        )

    def anew(self, settings: Settings, spec: WorkloadSpec) -> Evaluator:
        """Return an evaluator that knows nothing yet, under settings that differ in limits alone, of the workload as another
        `spec` lets it move: where it would replay, it takes what was replayed here.

        So it answers as one that never saw this one, to the bit, in less time.
        """
        workload = self.case.workload if spec == self.case.workload.spec else replace(self.case.workload, spec=spec)
        case = replace(self.case, settings=settings, workload=workload)
        return Evaluator(case=case, _before=self, _least=self._least)

    def felt(self, deployment: Deployment, stress: Stress) -> Stress:
        """Return what of a stress a replay under a deployment reads; where that is nothing, the outcome is the same."""
        place = self.place(deployment)
        match self.case.workload.kind:
            case WorkloadKind.SERVING:
                return felt_by_service(self.case, place, stress)
            case WorkloadKind.NOTEBOOK:
                return felt_by_hours(place, stress)
            case _ if self.case.workload.jobs is None:
                return felt_by_hours(place, stress)
            case _:
                return felt_by_runs(self.case, place, stress)

    def stressed(self, stress: Stress) -> Evaluator:
        """Return an evaluator of the same case in a world that departs by a stress; what both worlds replay alike is shared."""
        # keys of replays name all that a stress changes in them
        return Evaluator(case=replace(self.case, stress=stress), _replays=self._replays)

    def stood_under(self, nodes: int) -> bool:
        """Return whether a quota of so many nodes limited what was replayed: it came to hold that many."""
        return nodes in self._reached

    def _under_quota(self, deployment: Deployment, outcome: Outcome) -> Outcome:
        """Return the outcome of a deployment, and remember the quota that limited it."""
        place = self.place(deployment)
        nodes = place.quota_nodes if place.overflow is None else place.further_quota_nodes
        if nodes is not None and nodes not in self._reached:
            pods, most = place.quota_pods, outcome.most_replicas
            if most is not None and pods is not None:
                is_reached = most >= pods
            else:  # not known: runs wait for nodes, and may miss their targets before they hold all of them for an hour
                held = int(outcome.on_demand.max(initial=0))
                is_reached = outcome.stopped or bool(outcome.missed(0.0)) or held >= nodes * S_PER_HR
            if is_reached:
                self._reached.add(nodes)
        return outcome

    def hopeless(self, deployment: Deployment) -> str | None:
        """Say, before any replay, why a deployment cannot keep the targets; None where a replay must decide."""
        there = self.hopeless_anyhow(deployment)
        if there is not None or self.case.workload.kind is not WorkloadKind.SERVING:
            return there
        return _overloads_slow_replicas(self.case, self.place(deployment))

    def hopeless_anyhow(self, deployment: Deployment) -> str | None:
        """Say why nothing can keep the targets there, however replicas are scaled; None where that is not known."""
        workload, placed = self.case.workload, self._at(deployment)
        place = placed.there
        if place.split is not None:
            return too_slow_apart(self.case, place)
        # all that it depends on: the same for the many ways of holding replicas at one place
        shape = (place.shared is None, place.gpus_per_node, place.resized, place.holding is None)
        if shape not in self._too_cramped:
            self._too_cramped[shape] = _cramped(workload, place, self.place(AS_IT_IS))
        cramped = self._too_cramped[shape]
        if cramped is not None:
            return cramped
        if workload.kind is WorkloadKind.SERVING:
            if not placed.is_speed_judged:
                placed.too_slow = None if place.batching is not None else _too_slow_at_any_load(self.case, place)
                placed.is_speed_judged = True
            return placed.too_slow
        required = [target.required_frac for target in self.case.targets if target.metric is TargetMetric.THROUGHPUT]
        return "slower than the target allows" if required and place.speed.low < max(required) else None

    def outcome(self, deployment: Deployment) -> Outcome:
        """Return what the workload would have used and attained."""
        seen = self._as_replayed(deployment)
        known = self._known.get(seen)
        if known is None:
            known = self._known[seen] = self._looked_up(seen)
        return self._under_quota(deployment, known)

    def judged(self, deployment: Deployment) -> Outcome:
        """Return the outcome, or one that ended once a target was out of reach; whether targets are kept is the same."""
        if self.case.workload.kind is not WorkloadKind.SERVING or same_replicas(self.case.workload, deployment):
            return self.outcome(deployment)
        seen = self._as_replayed(deployment)
        found = self._known.get(seen) or self._judged.get(seen)
        if found is None:
            found = self._looked_up(seen, may_stop=True)
            # one that ran to its end after all answers every later question
            (self._judged if found.stopped else self._known)[seen] = found
        return self._under_quota(deployment, found)

    def least(self, deployment: Deployment) -> Outcome | None:
        """Return what a deployment would use at least in each hour, without a replay; None where no such bound is known.

        None too where a replay has answered already.
        """
        seen = self._as_replayed(deployment)
        answered = seen in self._known or seen in self._judged or seen in self._refused
        if self.case.workload.kind is not WorkloadKind.SERVING or answered or seen.split is not None:
            return None
        if seen not in self._least:
            # it says nothing of targets, and holds neither prices nor limits
            found = least_outcome(self.case, seen, self._replays)
            # no bill and no pool of slots reads the rest, which would be most of what is kept
            found = (
                None if found is None else replace(found, gpus=None, replicas=found.replicas if seen.shared else None)
            )
            self._least[seen] = found
        return self._least[seen]

    def least_number(self, deployment: Deployment) -> int:
        """Return a number of replicas of a service below which a target is missed, if it is the same at all times."""
        return least_number(self.case, self._as_replayed(deployment), self._replays)

    def node_seconds(self, deployment: Deployment, *, kept_s: float, spreads: bool, moves: bool) -> IntArray | None:
        """Return the node-seconds by hour of a service on nodes that are kept, filled and drained otherwise than planned.

        None for a hedged one and for what is no service.
        """
        if self.case.workload.kind is not WorkloadKind.SERVING:
            return None
        seen = self._as_replayed(deployment)
        placed = seconds_placed if seen.split is None else split_seconds_placed
        return placed(self.case, seen, self._replays, kept_s=kept_s, spreads=spreads, moves=moves)

    def replayed(self) -> Replayed:
        """Return all that was replayed so far."""
        return Replayed(known=self._known, judged=self._judged, refused=self._refused, replays=self._replays)

    def take(self, replayed: Replayed) -> None:
        """Know what was replayed elsewhere for the same case, and keep it as if it had been replayed here."""
        self._known |= replayed.known
        self._judged |= replayed.judged
        self._refused |= replayed.refused
        self._replays = replayed.replays
        for outcomes in (replayed.known, replayed.judged):
            for seen, outcome in outcomes.items():
                self._keep(seen, outcome)
        for seen, outcome in replayed.refused.items():
            self._keep_refused(seen, outcome)

    def forget_histories(self) -> None:
        """Give back the memory of what is replayed, and keep what replays attained and held."""
        self._replays.forget_histories()

    def forget_replays(self) -> None:
        """Give back the memory of replays that outcomes do not need any more."""
        self._replays.forget()

    def _already(self, seen: Placement, *, may_stop: bool) -> Outcome | None:
        """Return what was replayed; one that stopped early only where it `may_stop`."""
        known = self._known.get(seen)
        return self._judged.get(seen) if known is None and may_stop else known

    def _looked_up(self, seen: Placement, *, may_stop: bool = False) -> Outcome:
        known = self._kept(seen, may_stop=may_stop)
        if known is None:
            known = self._replay(seen, may_stop=may_stop)
            self._keep(seen, known)
        return known

    def _kept(self, seen: Placement, *, may_stop: bool) -> Outcome | None:
        """Return what was replayed before, here or by an earlier command."""
        before = None if self._before is None else self._before._already(seen, may_stop=may_stop)
        if before is not None or self.case.store is None:
            return before
        known = self.case.store.get(self._key(seen))
        # a whole outcome answers both questions, a stopped one only this one
        if known is None and may_stop:
            known = self.case.store.get(self._key(seen, _STOPPED))
        return known

    def _keep(self, seen: Placement, outcome: Outcome) -> None:
        if self.case.store is not None:
            self.case.store.put(self._key(seen, _STOPPED if outcome.stopped else ""), outcome)

    def _kept_refused(self, seen: Placement) -> Outcome | None:
        before = None if self._before is None else self._before._refused.get(seen)
        if before is not None or self.case.store is None:
            return before
        return self.case.store.get(self._key(seen, _UNDER_STRESS))

    def _keep_refused(self, seen: Placement, outcome: Outcome) -> None:
        if self.case.store is not None:
            self.case.store.put(self._key(seen, _UNDER_STRESS), outcome)

    def _key(self, seen: Placement, cut_short: str = "") -> str:
        # the same for all placements: worked out once
        self._digest = self._digest or case_digest(self.case)
        # a stopped replay says something only for the margin under which it stopped
        margin_frac = self.case.settings.planning.target_margin_frac if cut_short else None
        return outcome_key(self._digest, seen, margin_frac, cut_short)

    def keeps_targets(self, deployment: Deployment) -> bool:
        """Return whether every target is safe under a deployment, with the margin that the plan leaves, and whoever takes turns
        with the workload gets the time that it relies on.

        An undeclared target cannot get worse where the same replicas run on the same GPUs.
        """
        if self.fails_under_stress(deployment) or self._misses(deployment, self.judged(deployment)):
            return False
        if same_replicas(self.case.workload, deployment):
            return True
        return leaves_enough(self.case, self.place(deployment), self.outcome(deployment))

    def fails_under_stress(self, deployment: Deployment) -> bool:
        """Return whether the replay under stress alone says that a service does not keep its targets.

        Where it does, the replay at the expected demand, which only a plan without headroom could ask for, is not made.
        """
        if self.case.workload.kind is not WorkloadKind.SERVING or same_replicas(self.case.workload, deployment):
            return False
        seen = self._as_replayed(deployment)
        if seen in self._known or seen in self._judged:
            return False  # what both replays said is known
        refused = self._refused.get(seen)
        if refused is None:
            both = self._kept(seen, may_stop=True)
            if both is not None:
                (self._judged if both.stopped else self._known)[seen] = both
                return False
            under_stress = outcome_under_stress if seen.split is None else split_under_stress
            refused = self._kept_refused(seen) or under_stress(self.case, seen, self._replays)
            if refused is None or not self._misses(deployment, refused):
                return False
            self._refused[seen] = refused
            self._keep_refused(seen, refused)
        return self._misses(deployment, self._under_quota(deployment, refused))

    def _misses(self, deployment: Deployment, outcome: Outcome) -> bool:
        """Return whether an outcome misses a target, with the margin that the plan leaves, which does not hold by itself."""
        missed = outcome.missed(self.case.settings.planning.target_margin_frac)
        return not all(is_unchanged(self.case.workload, deployment, target) for target in missed)

    def _replay(self, seen: Placement, *, may_stop: bool = False) -> Outcome:
        match self.case.workload.kind:
            case WorkloadKind.SERVING:
                replayed = service_outcome if seen.split is None else split_outcome
                return replayed(self.case, seen, self._replays, may_stop=may_stop)
            case WorkloadKind.EXPERIMENT | WorkloadKind.TRAINING | WorkloadKind.BATCH | WorkloadKind.EVALUATION:
                if self.case.workload.jobs is not None:
                    return jobs_outcome(self.case, seen)
                return hours_outcome(self.case, seen)
            case WorkloadKind.NOTEBOOK:
                return hours_outcome(self.case, seen)


def _cramped(workload: Workload, place: Placement, now: Placement) -> str | None:
    """Say why its pods cannot stand there; None where they can, and no run spans more nodes than it does now."""
    # each size of pod alone, and then whole runs
    gpus = np.array([workload.gpus_per_pod, *(size.gpus for size in workload.pod_sizes)])
    one_pod = np.ones(len(gpus), dtype=np.int64)
    if place.shared is None and np.any(place.nodes_of(one_pod, place.pod_gpus(gpus)) > now.nodes_of(one_pod, gpus)):
        return "would spread a run over more nodes"
    if workload.jobs is not None and np.any(nodes_of_runs(workload.jobs, place) > nodes_of_runs(workload.jobs, now)):
        return "would spread a run over more nodes"
    if place.resized is not None and len(workload.pod_sizes) > 1 and place.holding is None:
        return "runs of other sizes hold its nodes too: give nodes back between runs with it"
    return None


def _too_slow_at_any_load(case: Case, place: Placement) -> str | None:
    """Say that a service would miss a latency target at every load, even the best one."""
    if case.law is None:
        return None
    law, speed = replica_law(case.law, place, low=True)
    # nothing got worse than what the law was learnt on: a replay must decide
    if law is case.law and speed >= 1 and not place.rtt_s:
        return None
    for target in targets_at(case.targets, place):
        if (
            target.limit_s is not None
            and law.ok_frac(target.limit_s, speed, target.metric).max() < target.required_frac
        ):
            if place.move is not None:
                return f"misses a latency target from {place.move.place}: each request takes {place.rtt_s:g} s longer"
            return "slower than the latency target allows at any load"
    return None


def _overloads_slow_replicas(case: Case, place: Placement) -> str | None:
    """Say that a rule would keep replicas, at the low end of their speed, at more than they serve.

    It divides demand by the number written in it. Where replicas serve less than its target of that, requests queue until the
    queue asks for more replicas: targets may hold with it, at a cost that no plan states. A rule on activity sees how busy
    slow replicas are.
    """
    scaling = place.scaling
    if case.law is None or case.workload.service is None or not isinstance(scaling, SetReplicaPolicy):
        return None
    policy = scaling.policy
    hpa = policy if isinstance(policy, HpaPolicy) else policy.hpa
    if hpa.metric is Metric.DUTY_CYCLE:
        return None
    stated, slow = (
        place.replica_req_s(case.law.capacity_req_s, low=low, faster_counts=case.law.faster_counts)
        for low in (False, True)
    )
    if hpa.target_frac * stated <= slow:
        return None
    return "at the low end of the speed there, its rule would give replicas more than they serve"


def case_digest(case: Case) -> str:
    """Return a digest of all that a replay of a case depends on, besides the placement and the program itself."""
    digest = hashlib.sha256()
    settings = case.settings
    _feed(digest, (case.workload, case.window, case.targets, case.law, case.seed, case.stress))
    # only the settings that a replay reads, so that a changed price or quota finds every outcome
    _feed(digest, (settings.assumptions, settings.bands, settings.planning.demand_headroom_frac))
    return digest.hexdigest()


def outcome_key(case_digest_hex: str, seen: Placement, margin_frac: float | None = None, cut_short: str = "") -> str:
    """Return the key of one outcome: its case, and the placement as the replay saw it (`Placement.as_replayed`).

    `margin_frac` is the margin out of which a replay was that was `cut_short`, in one way or another.
    """
    digest = hashlib.sha256(case_digest_hex.encode())
    for part in fields(seen):
        digest.update(part.name.encode())
        digest.update(_digest_of(getattr(seen, part.name)))
    _feed(digest, (margin_frac, cut_short))
    return digest.hexdigest()


@lru_cache(maxsize=8192, typed=True)
def _digest_of(part: Hashable) -> bytes:
    """Return the digest of a part of a placement; places by the hundred share the same few rules, speeds and slots."""
    digest = hashlib.sha256()
    _feed(digest, part)
    return digest.digest()


def _feed(digest: hashlib._Hash, value: object) -> None:
    """Feed a value of the model, part by part; raises TypeError for what has no stable form."""
    # keeps values of different types apart also where their parts are equal
    digest.update(type(value).__name__.encode())
    match value:
        case np.ndarray():
            # other types or shapes may have the same bytes
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        case BaseModel():
            digest.update(value.model_dump_json().encode())
        case Enum():
            digest.update(value.name.encode())
        case bool() | int() | float() | str() | date() | None:
            digest.update(repr(value).encode())
        case Mapping():
            # the order of insertion is no part of a mapping
            for key in sorted(value, key=repr):
                _feed(digest, key)
                _feed(digest, value[key])
        case tuple() | list() | frozenset():
            # the length keeps neighbouring sequences from running into each other
            digest.update(f"{len(value)}".encode())
            for part in sorted(value, key=repr) if isinstance(value, frozenset) else value:
                _feed(digest, part)
        case _ if is_dataclass(value):
            for field in fields(value):
                digest.update(field.name.encode())
                _feed(digest, getattr(value, field.name))
        case _:
            raise TypeError(f"no stable form of a {type(value).__name__}")

"""One place that replays a workload under effects, whatever its kind, and remembers what it replayed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.service_law import ServiceLaw, activity_law, service_law
from trimtab.fleet.settings import Lever, Settings
from trimtab.plan.outcomes.hours_outcome import hours_outcome
from trimtab.plan.outcomes.jobs_outcome import jobs_outcome
from trimtab.plan.outcomes.outcome import Case, Effects, Outcome, OutcomeStore, is_unchanged, placement, same_replicas
from trimtab.plan.outcomes.outcome_store import case_digest, outcome_key
from trimtab.plan.outcomes.service_outcome import service_outcome
from trimtab.plan.outcomes.service_replays import ServiceReplays
from trimtab.plan.outcomes.time_slices import leaves_enough
from trimtab.tables.workloads import WorkloadKind


def law_of(workload: Workload, settings: Settings) -> ServiceLaw | str | None:
    """Return a service's law, why it has none, or None for what is no service."""
    if workload.kind is not WorkloadKind.SERVING:
        return None
    healthy = settings.bands.healthy_frac
    if workload.service is not None:
        return service_law(workload, healthy)
    return "no activity was measured" if workload.activity.signal == "none" else activity_law(workload, healthy)


def cases_of(
    fleet: Fleet,
    settings: Settings,
    seed: int,
    *,
    laws: Fleet | None = None,
    store: OutcomeStore | None = None,
) -> dict[str, Case | str]:
    """Return a case per workload on the window it was learnt on, or the reason why it cannot be judged.

    Laws are learnt on `laws`, a fleet of the same workloads, where that is given.
    """
    cases: dict[str, Case | str] = {}
    for workload, learnt in zip(fleet.workloads, (laws or fleet).workloads, strict=True):
        law = law_of(learnt, settings)
        if isinstance(law, str):
            cases[workload.name] = law
        elif workload.activity.signal == "none":
            cases[workload.name] = "no GPU activity was measured"
        else:
            cases[workload.name] = Case(
                workload=workload,
                window=fleet.window,
                targets=workload.targets,
                law=law,
                settings=settings,
                seed=seed,
                store=store,
            )
    return cases


_PLACING = {
    Lever.RIGHT_SIZE,
    Lever.RELOCATION,
    Lever.SHARING,
    Lever.GPU_COUNT,
    Lever.SPOT,
    Lever.CAPACITY_BLOCK,
    Lever.QUANTIZATION,
    Lever.TRAINING_MEMORY,
}
"""What these do to a replay is in the placement: GPUs a node and a run, speed, loss rate, calendar of blocks, the way of
requests."""


@dataclass(slots=True)
class Evaluator:
    """Replays a case under effects; effects that differ in price alone share one replay."""

    case: Case
    _known: dict[tuple[object, ...], Outcome] = field(default_factory=dict)
    _judged: dict[tuple[object, ...], Outcome] = field(default_factory=dict)
    _replays: ServiceReplays = field(default_factory=ServiceReplays)
    _digest: str = ""

    def outcome(self, effects: Effects) -> Outcome:
        """Return what the workload would have used and attained."""
        key = self._key(effects)
        if key not in self._known:
            self._known[key] = self._looked_up(key, effects)
        return self._known[key]

    def judged(self, effects: Effects) -> Outcome:
        """Return the outcome, or one that ended once a target was out of reach; whether targets are kept is the same."""
        if self.case.workload.kind is not WorkloadKind.SERVING or same_replicas(self.case.workload, effects):
            return self.outcome(effects)
        key = self._key(effects)
        if key in self._known:
            return self._known[key]
        if key not in self._judged:
            found = self._looked_up(key, effects, may_stop=True)
            if not found.stopped:
                self._known[key] = found
                return found
            self._judged[key] = found
        return self._judged[key]

    def forget_replays(self) -> None:
        """Give back the memory of replays that outcomes do not need any more."""
        self._replays.forget()

    def _key(self, effects: Effects) -> tuple[object, ...]:
        """Return what of the effects a replay sees."""
        place = placement(self.case.workload, effects)
        others = tuple(
            sorted((lever.value, repr(effect)) for lever, effect in effects.items() if lever not in _PLACING)
        )
        loss = None if place.spot is None else (place.spot.loss_per_hr, place.spot.on_demand_after)
        hedge = None if place.hedge is None else replace(place.hedge, pool=self.case.workload.pool)
        calendar = None if place.blocks is None else place.blocks.calendar.nodes
        speeds = (place.speed.value, place.speed.low, place.work_speed.value, place.work_speed.low)
        turns = None if place.shared is None else (place.shared.others, place.shared.shared.busy_frac)
        return (place.gpus_per_node, place.gpus_per_run, speeds, place.rtt_s, turns, loss, hedge, calendar, others)

    def _looked_up(self, key: tuple[object, ...], effects: Effects, *, may_stop: bool = False) -> Outcome:
        store = self.case.store
        if store is None:
            return self._replay(effects, may_stop=may_stop)
        self._digest = self._digest or case_digest(self.case)
        whole = outcome_key(self._digest, key)
        stopped = outcome_key(self._digest, (*key, self.case.settings.planning.target_margin_frac))
        known = store.get(whole)
        if known is None and may_stop:
            known = store.get(stopped)
        if known is None:
            known = self._replay(effects, may_stop=may_stop)
            store.put(stopped if known.stopped else whole, known)
        return known

    def keeps_targets(self, effects: Effects) -> bool:
        """Tell whether every target is safe under some effects, with the margin that the plan leaves, and whoever takes turns
        with the workload gets the time that it counts on.

        What nobody declared cannot get worse where the same replicas run on the same GPUs.
        """
        missed = self.judged(effects).missed(self.case.settings.planning.target_margin_frac)
        if same_replicas(self.case.workload, effects):
            return all(is_unchanged(self.case.workload, effects, target) for target in missed)
        if missed:
            return False
        return leaves_enough(self.case, placement(self.case.workload, effects), self.outcome(effects))

    def _replay(self, effects: Effects, *, may_stop: bool = False) -> Outcome:
        match self.case.workload.kind:
            case WorkloadKind.SERVING:
                return service_outcome(self.case, effects, self._replays, may_stop=may_stop)
            case WorkloadKind.EXPERIMENT | WorkloadKind.TRAINING | WorkloadKind.BATCH | WorkloadKind.EVALUATION:
                if self.case.workload.jobs is not None:
                    return jobs_outcome(self.case, effects)
                return hours_outcome(self.case, effects)
            case WorkloadKind.NOTEBOOK:
                return hours_outcome(self.case, effects)

"""A service's replays, each done once, or spared by what a scaling rule holds at least (`least_held`).

What is shared is the trace of replicas without their nodes: replicas do the same wherever they are as fast, and other nodes are
only billed again. (Where replicas start sooner `beside` others, what they do depends on the nodes too.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from trimtab.fleet.model import ServiceObservation
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy
from trimtab.replay.hedged import HedgedReplay, SpotZones, replay_hedged
from trimtab.replay.nodes import CountRuns
from trimtab.replay.outcomes.least_held import AskedDemand, BoundedPolicy, least_held, readings_of
from trimtab.replay.recorded import ForecastSeries, record, wanted_loads
from trimtab.replay.services import (
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    ServiceReplay,
    SplitArrivals,
    replay_service,
    split_at_random,
    usual_demand,
)

_RECORDED = 4
"""Forecasts that are kept: places come one after the other, with all their policies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedReplay:
    """What a replay attained, the most replicas it held, and whether it ended because a target was out of reach."""

    attained_frac: FloatArray
    most_replicas: int
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastUse:
    """What a rule uses at least in each hour (n_hours,): node-seconds, GPU-seconds, and the most replicas at once."""

    node_seconds: IntArray
    further_seconds: IntArray | None
    """Node-seconds on nodes of another type behind its own; None where there are none."""
    gpu_seconds: IntArray
    most: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpot:
    """A spot market as drawn with a seed, and how a service keeps answering on it."""

    policy: HedgePolicy
    market: SpotZones
    seed: int


@dataclass(slots=True)
class ServiceReplays:
    """Replays of one service's history (`expected`), of that history with more demand (`stressed`), and of both on spot."""

    _expected: dict[Hashable, ServiceReplay] = field(default_factory=dict)
    _stressed: dict[Hashable, JudgedReplay] = field(default_factory=dict)
    _recorded: dict[Hashable, ForecastSeries] = field(default_factory=dict)
    _hedged: dict[Hashable, HedgedReplay] = field(default_factory=dict)
    _spells: dict[SpotZones, Flags] = field(default_factory=dict)
    _least: dict[Hashable, LeastUse] = field(default_factory=dict)
    _least_runs: dict[Hashable, CountRuns] = field(default_factory=dict)
    _asked: dict[Hashable, AskedDemand] = field(default_factory=dict)
    _histories: dict[Hashable, ServiceHistory] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _drawn: FloatArray | None = None
    _split: SplitArrivals | None = None
    """What `_drawn` is made of, in an eighth of the memory: to draw it takes as long as some replays."""
    _parts: dict[str, ServiceReplays] = field(default_factory=dict)

    def of_part(self, name: str) -> ServiceReplays:
        """Return the replays of a part of the service that has a demand and replicas of its own."""
        return self._parts.setdefault(name, ServiceReplays())

    def drawn(self, demand: ServiceObservation, seed: Sequence[int]) -> FloatArray:
        """Return the service's arrivals by decision, gaps filled, drawn once for all that it is replayed under."""
        if self._drawn is None:
            usual = usual_demand(demand.arrivals, step_s=demand.step_s)
            self._split = self._split or split_at_random(usual, step_s=demand.step_s, seed=seed)
            self._drawn = usual if self._split is None else self._split.by_decision()
        return self._drawn

    def history(self, key: Hashable, made: Callable[[], ServiceHistory]) -> ServiceHistory:
        """Return the history of a key, made once for all that is replayed under it."""
        if key not in self._histories:
            self._histories[key] = made()
        return self._histories[key]

    def least(self, key: Hashable, made: Callable[[], LeastUse]) -> LeastUse:
        """Return the least use of a key, worked out once for all places of one speed whose nodes hold as many replicas."""
        if key not in self._least:
            self._least[key] = made()
        return self._least[key]

    def least_held(
        self, key: Hashable, history: ServiceHistory, model: ServiceModel, policy: BoundedPolicy, replicas: int
    ) -> CountRuns:
        """Return the least replicas by decision of a key (`least_held`), followed once for all nodes."""
        if key not in self._least_runs:
            asked = self._asked_demand(history, policy)
            self._least_runs[key] = least_held(history, model, policy, asked, initial_replicas=replicas)
        return self._least_runs[key]

    def number(self, key: Hashable, made: Callable[[], int]) -> int:
        """Return a number of replicas of a key, found once for all places where replicas answer alike."""
        if key not in self._numbers:
            self._numbers[key] = made()
        return self._numbers[key]

    def _asked_demand(self, history: ServiceHistory, policy: BoundedPolicy) -> AskedDemand | None:
        """Return what a rule reads of a history's demand, worked out once for all target loads; None where it reads none."""
        if not isinstance(policy, HpaPolicy | ForecastPolicy):
            return None
        key = (history.seen_as, readings_of(policy))
        if key not in self._asked:
            recorded = self.recorded(history, policy, stressed=False) if isinstance(policy, ForecastPolicy) else None
            self._asked[key] = AskedDemand.of(history, policy, recorded)
        return self._asked[key]

    def expected(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> ServiceReplay:
        """Return a replay on the nodes of the model; `required_frac` as `replay_service` has it."""
        key = _key(history, model, policy, replicas, required_frac)
        if key not in self._expected:
            told = self._told(history, model, policy, stressed=False)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._expected[key] = replay
            return replay
        return self._expected[key].on_nodes(model)

    def stressed(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> JudgedReplay:
        """Return what a replay under stress attained."""
        key = _key(history, model, policy, replicas, required_frac)
        if key not in self._stressed:
            told = self._told(history, model, policy, stressed=True)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._stressed[key] = JudgedReplay(
                attained_frac=replay.attained_frac, most_replicas=replay.most_replicas, stopped=replay.stopped
            )
        return self._stressed[key]

    def hedged(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        spot: OnSpot,
        replicas: int,
        required_frac: FloatArray | None,
        *,
        stressed: bool,
    ) -> HedgedReplay:
        """Return a replay on spot; rates of loss at which the same zones go at the same times share it.

        Under stress only what is attained counts, and places of one speed share that whatever their nodes.
        """
        steps = len(history.arrivals) * int(history.step_s) // SYNC_S
        if spot.market not in self._spells:
            self._spells[spot.market] = spot.market.spells(steps, spot.seed)
        spells = self._spells[spot.market]
        # under stress nothing is billed, so nodes are not part of the key
        nodes = None if stressed else (model.gpus_per_replica, model.replicas_per_node)
        key = (
            *_key(history, model, policy, replicas, required_frac),
            spot.policy,
            hash(spells.tobytes()),
            stressed,
            nodes,
        )
        if key not in self._hedged:
            told = self._told(history, model, policy, stressed=stressed)
            self._hedged[key] = replay_hedged(
                told, model, policy, spot.policy, spells, initial_replicas=replicas, required_frac=required_frac
            )
        return self._hedged[key]

    def forget_histories(self) -> None:
        """Drop the series that are replayed, which take most of the memory; they are made again where they are asked for."""
        self._recorded.clear()
        self._spells.clear()
        self._histories.clear()
        self._least.clear()
        self._least_runs.clear()
        self._asked.clear()
        self._drawn = None
        for part in self._parts.values():
            part.forget_histories()

    def forget(self) -> None:
        """Drop what is kept; what is asked for again is replayed again."""
        self.forget_histories()
        self._expected.clear()
        self._stressed.clear()
        self._hedged.clear()
        self._split = None
        self._parts.clear()

    def _told(
        self, history: ServiceHistory, model: ServiceModel, policy: ScalingPolicy, *, stressed: bool
    ) -> ServiceHistory:
        """Return the history with what the recording rules of a forecasting policy say, recorded once for all target loads."""
        if not isinstance(policy, ForecastPolicy):
            return history
        rate, step_s = history.rate_seen()
        recorded = self.recorded(history, policy, stressed=stressed)
        # a forecast of requests is one of replicas, whatever these serve; what was late is not, it goes by whole replicas
        wanted = wanted_loads(policy, rate, recorded, step_s=step_s, replica_load=model.capacity_req_s)
        return replace(history, signal=wanted)

    def recorded(self, history: ServiceHistory, policy: ForecastPolicy, *, stressed: bool) -> ForecastSeries:
        """Return what a policy's rules record of a history, in requests/s; recorded once for all target loads."""
        # what the margin learns plays no part yet
        key = (stressed, history.seen_as, policy.rules._replace(late_frac=0.0))
        if key not in self._recorded:
            if len(self._recorded) >= _RECORDED:
                # the oldest one: a dict keeps the order of insertion
                del self._recorded[next(iter(self._recorded))]
            rate, step_s = history.rate_seen()
            self._recorded[key] = record(rate, step_s=step_s, rules=policy.rules)
        return self._recorded[key]


def _key(
    history: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    replicas: int,
    required_frac: FloatArray | None,
) -> tuple[Hashable, ...]:
    """Return what a replay of a given history depends on, besides nodes; the start and the grid are the service's own."""
    required = None if required_frac is None else required_frac.tobytes()
    shape = (model.capacity_req_s, model.load_grid.tobytes(), model.ok_frac.tobytes(), model.wait_limit_s.tobytes())
    limits = (model.cold_start_s, model.queue_limit_s, model.quota_replicas, model.full_req_s, model.one_by_one_spread)
    stress = (model.closed_hours, model.metrics_late_s, *(curve.tobytes() for curve in model.guards))
    # only where a node that is up lets a replica start sooner do nodes change what replicas do
    room = None if model.warm_start_s is None else (model.warm_start_s, model.empty_node_kept_s, model.room_per_node)
    return (history.seen_as, *shape, *limits, *stress, room, type(policy).__name__, policy, replicas, required)

"""A service's replays, each done once: places of one speed share it, whatever their nodes; target loads share a forecast.

What is shared is the trace of replicas without their nodes: replicas do the same wherever they are as fast, and other nodes are
only billed anew. (Where replicas start sooner `beside` others, what they do depends on the nodes too.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.fleet.model import FloatArray, ServiceObservation
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.hedged import HedgedReplay, SpotZones, replay_hedged
from trimtab.replay.recorded import ForecastSeries, record, wanted_loads
from trimtab.replay.series import CountArray, Flags, IntArray
from trimtab.replay.services import (
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    ServiceReplay,
    replay_service,
    seconds_held,
)
from trimtab.replay.within_steps import arrivals_by_decision, usual_demand

_RECORDED = 4
"""Forecasts that are kept: places come one after the other, with all their policies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedReplay:
    """What a replay attained, and whether it ended because a target was out of reach."""

    attained_frac: FloatArray
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastUse:
    """What a rule uses at least in each hour (n_hours,): node-seconds, GPU-seconds, and the most replicas at once."""

    node_seconds: IntArray
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

    _expected: dict[Hashable, ReplicaTrace] = field(default_factory=dict)
    _stressed: dict[Hashable, JudgedReplay] = field(default_factory=dict)
    _recorded: dict[Hashable, ForecastSeries] = field(default_factory=dict)
    _hedged: dict[Hashable, HedgedReplay] = field(default_factory=dict)
    _spells: dict[SpotZones, Flags] = field(default_factory=dict)
    _least: dict[Hashable, LeastUse] = field(default_factory=dict)
    _histories: dict[Hashable, ServiceHistory] = field(default_factory=dict)
    _drawn: FloatArray | None = None

    def drawn(self, demand: ServiceObservation, seed: Sequence[int]) -> FloatArray:
        """Return the service's arrivals by decision, gaps filled, drawn once for all that it is replayed under."""
        if self._drawn is None:
            usual = usual_demand(demand.arrivals, step_s=demand.step_s)
            self._drawn = arrivals_by_decision(usual, step_s=demand.step_s, seed=seed)
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

    def expected(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> ServiceReplay:
        """Return a replay on the nodes of the model; `required_frac` as `replay_service` has it."""
        key = _key(model, policy, replicas, required_frac)
        if key not in self._expected:
            told = self._told(history, model, policy, stressed=False)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._expected[key] = trace_of(replay)
            return replay
        return on_nodes(self._expected[key], model)

    def stressed(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> JudgedReplay:
        """Return what a replay under stress attained."""
        key = _key(model, policy, replicas, required_frac)
        if key not in self._stressed:
            told = self._told(history, model, policy, stressed=True)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._stressed[key] = JudgedReplay(attained_frac=replay.attained_frac, stopped=replay.stopped)
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
        # under stress nobody is billed, so nodes are no part of what is looked up
        nodes = None if stressed else (model.gpus_per_replica, model.replicas_per_node)
        key = (*_key(model, policy, replicas, required_frac), spot.policy, hash(spells.tobytes()), stressed, nodes)
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
        self._drawn = None

    def forget(self) -> None:
        """Drop what is kept; what is asked for again is replayed again."""
        self.forget_histories()
        self._expected.clear()
        self._stressed.clear()
        self._hedged.clear()

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
        key = (stressed, policy.rules._replace(late_frac=0.0))
        if key not in self._recorded:
            if len(self._recorded) >= _RECORDED:
                # the oldest one: a dict keeps the order of insertion
                del self._recorded[next(iter(self._recorded))]
            rate, step_s = history.rate_seen()
            self._recorded[key] = record(rate, step_s=step_s, rules=policy.rules)
        return self._recorded[key]


def _key(
    model: ServiceModel, policy: ScalingPolicy, replicas: int, required_frac: FloatArray | None
) -> tuple[Hashable, ...]:
    """Return what a replay of a given history depends on, besides nodes; the start and the grid are the service's own."""
    required = None if required_frac is None else required_frac.tobytes()
    shape = (model.capacity_req_s, model.load_grid.tobytes(), model.ok_frac.tobytes(), model.wait_limit_s.tobytes())
    limits = (model.cold_start_s, model.queue_limit_s, model.quota_replicas, model.full_req_s)
    stress = (model.closed_hours, model.metrics_late_s, *(curve.tobytes() for curve in model.guards))
    # only where a node that is up lets a replica start sooner do nodes change what replicas do
    room = None if model.warm_start_s is None else (model.warm_start_s, model.empty_node_kept_s, model.room_per_node)
    return (*shape, *limits, *stress, room, type(policy).__name__, policy, replicas, required)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaTrace:
    """A replay, its replicas by decision kept as runs of equal ones: `levels` and `lengths` `(n_runs,)`."""

    replay: ServiceReplay
    levels: CountArray
    lengths: CountArray


def trace_of(replay: ServiceReplay) -> ReplicaTrace:
    """Return the course of a replay, in little memory."""
    # -1 is no count, so the first decision always begins a run of equal ones
    starts = np.flatnonzero(np.diff(replay.held, prepend=-1))
    lengths = np.diff(starts, append=len(replay.held))
    return ReplicaTrace(
        replay=replace(replay, held=replay.held[:0].copy()),  # a view would keep the whole
        levels=replay.held[starts],
        lengths=lengths.astype(np.int32),
    )


def on_nodes(course: ReplicaTrace, model: ServiceModel) -> ServiceReplay:
    """Return the replay of the same course on the nodes of a model."""
    held = np.repeat(course.levels, course.lengths)
    # only the bill depends on the nodes
    node_seconds, gpu_seconds = seconds_held(model, held)
    return replace(course.replay, held=held, node_seconds=node_seconds, gpu_seconds=gpu_seconds)

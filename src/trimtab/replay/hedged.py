"""Replay a service whose replicas run on spot with an on-demand floor: what the market gives, zone by zone, and who steps in.

The queue, the targets and the scaling rule are those of `replay.services`. When a zone goes, all spot replicas in it go at
once, as they do when a cloud takes capacity back, and no new one starts there until the zone is back; requests in flight end
within the notice. The scaler sees what was lost as pods that are not ready, since they stay wanted. A zone's spells are drawn
from exponential lives, seeded, or recorded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.fluid import LOST, ON_DEMAND, STOPPED
from trimtab.replay.nodes import CountRuns
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, seconds_held, serve, unseen_requests
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotZones:
    """A market of several zones, each lost `loss_per_hr` times an hour while up, and gone for `outage_s` on average."""

    zones: int
    loss_per_hr: float
    outage_s: float

    def spells(self, steps: int, seed: int) -> Flags:
        """Return which zone gives spot nodes in which step `(zones, steps)`, all of them at first."""
        rng = np.random.default_rng(seed)
        up = np.ones((self.zones, steps), dtype=np.bool_)
        if self.loss_per_hr <= 0:
            return up
        for zone in range(self.zones):
            # exponential lives: how long a zone has been up says nothing of when it goes
            at = rng.exponential(S_PER_HR / self.loss_per_hr)
            while at < steps * SYNC_S:
                back = at + rng.exponential(self.outage_s)
                # in a step that it misses in part a zone gives nothing
                up[zone, int(at // SYNC_S) : math.ceil(back / SYNC_S)] = False
                at = back + rng.exponential(S_PER_HR / self.loss_per_hr)
        return up


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HedgedReplay:
    """Node-seconds per clock hour by how they were held, requests served in time, and replicas lost."""

    on_demand_node_seconds: IntArray
    spot_node_seconds: IntArray
    gpu_seconds: IntArray
    requests: float
    ok: FloatArray
    lost: int
    stopped: bool = False
    """It ended because a target was out of reach: `ok` counts what it did not come to as in time."""

    @property
    def attained_frac(self) -> FloatArray:
        """Return the share of requests within each target; 1 where none came."""
        return np.ones_like(self.ok) if self.requests <= 0 else np.asarray(self.ok / self.requests)


def replay_hedged(
    history: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    hedge_policy: HedgePolicy,
    spells: Flags,
    *,
    initial_replicas: int,
    required_frac: FloatArray | None = None,
) -> HedgedReplay:
    """Replay a history on spot and on-demand nodes; `spells` `(zones, steps of 15 s)` says which zone gives spot when.

    All replicas are on demand at first, as before the change, and move over. `required_frac` as `replay_service` has it.
    """
    totals = serve(
        history,
        model,
        policy,
        initial_replicas=initial_replicas,
        hedge_policy=hedge_policy,
        spells=spells,
        required_frac=required_frac,
    )
    # what a stopped replay did not come to counts as in time: its share is the most that it could have attained
    unseen = unseen_requests(history, totals)
    lanes = [seconds_held(model, CountRuns.of(held)) for held in totals.held]
    (on_demand_nodes, on_demand_gpus), by_zone = lanes[ON_DEMAND], lanes[ON_DEMAND + 1 :]
    return HedgedReplay(
        on_demand_node_seconds=on_demand_nodes,
        spot_node_seconds=sum((nodes for nodes, _ in by_zone), np.zeros_like(on_demand_nodes)),
        gpu_seconds=sum((gpus for _, gpus in by_zone), on_demand_gpus),
        requests=float(totals.requests[0]) + unseen,
        ok=totals.ok + unseen,
        lost=int(totals.counts[LOST]),
        stopped=bool(totals.counts[STOPPED]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probes:
    """One zone's record: whether spot could be had at each moment, in order of time."""

    zone: str
    t_s: FloatArray
    up: Flags

    def at(self, moments_s: FloatArray) -> Flags:
        """Return what the latest probe said at each moment; moments beyond the record begin it again."""
        first, last = float(self.t_s[0]), float(self.t_s[-1])
        # a record of a single probe has no length of its own
        within = first + np.mod(moments_s, max(last - first, 1.0))
        return self.up[np.searchsorted(self.t_s, within, side="right") - 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedZones:
    """Zones as they were probed; a replay that is longer than the record runs through it again."""

    zones: tuple[Probes, ...]

    def spells(self, steps: int, seed: int) -> Flags:
        """Return which zone gives spot nodes in which step `(zones, steps)`; the seed changes nothing."""
        del seed
        moments_s = np.arange(steps, dtype=np.float64) * SYNC_S
        return np.stack([zone.at(moments_s) for zone in self.zones])


SpotMarket = SpotZones | RecordedZones

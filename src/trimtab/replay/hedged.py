"""Replay a service whose replicas run on spot with an on-demand floor: zones go and come back, replicas with them.

The queue, the targets and the scaling rule are those of `replay.services`. When a zone goes, all spot replicas in it go at
once, as they do when a cloud takes capacity back, and no new one starts there until the zone is back; requests in flight end
within the notice. The scaler sees what was lost as pods that are not ready, since they stay wanted. A zone's spells are drawn
from exponential lives, seeded, or recorded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.policies import hedge
from trimtab.policies.hedge import HedgePolicy, split
from trimtab.policies.rules import Rule, decide
from trimtab.policies.scaling import SYNC_S, Observation
from trimtab.replay.compiled import admit, compiled, inlined
from trimtab.replay.fluid import (
    Curves,
    ServerShape,
    count_in_time,
    interpolate_ok,
    out_of_reach,
    stop_starting,
)
from trimtab.replay.series import CountArray, FloatArray, IntArray
from trimtab.replay.services import (
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    allowed_misses,
    curves_of,
    rule_of,
    seconds_held,
    shape_of,
    signal_of,
)
from trimtab.units import S_PER_HR

admit(hedge)

Flags = npt.NDArray[np.bool_]


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
            at = rng.exponential(S_PER_HR / self.loss_per_hr)
            while at < steps * SYNC_S:
                back = at + rng.exponential(self.outage_s)
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
    substeps = int(history.step_s) // SYNC_S
    steps = len(history.arrivals) * substeps
    if spells.shape[1] != steps:
        raise ValueError(f"{spells.shape[1]} steps of spot availability for {steps} of history")
    rule, by_hour, memory = rule_of(policy, start_hour=history.start_hour)
    totals = HedgedTotals(
        on_demand=np.zeros(steps, dtype=np.int32),
        spot=np.zeros((len(spells), steps), dtype=np.int32),
        ok=np.zeros(len(model.wait_limit_s)),
        counts=np.zeros(3),
    )
    serve_hedged(
        np.ascontiguousarray(history.arrivals, dtype=np.float64),
        signal_of(history, model, policy),
        substeps,
        shape_of(model),
        curves_of(model),
        rule,
        by_hour,
        memory,
        hedge_policy,
        np.ascontiguousarray(spells),
        initial_replicas,
        allowed_misses(history, model, required_frac),
        totals,
    )
    stopped = bool(totals.counts[STOPPED])
    unseen = float(np.nansum(history.arrivals)) - float(totals.counts[ARRIVED]) if stopped else 0.0
    on_demand_nodes, on_demand_gpus = seconds_held(model, totals.on_demand)
    by_zone = [seconds_held(model, zone) for zone in totals.spot]
    return HedgedReplay(
        on_demand_node_seconds=on_demand_nodes,
        spot_node_seconds=sum((nodes for nodes, _ in by_zone), np.zeros_like(on_demand_nodes)),
        gpu_seconds=sum((gpus for _, gpus in by_zone), on_demand_gpus),
        requests=float(totals.counts[ARRIVED]) + unseen,
        ok=totals.ok + unseen,
        lost=int(totals.counts[LOST]),
        stopped=stopped,
    )


class HedgedTotals(NamedTuple):
    """What the loop adds up; `on_demand` `(steps,)` and `spot` `(zones, steps)` are the replicas, ready and starting."""

    on_demand: CountArray
    spot: CountArray
    ok: FloatArray
    counts: FloatArray


ARRIVED, LOST, STOPPED = 0, 1, 2


@inlined
def first_due(due: CountArray, step: int, cold_steps: int) -> int:
    """Return in how many steps any replica is ready; more than a cold start where none is starting."""
    for j in range(step + 1, step + 2 + cold_steps):
        if due[j] > 0:
            return j - step
    return cold_steps + 1


@inlined
def grow(due: CountArray, step: int, cold_steps: int, count: int) -> None:
    """Start replicas that are ready after the cold start."""
    due[step + 1 + cold_steps] += count


@inlined
def lose_zone(ready: IntArray, starting: IntArray, due: CountArray, zone: int, step: int, cold_steps: int) -> int:
    """Take away all replicas of a zone; return how many there were."""
    lost = ready[zone] + starting[zone]
    for j in range(step, step + 2 + cold_steps):
        due[zone, j] = 0
    ready[zone] = 0
    starting[zone] = 0
    return int(lost)


@inlined
def resize_spot(
    ready: IntArray, starting: IntArray, due: CountArray, up: Flags, step: int, cold_steps: int, wanted: int
) -> None:
    """Bring spot to a number: start where fewest are among zones that are up, stop where most are, starting ones first."""
    held = int(ready.sum() + starting.sum())
    while held < wanted:
        best = -1
        for zone in range(len(ready)):
            if up[zone, step] and (best < 0 or ready[zone] + starting[zone] < ready[best] + starting[best]):
                best = zone
        if best < 0:
            return
        grow(due[best], step, cold_steps, 1)
        starting[best] += 1
        held += 1
    while held > wanted:
        most = 0
        for zone in range(1, len(ready)):
            if ready[zone] + starting[zone] > ready[most] + starting[most]:
                most = zone
        cancelled = stop_starting(due[most], step, cold_steps, min(1, int(starting[most])))
        starting[most] -= cancelled
        ready[most] -= 1 - cancelled
        held -= 1


@compiled
def serve_hedged(
    arrivals: FloatArray,
    signal: FloatArray,
    substeps: int,
    shape: ServerShape,
    curves: Curves,
    rule: Rule,
    by_hour: IntArray,
    memory: FloatArray,
    hedge_policy: HedgePolicy,
    up: Flags,
    initial_replicas: int,
    allowed_misses: FloatArray,
    totals: HedgedTotals,
) -> None:
    """Serve every step's arrivals; zones that go take their replicas; decide, split, start and stop after each step."""
    load_grid, ok_frac, wait_limit_s = curves
    zones, steps = up.shape
    served_ok = np.zeros(len(wait_limit_s))
    due = np.zeros((zones, steps + shape.cold_steps + 2), dtype=np.int32)
    due_on_demand = np.zeros(steps + shape.cold_steps + 2, dtype=np.int32)
    ready = np.zeros(zones, dtype=np.int64)
    starting = np.zeros(zones, dtype=np.int64)
    on_demand, on_demand_starting = initial_replicas, 0
    desired = initial_replicas
    queue, near, step = 0.0, 1, -1
    for t in range(len(arrivals)):
        if out_of_reach(totals.counts[ARRIVED : ARRIVED + 1], totals.ok, allowed_misses):
            totals.counts[STOPPED] = 1
            break
        arrived = arrivals[t] / substeps
        known = not math.isnan(arrived)
        wanted_signal = signal[t] if len(signal) > 1 else math.nan
        for _ in range(substeps):
            step += 1
            any_up = False
            for zone in range(zones):
                if up[zone, step]:
                    any_up = True
                    ready[zone] += due[zone, step]
                    starting[zone] -= due[zone, step]
                else:
                    totals.counts[LOST] += lose_zone(ready, starting, due, zone, step, shape.cold_steps)
            on_demand += due_on_demand[step]
            on_demand_starting -= due_on_demand[step]
            spot_ready, spot_starting = int(ready.sum()), int(starting.sum())
            for zone in range(zones):
                totals.spot[zone, step] = ready[zone] + starting[zone]
            held = on_demand + on_demand_starting
            totals.on_demand[step] = held

            all_ready = spot_ready + on_demand
            rate_req_s = all_ready * shape.capacity_req_s
            work = queue + arrived if known else queue
            served = min(work, rate_req_s * SYNC_S)
            left = work - served
            if all_ready > 0:
                before_s, after_s = queue / rate_req_s, left / rate_req_s
                duty_cycle_frac = served / (rate_req_s * SYNC_S)
            else:
                soonest = first_due(due_on_demand, step, shape.cold_steps)
                for zone in range(zones):
                    soonest = min(soonest, first_due(due[zone], step, shape.cold_steps))
                before_s = float(soonest * SYNC_S)
                after_s = before_s + left / shape.capacity_req_s
                duty_cycle_frac = 1.0
            if known:
                totals.counts[ARRIVED] += arrived
                near = interpolate_ok(served_ok, load_grid, ok_frac, duty_cycle_frac, near)
                count_in_time(totals.ok, served_ok, wait_limit_s, before_s, after_s, arrived)
            queue = min(left, shape.queue_limit_s * max(all_ready, 1) * shape.capacity_req_s)

            seen = Observation(
                step,
                all_ready,
                max(0, desired - all_ready),
                arrived / (shape.capacity_req_s * SYNC_S),
                duty_cycle_frac,
                queue / shape.capacity_req_s,
                wanted_signal,
            )
            desired = min(decide(rule, by_hour, memory, seen), shape.quota_replicas)
            parts = split(hedge_policy, desired, spot_ready, spot_ready + spot_starting, held, any_up)
            resize_spot(ready, starting, due, up, step, shape.cold_steps, parts.spot)
            if parts.on_demand > held:
                grow(due_on_demand, step, shape.cold_steps, parts.on_demand - held)
                on_demand_starting += parts.on_demand - held
            elif parts.on_demand < held:
                surplus = held - parts.on_demand
                cancelled = stop_starting(due_on_demand, step, shape.cold_steps, min(surplus, on_demand_starting))
                on_demand_starting -= cancelled
                on_demand -= surplus - cancelled

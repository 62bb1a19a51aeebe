"""Replay a service whose prompts (prefill) and answers (decode) have replicas and nodes of their own.

Each half is a service by itself: its demand is the work of its own tokens, its law the times of a replica by load
(`ServingHalf`), its rule the autoscaler that counts those tokens. So both are replayed by `service_outcome`, and added up.

What prefill finishes is what decode gets. Demand is counted by the minute, and a prompt takes seconds, so that decode's is that
of the same step. A limit on the first token or on the whole answer spans both halves. It is divided: decode has the time in
which nearly all of its requests are done near the load that its rule aims at, at the low end of its speed, and prefill has the
rest. A request is in time where each half kept its part. Where shares `p` and `d` of the requests did so, at least `p + d - 1`
are in time, whatever the one has to do with the other: what is attained is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.deployment.effects import DECODE, PREFILL, ServingHalf
from trimtab.deployment.placement import Placement
from trimtab.fleet.model import Target
from trimtab.ledger.arrays import IntArray
from trimtab.physics.disaggregated import TIME_SHARES
from trimtab.replay.outcomes.outcome import Attained, Case, Outcome
from trimtab.replay.outcomes.replica_law import law_of_times
from trimtab.replay.outcomes.service_model import JUDGED
from trimtab.replay.outcomes.service_outcome import outcome_under_stress, seconds_placed, service_outcome
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.tables.workloads import TargetMetric

_LATE_FRAC = 0.1
"""Share of the misses that a target allows which decode may have of a limit that spans both halves; prefill has the others."""
_ABOVE_TARGET = 1.25
"""Times the load that decode's rule aims at: replicas that are not there yet leave more to the others."""


def split_outcome(case: Case, place: Placement, replays: ServiceReplays, *, may_stop: bool = False) -> Outcome:
    """Replay both halves, and add up what they use; what is attained is a lower bound."""
    parts = _parts(case, place, replays)
    return _together(case, [service_outcome(*part, may_stop=may_stop) for part in parts])


def split_under_stress(case: Case, place: Placement, replays: ServiceReplays) -> Outcome | None:
    """Replay both halves under stress alone; None where the other replay is needed."""
    found = [outcome_under_stress(*part) for part in _parts(case, place, replays)]
    known = [outcome for outcome in found if outcome is not None]
    return _together(case, known) if len(known) == len(found) else None


def split_seconds_placed(
    case: Case, place: Placement, replays: ServiceReplays, *, kept_s: float, spreads: bool, moves: bool
) -> IntArray | None:
    """Return the node-seconds by hour of both halves on nodes that are kept, filled and drained in other ways."""
    parts = _parts(case, place, replays)
    each = [seconds_placed(*part, kept_s=kept_s, spreads=spreads, moves=moves) for part in parts]
    known = [seconds for seconds in each if seconds is not None]
    return np.asarray(np.sum(known, axis=0), dtype=np.int64) if len(known) == len(each) else None


def too_slow_apart(case: Case, place: Placement) -> str | None:
    """Say that some target is missed at every load, even the best one; None where a replay must decide."""
    for there, half, _ in _parts(case, place, ServiceReplays()):
        assert there.law is not None
        for target in there.targets:
            best = there.law.ok_frac(target.limit_s, half.speed.low, target.metric).max()
            if target.limit_s is not None and best < target.required_frac:
                return "prefill and decode apart are slower than the latency target allows at any load"
    return None


def most_load_apart(case: Case, place: Placement) -> float:
    """Return the highest load of both halves, slow as they may be, at which requests that need no new replica keep the targets.

    0 where they do at none.
    """
    parts = _parts(case, place, ServiceReplays())
    loads = [law for there, _, _ in parts if (law := there.law) is not None]
    grid, most = loads[0].grid(), 0.0
    kept = [
        [law.ok_frac(target.limit_s, half.speed.low, target.metric) for target in there.targets]
        for (there, half, _), law in zip(parts, loads, strict=True)
    ]
    required = [target.required_frac for target in case.targets if target.metric in JUDGED]
    for at, load in enumerate(grid):
        if all(early[at] + late[at] - 1 >= frac for early, late, frac in zip(*kept, required, strict=True)):
            most = float(load)
    return most


def _parts(
    case: Case, place: Placement, replays: ServiceReplays
) -> tuple[tuple[Case, Placement, ServiceReplays], tuple[Case, Placement, ServiceReplays]]:
    """Return each half as a service of its own: with its law, its part of every limit in the targets' order, its place."""
    if place.split is None:
        raise ValueError("prefill and decode are not apart")
    (prefill, decode), (before, after) = (place.split.prefill, place.split.decode), place.halves
    targets = [target for target in case.targets if target.metric in JUDGED]
    divided = [_divided(target, decode) for target in targets]
    return (
        (
            replace(case, law=law_of_times(prefill), targets=tuple(early for early, _ in divided)),
            before,
            replays.of_part(PREFILL),
        ),
        (
            replace(case, law=law_of_times(decode), targets=tuple(late for _, late in divided)),
            after,
            replays.of_part(DECODE),
        ),
    )


def _divided(target: Target, decode: ServingHalf) -> tuple[Target, Target]:
    """Return what prefill and what decode must keep of a target."""
    if target.limit_s is None:
        return target, target
    if target.metric is TargetMetric.TPOT:
        # the time between tokens is decode's alone; prefill must hand on all the same
        return replace(target, metric=TargetMetric.THROUGHPUT, limit_s=None), target
    late_s = min(_reserved_s(target, decode), target.limit_s)
    return replace(target, limit_s=target.limit_s - late_s), replace(target, limit_s=late_s)


def _reserved_s(target: Target, decode: ServingHalf) -> float:
    """Return the time that decode has of a limit: up to the first token, or up to the last."""
    times = decode.wait_s if target.metric is TargetMetric.TTFT else decode.answer_s
    load = decode.scaling.hpa.target_frac * _ABOVE_TARGET
    in_time = 1 - (1 - target.required_frac) * _LATE_FRAC
    at_share = [float(np.interp(in_time, TIME_SHARES, row)) for row in times]
    return float(np.interp(load, decode.loads, at_share)) / decode.nodes.speed.low


def _together(case: Case, halves: Sequence[Outcome]) -> Outcome:
    """Add up prefill and decode; a request is surely in time where neither part of its limit was missed."""
    before, after = halves
    targets = [target for target in case.targets if target.metric in JUDGED]
    attained = tuple(
        Attained(
            target=target,
            frac=max(0.0, early.frac + late.frac - 1),
            safe_frac=max(0.0, early.safe_frac + late.safe_frac - 1),
        )
        for target, early, late in zip(targets, before.attained, after.attained, strict=True)
    )
    gpus = None if before.gpus is None or after.gpus is None else before.gpus + after.gpus
    return Outcome(
        on_demand=after.on_demand,
        spot=after.spot,
        further=before.on_demand,
        attained=attained,
        gpus=gpus,
        stopped=before.stopped or after.stopped,
    )

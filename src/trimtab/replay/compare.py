"""Replay one service under several policies and set them side by side with the best in hindsight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.notebook import ShownInNotebook
from trimtab.policies.cron import CronPolicy
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy, StaticReplicas
from trimtab.replay.clairvoyant import clairvoyant_replica_hr
from trimtab.replay.recorded import record, wanted_loads
from trimtab.replay.series import FloatArray, IntArray
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, ServiceReplay, replay_service
from trimtab.units import S_PER_HR

OSCILLATES_PER_HR = 6.0
"""From so many turns between growing and shrinking an hour on, a policy is called oscillating."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyRun(ShownInNotebook):
    """One policy over one history. `over_clairvoyant` is replica-hours over the least that serve every step unqueued.

    `keeps` says whether every target was kept; `undominated` whether no other run was both cheaper and no worse.
    """

    name: str
    policy: ScalingPolicy
    replay: ServiceReplay
    over_clairvoyant: float
    keeps: bool
    undominated: bool
    notes: tuple[str, ...]

    @property
    def worst_attained_frac(self) -> float:
        """Return the least share of requests within any target."""
        return float(self.replay.attained_frac.min(initial=1.0))


def compare(
    history: ServiceHistory,
    model: ServiceModel,
    policies: Mapping[str, ScalingPolicy],
    *,
    required_frac: FloatArray,
    past: ServiceHistory | None = None,
) -> list[PolicyRun]:
    """Replay every policy over a history; `past` is the history before it, which recording rules have seen."""
    load = history.load(model)
    best_hr = clairvoyant_replica_hr(load, step_s=history.step_s, cold_start_s=model.cold_start_s)
    runs = []
    for name, policy in policies.items():
        replay = replay_service(
            _with_signal(history, model, policy, past),
            model,
            policy,
            initial_replicas=first_replicas(policy, load),
            by_step=True,
        )
        runs.append((name, policy, replay))
    # whole seconds, so that equal costs compare as equal
    costs = np.array([replay.node_seconds.sum() for _, _, replay in runs], dtype=np.int64)
    shares = np.array([replay.attained_frac.min(initial=1.0) for _, _, replay in runs])
    return [
        PolicyRun(
            name=name,
            policy=policy,
            replay=replay,
            over_clairvoyant=replica_hr(replay, history) / best_hr if best_hr else float("nan"),
            keeps=bool(np.all(replay.attained_frac >= required_frac)),
            undominated=_undominated(at, costs, shares),
            notes=tuple(_notes(replay, history)),
        )
        for at, (name, policy, replay) in enumerate(runs)
    ]


def replica_hr(replay: ServiceReplay, history: ServiceHistory) -> float:
    """Return replica-hours, starting ones included."""
    return float(replay.replicas.sum()) * history.step_s / S_PER_HR


def first_replicas(policy: ScalingPolicy, load: FloatArray) -> int:
    """Return the replicas that a policy would be running when a history begins."""
    known = load[~np.isnan(load)]
    need = max(1, int(np.ceil(known[0]))) if len(known) else 1
    match policy:
        case StaticReplicas():
            return policy.replicas
        case CronPolicy():
            return policy.replicas_by_hour[0]
        case HpaPolicy():
            return max(policy.min_replicas, int(np.ceil(need / policy.target_frac)))
        case ForecastPolicy() | KedaPolicy():
            return max(1, policy.hpa.min_replicas, int(np.ceil(need / policy.hpa.target_frac)))
        case _:
            return max(policy.min_replicas, need * 2)


def _with_signal(
    history: ServiceHistory, model: ServiceModel, policy: ScalingPolicy, past: ServiceHistory | None
) -> ServiceHistory:
    if not isinstance(policy, ForecastPolicy) or past is None:
        return history
    (before, _), (rate, step_s) = past.rate_seen(), history.rate_seen()
    # recorded as one series, because the rules' windows reach back over the seam
    whole = np.concatenate([before, rate])
    told = record(whole, step_s=step_s, rules=policy.rules)
    wanted = wanted_loads(policy, whole, told, step_s=step_s, replica_load=model.capacity_req_s)
    return replace(history, signal=wanted[len(before) :])


def _undominated(at: int, costs: IntArray, shares: FloatArray) -> bool:
    # no worse in both, better in one
    better = (costs <= costs[at]) & (shares >= shares[at]) & ((costs < costs[at]) | (shares > shares[at]))
    return not bool(better.any())


def _notes(replay: ServiceReplay, history: ServiceHistory) -> Sequence[str]:
    hours = len(history.arrivals) * history.step_s / S_PER_HR
    notes = []
    if hours and replay.reversals / hours >= OSCILLATES_PER_HR:
        notes.append(f"oscillates: turns {replay.reversals / hours:.0f} times an hour")
    if replay.quota_short_replica_s:
        notes.append(f"short of quota by {replay.quota_short_replica_s / S_PER_HR:,.0f} replica-hours")
    if replay.unmet > 0:
        notes.append(f"{replay.unmet / max(replay.requests, 1):.2%} of requests gave up")
    return notes

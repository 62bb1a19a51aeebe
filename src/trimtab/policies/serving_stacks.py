"""Scaling rules of serving stacks: Knative, llm-d's three rules, Dynamo's planner, TokenScale's signal, outstanding tokens.

Knative's Pod Autoscaler, from knative.dev (autoscaling, KPA) and knative/serving pkg/autoscaler/scaling/autoscaler.go: stable
window 60 s, panic window a tenth of it, panic when that asks for at least twice the ready pods, no scale-down in panic, at
most halving per decision. Knative decides every 2 s; here it decides every 15 s, so that its panic window is the last step.

By replica, from llm-d/llm-d-workload-variant-autoscaler (internal/saturation/analyzer.go) and arXiv 2603.09730: a replica is
saturated at 80 % of its KV cache or 5 waiting requests; one is added when the spare KV share of the others averages under
10 % or their spare queue under 3, one is removed when those that remain would still have that much to spare; nothing happens
while a replica starts. Load is used as the KV share, and any waiting at all for a queue without room.

By tokens, from the same (internal/engines/analyzers/saturation_v2/analyzer.go and pipeline/cost_aware_optimizer.go at
b08b1c77, v0.5.1; later versions have no other): demand is the tokens in the caches and those of the prompts that wait, a
replica's capacity the tokens it was observed to hold with a full queue. Replicas are added, as many as it takes, where
demand over 0.85 is beyond the capacity of those there or starting, and removed where demand over 0.70 leaves whole ones of
those ready. The number goes through the HPA of its chart, which changes nothing before it has stood for 240 s, either way.

Token-aware, from llm-d/llm-d (guides/workload-autoscaling/keda-epp-token-aware/README.md at 560d420e): KEDA's HPA on the larger
of two triggers. The first is the prompt tokens that wait, in seconds at a replica's peak speed, over 1.5 s a replica. The
second is the shares of the KV caches in use, over 0.8. Prompts that are being computed count too; a fluid queue has none.

TokenScale, from arXiv 2512.03416: replicas are the tokens that arrive in a second over those that a replica serves in a second
within its limits (its "token velocity"). The paper sizes prefill and decode apart, predicts output lengths, and lets decoders
compute prompts during bursts. Here replicas do both, the length of an arriving answer is known, and there are no convertible
decoders. A decision every 15 s without any delay is assumed; the paper's pace was not at hand.

Dynamo's planner, from ai-dynamo/dynamo (components/src/dynamo/planner/core: throughput_scaling.py at 4d3f6720, load_scaling.py
at 936d8195, defaults in config/defaults.py at 1ca60155): every 180 s replicas for the predicted rate over what an engine
serves within its limits. With load scaling that is a floor, and one replica is added where an engine's tokens are beyond what
its cache holds, one removed where all are under 0.6 of it, none while any starts. The predictor is its `constant` one; the
default (ARIMA) is not replayed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.scaling import (
    ROUNDING,
    SYNC_S,
    HpaPolicy,
    Memory,
    Observation,
    hpa_memory,
    hpa_step,
    push_for_sum,
    rate_limited,
    ring_end,
    stabilized,
    window_steps,
)


class KnativePolicy(NamedTuple):
    """A KPA with a concurrency target."""

    target_frac: float
    min_replicas: int
    max_replicas: int
    stable_window_s: int = 60
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0


def knative_memory(policy: KnativePolicy) -> list[float]:
    """Return a memory: a ring of demands over the stable window, the seconds of panic left, the most replicas in it."""
    slots = window_steps(policy.stable_window_s)
    return [float(slots), 0.0, 0.0] + [0.0] * slots + [0.0, 0.0]


def knative_step(policy: KnativePolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas, ready and starting, that the KPA wants after this step."""
    current = seen.ready + seen.starting
    if math.isnan(seen.load):
        return current
    demand = seen.load + seen.backlog_replica_s / SYNC_S
    # before the first window is full its mean is that of the steps there have been
    slots = min(int(memory[0]), seen.step + 1)
    stable = push_for_sum(memory, 0, demand) / slots
    panic_at = ring_end(memory, 0)
    ready = max(seen.ready, 1)
    most = math.ceil(policy.max_scale_up_rate * ready)
    least = math.floor(ready / policy.max_scale_down_rate)
    wanted = min(max(math.ceil(stable / policy.target_frac - ROUNDING), least), most)
    urgent = min(max(math.ceil(demand / policy.target_frac - ROUNDING), least), most)
    if urgent / ready >= policy.panic_threshold:
        memory[panic_at] = float(policy.stable_window_s)
    elif memory[panic_at] > 0.0:
        memory[panic_at] -= SYNC_S
    if memory[panic_at] > 0.0:
        # while it panics it only grows: the most of the whole panic is kept
        memory[panic_at + 1] = max(memory[panic_at + 1], float(urgent), float(current))
        wanted = int(memory[panic_at + 1])
    else:
        memory[panic_at + 1] = 0.0
    return min(max(wanted, policy.min_replicas), policy.max_replicas)


_CHART_WINDOW_S = 240


class SaturationPolicy(NamedTuple):
    """Limits of a replica's load, and how often to decide."""

    min_replicas: int
    max_replicas: int
    saturated_load: float = 0.8
    least_spare_load: float = 0.1
    interval_s: int = 60


def saturation_step(policy: SaturationPolicy, seen: Observation) -> int:
    """Return one replica more, one less, or what there is."""
    current = seen.ready + seen.starting
    if math.isnan(seen.load) or (seen.step * SYNC_S) % policy.interval_s >= SYNC_S or seen.starting > 0:
        return current
    # above this load replicas have too little to spare
    most_load = policy.saturated_load - policy.least_spare_load
    wanted = current
    if seen.duty_cycle_frac > most_load or seen.backlog_replica_s > 0.0:
        wanted = current + 1
    elif current > 1 and seen.duty_cycle_frac * seen.ready < most_load * (seen.ready - 1):
        wanted = current - 1
    return min(max(wanted, policy.min_replicas), policy.max_replicas)


class ReplicaTokens(NamedTuple):
    """How many tokens a replica holds, in shares of a full one, by its load and by the work that waits.

    A step of a full batch takes so much, of which `fixed_frac` it takes for a single request too. So by Little's law a load
    of r holds r f / (1 - r (1 - f)) of a full batch's tokens; with a share of 1 as much as it is loaded. `queue_s` seconds of
    waiting work are as many tokens as a full replica holds: the time that a request takes there, times the mean tokens of one
    in work over those of its prompt.
    """

    fixed_frac: float = 1.0
    queue_s: float = 15.0


AS_LOADED = ReplicaTokens()
"""Where nothing is known of the engine: tokens in proportion to the load."""


def held_frac(tokens: ReplicaTokens, load: float) -> float:
    """Return the tokens in work on a replica at a load, in shares of a full one."""
    return load * tokens.fixed_frac / (1.0 - load * (1.0 - tokens.fixed_frac))


def outstanding(tokens: ReplicaTokens, seen: Observation) -> float:
    """Return the tokens of requests in work and waiting, in full replicas."""
    held = held_frac(tokens, seen.duty_cycle_frac)
    return held * seen.ready + seen.backlog_replica_s / tokens.queue_s


class TokenSaturationPolicy(NamedTuple):
    """The HPA that carries it out, the shares of capacity between which nothing happens, and `GLOBAL_OPT_INTERVAL`."""

    hpa: HpaPolicy
    tokens: ReplicaTokens = AS_LOADED
    up_frac: float = 0.85
    down_frac: float = 0.70
    interval_s: int = 60


def token_saturation(min_replicas: int, max_replicas: int, tokens: ReplicaTokens = AS_LOADED) -> TokenSaturationPolicy:
    """Return the rule behind the HPA of its chart: windows of 240 s, 10 pods in 150 s."""
    hpa = HpaPolicy(
        1.0, min_replicas, max_replicas, up_stabilization_s=_CHART_WINDOW_S, down_stabilization_s=_CHART_WINDOW_S,
        up_frac=0.0, up_pods=10, down_frac=0.0, down_pods=10, period_s=150,
    )  # fmt: skip
    return TokenSaturationPolicy(hpa, tokens)


def token_saturation_memory(policy: TokenSaturationPolicy) -> list[float]:
    """Return the memory of a rule that has decided nothing yet: what its HPA remembers, and the number it was last told."""
    return [*hpa_memory(policy.hpa), 0.0]


def token_saturation_step(policy: TokenSaturationPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas that tokens ask for, as many more as it takes, as many fewer as are whole to spare."""
    current, hpa, told = seen.ready + seen.starting, policy.hpa, len(memory) - 1
    if math.isnan(seen.load):
        return current
    if (seen.step * SYNC_S) % policy.interval_s < SYNC_S:
        demand = outstanding(policy.tokens, seen)
        memory[told] = float(current)
        if demand / policy.up_frac > current:
            memory[told] = float(math.ceil(demand / policy.up_frac))
        elif seen.ready > demand / policy.down_frac:
            memory[told] = float(max(current - math.floor(seen.ready - demand / policy.down_frac), 1))
    wanted = int(memory[told]) if memory[told] > 0 else current
    wanted = stabilized(memory, wanted, current)
    return rate_limited(hpa, memory, min(max(wanted, hpa.min_replicas), hpa.max_replicas), current)


class TokenAwarePolicy(NamedTuple):
    """KEDA's HPA, and what its two triggers count.

    `prompt_frac` is the share of waiting work that is prompts, `kv_full_frac` the share of the KV cache that a full batch uses.
    """

    hpa: HpaPolicy
    tokens: ReplicaTokens = AS_LOADED
    prompt_frac: float = 1.0
    kv_full_frac: float = 1.0
    backlog_s: float = 1.5
    kv_frac: float = 0.8


def token_aware_memory(policy: TokenAwarePolicy) -> list[float]:
    """Return the memory of a rule that has decided nothing yet."""
    return hpa_memory(policy.hpa)


def token_aware_step(policy: TokenAwarePolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas that the HPA wants of the trigger that asks for more."""
    wanted = math.nan
    if not math.isnan(seen.load):
        waiting = seen.backlog_replica_s * policy.prompt_frac / policy.backlog_s
        # waiting requests hold no cache yet
        held = held_frac(policy.tokens, seen.duty_cycle_frac) * seen.ready * policy.kv_full_frac / policy.kv_frac
        wanted = max(waiting, held)
    told = Observation(
        seen.step, seen.ready, seen.starting, wanted, seen.duty_cycle_frac, 0.0, seen.signal, seen.guarded_replicas
    )
    return hpa_step(policy.hpa, memory, told)


class TokenVelocityPolicy(NamedTuple):
    """Bounds, and the load at which a replica serves within its limits: its token velocity over its peak."""

    min_replicas: int
    max_replicas: int
    engine_load: float = 1.0


def token_velocity_step(policy: TokenVelocityPolicy, seen: Observation) -> int:
    """Return the replicas for the tokens that arrived in the last step."""
    if math.isnan(seen.load):
        return seen.ready + seen.starting
    wanted = math.ceil(seen.load / policy.engine_load - ROUNDING)
    return min(max(wanted, policy.min_replicas), policy.max_replicas)


class PlannerPolicy(NamedTuple):
    """Bounds and intervals of Dynamo's planner; `scales_by_load` is its `enable_load_scaling`, off by default."""

    min_replicas: int
    max_replicas: int
    tokens: ReplicaTokens = AS_LOADED
    engine_load: float = 1.0
    """Load at which an engine serves within its limits."""
    scales_by_load: bool = False
    interval_s: int = 180
    up_util: float = 1.0
    down_util: float = 0.6


PLANNER_MEMORY = 3
"""Loads added up since the last plan, how many they are, and the floor that it set."""


def planner_step(policy: PlannerPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas for the load of the last interval; with load scaling one more or less above that floor."""
    current = seen.ready + seen.starting
    if not math.isnan(seen.load):
        memory[0] += seen.load
        memory[1] += 1.0
    if (seen.step + 1) * SYNC_S % policy.interval_s < SYNC_S and memory[1] > 0:
        memory[2] = float(math.ceil(memory[0] / memory[1] / policy.engine_load))
        memory[0], memory[1] = 0.0, 0.0
    wanted = current
    if not policy.scales_by_load:
        wanted = int(memory[2]) if memory[2] > 0 else current
    elif seen.starting == 0 and seen.ready > 0 and not math.isnan(seen.load):
        util = outstanding(policy.tokens, seen) / seen.ready
        if util > policy.up_util:
            wanted = current + 1
        elif util < policy.down_util:
            wanted = current - 1
        wanted = max(wanted, int(memory[2]))
    return min(max(wanted, policy.min_replicas), policy.max_replicas)


class OutstandingPolicy(NamedTuple):
    """An HPA on outstanding tokens, in full replicas: its `target_frac` is the share of a full replica's tokens."""

    hpa: HpaPolicy
    tokens: ReplicaTokens = AS_LOADED


def outstanding_memory(policy: OutstandingPolicy) -> list[float]:
    """Return the memory of a rule that has decided nothing yet."""
    return hpa_memory(policy.hpa)


def outstanding_step(policy: OutstandingPolicy, memory: Memory, seen: Observation) -> int:
    """Return the replicas that the HPA wants of a metric that counts tokens in work and waiting."""
    counted = outstanding(policy.tokens, seen) if not math.isnan(seen.load) else math.nan
    told = Observation(
        seen.step, seen.ready, seen.starting, counted, seen.duty_cycle_frac, 0.0, seen.signal, seen.guarded_replicas
    )
    return hpa_step(policy.hpa, memory, told)

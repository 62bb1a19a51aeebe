"""Several models take turns on one GPU: which model wakes, which goes to sleep, and when one gets a GPU to itself.

A server that supports it keeps its process while its weights leave the GPU (vLLM's sleep mode, docs.vllm.ai). Level 1 keeps the
weights in host memory, level 2 reads them from disk again. A router in front of the servers of one GPU decides:

- A model that has requests and is asleep wakes if its memory is free. Otherwise idle models sleep first, the least recently
  used first. The model whose oldest request has the least time left goes first, so that requests of one model are served
  together (Aegaeon, SOSP'25, groups requests by model for the same reason).
- A busy model is not interrupted, since sleeping would drop its requests. If another model has waited for `patience_s`, one
  that has been awake for `min_turn_s` accepts no more requests and sleeps when its last one is done.
- A model whose sleep and another's wake would together take longer than that one may wait sleeps early, as soon as it is idle
  (llama-swap calls this `ttl`).
- If a request has waited for `relief_s`, the busiest awake model gets a replica of its own on another GPU. So does a model with
  `own_requests` at once. It gives the replica back when it is idle, at the latest after `own_hold_s`. It gets as many as its
  requests fill, up to `own_most`, and further ones where requests still wait for `relief_s` once these serve.

`patience_s` of infinity is what llama-swap does (mostlygeek/llama-swap, internal/router/scheduler/fifo.go): it serves awake
models at once and waits for a busy one to finish. A model that is never idle then keeps the others waiting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

RETRY_S = 0.25
"""How often the router looks again while another model waits for memory."""


class PoolPolicy(NamedTuple):
    """When models wake, sleep, and get a replica of their own; infinite limits switch a rule off."""

    patience_s: float = 2.0
    min_turn_s: float = 2.0
    idle_s: float = 0.5
    """An awake model is not idle before its last request has been done for so long, so that models do not flap."""
    own_requests: float = math.inf
    """Requests at once at which a model gets a replica of its own."""
    own_most: int = 1
    """Own replicas of one model at once."""
    own_idle_s: float = 300.0
    """An own replica without requests for this long is given back (KEDA's default `cooldownPeriod`)."""
    own_hold_s: float = math.inf
    """An own replica that has served for this long is drained and given back even if it is busy."""
    relief_s: float = math.inf
    """A request that has waited this long for memory or a slot gives a busy model a replica of its own."""
    early_sleep_s: float = math.inf
    """A model that keeps another from waking in time sleeps when it has been idle for this long."""


LLAMA_SWAP = PoolPolicy(patience_s=math.inf, early_sleep_s=2.0)
"""llama-swap's rules: a busy model is never made to sleep, no model gets a replica of its own, `ttl` is 2 s where it helps."""


def may_sleep(policy: PoolPolicy, pinned: bool, requests: int, waiting: int, idle_s: float) -> bool:
    """Return whether an awake model may sleep now: it is not pinned, has no request, and has been idle for long enough."""
    return not pinned and requests == 0 and waiting == 0 and idle_s >= policy.idle_s


def must_yield(policy: PoolPolicy, pinned: bool, awake_s: float, waited_s: float) -> bool:
    """Return whether a busy model stops accepting requests for the sake of one that has waited for so long."""
    return not pinned and waited_s >= policy.patience_s and awake_s >= policy.min_turn_s


def needs_own_replica(policy: PoolPolicy, requests: int) -> bool:
    """Return whether so many requests of one model at once justify a replica of its own."""
    return requests >= policy.own_requests


def serves_bursts(policy: PoolPolicy) -> bool:
    """Return whether a burst is served by as many own replicas as it fills."""
    return policy.own_most > 1


def own_replicas(policy: PoolPolicy, requests: int, own_concurrency: int) -> int:
    """Return how many replicas of its own a model with so many requests should have: as many as these fill."""
    return max(1, min(policy.own_most, -(-requests // own_concurrency)))


def gives_back_replica(policy: PoolPolicy, requests: int, idle_s: float) -> bool:
    """Return whether an own replica is given back."""
    return requests == 0 and idle_s >= policy.own_idle_s


def drains_replica(policy: PoolPolicy, served_s: float) -> bool:
    """Return whether an own replica accepts no more requests, so that it can be given back."""
    return served_s >= policy.own_hold_s


def needs_relief(policy: PoolPolicy, waited_s: float) -> bool:
    """Return whether a request has waited for so long that a busy model must leave the GPU."""
    return waited_s >= policy.relief_s


def sleeps_early(policy: PoolPolicy, pinned: bool, blocks: bool, requests: int, waiting: int, idle_s: float) -> bool:
    """Return whether an idle model sleeps although no other waits: `blocks` if another could not wake in time behind it."""
    return blocks and not pinned and requests == 0 and waiting == 0 and idle_s >= policy.early_sleep_s


def goes_before(slack_s: float, other_slack_s: float) -> bool:
    """Return whether a sleeping model wakes before another: the one whose oldest request has the least time left."""
    return slack_s < other_slack_s


def sleeps_before(used_s: float, other_used_s: float) -> bool:
    """Return whether an idle model sleeps before another: the one that was used longer ago."""
    return used_s < other_used_s

"""Several models take turns on one GPU: which model wakes, which goes to sleep, and when one gets a GPU to itself.

A server that supports it keeps its process while its weights leave the GPU (vLLM's sleep mode, docs.vllm.ai). Level 1 keeps the
weights in host memory, level 2 reads them from disk again. A router in front of the servers of one GPU decides:

- A model that has requests and is asleep wakes if its memory is free. Otherwise idle models sleep first, the least recently
  used first. The model whose oldest request has the least time left goes first, so that requests of one model are served
  together (Aegaeon, SOSP'25, groups requests by model for the same reason).
- A busy model is not interrupted, however long others wait, since sleeping would drop its requests.
- A model whose sleep and another's wake would together take longer than that one may wait sleeps early, as soon as it is idle
  (llama-swap calls this `ttl`).
- A model with `own_requests` at once gets a replica on a GPU of its own, and as many as its requests fill, up to `own_most`.
  While any of them serves, all its requests go there. They are given back together, when there has been no request for
  `own_idle_s`.

The first three are what llama-swap does (mostlygeek/llama-swap, internal/router/scheduler/fifo.go): it serves awake models at
once and waits for a busy one to finish. Own replicas are what KEDA and its HPA do (kedacore/keda-docs, concepts/
scaling-deployments: one replica as soon as a trigger is active, none `cooldownPeriod` after it was last active; in between
ceil(requests / target), a tenth more being tolerated, as kubernetes.io documents of the HPA), which look every `sync_s`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

RETRY_S = 0.25
"""How often the router looks again while another model waits for memory."""


class PoolPolicy(NamedTuple):
    """When models wake, sleep, and get replicas of their own; infinite limits switch a rule off."""

    idle_s: float = 0.5
    """An awake model is not idle before its last request has been done for so long, so that models do not flap."""
    early_sleep_s: float = math.inf
    """A model that keeps another from waking in time sleeps when it has been idle for this long."""
    own_requests: float = math.inf
    """Requests at once at which a model gets a replica of its own."""
    own_most: int = 1
    """Own replicas of one model at once."""
    own_idle_s: float = 300.0
    """Own replicas are given back after so long without a request (KEDA's default `cooldownPeriod`)."""
    sync_s: float = 15.0
    """How often the autoscaler of own replicas looks (the HPA's default)."""


LLAMA_SWAP = PoolPolicy(early_sleep_s=2.0)
"""llama-swap's rules alone: no model gets a replica of its own, `ttl` is 2 s where it helps."""
OWN_REPLICAS = LLAMA_SWAP._replace(own_requests=8, own_most=16)
"""The same, and KEDA scales own replicas of models that have many requests at once."""
_TOLERANCE = 1.1


def may_sleep(policy: PoolPolicy, pinned: bool, requests: int, waiting: int, idle_s: float) -> bool:
    """Return whether an awake model may sleep now: it is not pinned, has no request, and has been idle for long enough."""
    return not pinned and requests == 0 and waiting == 0 and idle_s >= policy.idle_s


def serves_bursts(policy: PoolPolicy) -> bool:
    """Return whether a burst is served by as many own replicas as it fills."""
    return policy.own_most > 1


def own_replicas(policy: PoolPolicy, requests: int, own_concurrency: int, held: int) -> int:
    """Return how many replicas of its own a model with so many requests should have, where it holds some or none yet."""
    if held == 0:
        return 1 if requests >= policy.own_requests else 0
    if requests <= _TOLERANCE * held * own_concurrency:
        return held
    return min(policy.own_most, -(-requests // own_concurrency))


def gives_back_replicas(policy: PoolPolicy, requests: int, idle_s: float) -> bool:
    """Return whether all own replicas are given back."""
    return requests == 0 and idle_s >= policy.own_idle_s


def sleeps_early(policy: PoolPolicy, pinned: bool, blocks: bool, requests: int, waiting: int, idle_s: float) -> bool:
    """Return whether an idle model sleeps although no other waits: `blocks` if another could not wake in time behind it."""
    return blocks and not pinned and requests == 0 and waiting == 0 and idle_s >= policy.early_sleep_s


def goes_before(slack_s: float, other_slack_s: float) -> bool:
    """Return whether a sleeping model wakes before another: the one whose oldest request has the least time left."""
    return slack_s < other_slack_s


def sleeps_before(used_s: float, other_used_s: float) -> bool:
    """Return whether an idle model sleeps before another: the one that was used longer ago."""
    return used_s < other_used_s

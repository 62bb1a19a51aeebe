"""Put seldom-used models on shared GPUs: which models share one, and which keep a replica of their own.

Services are placed one after another, the busiest first. Each goes to the first GPU on which a replay of the history keeps the
targets of all its models with a margin, else it opens another GPU. The margin has two parts: only a share of the permitted
misses is used, and the history is also replayed with each service's clock turned by whole days, so that models do not share a
GPU only because their busy hours happened never to meet. A service without requests in the history is not pooled: nothing
says what it would do to the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trimtab.ledger.arrays import FloatArray
from trimtab.policies.pooling import PoolPolicy
from trimtab.replay.pooling import PooledModel, PoolReplay, PoolRequests, replay_pool
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, S_PER_DAY


class SleepLevel(NamedTuple):
    """How long a server takes to wake: a fixed time, and the weights at a bandwidth.

    Both levels are lines through two models that vLLM's authors measured on an A100 (blog.vllm.ai, 2025-10-26): Qwen3-0.6B
    (1.5 GB of weights) wakes in 0.26 s from host memory and 0.85 s from disk, Phi-3-vision (8.3 GB) in 0.82 s and 2.58 s. The
    line of level 1 gives 5.1 s for 60 GB a GPU, where they report 3 to 6 s.
    """

    fixed_s: float
    gb_s: float

    def wake_s(self, weights_gib: float) -> float:
        """Return the time from the call of `/wake_up` until the server accepts requests."""
        return self.fixed_s + weights_gib * BYTES_PER_GIB / BYTES_PER_GB / self.gb_s


HOST_MEMORY = SleepLevel(0.14, 12.1)
"""Level 1: the weights stay in host memory."""
DISK = SleepLevel(0.47, 3.9)
"""Level 2: the weights are read from disk again."""
ASLEEP_GIB = 1.2
"""What a sleeping server keeps on its GPU: 1.14 GiB in vLLM 0.13 (vllm-project/vllm issue 32714)."""


_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolService:
    """A service that may be pooled: its model, its requests over the history, and the share that must be in time.

    A request is in time if its first token comes within `first_limit_s`, its last within `last_limit_s`, and its answer takes
    at most `stretch_limit` times as long as alone on a GPU.
    """

    model: PooledModel
    requests: PoolRequests
    required_frac: float
    first_limit_s: float = math.inf
    last_limit_s: float = math.inf
    stretch_limit: float = math.inf

    def in_time_frac(self, first_s: FloatArray, last_s: FloatArray) -> float:
        """Return the share of requests in time; 1 if there are none."""
        if len(first_s) == 0:
            return 1.0
        in_time = (first_s <= self.first_limit_s) & (last_s <= self.last_limit_s)
        if math.isfinite(self.stretch_limit):
            in_time &= last_s - first_s <= self.stretch_limit * self.requests.answer_s + _ROUNDING_S
        return float(in_time.mean())

    def with_requests(self, requests: PoolRequests) -> PoolService:
        """Return the service with the requests of another span."""
        return replace(self, requests=requests)

    def without_requests(self) -> PoolService:
        """Return the service in a span without requests."""
        return replace(self, requests=self.requests.within(0.0, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMargin:
    """How much better than required a placement must be on the history: the share of misses it may use, and turned clocks."""

    slack_frac: float = 0.2
    turns: int = 3


class PoolGpu(NamedTuple):
    """The services, by number, that share a GPU, and the mean number of own replicas that they need beside it."""

    services: tuple[int, ...]
    own_replicas: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The shared GPUs, and the services that keep a warm replica, each with the reason."""

    gpus: tuple[PoolGpu, ...]
    alone: dict[int, str]

    @property
    def gpu_count(self) -> float:
        """Return the GPUs that are held on average."""
        return len(self.alone) + sum(1 + gpu.own_replicas for gpu in self.gpus)


def choose_pool(
    services: Sequence[PoolService],
    policy: PoolPolicy,
    *,
    memory_gib: float,
    span_s: float,
    margin: PoolMargin = PoolMargin(),
) -> PoolPlan:
    """Place services on as few shared GPUs as keep every target with a margin on the history of `span_s`."""
    required = [_required_frac(service, memory_gib, span_s, margin) for service in services]
    alone = {
        number: "no requests in the history"
        for number, found in enumerate(services)
        if not len(found.requests.arrival_s)
    }
    busiest = sorted((number for number in range(len(services)) if number not in alone),
                     key=lambda number: (-_work_s(services[number]), number))  # fmt: skip
    gpus: list[PoolGpu] = []
    for number in busiest:
        for at, gpu in enumerate(gpus):
            shared = _judged((*gpu.services, number), services, required, policy, memory_gib, span_s, margin)
            if shared is not None and shared.own_replicas - gpu.own_replicas < 1:
                gpus[at] = shared
                break
        else:
            gpus.append(PoolGpu((number,), 0.0))
    alone |= {gpu.services[0]: "no other GPU keeps every target with it" for gpu in gpus if len(gpu.services) == 1}
    return PoolPlan(gpus=tuple(gpu for gpu in gpus if len(gpu.services) > 1), alone=alone)


def replay_gpu(
    services: Sequence[PoolService], policy: PoolPolicy, *, memory_gib: float, span_s: float
) -> tuple[PoolReplay, list[float]]:
    """Replay services that share a GPU; with the share of each one's requests in time."""
    replayed = replay_pool(
        [service.model for service in services], [service.requests for service in services], policy,
        memory_gib=memory_gib, span_s=span_s,
    )  # fmt: skip
    shares = [
        service.in_time_frac(first_s, last_s)
        for service, first_s, last_s in zip(services, replayed.first_s, replayed.last_s, strict=True)
    ]
    return replayed, shares


def warm_frac(service: PoolService, *, memory_gib: float, span_s: float) -> float:
    """Return the share in time with one replica that is always awake on a GPU of its own."""
    model = replace(
        service.model, pinned=True, concurrency=service.model.own_concurrency, awake_gib=0.0, asleep_gib=0.0
    )
    return replay_gpu([replace(service, model=model)], _NO_OWN, memory_gib=memory_gib, span_s=span_s)[1][0]


_NO_OWN = PoolPolicy()


def _work_s(service: PoolService) -> float:
    return float(service.requests.prompt_s.sum() + service.requests.answer_s.sum())


def _required_frac(service: PoolService, memory_gib: float, span_s: float, margin: PoolMargin) -> float:
    """Return the share that a placement must keep: the target with its margin, or what one warm replica has if that is less."""
    wanted = 1 - (1 - service.required_frac) * margin.slack_frac
    return min(wanted, warm_frac(service, memory_gib=memory_gib, span_s=span_s))


def _judged(
    members: tuple[int, ...],
    services: Sequence[PoolService],
    required: Sequence[float],
    policy: PoolPolicy,
    memory_gib: float,
    span_s: float,
    margin: PoolMargin,
) -> PoolGpu | None:
    """Return services on one GPU; None if they do not fit or any of them misses its share in any replay."""
    chosen = [services[number] for number in members]
    if not _fit([service.model for service in chosen], memory_gib):
        return None
    own_replicas = 0.0
    for turned in _turned(chosen, members, span_s, margin.turns):
        replayed, shares = replay_gpu(turned, policy, memory_gib=memory_gib, span_s=span_s)
        if any(share < required[number] for share, number in zip(shares, members, strict=True)):
            return None
        own_replicas = max(own_replicas, float(replayed.own_s.sum()) / span_s)
    return PoolGpu(members, own_replicas)


def _fit(models: Sequence[PooledModel], memory_gib: float) -> bool:
    """Return whether each model can be awake beside the pinned ones while the rest sleep."""
    held = sum(model.awake_gib if model.pinned else model.asleep_gib for model in models)
    most = max((model.awake_gib - model.asleep_gib for model in models if not model.pinned), default=0.0)
    return held + most <= memory_gib


def _turned(
    services: Sequence[PoolService], members: Sequence[int], span_s: float, turns: int
) -> Iterator[list[PoolService]]:
    """Yield the services as recorded, then with each one's clock turned by another number of days."""
    days = max(int(span_s // S_PER_DAY), 1)
    for turn in range(turns + 1):
        yield [
            replace(service, requests=service.requests.rotated(turn * number % days * S_PER_DAY, span_s))
            if turn
            else service
            for service, number in zip(services, members, strict=True)
        ]

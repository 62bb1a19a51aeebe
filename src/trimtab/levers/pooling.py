"""Put seldom-used models on shared GPUs: which models share one, and which keep a replica of their own.

Services are placed one after another, the busiest first. Each joins the first GPU on which a replay of the history keeps the
targets of all its models with a margin, else it opens another GPU. The margin has three parts. Only a share of the permitted
misses is used. The history is also replayed with each service's clock turned by whole days, so that models do not share a GPU
only because their busy hours never met. And in that replay requests take longer, as if demand had grown.

A service with requests on fewer than two days cannot be judged: a few of them share a GPU on which all can be awake at once.
Where a burst is served by as many own replicas as it fills (`own_most`), services that seldom have work, and those with too
little history, share GPUs by number alone: it is enough that each can be awake there. A service is seldom busy if it is so for
at most `seldom_frac` of the history, and if alone on such a GPU it keeps its target with the margin, or what one warm replica
keeps, which its bursts may overwhelm.

The placement is meant to be made again every day (`replay_daily`). Services stay where they are if that keeps the targets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.policies.pooling import PoolPolicy, serves_bursts
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
_KNOWN_DAYS = 2
_GOOD_ENOUGH = 0.02
"""Own replicas more, on average, at which no further GPU is tried for a service."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMargin:
    """How much better than required a placement must be on the history.

    `slack_frac` is the share of the permitted misses that it may use. `turns` is how many replays have turned clocks; in them
    each request also takes `busier_frac` longer, as if demand had grown. `newcomers` is how many services with too little
    history may share a GPU. Where bursts get own replicas, `elastic_newcomers` may, together with services that are busy for at
    most `seldom_frac` of the time: all of them together for less than half of it. A service joins a GPU if that needs at most
    `most_own` own replicas more, on average; alone it would hold one.
    """

    slack_frac: float = 0.2
    turns: int = 1
    busier_frac: float = 0.25
    newcomers: int = 4
    elastic_newcomers: int = 8
    seldom_frac: float = 0.05
    most_own: float = 0.5


class PoolGpu(NamedTuple):
    """The services, by number, that share a GPU, and the mean number of own replicas that they need beside it.

    `newcomers` says that so many may share one, without a replay of all of them.
    """

    services: tuple[int, ...]
    own_replicas: float
    newcomers: bool = False


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
    before: PoolPlan | None = None,
) -> PoolPlan:
    """Place services on as few shared GPUs as keep every target with a margin on the history of `span_s`.

    With a placement from `before`, services stay where they are if that still keeps the targets.
    """
    judge = _SharingJudge(services, policy, memory_gib, span_s, margin)
    newcomers = [number for number, found in enumerate(services) if _is_newcomer(found, span_s)]
    if serves_bursts(policy):
        newcomers = [number for number in range(len(services)) if number in newcomers or judge.is_seldom_busy(number)]
    full = [number for number in range(len(services)) if number not in newcomers and judge.is_full(number)]
    kept = [gpu for gpu in (() if before is None else before.gpus) if not gpu.newcomers]
    gpus = [gpu for gpu in (judge.still_shared(gpu, {*newcomers, *full}) for gpu in kept) if gpu is not None]
    placed = {number for gpu in gpus for number in gpu.services}
    waiting = sorted(set(range(len(services))) - placed - {*newcomers, *full})
    for number in sorted(waiting, key=lambda number: (-_work_s(services[number]), number)):
        judge.place(number, gpus)
    alone = dict.fromkeys(full, "one warm replica already misses its target")
    alone |= {gpu.services[0]: "no other GPU keeps every target with it" for gpu in gpus if len(gpu.services) == 1}
    shared = [gpu for gpu in gpus if len(gpu.services) > 1]
    newcomers.sort(key=lambda number: services[number].model.awake_gib)
    unknown = list(_newcomer_gpus(newcomers, services, policy, memory_gib, margin))
    alone |= {gpu.services[0]: "too few requests in the history" for gpu in unknown if len(gpu.services) == 1}
    shared += [gpu for gpu in unknown if len(gpu.services) > 1]
    return PoolPlan(gpus=tuple(shared), alone=alone)


def _is_newcomer(service: PoolService, span_s: float) -> bool:
    """Return whether the history is too short to tell what a service does: requests on fewer than two of its days."""
    days = np.unique(service.requests.arrival_s // S_PER_DAY)
    return len(days) < min(_KNOWN_DAYS, math.ceil(span_s / S_PER_DAY))


def _newcomer_gpus(
    newcomers: Sequence[int], services: Sequence[PoolService], policy: PoolPolicy, memory_gib: float, margin: PoolMargin
) -> Iterator[PoolGpu]:
    """Yield GPUs for services that share them by number.

    A few share each on which all can be awake at once, or more, of which any can, if a burst gets replicas of its own.
    """
    elastic = serves_bursts(policy)
    most = margin.elastic_newcomers if elastic else margin.newcomers
    members: list[int] = []
    for number in newcomers:
        models = [services[each].model for each in (*members, number)]
        fit = _fit(models, memory_gib) if elastic else sum(model.awake_gib for model in models) <= memory_gib
        if members and (len(members) >= most or not fit):
            yield PoolGpu(tuple(members), 0.0, newcomers=True)
            members = []
        members.append(number)
    if members:
        yield PoolGpu(tuple(members), 0.0, newcomers=True)


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
    return warm_replay(service, memory_gib=memory_gib, span_s=span_s)[1]


def warm_replay(service: PoolService, *, memory_gib: float, span_s: float) -> tuple[PoolReplay, float]:
    """Replay a service on one replica that is always awake on a GPU of its own; with the share in time."""
    model = replace(
        service.model, pinned=True, concurrency=service.model.own_concurrency, awake_gib=0.0, asleep_gib=0.0
    )
    replayed, shares = replay_gpu([replace(service, model=model)], _NO_OWN, memory_gib=memory_gib, span_s=span_s)
    return replayed, shares[0]


_NO_OWN = PoolPolicy()


def _work_s(service: PoolService) -> float:
    return float(service.requests.prompt_s.sum() + service.requests.answer_s.sum())


@dataclass(frozen=True, slots=True)
class _SharingJudge:
    """Replays of the history that say which services may share a GPU."""

    services: Sequence[PoolService]
    policy: PoolPolicy
    memory_gib: float
    span_s: float
    margin: PoolMargin
    required: dict[int, float] = field(default_factory=dict)

    def place(self, number: int, gpus: list[PoolGpu]) -> None:
        """Put a service on the shared GPU that needs the fewest own replicas with it, or on another GPU."""
        best, best_at, least = None, -1, self.margin.most_own
        for at, gpu in enumerate(gpus):
            shared = self.judged((*gpu.services, number))
            if shared is not None and shared.own_replicas - gpu.own_replicas <= least:
                best, best_at, least = shared, at, shared.own_replicas - gpu.own_replicas
            if best is not None and least <= _GOOD_ENOUGH:
                break
        if best is None:
            gpus.append(PoolGpu((number,), 0.0))
        else:
            gpus[best_at] = best

    def still_shared(self, gpu: PoolGpu, leaving: Set[int]) -> PoolGpu | None:
        """Return what remains of a GPU's services when the busiest ones leave until the rest keep their targets."""
        members = [number for number in gpu.services if number not in leaving]
        members.sort(key=lambda number: _work_s(self.services[number]))
        while len(members) > 1:
            shared = self.judged(tuple(members))
            if shared is not None and shared.own_replicas <= self.margin.most_own:
                return shared
            members.pop()
        return None

    def judged(self, members: tuple[int, ...]) -> PoolGpu | None:
        """Return services on one GPU; None if they do not fit or any of them misses its share in any replay."""
        chosen = [self.services[number] for number in members]
        if not _fit([service.model for service in chosen], self.memory_gib):
            return None
        if self.span_s > S_PER_DAY and self._too_late_on_one_day(members):
            return None
        own_replicas = []
        for turned in _turned(chosen, members, self.span_s, self.margin):
            replayed, shares = replay_gpu(turned, self.policy, memory_gib=self.memory_gib, span_s=self.span_s)
            if any(share < self._required_frac(number) for share, number in zip(shares, members, strict=True)):
                return None
            own_replicas.append(float(replayed.own_s.sum()) / self.span_s)
        return PoolGpu(members, sum(own_replicas) / len(own_replicas))

    def _too_late_on_one_day(self, members: tuple[int, ...]) -> bool:
        """Return whether the busiest day of the last member alone uses up a member's permitted misses: a cheap rejection."""
        per_day = np.bincount((self.services[members[-1]].requests.arrival_s // S_PER_DAY).astype(np.int64))
        start_s = float(per_day.argmax()) * S_PER_DAY
        day = [
            each.with_requests(each.requests.within(start_s, start_s + S_PER_DAY))
            for each in (self.services[number] for number in members)
        ]
        shares = replay_gpu(day, self.policy, memory_gib=self.memory_gib, span_s=S_PER_DAY)[1]
        late = [(1 - share) * len(each.requests.arrival_s) for share, each in zip(shares, day, strict=True)]
        permitted = [
            (1 - self._required_frac(number)) * len(self.services[number].requests.arrival_s) for number in members
        ]
        return any(number > most + 1 for number, most in zip(late, permitted, strict=True))

    def is_full(self, number: int) -> bool:
        """Return whether a service is too busy for one replica, so that it has no time to give."""
        service = self.services[number]
        return warm_frac(service, memory_gib=self.memory_gib, span_s=self.span_s) < service.required_frac

    def is_seldom_busy(self, number: int) -> bool:
        """Return whether a service is seldom busy and keeps its required share alone on a shared GPU, with its own replicas."""
        service = self.services[number]
        if not _fit([service.model], self.memory_gib):
            return False
        replayed, shares = replay_gpu([service], self.policy, memory_gib=self.memory_gib, span_s=self.span_s)
        busy_s = _busy_s(service.requests.arrival_s, replayed.last_s[0])
        seldom = busy_s <= self.margin.seldom_frac * self.span_s
        return seldom and shares[0] >= min(service.required_frac, self._required_frac(number))

    def _required_frac(self, number: int) -> float:
        """Return the share that a placement must keep: the target with its margin, or that of a warm replica if it is less."""
        if number not in self.required:
            service = self.services[number]
            wanted = 1 - (1 - service.required_frac) * self.margin.slack_frac
            warm = warm_frac(service, memory_gib=self.memory_gib, span_s=self.span_s)
            self.required[number] = min(wanted, warm)
        return self.required[number]


def _busy_s(arrival_s: FloatArray, last_s: FloatArray) -> float:
    """Return for how long at least one request was there, given when each came and how long it took."""
    if not len(arrival_s):
        return 0.0
    done_s = np.maximum.accumulate(arrival_s + last_s)
    idle_s = np.maximum(arrival_s[1:] - done_s[:-1], 0.0)
    return float(done_s[-1] - arrival_s[0] - idle_s.sum())


def _fit(models: Sequence[PooledModel], memory_gib: float) -> bool:
    """Return whether each model can be awake beside the pinned ones while the rest sleep."""
    held = sum(model.awake_gib if model.pinned else model.asleep_gib for model in models)
    most = max((model.awake_gib - model.asleep_gib for model in models if not model.pinned), default=0.0)
    return held + most <= memory_gib


def _turned(
    services: Sequence[PoolService], members: Sequence[int], span_s: float, margin: PoolMargin
) -> Iterator[list[PoolService]]:
    """Yield the services as recorded, then busier and with each one's clock turned by another number of days."""
    yield list(services)
    days = max(int(span_s // S_PER_DAY), 1)
    for turn in range(1, margin.turns + 1):
        yield [
            service.with_requests(
                service.requests.rotated(turn * number % days * S_PER_DAY, span_s).slower(1 + margin.busier_frac)
            )
            for service, number in zip(services, members, strict=True)
        ]


class PoolDay(NamedTuple):
    """One day under the placement chosen before it: the GPUs held on average, and each service's requests in time."""

    plan: PoolPlan
    span_s: float
    gpus: float
    in_time: FloatArray
    requests: FloatArray
    wakes: FloatArray


def replay_daily(
    services: Sequence[PoolService],
    policy: PoolPolicy,
    *,
    memory_gib: float,
    start_s: float,
    end_s: float,
    history_s: float,
    margin: PoolMargin = PoolMargin(),
) -> Iterator[PoolDay]:
    """Yield each day from `start_s` on, replayed under a placement that is chosen again on the `history_s` before it."""
    plan = None
    for day_s in np.arange(start_s, end_s, S_PER_DAY):
        span_s = min(history_s, day_s)
        past = [each.with_requests(each.requests.within(day_s - span_s, day_s)) for each in services]
        plan = choose_pool(past, policy, memory_gib=memory_gib, span_s=span_s, margin=margin, before=plan)
        length_s = min(S_PER_DAY, end_s - day_s)
        today = [each.with_requests(each.requests.within(day_s, day_s + length_s)) for each in services]
        yield _replayed_day(today, plan, policy, memory_gib, length_s)


def _replayed_day(
    services: Sequence[PoolService], plan: PoolPlan, policy: PoolPolicy, memory_gib: float, span_s: float
) -> PoolDay:
    counts = np.array([len(each.requests.arrival_s) for each in services], dtype=np.float64)
    in_time, wakes = np.zeros(len(services)), np.zeros(len(services))
    for number in plan.alone:
        in_time[number] = warm_frac(services[number], memory_gib=memory_gib, span_s=span_s) * counts[number]
    gpus = float(len(plan.alone))
    for gpu in plan.gpus:
        members = list(gpu.services)
        replayed, shares = replay_gpu(
            [services[number] for number in members], policy, memory_gib=memory_gib, span_s=span_s
        )
        gpus += 1 + float(replayed.own_s.sum()) / span_s
        in_time[members] = np.array(shares) * counts[members]
        wakes[members] = replayed.wakes
    return PoolDay(plan, span_s, gpus, in_time, counts, wakes)

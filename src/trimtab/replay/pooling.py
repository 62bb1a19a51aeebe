"""Replay requests to several models that take turns on one GPU, request by request.

Each model is a server on the shared GPU, and may get a replica of its own for a while. A server works on its requests at once:
with n in work each advances at 1 / (1 + growth (n - 1)) of its speed alone, which is what an engine's steps do whose time is
affine in the batch (`physics.serving`). Several own replicas of a model share its requests evenly. Servers of one GPU that have
work divide its time evenly, as CUDA's time slices do.
Requests of a model wait in order of arrival. A request's first token comes when its prompt has been computed at the speed of
the moment in which it was accepted.

Going to sleep and waking take time, and hold the model's memory. The memory of awake models and what sleeping processes keep
(CUDA context, graphs) never exceeds the GPU's. All decisions are those of `policies.pooling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.policies import pooling
from trimtab.policies.pooling import (
    RETRY_S,
    PoolPolicy,
    gives_back_replicas,
    goes_before,
    may_sleep,
    own_replicas,
    sleeps_before,
    sleeps_early,
)
from trimtab.replay.compiled import admit, compiled, inlined

admit(pooling)

_ASLEEP, _WAKING, _AWAKE, _FALLING_ASLEEP = range(4)
_NEVER = 1e18
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledModel:
    """One model as the router of a shared GPU knows it.

    `awake_gib` is what the server holds while awake (weights, cache, working memory), `asleep_gib` what its process keeps.
    `growth` is by how much each further request slows down the others. `concurrency` is the most requests at once on the
    shared GPU, `own_concurrency` on a GPU alone. `wait_limit_s` is the time within which a first token is due.
    """

    name: str
    awake_gib: float
    asleep_gib: float
    wake_s: float
    sleep_s: float
    growth: float
    concurrency: int
    own_concurrency: int
    own_start_s: float
    wait_limit_s: float
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolRequests:
    """Requests of one model in order of arrival: `prompt_s` and `answer_s` are their times alone on the GPU."""

    arrival_s: FloatArray
    prompt_s: FloatArray
    answer_s: FloatArray

    def within(self, start_s: float, end_s: float) -> PoolRequests:
        """Return those of a span, counted from its start."""
        first, last = np.searchsorted(self.arrival_s, [start_s, end_s])
        return PoolRequests(
            arrival_s=self.arrival_s[first:last] - start_s,
            prompt_s=self.prompt_s[first:last],
            answer_s=self.answer_s[first:last],
        )

    def slower(self, times: float) -> PoolRequests:
        """Return the same requests, each taking so many times as long."""
        return replace(self, prompt_s=self.prompt_s * times, answer_s=self.answer_s * times)

    def rotated(self, shift_s: float, span_s: float) -> PoolRequests:
        """Return the same requests with the clock turned: what came at the end of the span comes at its start."""
        arrival_s = (self.arrival_s + shift_s) % span_s
        order = np.argsort(arrival_s, kind="stable")
        return PoolRequests(arrival_s=arrival_s[order], prompt_s=self.prompt_s[order], answer_s=self.answer_s[order])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolReplay:
    """What happened: by model, by request in order of arrival, the seconds to the first token and to the last.

    `own_s` is how long each model held a replica of its own, start included; `wakes` how often it woke.
    """

    first_s: tuple[FloatArray, ...]
    last_s: tuple[FloatArray, ...]
    own_s: FloatArray
    wakes: IntArray


class _Models(NamedTuple):
    """The models as arrays, for the loop."""

    awake_gib: FloatArray
    asleep_gib: FloatArray
    wake_s: FloatArray
    sleep_s: FloatArray
    growth: FloatArray
    room: IntArray
    own_start_s: FloatArray
    wait_limit_s: FloatArray
    pinned: NDArray[np.bool_]
    blocks: NDArray[np.bool_]
    """Another model could not wake in time if it had to wait for this one to sleep."""


def replay_pool(
    models: Sequence[PooledModel],
    requests: Sequence[PoolRequests],
    policy: PoolPolicy,
    *,
    memory_gib: float,
    span_s: float,
) -> PoolReplay:
    """Replay the requests of models that share a GPU; `span_s` is the span that own replicas are billed in.

    Raises ValueError if a model does not fit beside the others asleep: it could never wake.
    """
    asleep_gib = sum(model.asleep_gib for model in models)
    pinned_gib = sum(model.awake_gib - model.asleep_gib for model in models if model.pinned)
    for model in models:
        needed = asleep_gib + pinned_gib + (0.0 if model.pinned else model.awake_gib - model.asleep_gib)
        if needed > memory_gib + _TINY:
            raise ValueError(f"{model.name} cannot wake: {needed:.1f} GiB are needed, the GPU has {memory_gib:.1f}")
    counts = np.array([len(found.arrival_s) for found in requests], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    first_s, last_s = np.full(starts[-1], np.nan), np.full(starts[-1], np.nan)
    own_s, wakes = np.zeros(len(models)), np.zeros(len(models), dtype=np.int64)
    joined = [
        np.concatenate([getattr(found, name) for found in requests]) for name in ("arrival_s", "prompt_s", "answer_s")
    ]
    _loop(
        _as_arrays(models, memory_gib), policy, memory_gib, span_s, starts, np.argsort(joined[0], kind="stable"),
        joined[0], joined[1], joined[2], first_s, last_s, own_s, wakes,
    )  # fmt: skip
    return PoolReplay(
        first_s=tuple(np.split(first_s, starts[1:-1])),
        last_s=tuple(np.split(last_s, starts[1:-1])),
        own_s=own_s,
        wakes=wakes,
    )


def blocks(model: PooledModel, models: Sequence[PooledModel], memory_gib: float) -> bool:
    """Return whether a model that is awake keeps another from waking in time, and can itself wake in time."""
    asleep_gib = sum(each.asleep_gib for each in models)
    pinned_gib = sum(each.awake_gib - each.asleep_gib for each in models if each.pinned)
    if model.pinned or model.wake_s > model.wait_limit_s:
        return False
    return any(
        not other.pinned
        and other is not model
        and model.sleep_s + other.wake_s > other.wait_limit_s
        and asleep_gib + pinned_gib + model.awake_gib - model.asleep_gib + other.awake_gib - other.asleep_gib
        > memory_gib
        for other in models
    )


def _as_arrays(models: Sequence[PooledModel], memory_gib: float) -> _Models:
    def column(name: str) -> FloatArray:
        return np.array([getattr(model, name) for model in models], dtype=np.float64)

    room = [model.concurrency for model in models] + [model.own_concurrency for model in models]
    return _Models(
        awake_gib=column("awake_gib"),
        asleep_gib=column("asleep_gib"),
        wake_s=column("wake_s"),
        sleep_s=column("sleep_s"),
        growth=column("growth"),
        room=np.array(room, dtype=np.int64),
        own_start_s=column("own_start_s"),
        wait_limit_s=column("wait_limit_s"),
        pinned=np.array([model.pinned for model in models]),
        blocks=np.array([blocks(model, models, memory_gib) for model in models]),
    )


@inlined
def _sift_up(heap: FloatArray, who: IntArray, at: int) -> None:
    """Restore the order of a heap after an entry was added at its end."""
    while at > 0:
        parent = (at - 1) // 2
        if heap[parent] <= heap[at]:
            return
        heap[parent], heap[at] = heap[at], heap[parent]
        who[parent], who[at] = who[at], who[parent]
        at = parent


@inlined
def _sift_down(heap: FloatArray, who: IntArray, size: int) -> None:
    """Restore the order of a heap after its first entry was replaced by its last."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[at] <= heap[child]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        who[at], who[child] = who[child], who[at]
        at = child


@compiled
def _loop(
    models: _Models,
    policy: PoolPolicy,
    memory_gib: float,
    span_s: float,
    starts: IntArray,
    order: IntArray,
    arrival_s: FloatArray,
    prompt_s: FloatArray,
    answer_s: FloatArray,
    first_s: FloatArray,
    last_s: FloatArray,
    own_s: FloatArray,
    wakes: IntArray,
) -> None:
    """Run from event to event; lanes 0..n-1 are the models on the shared GPU, n..2n-1 their own replicas."""
    number = len(models.growth)
    lanes = 2 * number
    state = np.full(number, _ASLEEP)
    until_s = np.full(number, _NEVER)
    used_s = np.full(number, -_NEVER)
    # of each own replica of a model: since when it is held, and from when on it serves
    held = np.zeros(number, dtype=np.int64)
    serving = np.zeros(number, dtype=np.int64)
    own_from_s = np.zeros((number, policy.own_most))
    ready_s = np.full((number, policy.own_most), _NEVER)
    ended_s = np.zeros(number)
    tick_s = _NEVER
    head, tail = starts[:-1].copy(), starts[:-1].copy()
    done_work = np.zeros(lanes)
    in_work = np.zeros(lanes, dtype=np.int64)
    most = max(models.room[:number].max(), models.room[number:].max() * policy.own_most)
    ends = np.empty((lanes, most))
    who = np.empty((lanes, most), dtype=np.int64)
    speed = np.zeros(lanes)
    free_gib = memory_gib
    for model in range(number):
        if models.pinned[model]:
            state[model] = _AWAKE
            free_gib -= models.awake_gib[model]
        else:
            free_gib -= models.asleep_gib[model]
    now_s, coming, total = 0.0, 0, len(order)
    retry_s = _NEVER
    while True:
        # --- how fast each lane works, and what comes next ----------------------------------------------------------------
        sharers = 0
        for lane in range(number):
            if in_work[lane] > 0:
                sharers += 1
        next_s = arrival_s[order[coming]] if coming < total else _NEVER
        next_s = min(next_s, retry_s)
        for lane in range(lanes):
            if in_work[lane] > 0:
                model = lane % number
                beside = in_work[lane] - 1.0
                if lane >= number:
                    beside = max(in_work[lane] / serving[model] - 1.0, 0.0)
                speed[lane] = 1.0 / (1.0 + models.growth[model] * beside)
                if lane < number:
                    speed[lane] /= sharers
                next_s = min(next_s, now_s + (ends[lane, 0] - done_work[lane]) / speed[lane])
        for model in range(number):
            next_s = min(next_s, until_s[model])
            requests = in_work[model] + in_work[number + model] + tail[model] - head[model]
            if own_replicas(policy, requests, models.room[number + model], held[model]) > held[model]:
                next_s = min(next_s, tick_s)
            if held[model] > 0:
                for replica in range(serving[model], held[model]):
                    next_s = min(next_s, ready_s[model, replica])
                if requests == 0:
                    next_s = min(next_s, ended_s[model] + policy.own_idle_s)
            if models.blocks[model] and state[model] == _AWAKE and in_work[model] + tail[model] - head[model] == 0:
                next_s = min(next_s, used_s[model] + policy.early_sleep_s)
        if next_s >= _NEVER:
            break
        for lane in range(lanes):
            if in_work[lane] > 0:
                done_work[lane] += (next_s - now_s) * speed[lane]
        now_s = max(next_s, now_s)
        # --- what ends now ------------------------------------------------------------------------------------------------
        for lane in range(lanes):
            model = lane % number
            while in_work[lane] > 0 and ends[lane, 0] <= done_work[lane] + _TINY:
                request = who[lane, 0]
                last_s[request] = now_s - arrival_s[request]
                in_work[lane] -= 1
                ends[lane, 0], who[lane, 0] = ends[lane, in_work[lane]], who[lane, in_work[lane]]
                _sift_down(ends[lane], who[lane], in_work[lane])
                ended_s[model] = now_s
                if lane < number:
                    used_s[model] = now_s
            if in_work[lane] == 0:
                done_work[lane] = 0.0
        for model in range(number):
            if until_s[model] <= now_s:
                until_s[model] = _NEVER
                if state[model] == _WAKING:
                    state[model], used_s[model] = _AWAKE, now_s
                else:
                    state[model] = _ASLEEP
                    free_gib += models.awake_gib[model] - models.asleep_gib[model]
            while serving[model] < held[model] and ready_s[model, serving[model]] <= now_s:
                serving[model] += 1
        while coming < total and arrival_s[order[coming]] <= now_s:
            model = np.searchsorted(starts, order[coming], side="right") - 1
            tail[model] += 1
            coming += 1
        # --- requests are accepted ----------------------------------------------------------------------------------------
        for model in range(number):
            lane = model
            if serving[model] > 0:
                lane = number + model
            elif state[model] != _AWAKE:
                continue
            room = models.room[lane] if lane < number else models.room[lane] * serving[model]
            while head[model] < tail[model] and in_work[lane] < room:
                request = head[model]
                head[model] += 1
                if lane < number and in_work[lane] == 0:
                    sharers += 1
                # requests already in work slow down the prompt, as do other servers that share the GPU
                slow = 1.0 + models.growth[model] * (in_work[lane] if lane < number else in_work[lane] / serving[model])
                if lane < number:
                    slow *= max(sharers, 1)
                first_s[request] = now_s - arrival_s[request] + prompt_s[request] * slow
                ends[lane, in_work[lane]] = done_work[lane] + prompt_s[request] + answer_s[request]
                who[lane, in_work[lane]] = request
                _sift_up(ends[lane], who[lane], in_work[lane])
                in_work[lane] += 1
        # --- the autoscaler of own replicas, which looks at its own pace ----------------------------------------------------
        for model in range(number):
            requests = in_work[model] + in_work[number + model] + tail[model] - head[model]
            if now_s >= tick_s:
                wanted = own_replicas(policy, requests, models.room[number + model], held[model])
                while held[model] < wanted:
                    own_from_s[model, held[model]] = now_s
                    ready_s[model, held[model]] = now_s + models.own_start_s[model]
                    held[model] += 1
            if held[model] > 0 and gives_back_replicas(policy, requests, now_s - ended_s[model] + _TINY):
                for replica in range(held[model]):
                    own_s[model] += min(now_s, span_s) - min(own_from_s[model, replica], span_s)
                    ready_s[model, replica] = _NEVER
                held[model], serving[model] = 0, 0
        tick_s = (np.floor(now_s / policy.sync_s + _TINY) + 1.0) * policy.sync_s
        # --- who sleeps and who wakes -------------------------------------------------------------------------------------
        for model in range(number):
            if state[model] == _AWAKE and sleeps_early(
                policy, models.pinned[model], models.blocks[model], in_work[model], tail[model] - head[model],
                now_s - used_s[model] + _TINY,
            ):  # fmt: skip
                state[model], until_s[model] = _FALLING_ASLEEP, now_s + models.sleep_s[model]
        retry_s = _NEVER
        while True:
            chosen, chosen_slack_s = -1, _NEVER
            for model in range(number):
                if state[model] == _ASLEEP and head[model] < tail[model] and serving[model] == 0:
                    waited_s = now_s - arrival_s[head[model]]
                    slack_s = models.wait_limit_s[model] - models.wake_s[model] - waited_s
                    if chosen < 0 or goes_before(slack_s, chosen_slack_s):
                        chosen, chosen_slack_s = model, slack_s
            if chosen < 0:
                break
            need_gib = models.awake_gib[chosen] - models.asleep_gib[chosen]
            if need_gib <= free_gib + _TINY:
                free_gib -= need_gib
                state[chosen], until_s[chosen] = _WAKING, now_s + models.wake_s[chosen]
                wakes[chosen] += 1
                continue
            retry_s = now_s + RETRY_S
            _make_room(models, policy, now_s, need_gib - free_gib, state, until_s, used_s, in_work, head, tail)
            break
    for model in range(number):
        for replica in range(held[model]):
            own_s[model] += max(span_s - own_from_s[model, replica], 0.0)


@inlined
def _make_room(
    models: _Models,
    policy: PoolPolicy,
    now_s: float,
    missing_gib: float,
    state: IntArray,
    until_s: FloatArray,
    used_s: FloatArray,
    in_work: IntArray,
    head: IntArray,
    tail: IntArray,
) -> None:
    """Let idle models sleep, least recently used first, until enough memory comes free."""
    number = len(state)
    for model in range(number):
        # memory that comes free already counts
        if state[model] == _FALLING_ASLEEP:
            missing_gib -= models.awake_gib[model] - models.asleep_gib[model]
    while missing_gib > _TINY:
        chosen = -1
        for model in range(number):
            if (
                state[model] == _AWAKE
                and may_sleep(
                    policy, models.pinned[model], in_work[model], tail[model] - head[model], now_s - used_s[model]
                )
                and (chosen < 0 or sleeps_before(used_s[model], used_s[chosen]))
            ):
                chosen = model
        if chosen < 0:
            break
        state[chosen], until_s[chosen] = _FALLING_ASLEEP, now_s + models.sleep_s[chosen]
        missing_gib -= models.awake_gib[chosen] - models.asleep_gib[chosen]

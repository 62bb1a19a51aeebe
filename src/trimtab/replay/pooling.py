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
from trimtab.replay.compiled import admit, compiled_in_place, inlined

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


class _Requests(NamedTuple):
    """Requests of all models, one model's after another's: the first of each at `starts`, `order` is that of arrival."""

    starts: IntArray
    order: IntArray
    arrival_s: FloatArray
    prompt_s: FloatArray
    answer_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray


class _Servers(NamedTuple):
    """The state of each model's server on the shared GPU, and when it changes; `free_gib` is one number."""

    state: IntArray
    until_s: FloatArray
    used_s: FloatArray
    wakes: IntArray
    free_gib: FloatArray


class _OwnReplicas(NamedTuple):
    """How many own replicas of each model are held and how many of these serve; by model and replica since when, from when."""

    held: IntArray
    serving: IntArray
    from_s: FloatArray
    ready_s: FloatArray
    billed_s: FloatArray


class _Work(NamedTuple):
    """Requests in work by lane (the models on the shared GPU, then their own replicas), and each model's queue.

    `ends` and `who` are a heap per lane: at which `done_work` of the lane which request is done. `ended_s` is when a
    model's last request so far was done.
    """

    head: IntArray
    tail: IntArray
    in_work: IntArray
    done_work: FloatArray
    speed: FloatArray
    ends: FloatArray
    who: IntArray
    ended_s: FloatArray


class _Pool(NamedTuple):
    """All that the loop reads and changes."""

    models: _Models
    policy: PoolPolicy
    requests: _Requests
    servers: _Servers
    own: _OwnReplicas
    work: _Work


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
    pool = _pool_of(models, requests, _of_one_type(policy), memory_gib)
    _loop(pool, float(span_s))
    ends = pool.requests.starts[1:-1]
    return PoolReplay(
        first_s=tuple(np.split(pool.requests.first_s, ends)),
        last_s=tuple(np.split(pool.requests.last_s, ends)),
        own_s=pool.own.billed_s,
        wakes=pool.servers.wakes,
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


def _pool_of(
    models: Sequence[PooledModel], requests: Sequence[PoolRequests], policy: PoolPolicy, memory_gib: float
) -> _Pool:
    """Return a pool at its start: pinned models awake, all others asleep, no request yet."""
    number = len(models)
    arrays = _as_arrays(models, memory_gib)
    joined = _joined(requests)
    most = max(arrays.room[:number].max(), arrays.room[number:].max() * policy.own_most)
    free_gib = memory_gib
    for model in models:
        free_gib -= model.awake_gib if model.pinned else model.asleep_gib
    return _Pool(
        models=arrays,
        policy=policy,
        requests=joined,
        servers=_Servers(
            state=np.where(arrays.pinned, _AWAKE, _ASLEEP),
            until_s=np.full(number, _NEVER),
            used_s=np.full(number, -_NEVER),
            wakes=np.zeros(number, dtype=np.int64),
            free_gib=np.array([free_gib], dtype=np.float64),
        ),
        own=_OwnReplicas(
            held=np.zeros(number, dtype=np.int64),
            serving=np.zeros(number, dtype=np.int64),
            from_s=np.zeros((number, policy.own_most)),
            ready_s=np.full((number, policy.own_most), _NEVER),
            billed_s=np.zeros(number),
        ),
        work=_Work(
            head=joined.starts[:-1].copy(),
            tail=joined.starts[:-1].copy(),
            in_work=np.zeros(2 * number, dtype=np.int64),
            done_work=np.zeros(2 * number),
            speed=np.zeros(2 * number),
            ends=np.empty((2 * number, most)),
            who=np.empty((2 * number, most), dtype=np.int64),
            ended_s=np.zeros(number),
        ),
    )


def _of_one_type(policy: PoolPolicy) -> PoolPolicy:
    """Return a policy of floats alone: each mixture of them with whole numbers would compile the loop again, for seconds."""
    return policy._replace(
        idle_s=float(policy.idle_s),
        early_sleep_s=float(policy.early_sleep_s),
        own_requests=float(policy.own_requests),
        own_idle_s=float(policy.own_idle_s),
        sync_s=float(policy.sync_s),
    )


def _joined(requests: Sequence[PoolRequests]) -> _Requests:
    starts = np.concatenate([[0], np.cumsum([len(found.arrival_s) for found in requests], dtype=np.int64)])
    arrival_s = np.concatenate([found.arrival_s for found in requests])
    return _Requests(
        starts=starts,
        order=np.argsort(arrival_s, kind="stable"),
        arrival_s=arrival_s,
        prompt_s=np.concatenate([found.prompt_s for found in requests]),
        answer_s=np.concatenate([found.answer_s for found in requests]),
        first_s=np.full(starts[-1], np.nan),
        last_s=np.full(starts[-1], np.nan),
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


@compiled_in_place
def _loop(pool: _Pool, span_s: float) -> None:
    """Run from event to event until nothing is left to happen."""
    now_s, coming, retry_s, look_s = 0.0, 0, _NEVER, _NEVER
    while True:
        sharers = _sharers(pool.work)
        next_s = min(_next_event_s(pool, now_s, sharers, coming, look_s), retry_s)
        if next_s >= _NEVER:
            break
        _advance(pool.work, next_s - now_s)
        now_s = max(next_s, now_s)
        _end_requests(pool, now_s)
        _end_changes(pool, now_s)
        coming = _receive(pool, now_s, coming)
        _accept(pool, now_s, sharers)
        if now_s >= look_s:
            _add_replicas(pool, now_s)
        _give_back(pool, now_s, span_s)
        # the autoscaler looks at its own pace, whatever happens in between
        look_s = (np.floor(now_s / pool.policy.sync_s + _TINY) + 1.0) * pool.policy.sync_s
        _fall_asleep(pool, now_s)
        retry_s = _wake(pool, now_s)
    own = pool.own
    for model in range(len(own.held)):
        for replica in range(own.held[model]):
            own.billed_s[model] += max(span_s - own.from_s[model, replica], 0.0)


@inlined
def _sharers(work: _Work) -> int:
    """Count the servers on the shared GPU that have work, which divide its time."""
    sharers = 0
    for lane in range(len(work.head)):
        if work.in_work[lane] > 0:
            sharers += 1
    return sharers


@inlined
def _waiting(work: _Work, model: int) -> int:
    """Count the requests in a model's queue."""
    return int(work.tail[model] - work.head[model])


@inlined
def _present(work: _Work, model: int) -> int:
    """Count a model's requests, those in its queue and in work on either lane."""
    return int(work.in_work[model] + work.in_work[len(work.head) + model] + work.tail[model] - work.head[model])


@inlined
def _next_event_s(pool: _Pool, now_s: float, sharers: int, coming: int, look_s: float) -> float:
    """Set how fast each lane works until the next event, and return when that is; `_NEVER` if nothing is left to happen."""
    models, policy, requests, servers, own, work = pool
    number = len(models.growth)
    next_s = requests.arrival_s[requests.order[coming]] if coming < len(requests.order) else _NEVER
    for lane in range(2 * number):
        if work.in_work[lane] > 0:
            model = lane % number
            beside = work.in_work[lane] - 1.0
            if lane >= number:
                beside = max(work.in_work[lane] / own.serving[model] - 1.0, 0.0)
            work.speed[lane] = 1.0 / (1.0 + models.growth[model] * beside)
            if lane < number:
                work.speed[lane] /= sharers
            next_s = min(next_s, now_s + (work.ends[lane, 0] - work.done_work[lane]) / work.speed[lane])
    for model in range(number):
        next_s = min(next_s, servers.until_s[model])
        present, held = _present(work, model), own.held[model]
        # the autoscaler's next look is an event only where it would add replicas: otherwise there would be no end of looks
        if own_replicas(policy, present, models.room[number + model], held) > held:
            next_s = min(next_s, look_s)
        if held > 0:
            for replica in range(own.serving[model], held):
                next_s = min(next_s, own.ready_s[model, replica])
            if present == 0:
                next_s = min(next_s, work.ended_s[model] + policy.own_idle_s)
        idle = work.in_work[model] + _waiting(work, model) == 0
        if models.blocks[model] and servers.state[model] == _AWAKE and idle:
            next_s = min(next_s, servers.used_s[model] + policy.early_sleep_s)
    return next_s


@inlined
def _advance(work: _Work, passed_s: float) -> None:
    """Let every lane that has work do so for a while."""
    for lane in range(len(work.in_work)):
        if work.in_work[lane] > 0:
            work.done_work[lane] += passed_s * work.speed[lane]


@inlined
def _end_requests(pool: _Pool, now_s: float) -> None:
    """Take the requests that are done out of work."""
    work = pool.work
    number = len(work.head)
    for lane in range(2 * number):
        while work.in_work[lane] > 0 and work.ends[lane, 0] <= work.done_work[lane] + _TINY:
            request = work.who[lane, 0]
            pool.requests.last_s[request] = now_s - pool.requests.arrival_s[request]
            work.in_work[lane] -= 1
            last = work.in_work[lane]
            work.ends[lane, 0], work.who[lane, 0] = work.ends[lane, last], work.who[lane, last]
            _sift_down(work.ends[lane], work.who[lane], last)
            work.ended_s[lane % number] = now_s
            if lane < number:
                pool.servers.used_s[lane] = now_s
        if work.in_work[lane] == 0:
            # a lane's clock may start again when no end is counted on it, which keeps its numbers small and exact
            work.done_work[lane] = 0.0


@inlined
def _end_changes(pool: _Pool, now_s: float) -> None:
    """Finish what takes time: waking, falling asleep, and the start of own replicas."""
    models, servers, own = pool.models, pool.servers, pool.own
    for model in range(len(servers.state)):
        if servers.until_s[model] <= now_s:
            servers.until_s[model] = _NEVER
            if servers.state[model] == _WAKING:
                servers.state[model], servers.used_s[model] = _AWAKE, now_s
            else:
                servers.state[model] = _ASLEEP
                servers.free_gib[0] += models.awake_gib[model] - models.asleep_gib[model]
        while own.serving[model] < own.held[model] and own.ready_s[model, own.serving[model]] <= now_s:
            own.serving[model] += 1


@inlined
def _receive(pool: _Pool, now_s: float, coming: int) -> int:
    """Put requests that have arrived at the end of their model's queue, and return which of all comes next."""
    requests = pool.requests
    while coming < len(requests.order) and requests.arrival_s[requests.order[coming]] <= now_s:
        model = np.searchsorted(requests.starts, requests.order[coming], side="right") - 1
        pool.work.tail[model] += 1
        coming += 1
    return coming


@inlined
def _accept(pool: _Pool, now_s: float, sharers: int) -> None:
    """Let queued requests into work where there is room: on own replicas if any serves, else on an awake server.

    `sharers` is how many servers shared the GPU up to now; one whose work has just ended still counts.
    """
    models, requests, own, work = pool.models, pool.requests, pool.own, pool.work
    number = len(models.growth)
    for model in range(number):
        lane = model
        if own.serving[model] > 0:
            lane = number + model
        elif pool.servers.state[model] != _AWAKE:
            continue
        room = models.room[lane] if lane < number else models.room[lane] * own.serving[model]
        while work.head[model] < work.tail[model] and work.in_work[lane] < room:
            request = work.head[model]
            work.head[model] += 1
            beside = work.in_work[lane]
            if lane < number and beside == 0:
                sharers += 1
            # requests already in work slow down the prompt, as do other servers that share the GPU
            slow = 1.0 + models.growth[model] * (beside if lane < number else beside / own.serving[model])
            if lane < number:
                slow *= max(sharers, 1)
            requests.first_s[request] = now_s - requests.arrival_s[request] + requests.prompt_s[request] * slow
            # ends are counted on the lane's own clock of work done, so that a change of its speed moves none of them
            work.ends[lane, beside] = work.done_work[lane] + requests.prompt_s[request] + requests.answer_s[request]
            work.who[lane, beside] = request
            _sift_up(work.ends[lane], work.who[lane], beside)
            work.in_work[lane] += 1


@inlined
def _add_replicas(pool: _Pool, now_s: float) -> None:
    """Start as many own replicas of each model as the autoscaler asks for."""
    models, own = pool.models, pool.own
    number = len(own.held)
    for model in range(number):
        present = _present(pool.work, model)
        wanted = own_replicas(pool.policy, present, models.room[number + model], own.held[model])
        while own.held[model] < wanted:
            own.from_s[model, own.held[model]] = now_s
            own.ready_s[model, own.held[model]] = now_s + models.own_start_s[model]
            own.held[model] += 1


@inlined
def _give_back(pool: _Pool, now_s: float, span_s: float) -> None:
    """Give back all own replicas of models that have had no request for long enough; they are billed from start to here."""
    own, work = pool.own, pool.work
    for model in range(len(own.held)):
        idle_s = now_s - work.ended_s[model] + _TINY
        if own.held[model] > 0 and gives_back_replicas(pool.policy, _present(work, model), idle_s):
            for replica in range(own.held[model]):
                own.billed_s[model] += min(now_s, span_s) - min(own.from_s[model, replica], span_s)
                own.ready_s[model, replica] = _NEVER
            own.held[model], own.serving[model] = 0, 0


@inlined
def _fall_asleep(pool: _Pool, now_s: float) -> None:
    """Send idle models to sleep that would keep another from waking in time."""
    models, servers, work = pool.models, pool.servers, pool.work
    for model in range(len(servers.state)):
        if servers.state[model] == _AWAKE and sleeps_early(
            pool.policy, models.pinned[model], models.blocks[model], work.in_work[model], _waiting(work, model),
            now_s - servers.used_s[model] + _TINY,
        ):  # fmt: skip
            servers.state[model], servers.until_s[model] = _FALLING_ASLEEP, now_s + models.sleep_s[model]


@inlined
def _wake(pool: _Pool, now_s: float) -> float:
    """Wake models that have requests, the most urgent first; return when to look again if one of them lacks memory."""
    models, servers, work = pool.models, pool.servers, pool.work
    while True:
        chosen, chosen_slack_s = -1, _NEVER
        for model in range(len(servers.state)):
            if servers.state[model] == _ASLEEP and _waiting(work, model) > 0 and pool.own.serving[model] == 0:
                waited_s = now_s - pool.requests.arrival_s[work.head[model]]
                slack_s = models.wait_limit_s[model] - models.wake_s[model] - waited_s
                if chosen < 0 or goes_before(slack_s, chosen_slack_s):
                    chosen, chosen_slack_s = model, slack_s
        if chosen < 0:
            return _NEVER
        need_gib = models.awake_gib[chosen] - models.asleep_gib[chosen]
        if need_gib > servers.free_gib[0] + _TINY:
            _make_room(pool, now_s, need_gib - servers.free_gib[0])
            # less urgent models do not overtake it, although they may need less memory
            return now_s + RETRY_S
        servers.free_gib[0] -= need_gib
        servers.state[chosen], servers.until_s[chosen] = _WAKING, now_s + models.wake_s[chosen]
        servers.wakes[chosen] += 1


@inlined
def _make_room(pool: _Pool, now_s: float, missing_gib: float) -> None:
    """Let idle models sleep, least recently used first, until enough memory comes free."""
    models, servers, work = pool.models, pool.servers, pool.work
    number = len(servers.state)
    for model in range(number):
        # memory that comes free already counts
        if servers.state[model] == _FALLING_ASLEEP:
            missing_gib -= models.awake_gib[model] - models.asleep_gib[model]
    while missing_gib > _TINY:
        chosen = -1
        for model in range(number):
            idle_s = now_s - servers.used_s[model]
            if (
                servers.state[model] == _AWAKE
                and may_sleep(pool.policy, models.pinned[model], work.in_work[model], _waiting(work, model), idle_s)
                and (chosen < 0 or sleeps_before(servers.used_s[model], servers.used_s[chosen]))
            ):
                chosen = model
        if chosen < 0:
            break
        servers.state[chosen], servers.until_s[chosen] = _FALLING_ASLEEP, now_s + models.sleep_s[chosen]
        missing_gib -= models.awake_gib[chosen] - models.asleep_gib[chosen]

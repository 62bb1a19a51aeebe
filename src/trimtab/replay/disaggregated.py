"""Requests through prefill replicas, over a link, into decode replicas: both halves by the replay of the engine's scheduler.

A prefill replica computes prompts and answers one token; a decode replica starts with the prompt in its cache. As in vLLM's
NIXL connector, the decode replica computes the last token of the prompt again, and that step gives the first token that the
client sees (`vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py`). So

    TTFT = queue and prompt on the prefill replica + queue on its link + transfer + queue and first step on the decode replica
    TPOT = steps that only decode

Requests go to the prefill replicas in turn, in order of arrival, and to the decode replicas in turn, in order of their caches'
arrival. A prefill replica sends one cache after another. What is left out: blocks of a prefill replica's cache stay occupied
until they are sent, and transfers layer by layer, which overlap with the prompt (Splitwise, section 4.3, arXiv 2311.18677).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.errors import InputError
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.physics.disaggregated import MOST_PREFILL_SEQUENCES, TIME_SHARES, KvTransfer
from trimtab.physics.fitted import Floats
from trimtab.physics.serving import STEP_TOKENS, FirstTokenCosts, StepTimes, kv_blocks, scaled, step_times
from trimtab.replay.engine import BLOCK_TOKENS, EngineLimits, EngineReplay, Requests, chosen, replay_engine
from trimtab.replay.first_token import WARM_UP_FRAC, beyond_saturation

LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of what a replica serves at which its times are replayed; nothing is promised beyond the last that is served."""
_LEAST_OF_LIKELY, _HALVINGS = 16, 7
LEAST_DECODE_STEP_TOKENS = 2048
"""Tokens of a decode replica's step at least: a preempted request computes its prompt there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPool:
    """Replicas of one half: how many, what bounds their steps, how long steps take."""

    replicas: int
    limits: EngineLimits
    times: StepTimes

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InputError(f"a pool needs at least one replica, got {self.replicas}")


def prefill_pool(
    v: Mapping[str, Floats],
    c: Mapping[str, Floats],
    *,
    replicas: int,
    step_tokens: int = STEP_TOKENS,
    scale: float = 1.0,
) -> ServingPool:
    """Return prefill replicas of a query: its `serving_columns` and the coefficients of them, `(1,)` each.

    `scale` is measured over predicted time of the user's own point; 1 without one.
    """
    sequences = MOST_PREFILL_SEQUENCES
    limits = EngineLimits(sequences, max(step_tokens, sequences), kv_blocks(v, BLOCK_TOKENS))
    times = step_times(v, c, max_num_seqs=sequences, step_tokens=limits.step_tokens)
    return ServingPool(replicas=replicas, limits=limits, times=scaled(times, scale))


def decode_pool(
    v: Mapping[str, Floats], c: Mapping[str, Floats], *, replicas: int, max_num_seqs: int, scale: float = 1.0
) -> ServingPool:
    """Return decode replicas of a query, likewise. Their blocks hold one token, since caches are handed over to the token."""
    limits = EngineLimits(max_num_seqs, max(max_num_seqs, LEAST_DECODE_STEP_TOKENS), kv_blocks(v, 1), 1)
    times = step_times(v, c, max_num_seqs=max_num_seqs, step_tokens=limits.step_tokens)
    return ServingPool(replicas=replicas, limits=limits, times=scaled(times, scale))


def together_pool(
    v: Mapping[str, Floats], c: Mapping[str, Floats], *, max_num_seqs: int, step_tokens: int, scale: float = 1.0
) -> ServingPool:
    """Return one replica that computes prompts and answers in the same steps."""
    limits = EngineLimits(max_num_seqs, max(step_tokens, max_num_seqs), kv_blocks(v, BLOCK_TOKENS))
    times = step_times(v, c, max_num_seqs=max_num_seqs, step_tokens=limits.step_tokens)
    return ServingPool(replicas=1, limits=limits, times=scaled(times, scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedReplay:
    """What became of the requests, `(n,)` each; times are NaN where a request was refused."""

    requests: Requests
    prompt_s: FloatArray
    """When the prefill replica was done with the prompt."""
    arrived_s: FloatArray
    """When its cache had reached the decode replica."""
    admitted_s: FloatArray
    """When the decode replica took it in."""
    first_s: FloatArray
    end_s: FloatArray
    refused: Flags
    preempted: IntArray

    @property
    def ttft_s(self) -> FloatArray:
        """Return each request's time to first token."""
        return np.asarray(self.first_s - self.requests.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """Return each request's mean time per token after the first; NaN where there is no second."""
        rest = self.requests.output_tokens - 1
        spent_s = self.end_s - self.first_s
        return np.asarray(np.divide(spent_s, rest, out=np.full(len(rest), np.nan), where=rest > 0))


def replay_disaggregated(
    requests: Requests, prefill: ServingPool, decode: ServingPool, transfer: KvTransfer, *, clients: int = 0
) -> DisaggregatedReplay:
    """Replay requests through both pools; deterministic.

    With `clients` the loop is closed: each of so many sends its next request when one is answered. The two pools have one
    replay each, so arrivals are found by repetition: each pass fixes one more request of every client, and the passes end when
    arrivals no longer change.
    """
    if not clients:
        return _pass(requests, prefill, decode, transfer)
    number = len(requests.arrival_s)
    arrival_s = np.zeros(number)
    replayed = _pass(requests._replace(arrival_s=arrival_s), prefill, decode, transfer)
    for _ in range(number // clients + 1):
        ends_s = np.sort(replayed.end_s[~replayed.refused])
        later = ends_s[: max(number - clients, 0)]
        following = np.concatenate([np.zeros(min(clients, number)), later])
        if len(following) < number:
            raise InputError("a closed loop needs requests that all fit the cache")
        if np.array_equal(following, arrival_s):
            break
        arrival_s = following
        replayed = _pass(requests._replace(arrival_s=arrival_s), prefill, decode, transfer)
    return replayed


def _pass(requests: Requests, prefill: ServingPool, decode: ServingPool, transfer: KvTransfer) -> DisaggregatedReplay:
    """Replay requests whose arrivals are known."""
    number = len(requests.arrival_s)
    prompt_s, arrived_s = np.full(number, np.nan), np.full(number, np.nan)
    for at in _in_turn(np.arange(number), prefill.replicas):
        mine = chosen(requests, at)
        read = _prompts_read(mine, prefill)
        prompt_s[at] = read.served.end_s
        arrived_s[at] = _sent(read.served.end_s, transfer.seconds(mine.input_tokens), transfer.fixed_s)
    fits = np.flatnonzero(np.isfinite(arrived_s))
    order = fits[np.argsort(arrived_s[fits], kind="stable")]
    admitted_s, first_s, end_s = (np.full(number, np.nan) for _ in range(3))
    preempted = np.zeros(number, dtype=np.int64)
    for at in _in_turn(order, decode.replicas):
        mine = chosen(requests, at)
        answered = _answered(mine._replace(arrival_s=arrived_s[at]), decode)
        admitted_s[at], first_s[at], end_s[at] = (
            answered.served.admitted_s,
            answered.served.first_s,
            answered.served.end_s,
        )
        preempted[at] = answered.served.preempted
    return DisaggregatedReplay(
        requests=requests,
        prompt_s=prompt_s,
        arrived_s=arrived_s,
        admitted_s=admitted_s,
        first_s=first_s,
        end_s=end_s,
        refused=~np.isfinite(end_s),
        preempted=preempted,
    )


def _prompts_read(requests: Requests, pool: ServingPool) -> EngineReplay:
    """Replay prompts on a prefill replica: it answers one token, which makes the engine finish with the prompt."""
    return replay_engine(requests._replace(output_tokens=np.ones_like(requests.output_tokens)), pool.limits, pool.times)


def _answered(requests: Requests, pool: ServingPool) -> EngineReplay:
    """Replay answers on a decode replica: the whole prompt is in the cache; the engine computes its last token again."""
    return replay_engine(requests._replace(cached_tokens=requests.input_tokens), pool.limits, pool.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesByLoad:
    """Times of one replica's requests at `TIME_SHARES`, by load: until its half is done with a first token, per token after it,
    and until its half is done."""

    loads: tuple[float, ...]
    wait_s: tuple[tuple[float, ...], ...]
    token_s: tuple[tuple[float, ...], ...]
    answer_s: tuple[tuple[float, ...], ...]


def prefill_times(
    pool: ServingPool, transfer: KvTransfer, costs: FirstTokenCosts, requests: Requests, replica_req_s: float
) -> TimesByLoad | None:
    """Return how long prompts take until their cache has arrived, by load; None where they pile up at every load.

    `requests` come at one a second on average; they are the same at every load, only closer together.
    """
    loads, wait_s = [], []
    for load in LOADS:
        closer = requests._replace(arrival_s=requests.arrival_s / (load * replica_req_s))
        read = _prompts_read(closer, pool)
        if beyond_saturation(read) or read.refused.any():
            break
        arrived_s = _sent(read.served.end_s, transfer.seconds(closer.input_tokens), transfer.fixed_s)
        carried_s = arrived_s - read.served.end_s
        loads.append(load)
        wait_s.append(_at_shares(costs.wait_scale * (read.served.end_s - closer.arrival_s) + carried_s))
    if not loads:
        return None
    return TimesByLoad(loads=tuple(loads), wait_s=tuple(wait_s), token_s=(), answer_s=tuple(wait_s))


def decode_times(
    pool: ServingPool, costs: FirstTokenCosts, requests: Requests, replica_req_s: float
) -> TimesByLoad | None:
    """Return how long answers take from when their cache arrived, by load; None where they pile up at every load.

    With what a first token takes besides the engine's steps. `requests` as for `prefill_times`.
    """
    return _times_by_load(lambda closer: _answered(closer, pool), costs, requests, replica_req_s)


def together_times(
    pool: ServingPool, costs: FirstTokenCosts, requests: Requests, replica_req_s: float
) -> TimesByLoad | None:
    """Return how long requests take on one replica that computes prompts and answers in the same steps, as `decode_times`."""
    return _times_by_load(lambda closer: replay_engine(closer, pool.limits, pool.times), costs, requests, replica_req_s)


def _times_by_load(
    served: Callable[[Requests], EngineReplay], costs: FirstTokenCosts, requests: Requests, replica_req_s: float
) -> TimesByLoad | None:
    loads, wait_s, token_s, answer_s = [], [], [], []
    for load in LOADS:
        closer = requests._replace(arrival_s=requests.arrival_s / (load * replica_req_s))
        answered = served(closer)
        if beyond_saturation(answered) or answered.refused.any():
            break
        first_s, whole_s = _answer_times(closer, answered, costs)
        loads.append(load)
        wait_s.append(_at_shares(first_s))
        if np.isfinite(answered.tpot_s).any():
            token_s.append(_at_shares(answered.tpot_s))
        answer_s.append(_at_shares(whole_s))
    if not loads:
        return None
    return TimesByLoad(loads=tuple(loads), wait_s=tuple(wait_s), token_s=tuple(token_s), answer_s=tuple(answer_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimit:
    """A share of requests that must have their first token, their tokens on average, or their whole answer, within a limit."""

    of: str
    """`first`, `token` or `whole`."""
    limit_s: float
    required_frac: float


def most_req_s_together(
    pool: ServingPool, costs: FirstTokenCosts, requests: Requests, limits: Sequence[AnswerLimit], likely_req_s: float
) -> float:
    """Return the requests a second that one replica serves within limits where prompts and answers share its steps; 0: none.

    To about 3 %, looked for from a sixteenth to twice of what is `likely`. `requests` as for `prefill_times`.
    """
    low, high = math.log(likely_req_s / _LEAST_OF_LIKELY), math.log(2 * likely_req_s)
    if not _keeps_together(pool, costs, requests, limits, math.exp(low)):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _keeps_together(pool, costs, requests, limits, math.exp(middle)) else (low, middle)
        )
    return math.exp(low)


def _keeps_together(
    pool: ServingPool, costs: FirstTokenCosts, requests: Requests, limits: Sequence[AnswerLimit], rate_req_s: float
) -> bool:
    closer = requests._replace(arrival_s=requests.arrival_s / rate_req_s)
    found = replay_engine(closer, pool.limits, pool.times)
    if beyond_saturation(found) or found.refused.any():
        return False
    first_s, whole_s = _answer_times(closer, found, costs)
    times = {"first": first_s, "token": found.tpot_s, "whole": whole_s}
    kept = [(limit, _warm(times[limit.of]) <= limit.limit_s) for limit in limits]
    return all(float(in_time.mean()) >= limit.required_frac for limit, in_time in kept if len(in_time))


def _answer_times(requests: Requests, replayed: EngineReplay, costs: FirstTokenCosts) -> tuple[FloatArray, FloatArray]:
    """Return times to first token and to the end of the answer, with what a first token takes besides the engine's steps."""
    first_s = costs.first_s(replayed.ttft_s, replayed.tpot_s)
    # an answer of one token ends with its first, and has no time per token
    later_s = np.where(requests.output_tokens > 1, (requests.output_tokens - 1) * replayed.tpot_s, 0.0)
    return first_s, np.asarray(first_s + later_s)


def _warm(seconds: FloatArray) -> FloatArray:
    """Return the times of requests after the warm-up, without those that have none: of tokens after the only one."""
    kept = seconds[round(WARM_UP_FRAC * len(seconds)) :]
    return kept[np.isfinite(kept)]


def _at_shares(seconds: FloatArray) -> tuple[float, ...]:
    """Return the times within which each of `TIME_SHARES` of the requests are, after the warm-up."""
    return tuple(float(value) for value in np.quantile(_warm(seconds), TIME_SHARES))


def _in_turn(order: IntArray, replicas: int) -> list[IntArray]:
    """Deal requests to replicas one after another; replicas without any are left out."""
    return [order[first::replicas] for first in range(min(replicas, len(order)))]


def _sent(ready_s: FloatArray, took_s: FloatArray, fixed_s: float) -> FloatArray:
    """Return when caches that leave a replica one after another have arrived; NaN where a prompt was refused.

    The link is busy for `took_s`; `fixed_s` (set-up, routing) passes beside other transfers.
    """
    arrived_s = np.full(len(ready_s), np.nan)
    order = np.argsort(ready_s, kind="stable")
    order = order[np.isfinite(ready_s[order])]
    work_s = np.cumsum(took_s[order])
    # Lindley's recursion without a loop: end[k] = work[k] + max over j <= k of (ready[j] - work[j - 1])
    start_s = np.maximum.accumulate(ready_s[order] - (work_s - took_s[order]))
    arrived_s[order] = work_s + start_s + fixed_s
    return arrived_s

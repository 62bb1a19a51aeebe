"""Decide when a batch leaves and how large it is: greedy first, waiting only where waiting has been seen to pay.

Symbols: a batch of `x` (items, or their total size) takes `s(x) = base + slope * x` seconds, learned from the runs seen. With
such an `s` a fixed window is never better than greedy on latency for independent arrivals (Inoue, "Queueing analysis of
GPU-based inference servers with dynamic batching", arXiv 1912.06322). Waiting pays where arrivals come in clumps: clients
that return just after their answers (a closed loop splits into two cohorts under greedy), or a caller that fans out. The first
are told from independent arrivals by their number, which follows the number answered, and by how early they come
(`returning_frac`); the second by how far arrivals concentrate after the first (`excess_frac`).

Everything here is scalars and NamedTuples, so that a replay can compile the very functions that the runtime calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

MEMORY = 1 / 32
"""Weight of the newest run or cycle in the moving averages: about the last 32 count."""
SEEN_ENOUGH = 8
"""Runs or cycles to see before anything is believed."""
SPREAD_ENOUGH = 0.01
"""Smallest squared coefficient of variation of batch sizes at which a slope is read off them (10 % apart)."""
OUTLIER = 4.0
"""A run longer than this many times its prediction (a first compilation, a paused host) counts as this many; while little has
been seen, one shorter by as much shows that what came before was warming up, and replaces it."""
PROBE_IDLE = 4.0
"""Where a deadline cannot be met, the request is refused unless nothing has run for this many times the predicted run: then it
goes as a probe, since the prediction may have become wrong and nothing else would show it. At most 1 / 5 of the device's time
goes to probes that come too late."""
HORIZON_FRAC = 0.6
"""Arrivals within this share of `base` after a first arrival count as its burst."""
EXCESS_FRAC = 0.35
"""Least share of arrivals in bursts at which waiting is considered; independent arrivals stay near 0."""
PAYS_FRAC = 0.9
"""Returns are waited for where they take at most this share of what one batch less saves: at more, the gain is in the noise."""
SURE_CYCLES = 32
"""Cycles to see before returns are told from independent arrivals."""
MATCHED_FRAC = 0.75
"""Least agreement between the numbers answered and returned. Independent arrivals have 0 on average; a mean over about 31
cycles comes this high by chance in 1 of 100,000 (a chi-squared variable of 31 degrees of freedom below 31 / 4)."""
EARLY_FRAC = 0.5
"""Least earliness of arrivals in their cycles. Independent arrivals have 0, with a deviation of at most
`sqrt(1 / (3 * 31)) = 0.1`: five of them."""
LATE_FRAC = 0.25
"""Returns that take this much longer than expected are no longer waited for, however steady they were."""
SHORTEST_BASE_S = 50e-6
"""Below this the fixed time of a batch is too small to save anything by waiting."""
FIRST_PATIENCE = 64
"""Full batches to run at a reduced cap before a larger one is tried again; doubles with each relapse."""
LONGEST_PATIENCE = 1 << 20


class BatchRule(NamedTuple):
    """What a person sets; the defaults are greedy with learned waits."""

    max_batch: int = 64
    min_batch: int = 1
    """Below this many items the batch waits, but no longer than `window_s`."""
    window_s: float = 0.0
    target_s: float = inf
    """Latency target of a request: no wait is begun that would break it."""
    learn: bool = True


class RunTime(NamedTuple):
    """Moving averages of batch size and run time, and the last slope that could be read off them."""

    runs: int = 0
    mean_size: float = 0.0
    mean_s: float = 0.0
    size_variance: float = 0.0
    covariance: float = 0.0
    slope_s: float = -1.0
    """Seconds per unit of size; negative while unknown."""
    last_frac: float = 1.0
    """The last run as a share of what was predicted for it."""


class Echo(NamedTuple):
    """How arrivals follow the first one after idleness."""

    cycles: int = 0
    share: float = 0.0
    """Arrivals within the horizon, per burst."""
    early: float = 0.0
    later: float = 0.0
    horizon_frac: float = 0.0
    """Share of the cycle that lies within the horizon: what independent arrivals would put there."""
    span_s: float = 0.0
    span_deviation_s: float = 0.0


class Returns(NamedTuple):
    """How arrivals follow an answered batch, in moving averages over the cycles between answers."""

    cycles: int = 0
    answered: float = 0.0
    arrived: float = 0.0
    mismatch: float = 0.0
    """Squared difference between the numbers answered and arrived."""
    prompt: float = 0.0
    """Arrivals so soon after the answer that waiting for them could pay."""
    place: float = 0.0
    """Sum of the arrivals' places in their cycle, from 0 at its begin to 1 at its end."""
    time: RunTime = RunTime()
    """Time from the answer to the last of so many prompt arrivals: in proportion to their number where one event loop serves
    them one after another."""
    deviation_s: float = 0.0
    """How far that time has lain from its prediction."""


class Learned(NamedTuple):
    """What a batcher has learned about its traffic."""

    returns: Returns = Returns()
    bursts: Echo = Echo()


class Cycle(NamedTuple):
    """A first arrival and what followed it until the next batch was answered."""

    early: int
    later: int
    span_s: float
    """Time from the event to its last early arrival."""
    length_s: float
    horizon_s: float


class Round(NamedTuple):
    """An answered batch and what arrived until the next one was answered."""

    answered: int
    arrived: int
    prompt: int
    """Arrivals within the time in which waiting for them could pay."""
    prompt_s: float
    """Time from the answer to the last of these."""
    place: float
    """Sum of the arrivals' places in the cycle, from 0 to 1."""


class Moment(NamedTuple):
    """What is seen at the instant of a decision: at least one item waits and a worker is idle."""

    waiting: int
    oldest_age_s: float
    answered: int
    """Items of the last answered batch; 0 when there was none."""
    since_answer_s: float
    returned: int
    """Arrivals since that answer."""
    first_age_s: float
    """Age of the arrival that ended idleness; infinite if the queue was not empty at the last answer."""
    followed: int
    """Arrivals after that one."""


class Decision(NamedTuple):
    """Dispatch now (`wait_s` 0), or wait until `wake_at` items wait or `wait_s` has passed."""

    wait_s: float
    wake_at: int


class Cap(NamedTuple):
    """The largest batch of one key that memory has allowed."""

    limit: int
    patience: int = FIRST_PATIENCE
    """Full batches to run before a larger one is tried."""
    successes: int = 0
    reduced: bool = False


GO = Decision(0.0, 1)


def observe_run(time: RunTime, size: float, run_s: float) -> RunTime:
    """Add one run of a batch of `size` to the learned run time."""
    predicted_s = run_time_s(time, size)
    if time.runs == 0 or (time.runs < SEEN_ENOUGH and run_s * OUTLIER < predicted_s):
        return RunTime(time.runs + 1, float(size), run_s, 0.0, 0.0, -1.0, 1.0)
    last_frac = run_s / predicted_s if predicted_s > 0 else 1.0
    if time.runs >= SEEN_ENOUGH:
        run_s = min(run_s, OUTLIER * predicted_s)
    weight = max(MEMORY, 1 / (time.runs + 1))
    size_step, time_step = size - time.mean_size, run_s - time.mean_s
    mean_size, mean_s = time.mean_size + weight * size_step, time.mean_s + weight * time_step
    variance = (1 - weight) * (time.size_variance + weight * size_step * size_step)
    covariance = (1 - weight) * (time.covariance + weight * size_step * time_step)
    slope_s = time.slope_s
    if variance > SPREAD_ENOUGH * mean_size * mean_size:
        slope_s = max(0.0, min(covariance / variance, mean_s / mean_size))
    return RunTime(time.runs + 1, mean_size, mean_s, variance, covariance, slope_s, last_frac)


def base_s(time: RunTime) -> float:
    """Return the fixed time of a batch; 0 while it cannot be told from the time per item."""
    if time.slope_s < 0 or time.runs < SEEN_ENOUGH:
        return 0.0
    return max(0.0, time.mean_s - time.slope_s * time.mean_size)


def run_time_s(time: RunTime, size: float) -> float:
    """Predict the run time of a batch of `size`; 0 before the first run."""
    if time.slope_s < 0:
        return time.mean_s
    return max(0.0, time.mean_s + time.slope_s * (size - time.mean_size))


def refusal_s(time: RunTime, size: float, idle_s: float) -> float:
    """Return the run time by which to judge that a deadline cannot be met; 0 if nothing but its passing refuses a request.

    `idle_s` is the time since a batch of this kind last ran. Refusing needs more certainty than planning, since what is refused
    teaches nothing: with few observations nothing is rejected; one run at the old speed ends a slow phase; and after a rest
    one batch goes through as a probe.
    """
    predicted_s = run_time_s(time, size)
    if time.runs < SEEN_ENOUGH or idle_s > PROBE_IDLE * predicted_s:
        return 0.0
    return predicted_s * min(1.0, time.last_frac)


def saving_s(time: RunTime) -> float:
    """Return the device time that one batch less saves; 0 while waiting could not pay.

    While all batches have had one size, nothing shows how much of their time is fixed: all of it is assumed to be, since a
    batch that is waited for then has another size and shows it.
    """
    if time.runs < SEEN_ENOUGH:
        return 0.0
    saved_s = time.mean_s if time.slope_s < 0 else base_s(time)
    return saved_s if saved_s > SHORTEST_BASE_S else 0.0


def observe_cycle(echo: Echo, cycle: Cycle) -> Echo:
    """Add one event and its arrivals to an echo."""
    weight = max(MEMORY * 2, 1 / (echo.cycles + 1))
    inside = min(1.0, cycle.horizon_s / cycle.length_s) if cycle.length_s > 0 else 1.0
    span_s, deviation_s = echo.span_s, echo.span_deviation_s
    if cycle.early:
        deviation_s += weight * (abs(cycle.span_s - span_s) - deviation_s)
        span_s += weight * (cycle.span_s - span_s)
    return Echo(
        echo.cycles + 1,
        echo.share + weight * (cycle.early - echo.share),
        echo.early + weight * (cycle.early - echo.early),
        echo.later + weight * (cycle.later - echo.later),
        echo.horizon_frac + weight * (inside - echo.horizon_frac),
        span_s,
        deviation_s,
    )


def cycle_of(arrivals: Sequence[float], first_s: float, horizon: float, now_s: float) -> Cycle:
    """Return what followed a first arrival: `arrivals` are sorted and lie between it and now."""
    early = bisect_right(arrivals, first_s + horizon)
    span_s = arrivals[early - 1] - first_s if early else 0.0
    return Cycle(early, len(arrivals) - early, span_s, now_s - first_s, horizon)


def round_of(arrivals: Sequence[float], answered: int, answered_s: float, saved_s: float, now_s: float) -> Round:
    """Return what followed an answer until now; where a batch less saves `saved_s`, only sooner arrivals are worth a wait."""
    prompt = min(answered, bisect_right(arrivals, answered_s + saved_s))
    prompt_s = arrivals[prompt - 1] - answered_s if prompt else 0.0
    length_s = now_s - answered_s
    place = (sum(arrivals) - len(arrivals) * answered_s) / length_s if length_s > 0 else 0.0
    return Round(answered, len(arrivals), prompt, prompt_s, place)


def observe_returns(returns: Returns, seen: Round) -> Returns:
    """Add one answered batch and what followed it."""
    weight = max(MEMORY * 2, 1 / (returns.cycles + 1))
    difference = seen.arrived - seen.answered
    time, deviation_s = returns.time, returns.deviation_s
    if seen.prompt:
        expected_s = run_time_s(time, seen.prompt)
        error_s = min(abs(seen.prompt_s - expected_s), expected_s) if time.runs else 0.0
        deviation_s += weight * (error_s - deviation_s)
        time = observe_run(time, seen.prompt, seen.prompt_s)
    return Returns(
        returns.cycles + 1,
        returns.answered + weight * (seen.answered - returns.answered),
        returns.arrived + weight * (seen.arrived - returns.arrived),
        returns.mismatch + weight * (difference * difference - returns.mismatch),
        returns.prompt + weight * (seen.prompt - returns.prompt),
        returns.place + weight * (seen.place - returns.place),
        time,
        deviation_s,
    )


def learn(
    learned: Learned,
    arrivals: Sequence[float],
    *,
    answered: int,
    answered_s: float,
    idle: bool,
    saved_s: float,
    now_s: float,
) -> Learned:
    """Learn from a cycle that ends now: it began with `answered` items, and with an empty queue where `idle`."""
    if saved_s <= 0 or not answered:
        return learned
    returns = observe_returns(learned.returns, round_of(arrivals, answered, answered_s, saved_s, now_s))
    bursts = learned.bursts
    if idle and arrivals:
        bursts = observe_cycle(bursts, cycle_of(arrivals[1:], arrivals[0], HORIZON_FRAC * saved_s, now_s))
    return Learned(returns, bursts)


def moment_of(
    arrivals: Sequence[float],
    *,
    waiting: int,
    oldest_s: float,
    answered: int,
    answered_s: float,
    idle: bool,
    now_s: float,
) -> Moment:
    """Return what is seen now: `arrivals` are those since the last answer, after which the queue was empty where `idle`."""
    alone = idle and bool(arrivals)
    return Moment(
        waiting,
        now_s - oldest_s,
        answered,
        now_s - answered_s,
        len(arrivals),
        now_s - arrivals[0] if alone else inf,
        len(arrivals) - 1 if alone else 0,
    )


def excess_frac(echo: Echo) -> float:
    """Return the share of arrivals that come in bursts; about 0 for independent arrivals.

    Independent arrivals put a share `horizon_frac` of themselves within the horizon; what is above that, scaled to 1.
    """
    arrivals = echo.early + echo.later
    if echo.cycles < SEEN_ENOUGH or arrivals <= 0 or echo.horizon_frac >= 1:
        return 0.0
    return max(0.0, (echo.early / arrivals - echo.horizon_frac) / (1 - echo.horizon_frac))


def returning_frac(returns: Returns) -> float:
    """Return the share of arrivals that are answered clients coming back; 0 if it cannot be told from independent arrivals.

    As many come back as were answered, whereas the difference of two independent numbers has the sum of their means as its
    mean square (less one each: a batch has at least one item, and a cycle that began idle at least one arrival). They come back
    early, whereas independent arrivals lie in the middle of their cycle on average. Either shows it: the first where one event
    loop spreads the returns over a cycle, the second where they are few or others arrive in between.
    """
    if returns.cycles < SURE_CYCLES or returns.arrived <= 0:
        return 0.0
    by_chance = returns.answered + returns.arrived - 2
    matched = 1 - returns.mismatch / by_chance if by_chance >= 1 else 0.0
    earliness = 1 - 2 * returns.place / returns.arrived
    return max(matched if matched >= MATCHED_FRAC else 0.0, earliness if earliness >= EARLY_FRAC else 0.0)


def clumps(learned: Learned) -> bool:
    """Say whether waiting has come into question at all; where not, `decide` never waits but by the window."""
    return returning_frac(learned.returns) > 0 or excess_frac(learned.bursts) >= EXCESS_FRAC


def returns_wait(rule: BatchRule, time: RunTime, returns: Returns, moment: Moment) -> Decision:
    """Decide whether to wait for clients that have just been answered.

    Two cohorts take `s(n) + s(k)` a round, one takes `s(n + k)` plus the return of all: waiting pays while that is shorter
    than what one batch less saves, weighed by the share of the traffic that comes back, and of the returns that have room.
    """
    share = returning_frac(returns)
    if share <= 0 or moment.answered == 0:
        return GO
    prompt = moment.answered * returns.prompt / returns.answered
    more = prompt - moment.returned
    joined = min(rule.max_batch - moment.waiting, int(more + 0.5))
    if joined < 1:
        return GO
    expected_s = run_time_s(returns.time, prompt)
    cohort = min(rule.max_batch, moment.waiting + joined)
    pays_s = PAYS_FRAC * share * saving_s(time) * joined / (moment.answered - moment.returned)
    if max(expected_s - moment.since_answer_s, run_time_s(returns.time, cohort)) > pays_s:
        return GO
    late_s = expected_s + max(3 * returns.deviation_s, LATE_FRAC * expected_s)
    left_s = min(late_s, saving_s(time)) - moment.since_answer_s
    return Decision(left_s, moment.waiting + joined) if left_s > 0 else GO


def burst_wait(rule: BatchRule, time: RunTime, echo: Echo, moment: Moment) -> Decision:
    """Decide whether to wait for the rest of a burst whose first item has just come.

    `k` more within `w` gain `base - w` each; the `n` already waiting lose `w + slope * k` each.
    """
    if excess_frac(echo) < EXCESS_FRAC or moment.first_age_s == inf:
        return GO
    left_s = echo.span_s + 3 * echo.span_deviation_s - moment.first_age_s
    room = min(rule.max_batch - moment.waiting, int(echo.share - moment.followed + 0.5))
    gain_s = room * (base_s(time) - left_s) - moment.waiting * (left_s + max(0.0, time.slope_s) * room)
    if left_s <= 0 or room < 1 or gain_s <= 0:
        return GO
    return Decision(left_s, moment.waiting + room)


def within_target(rule: BatchRule, time: RunTime, moment: Moment, decision: Decision) -> Decision:
    """Shorten a wait so that the oldest item still meets the latency target."""
    spare_s = rule.target_s - moment.oldest_age_s - run_time_s(time, decision.wake_at)
    if spare_s <= 0:
        return GO
    return Decision(min(decision.wait_s, spare_s), decision.wake_at)


def decide(rule: BatchRule, time: RunTime, learned: Learned, moment: Moment) -> Decision:
    """Decide whether the waiting items leave now or wait, and until when."""
    if moment.waiting >= rule.max_batch:
        return GO
    decision = GO
    if moment.waiting < rule.min_batch and moment.oldest_age_s < rule.window_s:
        decision = Decision(rule.window_s - moment.oldest_age_s, min(rule.min_batch, rule.max_batch))
    elif rule.learn:
        decision = returns_wait(rule, time, learned.returns, moment)
        if decision.wait_s <= 0:
            decision = burst_wait(rule, time, learned.bursts, moment)
    return within_target(rule, time, moment, decision) if decision.wait_s > 0 else GO


def observe_oom(cap: Cap, batch: int) -> Cap:
    """Halve the cap after a batch that did not fit into memory; each relapse doubles the patience."""
    patience = min(LONGEST_PATIENCE, cap.patience * 2) if cap.reduced else cap.patience
    return Cap(max(1, min(cap.limit, batch) // 2), patience, 0, True)


def observe_fit(cap: Cap, batch: int, max_batch: int) -> Cap:
    """Count a batch that fitted; after enough full ones try twice the cap, since what ran out may have been passing."""
    if not cap.reduced or batch < cap.limit:
        return cap
    if cap.successes + 1 < cap.patience:
        return Cap(cap.limit, cap.patience, cap.successes + 1, True)
    limit = min(max_batch, cap.limit * 2)
    return Cap(limit, cap.patience, 0, True)


def window_exceeds(rule: BatchRule, time: RunTime) -> bool:
    """Say whether the window is longer than the mean run, so that requests wait longer than they run.

    With a latency target that is a choice: waits end in time for it, and larger batches spare the device.
    """
    return rule.target_s == inf and time.runs >= SEEN_ENOUGH and rule.window_s > time.mean_s

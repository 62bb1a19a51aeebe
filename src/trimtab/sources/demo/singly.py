"""Replicas that take one request at a time: each request is played, and the minutes are then observed.

Requests go to replicas in turn (round robin), so each replica is a first-come queue of its own and Lindley's recursion has a
closed form: `finish = cumsum(service) + cummax(arrival - cumsum(service before it))`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.sources.demo.services import LATENCY_LE_S, Served
from trimtab.sources.demo.shapes import Floats
from trimtab.units import S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Requests in order of arrival: seconds from the start of the window, and the replica that took each."""

    arrival_s: Floats
    start_s: Floats
    finish_s: Floats
    replicas: int


def play(expected: Floats, mean_s: float, sigma: float, replicas: int, rng: np.random.Generator) -> Played:
    """Draw requests around an expectation per minute and serve them singly; service times are lognormal."""
    counts = rng.poisson(expected)
    minute = np.repeat(np.arange(len(expected)), counts)
    arrival_s = np.sort(minute * S_PER_MIN + rng.random(len(minute)) * S_PER_MIN)
    service_s = rng.lognormal(np.log(mean_s) - sigma**2 / 2, sigma, len(arrival_s))
    finish_s = np.empty_like(arrival_s)
    for replica in range(replicas):
        mine = slice(replica, None, replicas)
        finish_s[mine] = finish_times(arrival_s[mine], service_s[mine])
    return Played(arrival_s=arrival_s, start_s=finish_s - service_s, finish_s=finish_s, replicas=replicas)


def finish_times(arrival_s: Floats, service_s: Floats) -> Floats:
    """Return when a single server finishes each request, first come first served."""
    total = np.cumsum(service_s)
    return np.asarray(total + np.maximum.accumulate(arrival_s - (total - service_s)))


def busy_frac(played: Played, n_minutes: int) -> Floats:
    """Return the share of each minute in which each replica works, shape `(replicas, n_minutes)`."""
    parts = [slice(replica, None, played.replicas) for replica in range(played.replicas)]
    return np.stack([mean_open(played.start_s[part], played.finish_s[part], n_minutes) for part in parts])


def observe(played: Played, n_minutes: int, input_tokens: float, output_tokens: float) -> Served:
    """Return what a metrics server would have counted, minute by minute; an answer counts where it was given."""
    done = played.finish_s < n_minutes * S_PER_MIN
    finish_minute = (played.finish_s[done] // S_PER_MIN).astype(np.int64)
    latency_s = played.finish_s[done] - played.arrival_s[done]
    bucket = np.searchsorted(LATENCY_LE_S, latency_s)
    width = len(LATENCY_LE_S)
    counts = np.bincount(finish_minute * width + bucket, minlength=n_minutes * width)
    running = mean_open(played.start_s, played.finish_s, n_minutes)
    arrivals = np.bincount((played.arrival_s // S_PER_MIN).astype(np.int64), minlength=n_minutes)
    columns = {
        "arrivals": arrivals.astype(np.float64),
        "completed": np.bincount(finish_minute, minlength=n_minutes).astype(np.float64),
        "failed": np.zeros(n_minutes),
        "running_mean": np.round(running, 4),
        "waiting_mean": np.round(mean_open(played.arrival_s, played.start_s, n_minutes), 4),
        "replicas_ready": np.full(n_minutes, float(played.replicas)),
        "input_tokens_mean": np.where(arrivals > 0, input_tokens, np.nan),
        "output_tokens_mean": np.where(arrivals > 0, output_tokens, np.nan),
    }
    return Served(
        columns=columns,
        latency_count=counts.reshape(n_minutes, width).astype(np.float64),
        ttft_count=None,
        rho=running / played.replicas,
    )


def mean_open(from_s: Floats, to_s: Floats, n_minutes: int) -> Floats:
    """Return how many of the intervals `[from, to)` are open in each minute, on average."""
    total = np.zeros(n_minutes)
    at, to = from_s, np.minimum(to_s, n_minutes * S_PER_MIN)
    while len(at):
        minute = (at // S_PER_MIN).astype(np.int64)
        until = np.minimum(to, (minute + 1) * S_PER_MIN)
        inside = until > at
        total += np.bincount(minute[inside], weights=(until - at)[inside], minlength=n_minutes)
        left = until < to
        at, to = until[left], to[left]
    return np.asarray(total / S_PER_MIN)

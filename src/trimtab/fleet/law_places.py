"""What a replica serves with every place taken that its owner declares, from how times rose with the requests in work.

A batching server takes longer for each request the more it has in work, in proportion: a step's time is linear in its batch
(Orca, OSDI 2022; vLLM, SOSP 2023). So R(n) = a + b n is fitted on history's hours, n the requests in work of a replica and R
their time in work by Little's law, and a replica with all K places taken serves K / R(K).

A line says nothing of what lies beyond it. It is believed only where it foretold the busiest hours from the calmer ones, and no
further than `REACH` times the highest load shown; not at all where requests waited while places were free, or where more were
in work than the places declared: something else is full first, or the declaration is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.fleet.law_evidence import FEWEST_STEPS, served_req
from trimtab.fleet.model import FloatArray, ServiceObservation
from trimtab.units import S_PER_HR

REACH = 1.25
"""A plan may take a replica to serve so many times the highest load shown, so that rules, at 80 % of it, run none hotter. A
judgement: limits that neither time in work nor places tell of (a pool of threads, a lock) are found by a load test only. With
1.5, fresh worlds with such limits had 90 % in time of the 95 % claimed (`benchmarks.proving`, `knee-at-sixty`)."""
_HELD_OUT_FRAC = 0.2
_LEAST_RANGE = 1.3
"""Requests in work must differ by so much between calm hours and busy ones, or there is no slope to fit."""
_ERROR_FRAC = 0.05
"""The line must foretell the time in work of the hours held out within this."""
_WAITING_FRAC = 0.02
"""Requests that wait, over those in work, in hours that leave a fifth of the places free: more is no chance."""
_FREE_FRAC = 0.8
_Z_90 = 1.2816
"""Normal quantile: the slope is taken at the upper end of its 80 % interval."""
_OVER = 1.05
"""Readings of requests in work are so exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInWork:
    """The line R(n) = `alone_s` + `each_s` n, and how far it was off on the busiest hours, fitted on the others."""

    alone_s: float
    each_s: float
    """At the upper end of its interval; at least 0."""
    error_frac: float

    def req_s(self, places: int) -> float:
        """Return what a replica serves with so many requests in work."""
        return places / (self.alone_s + self.each_s * places)


def time_in_work(service: ServiceObservation) -> TimeInWork | str:
    """Fit how the time in work rises with the requests in work of a replica, by the hour; or say why that is untold."""
    each, spent_s, requests, _ = _hourly(service)
    if len(each) * _HELD_OUT_FRAC < FEWEST_STEPS:
        return "too few hours with requests in work"
    busy = each > np.quantile(each, 1 - _HELD_OUT_FRAC)
    if np.quantile(each, 0.95) < _LEAST_RANGE * np.quantile(each, 0.05):
        return "as many requests were in work at all times"
    alone_s, each_s, _ = _line(each[~busy], spent_s[~busy], requests[~busy])
    foretold_s = alone_s + each_s * each[busy]
    error = float(
        np.average(spent_s[busy], weights=requests[busy]) / np.average(foretold_s, weights=requests[busy]) - 1
    )
    alone_s, each_s, doubt_s = _line(each, spent_s, requests)
    upper_s = max(0.0, each_s + _Z_90 * doubt_s)
    # the line turns about the middle of what was seen
    middle = float(np.average(each, weights=requests))
    return TimeInWork(alone_s=max(0.0, alone_s + (each_s - upper_s) * middle), each_s=upper_s, error_frac=error)


def served_with_places(
    service: ServiceObservation, places: int, shown_req_s: float, trust_frac: float = 1.0
) -> float | str:
    """Return what a replica serves at most with the places declared, in requests/s; a reason where that is not to be believed.

    `trust_frac` is the share of the way to `REACH` that the law's back-test allows.
    """
    if not service.waiting.size:
        return "requests that wait were not measured"
    each, _, _, waiting = _hourly(service)
    if len(each) and float(each.max()) > _OVER * places:
        return f"up to {each.max():.1f} requests were in work of a replica, and max_concurrency is {places}"
    free = each <= _FREE_FRAC * places
    if waiting[free].sum() > _WAITING_FRAC * each[free].sum():
        return "requests waited while places were free"
    line = time_in_work(service)
    if isinstance(line, str):
        return line
    if line.error_frac > _ERROR_FRAC:
        return f"busy hours took {line.error_frac:.0%} longer than foretold from calm ones"
    return min(line.req_s(places), (1.0 + (REACH - 1.0) * trust_frac) * shown_req_s)


def _hourly(service: ServiceObservation) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return by hour (n_hours,): requests in work of a replica, their time in work, requests, and those waiting of a replica.

    Hours with gaps, without replicas or without requests are left out.
    """
    per_hour = max(1, round(S_PER_HR / service.step_s))
    whole = len(service.arrivals) // per_hour * per_hour
    waiting = service.waiting if service.waiting.size else np.zeros_like(service.running)

    def summed(values: FloatArray) -> FloatArray:
        return np.asarray(values[:whole].reshape(-1, per_hour).sum(axis=1), dtype=np.float64)

    running, ready, served = summed(service.running), summed(service.replicas), summed(served_req(service))
    arrived, waited = summed(service.arrivals), summed(waiting)
    known = (
        np.isfinite(running) & np.isfinite(arrived) & np.isfinite(waited) & (ready > 0) & (served > 0) & (running > 0)
    )
    running, ready, served = running[known], ready[known], served[known]
    return running / ready, running * service.step_s / served, served, waited[known] / ready


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float, float]:
    """Return the weighted least-squares line: its value at 0, its slope, and the slope's standard error."""
    share = weight / weight.sum()
    mean_x, mean_y = float((share * x).sum()), float((share * y).sum())
    spread = float((share * (x - mean_x) ** 2).sum())
    if spread <= 0:
        return mean_y, 0.0, 0.0
    slope = float((share * (x - mean_x) * (y - mean_y)).sum()) / spread
    left = y - mean_y - slope * (x - mean_x)
    variance = float((share * left**2).sum()) / max(len(x) - 2, 1)
    return mean_y - slope * mean_x, slope, float(np.sqrt(variance / spread))

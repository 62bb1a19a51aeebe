"""Runs as a window would have had them, had none waited: where nodes start for each run, a plan has to pay for all of them.

History shows of a run that queued only what it did by the window's end, and of one that never started nothing at all. How long
they would have gone on is expected from the lengths of the workload's runs by the product-limit estimate, in which runs that
the window's end cut count for as long as they were seen (Kaplan and Meier, "Nonparametric Estimation from Incomplete
Observations", Journal of the American Statistical Association 53, 1958).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.fleet.model import Flags, FloatArray, IntArray, JobsObservation, Window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunLengths:
    """How long runs last: at each of `at_s` (n,), ascending from 0, which share `longer_frac` (n,) of runs goes on."""

    at_s: FloatArray
    longer_frac: FloatArray

    def expected_s(self, age_s: FloatArray, within_s: FloatArray) -> FloatArray:
        """Return how much longer runs of these ages are expected to last (n_runs,), counted up to `within_s` from now.

        Beyond the longest run that was seen to end as many go on as did then.
        """
        going_frac = self.longer_frac[np.maximum(np.searchsorted(self.at_s, age_s, side="left") - 1, 0)]
        return np.asarray((self._mean_s(age_s + within_s) - self._mean_s(age_s)) / going_frac)

    def _mean_s(self, until_s: FloatArray) -> FloatArray:
        """Return the mean length of runs, where each counts up to so long (n_runs,)."""
        whole_s = np.append(0.0, np.cumsum(np.diff(self.at_s) * self.longer_frac[:-1]))
        at = np.searchsorted(self.at_s, until_s, side="right") - 1
        return np.asarray(whole_s[at] + (until_s - self.at_s[at]) * self.longer_frac[at])


def run_lengths(ran_s: FloatArray, ended: Flags) -> RunLengths:
    """Return how long runs last, of runs (n_runs,) that were seen for `ran_s`; those that did not end go on from there."""
    ends_s, count = np.unique(ran_s[ended], return_counts=True)
    # seen for at least as long as each that ended
    at_risk = len(ran_s) - np.searchsorted(np.sort(ran_s), ends_s, side="left")
    return RunLengths(at_s=np.append(0.0, ends_s), longer_frac=np.append(1.0, np.cumprod(1.0 - count / at_risk)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingRuns:
    """Runs (n_runs,) that were submitted by the window's end and had not started by then."""

    submit_s: FloatArray
    gpus: FloatArray
    pods: IntArray


def as_if_none_waited(
    observed: JobsObservation, waiting: WaitingRuns, lengths: RunLengths, window: Window
) -> JobsObservation | None:
    """Return the runs, each from its submission or the window's start on; None where none waited."""
    asked_s, waited_s = np.maximum(observed.submit_s, 0.0), np.maximum(waiting.submit_s, 0.0)
    queued_s = observed.start_s - asked_s
    if not queued_s.any() and not len(waited_s):
        return None
    ran_s = observed.end_s - observed.start_s
    # those that ended did what they had to do, and those that began before the window did not queue in it
    goes_on_s = np.where(observed.end_s >= window.seconds, lengths.expected_s(ran_s, queued_s), 0.0)
    lasts_s = lengths.expected_s(np.zeros(len(waited_s)), window.seconds - waited_s)
    begin_s = np.concatenate([asked_s, waited_s])
    end_s = np.concatenate([asked_s + ran_s + goes_on_s, waited_s + lasts_s])
    every = replace(
        observed,
        submit_s=begin_s,
        start_s=begin_s,
        end_s=end_s,
        gpus=np.concatenate([observed.gpus, waiting.gpus]),
        pods=np.concatenate([observed.pods, waiting.pods]),
        cut=np.concatenate([observed.cut, np.ones(len(waited_s), dtype=np.bool_)]),
        gpu=observed.gpu + ("",) * (len(waited_s) if observed.gpu else 0),
    )
    # of equals, those that ran come before those that did not
    return every.part(np.argsort(begin_s, kind="stable"))

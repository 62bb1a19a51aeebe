"""Jobs: a first-come queue in front of a pool of nodes, and runs that follow a calendar."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from trimtab.sources.demo.demand import MIN_PER_DAY, Floats, Span, growth, weekend
from trimtab.units import S_PER_HR, S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How a run saves its state."""

    interval_s: float
    save_s: float
    restore_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Experiments of one team: how many, how long, when they are submitted, and what they really use."""

    workload: str
    team: str
    jobs_per_weekday: float
    weekend_frac: float
    office_hours_utc: tuple[int, int]
    office_share: float
    median_hr: float
    sigma: float
    failed_frac: float
    gpus_requested: int
    gpus_used: int
    sm_frac: tuple[float, float]
    memory_gib: tuple[float, float]
    steps_per_s: float
    checkpoints: Checkpoints | None
    tensor_of_sm: float = 0.25
    dram_of_sm: float = 0.65
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: seconds from the start of the window; `start_s`/`end_s` are None where that lies beyond its end."""

    name: str
    job_class: JobClass
    submit_s: int
    start_s: int | None
    end_s: int | None
    duration_s: int
    failed: bool
    node: int | None
    sm_frac: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class _Submission:
    submit_s: int
    job_class: JobClass
    duration_s: int
    failed: bool


def submissions_per_min(job_class: JobClass, span: Span, growth_frac: float) -> Floats:
    """Return the expected submissions of each minute: most in office hours, few at night, fewer on weekends."""
    minute = np.arange(span.minutes)
    hour = (minute % MIN_PER_DAY) * S_PER_MIN // S_PER_HR
    first, last = job_class.office_hours_utc
    office = (hour >= first) & (hour < last)
    share = np.where(office, job_class.office_share / office[:MIN_PER_DAY].sum(), 0.0)
    share += np.where(office, 0.0, (1 - job_class.office_share) / (~office[:MIN_PER_DAY]).sum())
    day = np.where(weekend(span), job_class.weekend_frac, 1.0) * job_class.jobs_per_weekday
    return np.asarray(share * day * growth(growth_frac, span))


def queue(
    classes: tuple[JobClass, ...], n_nodes: int, span: Span, growth_frac: float, rng: np.random.Generator
) -> list[Run]:
    """Draw the submissions of all classes and run them first come, first served, one job a node."""
    end_s = span.minutes * S_PER_MIN
    free = [(0, node) for node in range(n_nodes)]
    runs = []
    for index, job in enumerate(_submissions(classes, span, growth_frac, rng)):
        ready_s, node = heapq.heappop(free)
        start_s = max(ready_s, job.submit_s)
        heapq.heappush(free, (start_s + job.duration_s, node))
        started, ended = start_s < end_s, start_s + job.duration_s <= end_s
        runs.append(
            Run(
                name=f"{job.job_class.workload.split('/')[1]}-{index:04d}",
                job_class=job.job_class,
                submit_s=job.submit_s,
                start_s=start_s if started else None,
                end_s=start_s + job.duration_s if ended else None,
                duration_s=job.duration_s,
                failed=job.failed,
                node=node if started else None,
                sm_frac=float(rng.uniform(*job.job_class.sm_frac)),
                memory_gib=float(rng.uniform(*job.job_class.memory_gib)),
            )
        )
    return runs


def _submissions(
    classes: tuple[JobClass, ...], span: Span, growth_frac: float, rng: np.random.Generator
) -> list[_Submission]:
    """Draw every job that is submitted in the span, in order of submission."""
    drawn = []
    for job_class in classes:
        counts = rng.poisson(submissions_per_min(job_class, span, growth_frac))
        minutes = np.repeat(np.arange(span.minutes), counts)
        submit_s = minutes * S_PER_MIN + rng.integers(S_PER_MIN, size=len(minutes))
        hours = rng.lognormal(np.log(job_class.median_hr), job_class.sigma, len(minutes))
        failed = rng.random(len(minutes)) < job_class.failed_frac
        hours = np.where(failed, hours * rng.uniform(0.02, 0.5, len(minutes)), hours)
        durations = np.maximum(hours * S_PER_HR, 2 * S_PER_MIN).astype(np.int64)
        drawn += [
            _Submission(int(s), job_class, int(d), bool(f)) for s, d, f in zip(submit_s, durations, failed, strict=True)
        ]
    return sorted(drawn, key=lambda job: (job.submit_s, job.job_class.workload))

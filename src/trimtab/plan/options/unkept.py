"""Declared targets that a workload misses today and that nothing on offer keeps: what stays as it is for their sake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.replay.outcomes.service_outcome import baseline_attained


def unkept(options: Sequence[WorkloadOptions | None]) -> Iterator[str]:
    """Say of each workload that no option keeps a declared target which history missed as well."""
    for one in options:
        if one is None or one.candidates or not one.missed:
            continue
        case = one.evaluator.case
        for target in case.targets:
            had = baseline_attained(case, target)
            if target.declared and had is not None and had < target.required_frac:
                yield (
                    f"{case.workload.name} declares {target.metric.value} <= {target.limit_s:.3g} s for "
                    f"{target.required_frac:.0%} of requests; history kept that for {had:.1%}, and none of the "
                    f"{one.considered:,} options keeps it: left as it is. Loosen the target, or measure in finer buckets"
                )

"""The page that puts batching in front of a model: the batcher's line, or the flags of a continuous-batching engine."""

from __future__ import annotations

from typing import assert_never

from trimtab.emit.manifests.facts import EmitFacts
from trimtab.fleet.effects import BatchForm, SetBatchPolicy, SetPrecision, UseOffering, UseSlots
from trimtab.plan.model import Action
from trimtab.replay.batched_law import carried_curve
from trimtab.replay.batches import BatchCurve


def batch_curve(
    policy: SetBatchPolicy, size: UseOffering | UseSlots | None, precision: SetPrecision | None
) -> BatchCurve:
    """Return the batch times on the GPU that the workload will run on, its own or the one it moves to, in its format there."""
    speed, work_speed = (1.0, 1.0) if size is None else (size.speed.value, (size.work_speed or size.speed).value)
    if precision is not None:
        alone, further = precision.speed, precision.work_speed
        if size is not None:
            alone, further = precision.speed_there, precision.work_speed_there
        speed *= alone.value
        work_speed *= 1.0 if further is None else further.value
    return carried_curve(policy, speed, work_speed)


def batching_page(
    action: Action,
    subject: str,
    policy: SetBatchPolicy,
    size: UseOffering | UseSlots | None,
    precision: SetPrecision | None,
    facts: EmitFacts,
) -> str:
    """Return the page as Markdown: what to write, what to expect of it, and how to see that it holds."""
    curve = batch_curve(policy, size, precision)
    times = "\n".join(
        f"| {one} | {second_s:.3g} | {one / second_s:.3g} |"
        for one, second_s in zip(curve.sizes, curve.seconds, strict=True)
        if one <= policy.max_batch
    )
    changed = [] if size is None else [f"on {size.gpu}"]
    changed += [] if precision is None else [f"in {precision.after.value}"]
    where = f" {' '.join(changed)} (carried over from how it runs now: measure them there first)" if changed else ""
    replicas = "" if policy.replicas is None else f"\nReplicas: {policy.replicas} in place of {policy.before}.\n"
    return f"""# {action.id}: {subject} serves up to {policy.max_batch} requests at once

{_how(policy, _target_s(subject, facts))}
{replicas}
## Batch times that the plan rests on{where}

| batch | seconds | requests a second |
|---|---|---|
{times}

## Check

1. Put it on one replica. Its batches must take the seconds above, within 15 %.
2. Send it a quarter, then all of one replica's traffic through a peak; watch p95 against the target.
3. Only then lower the number of replicas, one at a time: the Component under `workloads/` holds the number to end at.

Undo: {action.rollback}.
"""


def _target_s(subject: str, facts: EmitFacts) -> float | None:
    known = facts.workload(subject)
    targets = known.service.targets if known is not None and known.service is not None else ()
    return min((target.limit_s for target in targets if target.limit_s is not None), default=None)


def _how(policy: SetBatchPolicy, target_s: float | None) -> str:
    target = "" if target_s is None else f", target_s={target_s:g}"
    match policy.form:
        case BatchForm.CONTINUOUS:
            return f"""Replace the server by one that batches continuously:

```sh
vllm serve {policy.model or "MODEL"} --max-num-seqs {policy.max_batch}
```"""
        case BatchForm.GREEDY:
            return _decorated(f"max_batch={policy.max_batch}{target}")
        case BatchForm.FIXED | BatchForm.TARGET:
            window = f", min_batch={policy.max_batch}, window_s={policy.window_s:.4g}"
            return _decorated(f"max_batch={policy.max_batch}{window}{target}")
        case _:
            assert_never(policy.form)


def _decorated(options: str) -> str:
    return f"""Let the model's function take a list, and put the batcher in front of it (`pip install --no-deps trimtab`):

```python
import trimtab


@trimtab.batch({options})
def infer(requests: list) -> list:
    return model(requests)  # one result per request, in order
```

The handler then awaits `infer(request)` in place of calling the model."""

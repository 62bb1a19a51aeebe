"""The page that puts batching in front of a model: the batcher's line, or the flags of a continuous-batching engine."""

from __future__ import annotations

from typing import assert_never

from trimtab.deployment.effects import BatchForm, SetBatchPolicy
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.plan.model import Action


def batching_page(
    action: Action,
    subject: str,
    policy: SetBatchPolicy,
    placed: PlacedWorkload | None,
    facts: EmitFacts,
) -> str:
    """Return the page as Markdown: what to write, what to expect of it, and how to see that it holds.

    `placed` is the workload where it will run; None where its present nodes are not known: then it is taken to stay there.
    """
    place = None if placed is None else placed.place
    curve = (None if place is None else place.batch_curve()) or policy.curve
    times = "\n".join(
        f"| {size} | {second_s:.3g} | {size / second_s:.3g} |"
        for size, second_s in zip(curve.sizes, curve.seconds, strict=True)
        if size <= policy.max_batch
    )
    changed = [f"on {place.gpu}"] if place is not None and place.leaves else []
    changed += [f"in {place.precision.after.value}"] if place is not None and place.precision is not None else []
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
    return f"""Let the model's function take a list, and put the batcher in front of it (`pip install trimtab-runtime`):

```python
from trimtab_runtime import batch


@batch({options})
def infer(requests: list) -> list:
    return model(requests)  # one result per request, in order
```

The handler then awaits `infer(request)` in place of calling the model."""

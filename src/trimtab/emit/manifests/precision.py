"""The page that moves a served model to fewer bits: evaluate first, then the engine's flags."""

from __future__ import annotations

from trimtab.deployment.effects import SetPrecision
from trimtab.emit.launch import serve_format
from trimtab.plan.model import Action


def precision_page(action: Action, subject: str, effect: SetPrecision) -> str:
    """Return the page as Markdown: the evaluation that must pass, the command, what to expect, how to undo it."""
    flags = " \\\n  ".join((f"vllm serve {effect.model}", *serve_format(effect.after)))
    return f"""# {action.id}: {subject} in {effect.after.value}, not {effect.before.value}

What {effect.after.value} does to this model's answers is not known to trimtab. It is in the plan because \
`workloads.yaml` says that the team accepts it (`quantize:`).

## First

1. Run the model's own evaluation with both formats, on the same prompts. Stop if it loses more than the team allows.
2. Send one request in a hundred to one replica with the new weights for a week; compare answers, p95 and memory.

## Then

```sh
{flags}
```

Add the flags that the server has today. Expected: {effect.saved_gib:.1f} GiB less a replica, requests \
x{effect.speed.value:.2f} as fast on the present GPU ({effect.speed.low:.2f} to {effect.speed.high:.2f}). Once it \
serves, set `precision: {effect.after.value}` in `workloads.yaml`, so that later audits start from there.

Undo: {action.rollback}.
"""

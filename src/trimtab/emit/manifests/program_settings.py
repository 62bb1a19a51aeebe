"""Pages for settings of a program itself: how a run uses memory, and fewer bits for a served model.

A person changes them; a page says what to set, what to expect, and to evaluate answers before bits are taken away.
"""

from __future__ import annotations

from trimtab.deployment.effects import SetPrecision, SetTrainingMemory
from trimtab.emit.launch import serve_format, trainer_fsdp, trainer_optimizer
from trimtab.physics.training_memory import Optimizer, Recompute, Sharding
from trimtab.plan.model import Action


def training_page(action: Action, subject: str, effect: SetTrainingMemory) -> str:
    """Return the page as Markdown."""
    lines = "\n".join(_arguments(effect))
    notes = "\n".join(f"- {line}" for line in _notes(effect))
    return f"""# {action.id}: {subject} trains with another memory plan

{effect.gpus} x {effect.gpu} a run, {effect.before} today; {effect.memory_gib:.1f} GiB on the fullest of them. A run goes \
x{effect.speed.value:.2f} as fast as today ({effect.speed.low:.2f} to {effect.speed.high:.2f}).

```python
{lines}
```

{notes}

Undo: {action.rollback}.
"""


def _arguments(effect: SetTrainingMemory) -> tuple[str, ...]:
    shards = effect.gpus > 1 and effect.sharding is Sharding.WEIGHTS
    return (
        "TrainingArguments(  # merge with yours",
        f"    per_device_train_batch_size={effect.micro_batch},",
        f"    gradient_accumulation_steps={effect.accumulate},",
        f"    gradient_checkpointing={effect.recompute is Recompute.FULL},",
        f"    optim={trainer_optimizer(effect.optimizer)!r},",
        *(trainer_fsdp() if shards else ()),
        ")",
    )


def _notes(effect: SetTrainingMemory) -> tuple[str, ...]:
    batch = effect.micro_batch * effect.accumulate * effect.gpus
    found = [f"A step still takes {batch} sequences, so that the learning rate stays."]
    if effect.recompute is Recompute.SELECTIVE:
        found.append(
            "Selective recomputation (attention and the widest products) is not a switch of transformers: use torch's "
            "`create_selective_checkpoint_contexts`, torchtitan or Megatron."
        )
    if effect.optimizer is Optimizer.ADAMW_8BIT:
        found.append(
            "States in 8 bits follow the same update to within rounding; compare 200 steps of loss before you trust them."
        )
    return tuple(found)


def _answers(effect: SetPrecision) -> str:
    if effect.answers:
        return f"Evaluated beside {effect.before.value} (`trimtab quality`), it was accepted: answers {effect.answers}."
    return (
        f"What {effect.after.value} does to this model's answers is not known to trimtab. It is in the plan because "
        "`workloads.yaml` says that the team accepts it (`quantize:`)."
    )


def _evaluate(effect: SetPrecision) -> str:
    if effect.answers:
        return "See that the weights to be served are those that were evaluated."
    return "Run the model's own evaluation with both formats, on the same prompts. Stop if it loses more than the team allows."


def precision_page(action: Action, subject: str, effect: SetPrecision) -> str:
    """Return the page as Markdown: the evaluation that must pass, the command, what to expect, how to undo it."""
    flags = " \\\n  ".join((f"vllm serve {effect.model}", *serve_format(effect.after)))
    return f"""# {action.id}: {subject} in {effect.after.value}, not {effect.before.value}

{_answers(effect)}

## First

1. {_evaluate(effect)}
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

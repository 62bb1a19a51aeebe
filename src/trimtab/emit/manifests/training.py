"""The page that changes how a run uses memory: the trainer's settings, and what to expect of them."""

from __future__ import annotations

from trimtab.deployment.effects import SetTrainingMemory
from trimtab.emit.launch import trainer_fsdp, trainer_optimizer
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

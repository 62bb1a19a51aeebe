"""Which single change makes a model fit a card that it does not fit, and what that change costs."""

from __future__ import annotations

import math
from dataclasses import replace

from trimtab.catalog import Gpu
from trimtab.physics.footprint import Serving, resident_requests
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import Architecture
from trimtab.physics.search_training import TrainingDemand, plans_of
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_query import kv_value_bytes
from trimtab.physics.serving_ways import ENGINE_YEAR
from trimtab.physics.support import asked_formats, why_not
from trimtab.physics.training_memory import Method, Optimizer, Recompute, adapter_params, largest_micro_batch

LEAST_CONTEXT = 256
NARROWER = {
    WeightFormat.FP8: "half the memory; answers change a little, test quality first",
    WeightFormat.INT4: "a quarter of the memory; answers change, test quality first",
    WeightFormat.FP4: "a quarter of the memory; answers change, test quality first",
}


def cheapest_change(model: Architecture, gpu: Gpu, demand: TrainingDemand) -> str:
    """Return which single change makes a run fit one GPU, cheapest first, with what it costs; empty when none does.

    Full recomputation repeats the forward pass: 8 instead of 6 FLOPs a parameter and token. 8-bit states cost next to nothing
    in speed. Adapters train a small share of the weights, which bounds what they can learn; QLoRA dequantizes besides.
    """
    # no recomputation and plain AdamW: each change is made to this plan alone
    base = plans_of(model, gpu, 1, demand)[0]
    share = adapter_params(model, base.lora_rank) / model.params
    few = f"trains {share:.2%} of the weights, so it can learn less"
    quantized = replace(base, method=Method.QLORA, stored=WeightFormat.NF4)
    half = replace(base, sequence=max(1, base.sequence // 2))
    changes = (
        ("an 8-bit optimizer (next to no loss of speed)", replace(base, optimizer=Optimizer.ADAMW_8BIT)),
        ("recomputing activations (a third more compute)", replace(base, recompute=Recompute.FULL)),
        (f"sequences of {half.sequence} (longer examples are cut)", half),
        (
            "recomputing activations and an 8-bit optimizer (a third more compute)",
            replace(base, recompute=Recompute.FULL, optimizer=Optimizer.ADAMW_8BIT),
        ),
        (f"LoRA ({few})", replace(base, method=Method.LORA)),
        (f"LoRA with recomputation ({few}; a third more compute)", replace(base, method=Method.LORA, recompute=Recompute.FULL)),
        (f"QLoRA ({few}; 10-30 % slower than LoRA)", quantized),
        (
            f"QLoRA with recomputation ({few}; 10-30 % slower than LoRA, and a third more compute)",
            replace(quantized, recompute=Recompute.FULL),
        ),
    )  # fmt: skip
    # one sequence at a time is the least that a run needs
    return next((name for name, plan in changes if largest_micro_batch(plan, gpu, most=1) >= 1), "")


def serving_change(model: Architecture, gpu: Gpu, demand: Demand, engine: str) -> str:
    """Return which single change lets one GPU serve a model: narrower weights, else a shorter context; empty when none does."""
    context = math.ceil(demand.input_tokens + demand.output_tokens)
    # narrower weights first, because a shorter context refuses requests
    for stored in asked_formats(gpu):
        if not why_not(gpu, stored) and stored in NARROWER and _room(model, gpu, stored, context, engine):
            return f"{stored.value} weights ({NARROWER[stored]})"
    while context > LEAST_CONTEXT:
        context //= 2
        for stored in asked_formats(gpu):
            if not why_not(gpu, stored) and _room(model, gpu, stored, context, engine):
                return f"{stored.value} weights and requests of at most {context} tokens (longer ones are refused)"
    return ""


def _room(model: Architecture, gpu: Gpu, stored: WeightFormat, context: int, engine: str) -> bool:
    values = kv_value_bytes(stored, engine, ENGINE_YEAR, gpu)
    return resident_requests(Serving(model=model, stored=stored, kv_value_bytes=values, context=context), gpu) >= 1

"""Speed of training a transformer: FLOPs of a token over the GPU's rate, times a fitted utilisation.

FLOPs a token (Megatron's and PaLM's count, causal attention counted half): 6 A + 6 L a d_head s, with A parameters that a
token uses. LoRA and QLoRA skip the weight gradients of the base: two thirds. Full recomputation repeats the forward pass: a
third more. Utilisation is ln-additive in what is known to move it (`data/training.json`): framework and version, precision on
an architecture, model, tokens in flight, tensor, pipeline (bubble), expert and context parallelism, GPUs and nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.catalog import Gpu, Precision
from trimtab.physics.models import Architecture
from trimtab.physics.serving_query import chip_of
from trimtab.physics.terms import Floats, Keys, Terms
from trimtab.physics.training_memory import Method, Recompute
from trimtab.units import FLOPS_PER_TFLOPS

GPUS_PER_NODE = 8
REFERENCE_TOKENS = 8192
REFERENCE_SEQUENCE = 4096
REFERENCE_PARAMS_B = 8
MEGATRON_LIKE = ("megatron", "nemo", "internevo")
"""Frameworks with their own fused kernels and overlapped collectives; all others train on PyTorch's FSDP or DDP."""
ADAPTER_GRADIENTS_FRAC = 0.02
"""Share of a full backward pass that the adapters' own gradients add."""


class TrainPrecision(Enum):
    """The precision of the matrix products in training."""

    BF16 = "bf16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    FP4 = "fp4"
    QUANTIZED_BASE = "q4"


RECOMPUTE_SHARE: dict[Recompute, float] = {Recompute.NONE: 0.0, Recompute.SELECTIVE: 0.3, Recompute.FULL: 1.0}
"""Share of the forward pass that is repeated (selective: attention and some linear layers, torchtitan's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuery:
    """One question: tokens per second per GPU of this model, trained so, on these GPUs."""

    model: Architecture
    gpu: Gpu
    gpus: int = 1
    precision: TrainPrecision = TrainPrecision.BF16
    method: Method = Method.FULL
    framework: str = ""
    version: str = ""
    recompute: Recompute = Recompute.NONE
    sequence: float = 2048
    micro_batch: float = 1
    global_batch: float | None = None
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    context: int = 1
    virtual_stages: int = 1
    cpu_offload: bool = False


def training_flops_per_token(query: TrainingQuery) -> float:
    """Return the FLOPs that one trained token costs."""
    model = query.model
    flops = _linear_flops(model) + _attention_flops(query)
    if query.method is not Method.FULL:
        # a frozen base needs the forward pass and gradients of activations: two of three equal parts
        flops *= 2 / 3 + ADAPTER_GRADIENTS_FRAC
    # the forward pass is a third of a step's FLOPs
    return flops * (1 + RECOMPUTE_SHARE[query.recompute] / 3)


def _linear_flops(model: Architecture) -> float:
    # 2 forward and 4 backward; an input embedding is a look-up, but a tied one is used as the head
    return 6 * (model.active_params - (0 if model.tied else model.embedding_params))


def _attention_flops(query: TrainingQuery) -> float:
    # the full square is 12 L a d_head s; a causal mask halves it
    return 6 * query.model.layers * query.model.heads * query.model.head_dim * query.sequence


def ideal_tok_s(query: TrainingQuery) -> float:
    """Return tokens per second per GPU at the full dense 16-bit rate: what utilisation multiplies."""
    rate = query.gpu.tflops(Precision.BF16) or query.gpu.tflops(Precision.FP16) or query.gpu.fp32_tflops
    return rate * FLOPS_PER_TFLOPS / training_flops_per_token(query)


def training_keys(query: TrainingQuery) -> Keys:
    """Return the levels by which utilisation differs."""
    model, gpu = query.model, query.gpu
    return {
        "framework": query.framework,
        "lineage": "megatron" if any(word in query.framework.casefold() for word in MEGATRON_LIKE) else "torch",
        "version": f"{query.framework}-{query.version}" if query.version else "",
        "precision": query.precision.value,
        "architecture": gpu.architecture.replace(" Ultra", ""),
        "chip": chip_of(gpu),
        "board": gpu.name,
        "kind": "moe" if model.is_moe else "dense",
        "hybrid": "hybrid" if model.kv_layers < model.layers else "",
        "model": model.name,
        "method": query.method.value,
    }


def _bubble(query: TrainingQuery) -> float:
    """Return ln(1 + pipeline bubble): (p - 1) / (virtual stages * micro-batches)."""
    if query.pipeline <= 1:
        return 0.0
    # data-parallel replicas: what the other degrees leave of the GPUs
    replicas = max(1.0, query.gpus / (query.tensor * query.pipeline * query.context))
    micro = query.global_batch / (replicas * query.micro_batch) if query.global_batch else 8.0
    return math.log(1 + (query.pipeline - 1) / query.virtual_stages / max(micro, 1.0))


def _numbers(query: TrainingQuery) -> dict[str, float]:
    model = query.model
    tokens = query.sequence * query.micro_batch
    return {
        "ln_params": math.log(model.active_b / REFERENCE_PARAMS_B),
        "ln_hidden": math.log(model.hidden / REFERENCE_SEQUENCE),
        "ln_sparsity": math.log(model.params_b / model.active_b),
        "ln_sequence": math.log(query.sequence / REFERENCE_SEQUENCE),
        "ln_tokens": math.log(tokens / REFERENCE_TOKENS),
        "ln_micro_batch": math.log(query.micro_batch),
        # two slopes, because the links within a node and between nodes differ
        "ln_gpus_in_node": math.log(min(max(query.gpus, 1), GPUS_PER_NODE)),
        "ln_nodes": math.log(max(query.gpus / GPUS_PER_NODE, 1)),
        "ln_tensor": math.log(query.tensor),
        "ln_pipeline": math.log(query.pipeline),
        "ln_expert": math.log(query.expert),
        "ln_context": math.log(query.context),
        "bubble": _bubble(query),
        "offload": float(query.cpu_offload),
        "recompute": RECOMPUTE_SHARE[query.recompute],
        "attention": math.log1p(_attention_flops(query) / _linear_flops(model)),
        # a step of few tokens or of a small model is bound by its launches and not by its work
        "small_step": math.log1p(0.3 / model.active_b / (tokens / REFERENCE_TOKENS)),
    }


def training_columns(queries: Sequence[TrainingQuery]) -> dict[str, Floats]:
    """Return the numbers that terms multiply, `(n,)` each."""
    rows = [_numbers(query) for query in queries]
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def training_tok_s(queries: Sequence[TrainingQuery], utilisation: Terms) -> Floats:
    """Return tokens per second per GPU of each query."""
    logs = utilisation.at([training_keys(query) for query in queries], training_columns(queries))
    return np.array([ideal_tok_s(query) for query in queries]) * np.exp(logs)

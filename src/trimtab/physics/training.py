"""Training: memory per GPU, item by item, and speed as FLOPs of a token over the GPU's rate times a fitted utilisation.

FLOPs a token (Megatron's and PaLM's count, causal attention counted half): 6 A + 6 L a d_head s, with A parameters that a
token uses. LoRA and QLoRA skip the weight gradients of the base: two thirds. Full recomputation repeats the forward pass: a
third more. Utilisation is ln-additive in what is known to move it (`data/training.json`): framework and version, precision on
an architecture, model, tokens in flight, tensor, pipeline (bubble), expert and context parallelism, GPUs and nodes. The
rate that it multiplies is physical: 8- and 4-bit formats speed up linear layers and not attention, attention runs slower than
linear layers, boards with a lower power limit clock lower, 4-bit bases are unpacked, and gathers and reductions of weights
and gradients that compute does not hide add to a step (`transfer_ratio`). Adapters of 32 bits add time of their own
(`wide_adapter_s`).

P parameters, L layers, h hidden, f feed-forward, V vocabulary, n micro-batch tokens on a GPU, t tensor parallel. Sources:
states from Megatron-LM `theoretical_memory_usage.py` and DeepSpeed `stage_1_and_2.py`, `stage3.py`; optimizers from
stas00/ml-engineering; activations from Korthikanti et al., arXiv 2205.05198, table 2 (a layer keeps 34 h bytes a token without
its attention matrix; gated feed-forwards about 18 h + 8 f). What papers leave out is fitted on measured peaks
(`data/memory.json`): the working set under recomputation, the copies of the logits, the upcasts of quantized bases, the
allocator's slack and the CUDA context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

import numpy as np

from trimtab.catalog import Gpu, Precision
from trimtab.errors import InputError
from trimtab.physics.fitted import Floats, Keys, MemoryFit, Terms, memory_fit, number_columns
from trimtab.physics.footprint import CONTEXT_GIB, NCCL_GIB, SINGLE, Footprint, Item, Parallel, weight_bytes
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import Architecture
from trimtab.physics.serving_query import adapted_widths, adapter_params, chip_of
from trimtab.physics.transfer import BANDWIDTH_REACH
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS

ATTENTION_SCORES_BYTES = 5
"""Bytes per head and pair of tokens that unfused attention keeps (5 a s / h of the paper)."""
KEPT_FREE_FRAC = 0.05
"""Memory that a plan leaves free: with it no measured out-of-memory run is called a fit (docs/benchmarks/physics.md)."""


NARROW_ADAPTER_BITS = 16
WIDE_ADAPTER_BITS = 32
ADAPTER_BITS = (NARROW_ADAPTER_BITS, WIDE_ADAPTER_BITS)


class Method(Enum):
    """What is trained."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    ADAPTER = "adapter"


class Optimizer(Enum):
    """Optimizers by the states they keep."""

    ADAMW = "adamw"
    ADAMW_BF16 = "adamw-bf16"
    ADAMW_8BIT = "adamw-8bit"
    ADAFACTOR = "adafactor"
    LION = "lion"
    SGD = "sgd"


class Recompute(Enum):
    """Which activations are recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Sharding(Enum):
    """What data-parallel ranks share out: ZeRO stages; FSDP's full shard is stage 3."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    WEIGHTS = 3


STATE_BYTES: dict[Optimizer, float] = {
    Optimizer.ADAMW: 8,
    Optimizer.ADAMW_BF16: 4,
    Optimizer.ADAMW_8BIT: 2,
    Optimizer.ADAFACTOR: 4,
    Optimizer.LION: 4,
    Optimizer.SGD: 0,
}
"""Bytes of state per trained parameter (ml-engineering, training/performance; SGD without momentum)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A way of training; `parallel.data` ranks share states as `sharding` says.

    `master_weights` keeps fp32 weights and gradients; without it everything is 16 bit. An optimizer that is not fused holds a
    second copy of the gradients during its step (torch's foreach). `upcast_base` is what Hugging Face's
    prepare_model_for_kbit_training does to the activations over a quantized base. `accumulates` keeps gradients between
    micro-batches. `steps_in_backward` applies the optimizer layer by layer, so that two layers' gradients live at a time.
    `gathers_whole` means that FSDP wraps the model as one unit, which adapters with mixed dtypes force. `adapter_bits` is the
    width of LoRA's weights: PEFT makes them 32 bits wide unless `autocast_adapter_dtype=False` is given (huggingface/peft 0.17,
    src/peft/tuners/tuners_utils.py:cast_adapter_dtype). `adapts_all` means adapters on all linear layers of the blocks
    ("all-linear", which is pasted), otherwise on the attention's four.
    """

    model: Architecture
    method: Method = Method.FULL
    stored: WeightFormat = WeightFormat.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    master_weights: bool = True
    recompute: Recompute = Recompute.NONE
    sharding: Sharding = Sharding.NONE
    parallel: Parallel = SINGLE
    context_parallel: int = 1
    micro_batch: int = 1
    sequence: int = 2048
    lora_rank: int = 16
    adapter_bits: int = WIDE_ADAPTER_BITS
    adapts_all: bool = True
    fused_loss: bool = False
    fused_optimizer: bool = True
    upcast_base: bool = False
    flash_attention: bool = True
    offload_states: bool = False
    accumulates: bool = False
    gathers_whole: bool = False
    steps_in_backward: bool = False

    def __post_init__(self) -> None:
        if self.micro_batch < 1 or self.sequence < 1 or self.lora_rank < 1 or self.context_parallel < 1:
            raise InputError("micro-batch, sequence, rank and context-parallel degree must be at least 1")
        if self.adapter_bits not in ADAPTER_BITS:
            raise InputError(f"adapters have 16 or 32 bits, not {self.adapter_bits}")
        if self.method is Method.QLORA and self.stored in (WeightFormat.BF16, WeightFormat.FP16, WeightFormat.FP32):
            raise InputError("QLoRA needs a quantized base: give the format nf4, int8 or int4")

    @property
    def tokens(self) -> float:
        """Return the tokens whose activations one GPU holds, before tensor parallelism."""
        return self.micro_batch * self.sequence / self.context_parallel

    @property
    def trains_all(self) -> bool:
        """Say whether every weight gets a gradient."""
        return self.method is Method.FULL


def _state_bytes(training: Training) -> dict[Item, float]:
    """Return weights, gradients and optimizer states of the whole model, before anything is shared out."""
    model = training.model
    full_width = 4 if training.stored is WeightFormat.FP32 else 2
    if not training.trains_all:
        trained = adapter_params(model, training.lora_rank, all_layers=training.adapts_all)
        if training.adapter_bits == NARROW_ADAPTER_BITS:
            # weights, gradients and each of Adam's two moments have 16 bits, and there is no copy of 32
            return {
                Item.WEIGHTS: weight_bytes(model, training.stored) + 2 * trained,
                Item.GRADIENTS: 2 * trained,
                Item.OPTIMIZER: trained * min(STATE_BYTES[training.optimizer], 4),
            }
        return {
            # adapters are kept in 16 bits for the products, and once more in fp32 among the states
            Item.WEIGHTS: weight_bytes(model, training.stored) + 2 * trained,
            Item.GRADIENTS: 4 * trained,
            Item.OPTIMIZER: trained * (STATE_BYTES[training.optimizer] + 4),
        }
    states = STATE_BYTES[training.optimizer]
    if not training.master_weights:
        # in pure 16 bit each of Adam's two moments takes 2 bytes
        states = min(states, 4)
        sizes = {Item.WEIGHTS: full_width, Item.GRADIENTS: full_width, Item.OPTIMIZER: states}
        return {item: size * model.params for item, size in sizes.items()}
    return {Item.WEIGHTS: 4 * model.params, Item.GRADIENTS: 4 * model.params, Item.OPTIMIZER: states * model.params}


def _shared(training: Training, whole: dict[Item, float]) -> dict[Item, float]:
    """Share states out over tensor, pipeline and (by sharding stage) data ranks; sharded weights are gathered by layers."""
    split = training.parallel.tensor * training.parallel.pipeline
    ranks = training.parallel.data * training.context_parallel
    stage = training.sharding.value
    parts = {
        Item.OPTIMIZER: ranks if stage >= Sharding.OPTIMIZER.value else 1,
        Item.GRADIENTS: ranks if stage >= Sharding.GRADIENTS.value else 1,
        Item.WEIGHTS: ranks if stage >= Sharding.WEIGHTS.value else 1,
    }
    # tensor and pipeline parallelism split everything; data ranks only what their stage shards
    items = {item: size / split / parts[item] for item, size in whole.items()}
    if parts[Item.WEIGHTS] > 1:
        items[Item.WEIGHTS] += _gathered_bytes(training, whole[Item.WEIGHTS] / split)
    if training.offload_states:
        # the states are in the host's memory then
        items[Item.OPTIMIZER] = 0.0
    return items


def _gathered_bytes(training: Training, whole_bytes: float) -> float:
    """Return what is gathered of sharded weights at a time: two layers in 16 bits, or the whole model."""
    if training.gathers_whole:
        return whole_bytes
    # 2 bytes a weight: the layer being computed and the next one
    return 2 * 2 * training.model.params / training.model.layers / training.parallel.tensor


def _layer_bytes_per_token(training: Training) -> float:
    """Return what one layer keeps per token without recomputation."""
    model = training.model
    # a token keeps only what the experts that it went to make of it
    width = model.ffn if not model.is_moe else model.expert_ffn * (model.experts_per_token + model.shared_experts)
    linear = 18 * model.hidden + 8 * width if model.gated else 34 * model.hidden
    scores = 0.0 if training.flash_attention else ATTENTION_SCORES_BYTES * model.heads * training.sequence
    return linear + scores


def activation_bytes(training: Training, fit: MemoryFit) -> float:
    """Return the activations alive at the peak on one GPU: kept ones, and the working set of the layer being recomputed."""
    model, tensor = training.model, training.parallel.tensor
    layers = model.layers / training.parallel.pipeline
    layer = _layer_bytes_per_token(training)
    match training.recompute:
        case Recompute.NONE:
            per_token = layers * layer * fit.keep_none
        case Recompute.SELECTIVE:
            per_token = layers * layer * fit.keep_selective
        case Recompute.FULL:
            # each layer keeps its input, 2 h bytes; only the one being recomputed keeps all
            per_token = layers * 2 * model.hidden + layer * fit.working_layers
        case _:
            assert_never(training.recompute)
    if training.parallel.data > 1 and training.sharding is Sharding.WEIGHTS and training.recompute is Recompute.FULL:
        per_token *= fit.sharded_upcast
    if training.upcast_base:
        per_token *= fit.quantized_upcast
    return training.tokens * per_token / tensor


def logits_bytes(training: Training, fit: MemoryFit) -> float:
    """Return the copies of the logits that an unfused loss keeps; a fused linear cross-entropy keeps a chunk of them.

    With pipeline parallelism the last stage computes the loss of one micro-batch at a time.
    """
    copies = fit.logits_fused if training.fused_loss else fit.logits_eager
    tokens = training.tokens / training.parallel.pipeline
    return tokens * training.model.vocab * copies / training.parallel.tensor


def training_footprint(training: Training, *, fit: MemoryFit | None = None, seen_by_device: bool = True) -> Footprint:
    """Return what the fullest GPU holds at the peak of a step, which is its backward pass or its optimizer step.

    With `seen_by_device` the CUDA context, communication buffers and the allocator's slack are in, as nvidia-smi and DCGM
    count: blocks of gradients and of activations differ in size, so that the allocator holds both although they are not
    alive at once. Without, it is torch's max_memory_allocated.
    """
    fit = fit or memory_fit()
    items = _peak_items(training, fit, keeps_gradients=seen_by_device)
    if seen_by_device:
        runtime = CONTEXT_GIB + (NCCL_GIB if training.parallel.gpus > 1 else 0)
        items[Item.RUNTIME] = runtime * BYTES_PER_GIB
        items[Item.FRAGMENTATION] = fit.slack_frac * sum(items.values())
    return Footprint(bytes_by_item=items)


def _peak_items(training: Training, fit: MemoryFit, *, keeps_gradients: bool) -> dict[Item, float]:
    items = _shared(training, _state_bytes(training))
    if training.method is Method.QLORA:
        items[Item.WEIGHTS] += fit.dequantized_bytes * training.model.params / training.parallel.tensor
    # taken out: the two peaks need not hold equally many of them
    gradients = items.pop(Item.GRADIENTS)
    if training.steps_in_backward:
        gradients *= 2 / training.model.layers
    backward = {Item.ACTIVATIONS: activation_bytes(training, fit), Item.LOGITS: logits_bytes(training, fit)}
    # accumulated gradients outlive a backward pass, and to the device blocks once allocated stay allocated
    if keeps_gradients or training.accumulates or not training.trains_all:
        backward[Item.GRADIENTS] = gradients
    # without fusion torch's foreach holds a second copy
    step = {Item.GRADIENTS: gradients * (1 if training.fused_optimizer else 2)}
    return items | max(backward, step, key=lambda part: sum(part.values()))


def largest_micro_batch(training: Training, gpu: Gpu, *, most: int = 4096) -> int:
    """Return the largest micro-batch that fits, 0 when not even one sequence does (bisection up to `most`)."""
    low, high = 0, most
    while low < high:
        # rounded up: with the lower middle, two neighbours would never close
        middle = (low + high + 1) // 2
        # memory rises with the micro-batch, which bisection rests on
        fits = training_footprint(replace(training, micro_batch=middle)).fits(gpu, reserve_frac=KEPT_FREE_FRAC)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


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
    """One question: tokens per second per GPU of this model, trained so, on these GPUs.

    `adapter_bits` and `adapts_all` as in `Training`. `autocast` says whether products run in 16 bits all the same, as
    transformers' `bf16=True` has it.
    """

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
    lora_rank: int = 16
    adapter_bits: int = WIDE_ADAPTER_BITS
    autocast: bool = True
    adapts_all: bool = True


def query_of(plan: Training, gpu: Gpu, *, framework: str, global_batch: int | None) -> TrainingQuery:
    """Return the question of how fast a plan trains, with the settings that are pasted for it: autocast, all linear layers."""
    return TrainingQuery(
        model=plan.model,
        gpu=gpu,
        gpus=plan.parallel.data,
        precision=TrainPrecision.QUANTIZED_BASE if plan.method is Method.QLORA else TrainPrecision.BF16,
        method=plan.method,
        framework=framework,
        recompute=plan.recompute,
        sequence=plan.sequence,
        micro_batch=plan.micro_batch,
        global_batch=global_batch,
        lora_rank=plan.lora_rank,
        adapter_bits=plan.adapter_bits,
        adapts_all=plan.adapts_all,
    )


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


LINEAR_SPEED_UP: dict[TrainPrecision, float] = {
    TrainPrecision.BF16: 1.0,
    TrainPrecision.FP8: 1.58,
    TrainPrecision.MXFP8: 1.42,
    TrainPrecision.FP4: 1.98,
    TrainPrecision.QUANTIZED_BASE: 1.0,
}
"""How much faster the linear layers of a 5B model run than in bf16, forward and backward, with the quantization that training
does: FP8 with current scaling on an H200 (delayed scaling 1.69, on a B300 1.39 and 1.64), MXFP8 and NVFP4 on a B300 (NVIDIA,
TransformerEngine commit 8f2e635, docs/examples/gemm_profiling/gemm_profiling.rst, read 2026-11-27). Attention stays in 16 bits.
A 4-bit base is unpacked for products in 16 bits (`DEQUANTIZED_BYTES`)."""
AMPERE_ATTENTION_FRAC = 0.75
MEGATRON_ATTENTION_FRAC = 0.75
TORCH_ATTENTION_FRAC = 0.35
"""Rate of attention kernels, forward and backward, over that of linear layers. All three were chosen on held-out errors. They
agree in order with published kernels: FlashAttention-2, PyTorch's, reaches 35 % of H100's peak (arXiv 2407.08608, abstract),
which is a share of the peak and not of linear layers' rate; Megatron has cuDNN's faster ones."""
DEQUANTIZED_BYTES = 18.0
"""Memory traffic of unpacking a 4-bit weight in the passes of a micro-batch: litgpt's nf4 beside its bf16 rows."""
FULL_POWER_W = {"A100": 400, "H100": 700}
"""The power limit of the boards whose peak rate is listed; boards with a lower limit clock lower under a full load."""
POWER_EXPONENT = 0.5
"""Sustained rate over the power limit, in the logarithm: between a cube root (voltage scales with clock) and linear."""
NIC_GB_S = 50.0
AMPERE_NIC_GB_S = 25.0
"""Network of one GPU in nodes of eight: 400 Gbit/s since Hopper, 200 Gbit/s on A100 (DGX H100 and DGX A100 data sheets)."""
RACK_GPUS = 72
"""GPUs in one NVLink domain of GB200 and GB300 NVL72."""
LINE_RATE_FRAC = 0.8
"""Share of the line rate that large collectives reach."""
PLANNED_UTILISATION = 0.45
"""Utilisation at which compute time is compared with transfers."""
TORCH_EXPOSED = 1.0
MEGATRON_EXPOSED = 0.3
"""Share of the transfers that compute does not hide, combined with compute by a root of squares (chosen on held-out groups)."""


def _slowed_by_power(gpu: Gpu) -> float:
    full_w = FULL_POWER_W.get(chip_of(gpu))
    return (gpu.tdp_w / full_w) ** POWER_EXPONENT if full_w and gpu.tdp_w < full_w else 1.0


def nic_gb_s(gpu: Gpu) -> float:
    """Return the network of one GPU in the nodes on which runs were measured."""
    return AMPERE_NIC_GB_S if gpu.architecture.startswith("Ampere") else NIC_GB_S


def _network_gb_s(query: TrainingQuery) -> float:
    """Return what one GPU sends or receives a second, in the slowest link that the ranks share."""
    gpu = query.gpu
    within = RACK_GPUS if gpu.name.startswith("GB") and gpu.nvlink_gb_s else GPUS_PER_NODE
    if query.gpus <= within and gpu.nvlink_gb_s:
        return LINE_RATE_FRAC * gpu.nvlink_gb_s / 2
    return LINE_RATE_FRAC * nic_gb_s(gpu)


def _is_megatron_like(query: TrainingQuery) -> bool:
    return any(word in query.framework.casefold() for word in MEGATRON_LIKE)


def _micro_batches(query: TrainingQuery) -> float:
    """Return the micro-batches of a step on one rank; without a global batch one, and eight where a pipeline must be filled."""
    # data-parallel replicas: what the other degrees leave of the GPUs
    replicas = max(1.0, query.gpus / (query.tensor * query.pipeline * query.context))
    if query.global_batch is None:
        return 8.0 if query.pipeline > 1 else 1.0
    return max(query.global_batch / (replicas * query.micro_batch), 1.0)


def _transfer_bytes(query: TrainingQuery) -> float:
    """Return the bytes of weights and gradients that one GPU exchanges in a step.

    FSDP gathers 2-byte weights before the forward and the backward pass of every micro-batch and reduces the gradients once;
    Megatron's distributed optimizer gathers 2 bytes and reduces 4 bytes a parameter once a step (ZeRO, arXiv 1910.02054).
    """
    model = query.model
    if query.gpus <= 1 or (_is_megatron_like(query) and query.method is not Method.FULL):
        return 0.0
    params = model.params
    if model.is_moe and query.expert > 1:
        params = model.active_params + (model.params - model.active_params) / query.expert
    share = params / (query.tensor * query.pipeline)
    if _is_megatron_like(query):
        return 6 * share
    width = 0.5 if query.precision is TrainPrecision.QUANTIZED_BASE else 2.0
    passes = 3 if query.method is Method.FULL else 2
    return passes * width * share * _micro_batches(query)


def transfer_ratio(query: TrainingQuery) -> float:
    """Return the time of a step's transfers over that of its compute: small global batches on many GPUs make it large."""
    tokens = (
        query.micro_batch * query.sequence * _micro_batches(query) / (query.tensor * query.pipeline * query.context)
    )
    compute_s = tokens * training_flops_per_token(query) / (_peak_flop_s(query) * PLANNED_UTILISATION)
    return _transfer_bytes(query) / (_network_gb_s(query) * BYTES_PER_GB) / compute_s


def _peak_flop_s(query: TrainingQuery) -> float:
    """Return the dense rate for this mixture of linear layers and 16-bit attention, at the board's power limit."""
    gpu = query.gpu
    rate = gpu.tflops(Precision.BF16) or gpu.tflops(Precision.FP16) or gpu.fp32_tflops
    linear, attention = _linear_flops(query.model), _attention_flops(query)
    mixed = (linear + attention) / (linear / LINEAR_SPEED_UP[query.precision] + attention / _attention_rate_frac(query))
    return rate * FLOPS_PER_TFLOPS * mixed * _slowed_by_power(gpu)


def _attention_rate_frac(query: TrainingQuery) -> float:
    if query.gpu.architecture.startswith("Ampere"):
        return AMPERE_ATTENTION_FRAC
    return MEGATRON_ATTENTION_FRAC if _is_megatron_like(query) else TORCH_ATTENTION_FRAC


def _dequantizing_ratio(query: TrainingQuery) -> float:
    """Return the time in which a quantized base is unpacked, over that of the micro-batch's compute; 0 for other bases."""
    if query.precision is not TrainPrecision.QUANTIZED_BASE:
        return 0.0
    unpacked_s = DEQUANTIZED_BYTES * query.model.params / (query.gpu.mem_bw_gb_s * BYTES_PER_GB)
    flops = query.micro_batch * query.sequence * training_flops_per_token(query)
    return unpacked_s / (flops / (_peak_flop_s(query) * PLANNED_UTILISATION))


def wide_adapter_s(query: TrainingQuery) -> float:
    """Return the seconds a token that LoRA's adapters of 32 bits take longer than those of 16 bits; 0 for other methods.

    Counted from PEFT's `lora.Linear.forward` (huggingface/peft 0.17, src/peft/tuners/lora/layer.py), without dropout:
    `result + lora_B(lora_A(x.to(float32))) * scaling`, then `.to(bfloat16)`, each operation a kernel that reads its operands
    and writes its result. With i inputs and o outputs of the base layer, bytes a token beyond those of 16-bit adapters:

    forward   cast of x 6 i, scaling 4 o, sum 4 o, cast of the sum 6 o; lora_A and lora_B 2 i + 2 o
    backward  casts of the gradients 12 o and 6 i, scaling 4 o; the four products 4 i + 4 o

    Products in 32 bits take the longer of their bytes and of 2 r (i + o) operations at the rate of plain fp32: PyTorch leaves
    TF32 off for products (`torch.backends.cuda.matmul.allow_tf32`). Under autocast x is cast to 32 bits and at once back to 16
    for the product: 12 i bytes in each pass, nothing else. A recomputed forward pass counts twice.
    """
    if query.method is not Method.LORA or query.adapter_bits == NARROW_ADAPTER_BITS:
        return 0.0
    inputs, outputs = adapted_widths(query.model, all_layers=query.adapts_all)
    byte_s = BANDWIDTH_REACH * query.gpu.mem_bw_gb_s * BYTES_PER_GB
    forwards = 1 + RECOMPUTE_SHARE[query.recompute]
    if query.autocast:
        return 12 * inputs * (forwards + 1) / byte_s
    moved = forwards * (6 * inputs + 14 * outputs) + 6 * inputs + 16 * outputs
    product_s = max(4 / byte_s, 2 * query.lora_rank / (query.gpu.fp32_tflops * FLOPS_PER_TFLOPS)) - 2 / byte_s
    # a backward pass has two products for each of the forward pass
    return moved / byte_s + (forwards + 2) * (inputs + outputs) * product_s


def ideal_tok_s(query: TrainingQuery) -> float:
    """Return tokens per second per GPU at the full dense rate, less what compute does not hide: what utilisation multiplies."""
    share = MEGATRON_EXPOSED if _is_megatron_like(query) else TORCH_EXPOSED
    exposed = math.hypot(1.0, share * transfer_ratio(query)) + _dequantizing_ratio(query)
    return _peak_flop_s(query) / training_flops_per_token(query) / exposed


def training_keys(query: TrainingQuery) -> Keys:
    """Return the levels by which utilisation differs."""
    model, gpu = query.model, query.gpu
    return {
        "framework": query.framework,
        "lineage": "megatron" if _is_megatron_like(query) else "torch",
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
    return math.log(1 + (query.pipeline - 1) / query.virtual_stages / _micro_batches(query))


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
    return number_columns([_numbers(query) for query in queries])


def training_tok_s(queries: Sequence[TrainingQuery], utilisation: Terms) -> Floats:
    """Return tokens per second per GPU of each query."""
    logs = utilisation.at([training_keys(query) for query in queries], training_columns(queries))
    plain: Floats = np.array([ideal_tok_s(query) for query in queries]) * np.exp(logs)
    adapters: Floats = np.array([wide_adapter_s(query) for query in queries])
    # kernels that only move bytes do not overlap with the products of the base
    return plain / (1 + plain * adapters)

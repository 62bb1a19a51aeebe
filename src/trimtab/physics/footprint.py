"""Memory of inference: the key-value cache, an itemised footprint per GPU, what fits, and the longest context or batch.

Budget rule of vLLM (vllm/v1/worker/gpu_worker.py): KV cache = total x gpu_memory_utilization - weights - activations - what
lies outside torch. Activations of a chunk of t tokens: the widest layer's working set t (18 h + 4 f / tp) bytes, plus
fp32 logits of the sampled rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import Gpu
from trimtab.errors import InputError
from trimtab.physics.formats import FORMATS, WeightFormat
from trimtab.physics.models import Architecture
from trimtab.units import BYTES_PER_GIB


def kv_bytes(model: Architecture, context: float, value_bytes: float = 2) -> float:
    """Return the bytes of the cache of one request at a context length; windowed layers keep at most their window.

    A token adds 2 L n_kv d_head values in MHA and GQA, and one latent per layer, L (d_c + d_rope), in latent attention, so
    that DeepSeek-V3 in bf16 needs 61 x 576 x 2 = 70 kB (arXiv 2405.04434).
    """
    full = (model.kv_layers - model.windowed_layers) * context
    # a window of 0 means none: then the whole context stays
    windowed = model.windowed_layers * min(context, model.window or context)
    return (full + windowed) * model.kv_values_per_token * value_bytes


def kv_copies(model: Architecture, tensor_parallel: int) -> float:
    """Return what tensor parallelism multiplies the cache of all GPUs by.

    Heads are split over GPUs; with more GPUs than key-value heads they are repeated, and a latent cache is repeated on each.
    """
    if model.kv_lora_rank:
        return float(tensor_parallel)
    return max(1.0, tensor_parallel / model.kv_heads)


def requests_that_fit(budget_bytes: float, request_bytes: float) -> int:
    """Return how many requests of a size a budget holds; 0 when not even one."""
    if request_bytes <= 0:
        raise ValueError("a request's cache must be positive")
    return max(0, math.floor(budget_bytes / request_bytes))


def waves(requests: int, resident: int) -> int:
    """Return in how many waves requests run when `resident` fit at once; raises ValueError when none does."""
    if resident < 1:
        raise ValueError("not even one request fits")
    return math.ceil(requests / resident)


CONTEXT_GIB = 0.55
"""CUDA context, libraries and driver (0.5-0.9 GiB on A100 and H100; stas00/ml-engineering)."""
GRAPHS_GIB = 0.6
"""CUDA-graph pools of a serving engine (vLLM counts them into its budget since v0.21)."""
NCCL_GIB = 0.37
"""Communication buffers per GPU in a group (ai-dynamo/aiconfigurator systems/h100_sxm.yaml: 0.34-0.39)."""
MEMORY_UTILIZATION_FRAC = 0.90
"""vLLM's default --gpu-memory-utilization."""


class Item(Enum):
    """What memory is spent on."""

    WEIGHTS = "weights"
    ADAPTERS = "adapters"
    KV_CACHE = "kv cache"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer states"
    ACTIVATIONS = "activations"
    LOGITS = "logits and loss"
    RUNTIME = "context, graphs, communication"
    FRAGMENTATION = "allocator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes on the fullest GPU, item by item."""

    bytes_by_item: dict[Item, float]
    note: str = ""

    @property
    def total_bytes(self) -> float:
        """Return the sum of the items."""
        return sum(self.bytes_by_item.values())

    @property
    def total_gib(self) -> float:
        """Return the sum of the items in GiB."""
        return self.total_bytes / BYTES_PER_GIB

    def gib(self, item: Item) -> float:
        """Return one item in GiB; 0 when the footprint has none of it."""
        return self.bytes_by_item.get(item, 0.0) / BYTES_PER_GIB

    def fits(self, gpu: Gpu, *, reserve_frac: float = 0.0) -> bool:
        """Say whether it fits the GPU's visible memory, keeping a share of it free."""
        return self.total_gib <= gpu.memory_gib * (1 - reserve_frac)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How a model is spread: tensor, pipeline and expert parallel degrees and data-parallel replicas."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.expert, self.data) < 1:
            raise InputError(f"parallel degrees start at 1, got {self}")

    @property
    def gpus(self) -> int:
        """Return the GPUs that one deployment takes."""
        # expert parallelism is laid over these same GPUs and adds none
        return self.tensor * self.pipeline * self.data


SINGLE = Parallel()
"""One GPU."""


def weight_bytes(model: Architecture, stored: WeightFormat) -> float:
    """Return the bytes of all weights; embeddings and head stay in 16 bits where the format leaves them so."""
    facts = FORMATS[stored]
    # in a small generic model the assumed vocabulary may outweigh all of its parameters
    head = min(model.head_params, model.params) if facts.head_16_bit else 0
    return (model.params - head) * facts.weight_bytes + head * 2


def activation_bytes(model: Architecture, tokens: int, rows: int, tensor_parallel: int = 1) -> float:
    """Return the working set of a forward pass over `tokens`, with fp32 logits of `rows` sampled positions."""
    # the widest layer sets the peak: dense ones where there are any, against the experts that a token goes to
    width = max(
        model.ffn if not model.is_moe or model.dense_layers else 0, model.expert_ffn * max(1, model.experts_per_token)
    )
    # tensor parallelism splits the feed-forward and the vocabulary, but not the hidden stream
    return tokens * (18 * model.hidden + 4 * width / tensor_parallel) + rows * model.vocab * 4 / tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A way of serving: stored weights, cache values, parallelism, requests at once, their context, prefill chunk."""

    model: Architecture
    stored: WeightFormat = WeightFormat.BF16
    kv_value_bytes: float = 2
    parallel: Parallel = SINGLE
    requests: int = 1
    context: int = 2048
    chunk_tokens: int = 2048
    adapters_bytes: float = 0.0
    """Of all adapters that are held at once."""

    def __post_init__(self) -> None:
        if self.requests < 1 or self.context < 1 or self.chunk_tokens < 1:
            raise InputError("requests, context and chunk must be at least 1")


def _fixed_items(serving: Serving) -> dict[Item, float]:
    parallel = serving.parallel
    shards = parallel.tensor * parallel.pipeline
    # longer prompts are read chunk by chunk, so that the peak is that of one chunk
    tokens = min(serving.chunk_tokens, serving.context)
    runtime = CONTEXT_GIB + GRAPHS_GIB + (NCCL_GIB if parallel.gpus > 1 else 0)
    weights = weight_bytes(serving.model, serving.stored)
    held = weights / shards
    if parallel.expert > shards:
        # ranks share the experts out; each holds all of the rest
        experts = weights * serving.model.expert_params / serving.model.params
        held = (weights - experts) / shards + experts / parallel.expert
    return {
        Item.WEIGHTS: held,
        Item.ADAPTERS: serving.adapters_bytes / shards,
        Item.ACTIVATIONS: activation_bytes(serving.model, tokens, serving.requests, parallel.tensor),
        Item.RUNTIME: runtime * BYTES_PER_GIB,
    }


def _cache_bytes_per_gpu(serving: Serving, requests: float) -> float:
    parallel = serving.parallel
    request_bytes = kv_bytes(serving.model, serving.context, serving.kv_value_bytes)
    copies = kv_copies(serving.model, parallel.tensor)
    # requests are spread over data-parallel replicas, each one's cache over the heads and layers of a group
    return requests / parallel.data * request_bytes * copies / (parallel.tensor * parallel.pipeline)


def inference_footprint(serving: Serving) -> Footprint:
    """Return what each GPU holds while `requests` of the given context are resident."""
    items = _fixed_items(serving)
    items[Item.KV_CACHE] = _cache_bytes_per_gpu(serving, serving.requests)
    return Footprint(bytes_by_item=items)


def resident_requests(serving: Serving, gpu: Gpu) -> int:
    """Return how many requests of the context fit at once under the engine's budget; 0 when the weights do not fit."""
    # the utilization bounds weights, activations and cache together, as in vLLM
    budget = gpu.memory_gib * BYTES_PER_GIB * MEMORY_UTILIZATION_FRAC - sum(_fixed_items(serving).values())
    return requests_that_fit(budget, _cache_bytes_per_gpu(serving, 1)) if budget > 0 else 0

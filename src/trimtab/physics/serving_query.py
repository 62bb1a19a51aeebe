"""One question of serving: model, GPUs, engine and load, and what of them the laws and their fitted constants see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab.catalog import Gpu, Precision
from trimtab.errors import InputError
from trimtab.physics.fitted import Floats, Keys
from trimtab.physics.footprint import kv_bytes, kv_copies, weight_bytes
from trimtab.physics.formats import FORMATS, WeightFormat, compute_precision
from trimtab.physics.models import Architecture
from trimtab.provenance import Basis, Estimate
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS, PCIE_LANE_GB_S

RUNTIME_BYTES = 3.1 * BYTES_PER_GB
"""Context, graphs and activations per GPU: where Llama-2-70B's batches split into waves on 4 x A100-40GB."""
TRTLLM_RUNTIME_BYTES = 2.8 * BYTES_PER_GB
"""The same for TensorRT-LLM, whose batches split later."""
NARROW_SHARE = 0.7
"""Weight of the narrow precision's rate in a step that mixes it with 16-bit work."""
TFLOPS_PER_W = {"Ampere": 0.45, "Ada": 0.72}
"""Tensor rate a watt of boards with GDDR memory: their prompt speeds follow the power limit and not the peak."""
USUAL_PCIE = (4, 16)
"""Generation and lanes of a slot where a board's are not known."""
PEER_SLOT_FRAC = 0.5
"""Share of a slot's rate at which boards without NVLink exchange when all do at once; constants of communication were fitted
with it, so that the two say something only together."""


class Load(Enum):
    """How requests come."""

    STATIC = "static"
    PREFILL = "prefill"
    DECODE = "decode"
    ONLINE = "online"
    MAXIMUM = "maxload"
    OFFLINE = "mlp-offline"
    SERVER = "mlp-server"
    INTERACTIVE = "mlp-interactive"

    @property
    def saturates(self) -> bool:
        """Say whether the engine takes in as many requests as it can."""
        return self in (Load.MAXIMUM, Load.OFFLINE, Load.SERVER, Load.INTERACTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: a draft of so many tokens, each accepted with a probability, and what drafting one costs.

    Leviathan et al. (arXiv 2211.17192): with acceptance a and g draft tokens a step yields (1 - a^(g+1)) / (1 - a) tokens on
    average, and takes as long as one step of the model and g of the draft.
    """

    draft_tokens: int
    acceptance_frac: float
    draft_cost_frac: float
    """Time of one draft token over that of one step of the model that only decodes."""

    def __post_init__(self) -> None:
        if self.draft_tokens < 1 or not 0 <= self.acceptance_frac <= 1 or self.draft_cost_frac < 0:
            raise InputError(
                f"a draft needs a token or more, an acceptance from 0 to 1 and a cost from 0 on, got {self}"
            )

    @property
    def step_tokens(self) -> float:
        """Return the tokens that a step yields on average."""
        drafted, accepted = self.draft_tokens, self.acceptance_frac
        return float(drafted + 1) if accepted == 1 else (1 - accepted ** (drafted + 1)) / (1 - accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """LoRA adapters that a server holds at once on one base, and how much slower it was measured with them.

    Where that was not measured (None), the public figures are assumed (`PUBLIC_SLOWDOWN`).
    """

    number: int
    rank: int
    slowdown_frac: float | None = None

    def __post_init__(self) -> None:
        if self.number < 1 or self.rank < 1 or (self.slowdown_frac or 0.0) < 0:
            raise InputError(f"adapters need a number and a rank from 1 and a slowdown from 0 on, got {self}")

    @property
    def steps_longer(self) -> Estimate:
        """Return how much longer a step takes with adapters, as a factor from 1 on."""
        if self.slowdown_frac is None:
            return PUBLIC_SLOWDOWN
        stated = 1 + self.slowdown_frac
        return Estimate(
            value=stated, low=stated, high=stated, basis=Basis.MEASURED, because="adapters' slowdown as stated"
        )


PUBLIC_SLOWDOWN = Estimate(
    value=1.3,
    low=1.09,
    high=2.0,
    basis=Basis.ASSUMED,
    because="steps 9 to 100 % longer with adapters, as published",
)
"""Time of a step with LoRA adapters over that without, in public runs with 1 to 4 of them: 1.09 to 1.31 (vLLM V1, TPU v6e, 8B:
vllm-project/vllm #15655, 2025-07), 1.51 (vLLM, A100, Llama-2-7B, rank 8: #11267, 2024-12), 1.75 (A100-80: #2829, 2024-02) and
up to 2 (A100-40: #10062; LoRAX #670, 2024-11). The value is the geometric middle of what they are longer by."""


def adapted_widths(model: Architecture, *, all_layers: bool) -> tuple[int, int]:
    """Return the sums of inputs and of outputs of layers with an adapter: the attention's four, or all linear ones of blocks.

    In a mixture of experts these are the same: its experts are one tensor in transformers (since 5.0), which PEFT's
    "all-linear" passes over.
    """
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    inputs, outputs = 3 * model.hidden + queries, queries + 2 * keys + model.hidden
    if all_layers and not model.is_moe:
        ways_up = 2 if model.gated else 1
        inputs += ways_up * model.hidden + model.ffn
        outputs += ways_up * model.ffn + model.hidden
    return model.layers * inputs, model.layers * outputs


def adapter_params(model: Architecture, rank: int, *, all_layers: bool = False) -> float:
    """Return LoRA's parameters: r (d_in + d_out) for each matrix."""
    return rank * sum(adapted_widths(model, all_layers=all_layers))


def adapters_bytes(model: Architecture, adapters: Adapters | None) -> float:
    """Return the bytes of all adapters in 16 bits; 0 without any."""
    return 0.0 if adapters is None else 2 * adapters.number * adapter_params(model, adapters.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuery:
    """One question: this model, so stored, on so many of these GPUs, under this load.

    `stack` is the engine and its year (`vllm-2025`), `release` its version (`0.12`) where known; `workload` names a fixed
    public workload (MLPerf) or is empty.
    `expert > tensor` means that attention is data parallel over the expert-parallel GPUs.
    """

    model: Architecture
    gpu: Gpu
    stored: WeightFormat
    engine: str
    year: int
    load: Load
    requests: float
    input_tokens: float
    output_tokens: float
    kv_value_bytes: float = 2
    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    workload: str = ""
    release: str = ""
    cached_tokens: float = 0
    """Tokens of a prompt that need no computing: found in the prefix cache or loaded into it."""
    loaded_tokens: float = 0
    """Of these, the tokens that come from host memory."""
    speculation: Speculation | None = None
    adapters: Adapters | None = None
    network_gb_s: float = 0
    """Between nodes, of each GPU in one direction, where a replica spans several; 0 within one node."""

    @property
    def ranks(self) -> int:
        """Return the groups that serve the attention of their own requests: every GPU, or one for all."""
        return self.expert if self.attention_is_data_parallel else 1

    @property
    def attention_is_data_parallel(self) -> bool:
        """Say whether each expert-parallel GPU serves its own requests' attention."""
        return self.expert > self.tensor


def chip_of(gpu: Gpu) -> str:
    """Return the chip of a board: what variants of memory, form factor and power share (A100, H100, RTX-4090)."""
    parts = gpu.name.split("-")
    # in these names the first word is a line of products and only the second the chip
    return "-".join(parts[:2]) if parts[0] in ("RTX", "Quadro", "Arc", "Max", "Titan") else parts[0]


def serving_keys(query: ServingQuery) -> Keys:
    """Return the levels by which fitted constants differ."""
    model, gpu = query.model, query.gpu
    # on another vendor's boards an engine is another program: it starts from a factor of its own
    engine = query.engine if gpu.vendor == "NVIDIA" else f"{query.engine}/{gpu.vendor}"
    # a format that the GPU lacks runs through wider products: a level of its own
    native = compute_precision(gpu, FORMATS[query.stored].compute) is FORMATS[query.stored].compute
    kind = "mla" if model.kv_lora_rank else "moe" if model.is_moe else ""
    return {
        "engine": engine,
        "stack": f"{engine}-{query.year}",
        "release": f"{engine}-{query.year}-{query.release}" if query.release else "",
        "format": query.stored.value + ("" if native else "-emulated"),
        "stored": query.stored.value,
        "architecture": gpu.architecture,
        "chip": chip_of(gpu),
        "kind": kind,
        "model": model.name,
        "load": query.load.value,
        "cache": "8bit" if query.kv_value_bytes <= 1 else "",
        "nvlink": "nvlink" if has_switched_nvlink(gpu) else "pcie",
        "workload": query.workload,
    }


def has_switched_nvlink(gpu: Gpu) -> bool:
    """Say whether every GPU of a node reaches every other over NVLink (not a bridge between two cards)."""
    return gpu.nvlink_gb_s > 0 and "PCIe" not in gpu.name and "NVL-" not in gpu.name


def link_gb_s(gpu: Gpu) -> float:
    """Return the bandwidth of exchanges between the GPUs of a node in one direction, all of them at once."""
    # NVLink's figures are of both directions together; a transfer goes one way
    return gpu.nvlink_gb_s / 2 if gpu.nvlink_gb_s else PEER_SLOT_FRAC * slot_gb_s(gpu)


def _exchange_gb_s(query: ServingQuery) -> float:
    """Return the bandwidth of a GPU's exchanges with its group: ranks on several nodes cross the network, stages do not."""
    within = link_gb_s(query.gpu)
    return min(within, query.network_gb_s) if query.network_gb_s and query.pipeline == 1 else within


def slot_gb_s(gpu: Gpu) -> float:
    """Return the bandwidth between a GPU and its host in one direction: its PCIe slot, or the link to the Grace beside it."""
    if gpu.c2c_gb_s is not None:
        return gpu.c2c_gb_s / 2
    generation, lanes = USUAL_PCIE
    return gpu.pcie_gb_s or PCIE_LANE_GB_S.get(gpu.pcie_gen or generation, PCIE_LANE_GB_S[generation]) * lanes


def tensor_rate_tflops(query: ServingQuery) -> float:
    """Return the rate at which the engine's kernels can run products.

    Where weights are narrow, attention and what lies between the products stay in 16 bits: the rate is the geometric mean of
    both, 0.7 to 0.3, so that FP8 gives 1.6 of BF16 and FP4 2.6. llama.cpp uses mma instructions: on GeForce and workstation
    boards its prompts run at what the power limit lets through, at most four FLOPs per FP32 FLOP; on HBM boards at half of the
    dense tensor rate (its published prompt speeds).
    """
    gpu = query.gpu
    precision = compute_precision(gpu, FORMATS[query.stored].compute)
    full = gpu.tflops(precision) or gpu.fp32_tflops
    half = gpu.tflops(Precision.BF16) or gpu.tflops(Precision.FP16) or full
    rate = float(full**NARROW_SHARE * half ** (1 - NARROW_SHARE))
    if query.engine != "llama.cpp":
        return rate
    if gpu.memory_type.startswith("GDDR"):
        return min(gpu.tdp_w * TFLOPS_PER_W.get(gpu.architecture, math.inf), 4 * gpu.fp32_tflops, 2 * rate)
    return rate / 2


def serving_columns(queries: Sequence[ServingQuery]) -> dict[str, Floats]:
    """Return the queries as columns of numbers, `(n,)` each, in bytes, FLOP/s and bytes/s."""
    rows = [_numbers(query) for query in queries]
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in (rows[0] if rows else ())}


def _numbers(query: ServingQuery) -> dict[str, float]:
    model, gpu = query.model, query.gpu
    weights = weight_bytes(model, query.stored)
    experts = weights * model.expert_params / model.params
    # experts are shared out over the ranks, and each rank holds and reads all of the rest
    copies = query.ranks
    # a step looks up rows of the embedding and reads the head whole; a tied table is both, and is read as the head
    embedding = 0 if model.tied else 2 * model.embedding_params
    head = model.embedding_params
    return {
        # without embedding and head: the one costs no FLOPs, the other is counted by positions
        "active": model.active_params - 2 * head if not model.tied else model.active_params - head,
        "head": head,
        "weights": copies * (weights - experts) + experts,
        "read": copies * (weights - experts - embedding) + experts,
        "expert_weights": experts,
        "experts": max(model.experts, 1),
        "per_token": model.experts_per_token,
        "moe": float(model.is_moe),
        "layers": model.layers,
        "hidden": model.hidden,
        "query_width": model.heads * model.head_dim,
        "kv_values_bytes": model.kv_values_per_token * query.kv_value_bytes,
        "full_layers": model.kv_layers - model.windowed_layers,
        "window_layers": model.windowed_layers,
        # no window is an infinite one, so that a minimum with it changes nothing
        "window": model.window or np.inf,
        # each rank keeps the caches of its own requests: nothing is repeated
        "kv_copies": 1.0 if query.attention_is_data_parallel else kv_copies(model, query.tensor),
        "flop_s": tensor_rate_tflops(query) * FLOPS_PER_TFLOPS,
        "byte_s": gpu.mem_bw_gb_s * BYTES_PER_GB,
        "memory": gpu.memory_gib * BYTES_PER_GIB,
        "link": _exchange_gb_s(query) * BYTES_PER_GB,
        # what a pipeline stage hands to the next node: all GPUs of the stage send; never where there is one node
        "hop": query.network_gb_s * query.tensor * BYTES_PER_GB
        if query.network_gb_s and query.pipeline > 1
        else np.inf,
        "gpus": query.gpus,
        "group": query.expert if query.attention_is_data_parallel else query.tensor,
        # groups that schedule requests of their own: every GPU under data parallel attention
        "ranks": query.ranks,
        "stages": query.pipeline,
        "input": query.input_tokens,
        "cached": query.cached_tokens,
        "load_s": _load_s(query),
        # positions that a step computes for a request, tokens that it yields, and draft steps beside it
        "positions": 1.0 + (query.speculation.draft_tokens if query.speculation else 0),
        "yielded": query.speculation.step_tokens if query.speculation else 1.0,
        "drafted": query.speculation.draft_tokens * query.speculation.draft_cost_frac if query.speculation else 0.0,
        "adapters": query.adapters.number if query.adapters else 0,
        "adapter_bytes": adapters_bytes(model, replace(query.adapters, number=1) if query.adapters else None),
        "slowdown": query.adapters.steps_longer.value - 1 if query.adapters else 0.0,
        # times are divided by it
        "output": max(query.output_tokens, 1),
        "requests": query.requests,
        "saturates": float(query.load.saturates),
        "static": float(query.load is Load.STATIC),
        # centred on a usual board and width, so that slopes leave the base where it is
        "ln_rate": math.log(tensor_rate_tflops(query) / 100),
        "ln_bandwidth": math.log(gpu.mem_bw_gb_s / 1000),
        "ln_power": math.log(gpu.tdp_w / 300),
        "ln_hidden": math.log(model.hidden / 4096),
        "pipes_prompts": float(query.engine == "llama.cpp"),
        "runtime": TRTLLM_RUNTIME_BYTES if query.engine == "trtllm" else RUNTIME_BYTES,
    }


def _load_s(query: ServingQuery) -> float:
    """Return the time to load a prompt's cache from host memory: each GPU its share, over its own slot."""
    if not query.loaded_tokens:
        return 0.0
    loaded = kv_bytes(query.model, query.loaded_tokens, query.kv_value_bytes) * kv_copies(query.model, query.tensor)
    return loaded / query.tensor / (slot_gb_s(query.gpu) * BYTES_PER_GB)


def kv_value_bytes(stored: WeightFormat, engine: str, year: int, gpu: Gpu) -> float:
    """Return the bytes of a cached value that an engine picks by itself: FP8 with FP8 or FP4 weights in vLLM, TensorRT-LLM."""
    small = stored in (WeightFormat.FP8, WeightFormat.FP4)
    modern = year >= 2025 and gpu.vendor == "NVIDIA" and engine in ("vllm", "trtllm")
    return 1 if small and modern and gpu.tflops(Precision.FP8) else 2

"""Time of serving a transformer: prefill, decode steps, waves, continuous batching at a concurrency.

All formulas work on columns, one entry a query. The shape is that of the roofline with the fixed costs that a roofline lacks
(a layer's launches, a step, a request: inference-sim `docs/guide/latency-models.md` names the same seven); its constants are
fitted (`data/serving.json`). With F FLOP/s and B bytes/s of one GPU, n GPUs, b requests resident, i input and o output tokens:

    prefill(b)  = soft_max(flops(b i) / (n F) * pre * (1 + tok0 n / (b i)), read / (n B) * w) + play L + all_reduce + pstep
    decode(b)   = soft_max(read(b) / (n B) * w, 2 A b / (n F) * dco) + b kv / (n B) * kv
                  + (lay + moel) L + all_reduce(b) + req b + step
    flops(b i)  = 2 A b i + 2 b L h i^2 att
    read(b)     = weights; of E experts with k a token, a share 1 - (1 - k/E)^b is read
    static batch: waves * (prefill(b) + o decode(b))
    closed loop at b: a request waits phi of the others' prefills before its first token, shares 1 - phi of them after it:
        TTFT = tt0 + twarm / b + tp1 prefill(1) + phi (b - 1) mix prefill(1) + td decode(b) + tslot o TPOT / b
        TPOT = decode(b) + (1 - phi) (b - 1) mix prefill(1) / o
    (tslot: the share of time in which an engine keeps one slot fewer than the concurrency, so that one request waits;
    twarm: a slow first round, of which a short run at a low concurrency sees more)
    full load: b = what memory or the engine's limit lets in; cycle = o decode(b) + b mixm prefill(n) / n,
        with the n = 2048 / i prompts that share a step
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from trimtab.catalog import Gpu, Precision
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.formats import FORMATS, WeightFormat, compute_precision
from trimtab.physics.kv import kv_copies
from trimtab.physics.models import Architecture
from trimtab.physics.terms import Floats, Keys
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS

USABLE_FRAC = 0.90
"""Share of memory an engine plans with (vLLM's default)."""
RUNTIME_BYTES = 3.1 * BYTES_PER_GB
"""Context, graphs and activations per GPU: where Llama-2-70B's batches split into waves on 4 x A100-40GB."""
TRTLLM_RUNTIME_BYTES = 2.8 * BYTES_PER_GB
"""The same for TensorRT-LLM, whose batches split later."""
LEAST_CACHE_FRAC = 0.02
"""Share of memory that an engine which runs at all has for its cache."""
SHARPNESS = 3.0
"""Exponent of the soft maximum: two equal costs give 1.26 of one (kernels overlap compute and memory in part)."""
NARROW_SHARE = 0.7
"""Weight of the narrow precision's rate in a step that mixes it with 16-bit work."""
TFLOPS_PER_W = {"Ampere": 0.45, "Ada": 0.72}
"""Tensor rate a watt of boards with GDDR memory: their prompt speeds follow the power limit and not the peak."""
MICRO_BATCH_TOKENS = 512
"""Prompt tokens that llama.cpp hands from stage to stage at once (its default ubatch-size)."""
CHUNK_TOKENS = 2048
"""Prompt tokens of a step that mixes prefill and decode: short prompts share it and its read of the weights."""
PCIE_GB_S = {3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0}
"""Both directions of a x16 slot by generation, halved below as NVLink's figure is."""
PARALLEL_ATTENTION_FILL_FRAC = 0.62
"""Weights above this share of memory call for another GPU when a deployment's tensor parallelism is not stated."""


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

    @property
    def attention_is_data_parallel(self) -> bool:
        """Say whether each expert-parallel GPU serves its own requests' attention."""
        return self.expert > self.tensor


def chip_of(gpu: Gpu) -> str:
    """Return the chip of a board: what variants of memory, form factor and power share (A100, H100, RTX-4090)."""
    parts = gpu.name.split("-")
    return "-".join(parts[:2]) if parts[0] in ("RTX", "Quadro", "Arc", "Max", "Titan") else parts[0]


def serving_keys(query: ServingQuery) -> Keys:
    """Return the levels by which fitted constants differ."""
    model, gpu = query.model, query.gpu
    engine = query.engine if gpu.vendor == "NVIDIA" else f"{query.engine}/{gpu.vendor}"
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
    """Return the bandwidth between two GPUs of a node in one direction."""
    return (gpu.nvlink_gb_s or PCIE_GB_S.get(gpu.pcie_gen, 32.0)) / 2


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
    embedding = 0 if model.tied else 2 * model.embedding_params
    head = model.embedding_params
    return {
        "active": model.active_params - 2 * head if not model.tied else model.active_params - head,
        "head": head,
        "weights": weights,
        "read": weights - embedding,
        "expert_weights": weights * model.expert_params / model.params,
        "experts": max(model.experts, 1),
        "per_token": model.experts_per_token,
        "moe": float(model.is_moe),
        "layers": model.layers,
        "hidden": model.hidden,
        "query_width": model.heads * model.head_dim,
        "kv_values_bytes": model.kv_values_per_token * query.kv_value_bytes,
        "full_layers": model.kv_layers - model.windowed_layers,
        "window_layers": model.windowed_layers,
        "window": model.window or np.inf,
        "kv_copies": 1.0 if query.attention_is_data_parallel else kv_copies(model, query.tensor),
        "flop_s": tensor_rate_tflops(query) * FLOPS_PER_TFLOPS,
        "byte_s": gpu.mem_bw_gb_s * BYTES_PER_GB,
        "memory": gpu.memory_gib * BYTES_PER_GIB,
        "link": link_gb_s(gpu) * BYTES_PER_GB,
        "gpus": query.gpus,
        "group": query.expert if query.attention_is_data_parallel else query.tensor,
        "stages": query.pipeline,
        "input": query.input_tokens,
        "output": max(query.output_tokens, 1),
        "requests": query.requests,
        "saturates": float(query.load.saturates),
        "static": float(query.load is Load.STATIC),
        "ln_rate": math.log(tensor_rate_tflops(query) / 100),
        "ln_bandwidth": math.log(gpu.mem_bw_gb_s / 1000),
        "ln_power": math.log(gpu.tdp_w / 300),
        "ln_hidden": math.log(model.hidden / 4096),
        "pipes_prompts": float(query.engine == "llama.cpp"),
        "runtime": TRTLLM_RUNTIME_BYTES if query.engine == "trtllm" else RUNTIME_BYTES,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTimes:
    """What serving takes, column by column."""

    prefill_one_s: Floats
    prefill_batch_s: Floats
    decode_s: Floats
    static_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    saturated_tok_s: Floats
    resident: Floats
    weights_s: Floats
    kv_s: Floats
    compute_s: Floats
    network_s: Floats
    overhead_s: Floats


def soft_max(one: Floats, other: Floats) -> Floats:
    """Return a smooth maximum of two costs that overlap in part."""
    return np.asarray((one**SHARPNESS + other**SHARPNESS) ** (1 / SHARPNESS))


def cache_bytes(v: Mapping[str, Floats], context: Floats) -> Floats:
    """Return the key-value cache of one request at a context, over all GPUs of a deployment."""
    windowed = np.minimum(context, v["window"])
    return np.asarray(
        v["kv_values_bytes"] * (v["full_layers"] * context + v["window_layers"] * windowed) * v["kv_copies"]
    )


def capacity(v: Mapping[str, Floats]) -> Floats:
    """Return how many requests fit at once; at least 1 (an engine that runs at all runs one).

    A static batch grows to its full length together; in continuous batching requests are at all stages: the mean context.
    """
    per_deployment = v["group"] * v["stages"]
    budget = USABLE_FRAC * v["memory"] * per_deployment - v["weights"] - v["runtime"] * per_deployment
    context = v["input"] + v["output"] * np.where(v["static"] > 0, 1.0, 0.5)
    least = LEAST_CACHE_FRAC * v["memory"] * per_deployment
    return np.maximum(np.floor(np.maximum(budget, least) / cache_bytes(v, context)), 1)


def _all_reduce(v: Mapping[str, Floats], c: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Two ring all-reduces a layer over the tensor-parallel group: latency and volume."""
    group = v["group"]
    volume = tokens * v["hidden"] * 2 * 2 * (group - 1) / group / v["link"]
    return np.asarray(np.where(group > 1, 2 * v["layers"] * (c["arl"] + volume * c["arb"]), 0.0))


def _read(v: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Weights that a step over `tokens` reads: of the experts, those that some token chose."""
    chosen = 1 - (1 - v["per_token"] / v["experts"]) ** np.minimum(tokens, 1e6)
    return np.asarray(v["read"] - v["expert_weights"] * np.where(v["moe"] > 0, 1 - chosen, 0.0))


def prefill_s(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    """Return the time to read the prompts of `requests` requests; under full load all pipeline stages are busy."""
    tokens = requests * v["input"]
    shards = v["group"] * _busy_stages(v, c, tokens)
    split = v["group"] * np.where(v["pipes_prompts"] > 0, 1, v["stages"])
    attention = 2 * v["layers"] * v["query_width"] * v["input"] ** 2 * c["att"]
    one = 2 * v["active"] * v["input"] + attention + 2 * v["head"]
    compute = one * requests / (shards * v["flop_s"]) * c["pre"] * (1 + c["tok0"] / tokens * split)
    memory = _read(v, tokens) / (_weight_shards(v) * v["byte_s"]) * c["w"]
    return np.asarray(soft_max(compute, memory) + c["play"] * v["layers"] + _all_reduce(v, c, tokens) + c["pstep"])


def _busy_stages(v: Mapping[str, Floats], c: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Return how many pipeline stages work at once while a prompt is read.

    llama.cpp sends it through in micro-batches of 512 tokens: of G stages G m / (m + G - 1) are busy with m of them. Under full
    load all are; else the geometric mean of one and all.
    """
    stages = v["stages"]
    micro = np.maximum(tokens / MICRO_BATCH_TOKENS, 1)
    piped = (stages * micro / (micro + stages - 1)) ** np.minimum(c["pipe"], 1)
    waiting = np.where(v["pipes_prompts"] > 0, piped, np.sqrt(stages))
    return np.asarray(np.where(v["saturates"] > 0, stages, waiting))


def _weight_shards(v: Mapping[str, Floats]) -> Floats:
    """Pipeline stages read their weights once per micro-batch, so only the tensor-parallel degree divides that time."""
    return v["group"]


def _is_alone(v: Mapping[str, Floats]) -> npt.NDArray[np.bool_]:
    """Say where one request crosses pipeline stages one after another."""
    return np.asarray((v["stages"] > 1) & (v["requests"] < 2) & (v["saturates"] == 0))


def _parts(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> tuple[Floats, Floats, Floats]:
    alone = _is_alone(v)
    shards = np.where(alone, v["group"], v["group"] * v["stages"])
    weights = _read(v, requests) / (_weight_shards(v) * v["byte_s"]) * c["w"] * np.where(v["moe"] > 0, c["moew"], 1.0)
    cache = requests * cache_bytes(v, v["input"] + v["output"] / 2) / (shards * v["byte_s"]) * c["kv"]
    compute = 2 * (v["active"] + v["head"]) * requests / (shards * v["flop_s"]) * c["dco"]
    return np.asarray(weights), np.asarray(cache), np.asarray(compute)


def _overhead(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    return np.asarray((c["lay"] + v["moe"] * c["moel"]) * v["layers"] + c["req"] * requests + c["step"])


def decode_s(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    """Return the time of one decode step over `requests` requests at mean context."""
    weights, cache, compute = _parts(v, c, requests)
    work = soft_max(weights, compute) + cache
    shared = (v["stages"] > 1) & (v["saturates"] == 0) & ~_is_alone(v)
    hand_over = np.where(shared, work * (v["stages"] - 1) * c["ppx"], 0.0)
    return np.asarray(work + hand_over + _overhead(v, c, requests) + _all_reduce(v, c, requests))


def serving_times(v: Mapping[str, Floats], c: Mapping[str, Floats]) -> ServingTimes:
    """Return all times of the queries in `serving_columns` under the coefficients of `serving_coefficients`."""
    deployment = v["group"] * v["stages"]
    replicas = np.maximum(v["gpus"] / deployment, 1)
    fit = capacity(v)
    wanted = np.where(v["saturates"] > 0, np.minimum(fit, c["limit"] * deployment ** c["bexp"]), v["requests"])
    waves = np.where(v["static"] > 0, np.ceil(wanted / fit), np.maximum(wanted / fit, 1))
    resident = wanted / waves
    one, batch, step = prefill_s(v, c, np.ones_like(fit)), prefill_s(v, c, resident), decode_s(v, c, resident)
    output, scale = v["output"], c["glob"]
    mixed = one * c["mix"]
    chunk = np.clip(CHUNK_TOKENS / v["input"], 1, np.maximum(resident, 1))
    shared = prefill_s(v, c, chunk) / chunk
    phi = np.minimum(c["tq"], 0.95)
    tpot = (step + (1 - phi) * (resident - 1) * mixed / output) * scale
    first = c["tt0"] + c["twarm"] / resident + one * c["tp1"] + phi * (resident - 1) * mixed + step * c["td"]
    queued = np.where(waves > 1, (waves - 1) * output * tpot * 0.5, 0.0) + c["tslot"] * output * tpot / resident
    weights, cache, compute = _parts(v, c, resident)
    return ServingTimes(
        prefill_one_s=one * scale,
        prefill_batch_s=batch * scale,
        decode_s=step * scale,
        static_s=waves * (batch + output * step) * scale / replicas,
        ttft_s=first * scale * c["tglob"] + queued,
        tpot_s=tpot,
        saturated_tok_s=resident * output / ((output * step + resident * shared * c["mixm"]) * scale) * replicas,
        resident=resident,
        weights_s=weights * scale,
        kv_s=cache * scale,
        compute_s=compute * scale,
        network_s=_all_reduce(v, c, resident) * scale,
        overhead_s=_overhead(v, c, resident) * scale,
    )


def least_tensor_parallel(model: Architecture, stored: WeightFormat, gpu: Gpu, most: int) -> int:
    """Return the smallest power of two of GPUs whose memory the weights fill to at most 62 %, up to `most`."""
    degree = 1
    need = weight_bytes(model, stored)
    while need > PARALLEL_ATTENTION_FILL_FRAC * degree * gpu.memory_gib * BYTES_PER_GIB and degree < most:
        degree *= 2
    return degree


def kv_value_bytes(stored: WeightFormat, engine: str, year: int, gpu: Gpu) -> float:
    """Return the bytes of a cached value that an engine picks by itself: FP8 with FP8 or FP4 weights in vLLM, TensorRT-LLM."""
    small = stored in (WeightFormat.FP8, WeightFormat.FP4)
    modern = year >= 2025 and gpu.vendor == "NVIDIA" and engine in ("vllm", "trtllm")
    return 1 if small and modern and gpu.tflops(Precision.FP8) else 2

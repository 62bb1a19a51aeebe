"""Speed of well-known workloads other than language models, by transfer: CNN, BERT, diffusion, recommendation, speech.

Their throughput was measured on many boards. The logarithm is a sum of the workload's own level, slopes on what a board offers
(tensor rate at the precision, bandwidth, FP32 rate, power, memory), a slope on the number of GPUs, and what remains of an
architecture, chip or board (`data/workloads.json`). Slopes per task lean on the slope of all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import Gpu, Precision
from trimtab.physics.serving import chip_of, has_switched_nvlink
from trimtab.physics.terms import Floats, Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery:
    """One question: the throughput of a public benchmark on some boards.

    `domain` is the benchmark's kind (mlp, lam, ...), `precision` one of fp32, tf32, fp16, int8, fp8, fp4, `setting` what else
    fixes it (batch and length), `device_frac` the share of the board that was used (a MIG slice).
    """

    task: str
    gpu: Gpu
    gpus: int
    precision: str
    domain: str
    mode: str
    metric: str
    setting: str = ""
    device_frac: float = 1.0
    smallness: float = 0.0
    """How far launches, not work, bound a step: near 1 for one image or one short sequence, 0 for a full GPU."""


def rate_tflops(gpu: Gpu, precision: str) -> float:
    """Return the rate at which a board computes in a precision, or in the nearest one that it has."""
    half = gpu.tflops(Precision.FP16) or gpu.fp32_tflops
    match precision:
        case "fp32":
            return gpu.fp32_tflops
        case "tf32":
            return gpu.tflops(Precision.TF32) or gpu.fp32_tflops
        case "int8":
            whole = gpu.tflops(Precision.INT8)
            return whole if whole and whole > 0.9 * half else gpu.tflops(Precision.FP8) or half
        case "fp8":
            return gpu.tflops(Precision.FP8) or gpu.tflops(Precision.INT8) or half
        case "fp4":
            return gpu.tflops(Precision.FP4) or gpu.tflops(Precision.FP8) or half
        case _:
            return half


def workload_keys(query: WorkloadQuery) -> Keys:
    """Return the levels by which throughput differs."""
    workload = "/".join((query.task, query.mode, query.metric, query.domain, query.setting))
    return {
        "workload": workload,
        "workload_precision": f"{workload}/{query.precision}",
        "task": query.task,
        "precision": query.precision,
        "domain": query.domain,
        "suite": "" if query.setting else query.domain,
        "board": query.gpu.name,
        "chip": chip_of(query.gpu),
        "architecture": query.gpu.architecture,
    }


def _numbers(query: WorkloadQuery) -> dict[str, float]:
    gpu = query.gpu
    gpus = math.log(max(query.gpus, 1))
    return {
        "ln_rate": math.log(rate_tflops(gpu, query.precision) / 100),
        "ln_bandwidth": math.log(gpu.mem_bw_gb_s / 1000),
        "ln_fp32": math.log(gpu.fp32_tflops / 20),
        "ln_power": math.log(gpu.tdp_w / 300),
        "ln_memory": math.log(gpu.memory_gib / 40),
        "ln_gpus": gpus,
        "ln_gpus_over_pcie": 0.0 if has_switched_nvlink(gpu) else gpus,
        "slice": float(query.device_frac < 1),
        "ln_rate_small": math.log(rate_tflops(gpu, query.precision) / 100) * query.smallness,
        "ln_bandwidth_small": math.log(gpu.mem_bw_gb_s / 1000) * query.smallness,
    }


def workload_columns(queries: Sequence[WorkloadQuery]) -> dict[str, Floats]:
    """Return the numbers that terms multiply, `(n,)` each."""
    rows = [_numbers(query) for query in queries]
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}

"""Speed of public benchmarks of models that generate no text, by transfer: CNN, BERT, diffusion, recommendation, speech.

Their throughput was measured on many boards. The logarithm is a sum of the workload's own level, slopes on what a board offers
(tensor rate at the precision, bandwidth, FP32 rate, power, memory), a slope on the number of GPUs, and what remains of an
architecture, chip or board (`data/workloads.json`). Slopes per task lean on the slope of all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import Gpu, Precision
from trimtab.errors import Unpredictable
from trimtab.physics.intervals import board_class, class_keys
from trimtab.physics.predict import Model, knows, packaged
from trimtab.physics.serving_query import chip_of, has_switched_nvlink
from trimtab.physics.terms import Floats, Keys, Terms
from trimtab.provenance import Estimate
from trimtab.units import GFLOPS_PER_TFLOPS

FITTED = "workloads"
"""The packaged fit."""
ASKED = "workload"
"""The class of these answers' intervals."""

LAUNCHES_S = 2e-3
"""Time of a step's launches, in time at the peak rate: a few hundred kernels from Python, at half of the peak."""
FUSED_LAUNCHES_S = 2e-4
"""The same from a compiled engine with fused layers."""
TYPICAL_L2_MB = 40.0
TYPICAL_SMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery:
    """One question: the throughput of a public benchmark on some boards.

    `domain` is the benchmark's kind (mlp, lam, ...), `precision` one of fp32, tf32, fp16, int8, fp8, fp4, `device_frac` the
    share of the board that was used (a MIG slice).
    """

    task: str
    gpu: Gpu
    gpus: int
    precision: str
    domain: str
    mode: str
    metric: str
    device_frac: float = 1.0
    unit_gflop: float = 1.0
    """Work of what the throughput counts (an image, a sequence); 1 where its own measurements alone fix the level."""
    step_gflop: float = 0.0
    """Work of one step, whose launches bound small batches; 0 for a step that fills the GPU."""

    @property
    def is_one_batch(self) -> bool:
        """Say whether the question fixes the batch, so that work is known."""
        return self.step_gflop > 0

    @property
    def units_of_work(self) -> float:
        """Return what the fitted speed multiplies: the share of the board over the work of a unit."""
        return self.device_frac / self.unit_gflop


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
    counted = ("batch",) if query.is_one_batch else (query.mode, query.metric, query.domain)
    workload = "/".join((query.task, *counted))
    return {
        "workload": workload,
        "workload_precision": f"{workload}/{query.precision}",
        "task": query.task,
        "precision": query.precision,
        "domain": query.domain,
        "suite": "" if query.is_one_batch else query.domain,
        "count": str(query.gpus),
        "board": query.gpu.name,
        "chip": chip_of(query.gpu),
        "architecture": query.gpu.architecture,
    }


def _launches(query: WorkloadQuery, launches_s: float) -> float:
    """Return ln(1 + launches over work) of a step: large for one image or one short sequence, 0 for a full GPU."""
    if not query.is_one_batch:
        return 0.0
    at_peak_s = query.step_gflop / (rate_tflops(query.gpu, query.precision) * GFLOPS_PER_TFLOPS)
    return math.log1p(launches_s / at_peak_s)


def _numbers(query: WorkloadQuery) -> dict[str, float]:
    gpu = query.gpu
    gpus = math.log(max(query.gpus, 1))
    rate = math.log(rate_tflops(gpu, query.precision) / 100)
    bandwidth = math.log(gpu.mem_bw_gb_s / 1000)
    return {
        "ln_rate": rate,
        "ln_rate_squared": rate**2,
        "ln_bandwidth": bandwidth,
        "ln_bandwidth_squared": bandwidth**2,
        "ln_fp32": math.log(gpu.fp32_tflops / 20),
        "ln_power": math.log(gpu.tdp_w / 300),
        "ln_memory": math.log(gpu.memory_gib / 40),
        "ln_l2": math.log((gpu.l2_mb or TYPICAL_L2_MB) / TYPICAL_L2_MB),
        "ln_sms": math.log((gpu.sm_count or TYPICAL_SMS) / TYPICAL_SMS),
        "ln_gpus": gpus,
        "ln_gpus_over_pcie": 0.0 if has_switched_nvlink(gpu) else gpus,
        "slice": float(query.device_frac < 1),
        "launches": _launches(query, LAUNCHES_S),
        "fused_launches": _launches(query, FUSED_LAUNCHES_S),
    }


def workload_columns(queries: Sequence[WorkloadQuery]) -> dict[str, Floats]:
    """Return the numbers that terms multiply, `(n,)` each."""
    rows = [_numbers(query) for query in queries]
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def workload_support(tables: Mapping[str, Terms], keys: Keys) -> int:
    """Return how near measurements are: the workload itself, and the chip."""
    scale = tables["throughput"]
    return int(knows(scale, ("workload",), keys["workload"])) + int(knows(scale, ("chip",), keys["chip"]))


def workload_classes(query: WorkloadQuery, tables: Mapping[str, Terms]) -> tuple[str, ...]:
    """Return the interval classes of another workload's question."""
    return class_keys(ASKED, workload_support(tables, workload_keys(query)), board_class(query.gpu))


def predict_workload(query: WorkloadQuery, model: Model | None = None) -> Estimate:
    """Predict the throughput of a public benchmark; raises Unpredictable for one that was never measured."""
    model = model or packaged(FITTED)
    keys = workload_keys(query)
    if not any(query.task in term.values for term in model.tables["throughput"].terms if term.by == ("task",)):
        raise Unpredictable(f"no measurement of {query.task!r} on any board: measure it once, then transfer")
    log = model.tables["throughput"].at([keys], workload_columns([query]))[0]
    speed = float(np.exp(log)) * query.units_of_work
    return model.intervals.estimate(speed, workload_classes(query, model.tables), because=model.source)

"""Rooflines: arithmetic intensity of prefill and decode, what a GPU can do with it, and which side binds.

Intensity is FLOPs over bytes moved. Prefill of t tokens reads the weights once: 2 A t FLOPs over the weight bytes. A decode
step over b requests does 2 A b FLOPs and reads the weights and b caches: about one FLOP a byte at batch 1 in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from trimtab.catalog import Gpu
from trimtab.errors import Unpredictable
from trimtab.physics.footprint import kv_bytes, weight_bytes
from trimtab.physics.formats import FORMATS, compute_precision, native_precision
from trimtab.physics.serving_query import ServingQuery
from trimtab.physics.training import Recompute, Training, training_footprint
from trimtab.physics.transfer import Binding
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS


class Phase(Enum):
    """The two phases of generating text, and a step of training."""

    PREFILL = "prefill"
    DECODE = "decode"
    STEP = "training step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A phase on a roofline: FLOPs a byte, the most a GPU does with it, and what binds."""

    phase: Phase
    flop_per_byte: float
    attainable_tflops: float
    binding: Binding


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A GPU's roof at a query's precision, and the query's phases under it."""

    gpu: Gpu
    peak_tflops: float
    ridge_flop_per_byte: float
    points: tuple[Point, ...]


def intensity(query: ServingQuery, phase: Phase) -> float:
    """Return FLOPs a byte of a phase for the query's requests at mean context."""
    weights = weight_bytes(query.model, query.stored)
    match phase:
        case Phase.PREFILL:
            tokens = query.requests * query.input_tokens
            return 2 * query.model.active_params * tokens / weights
        case Phase.DECODE:
            # halfway through the answer a cache has its mean length
            context = query.input_tokens + query.output_tokens / 2
            caches = query.requests * kv_bytes(query.model, context, query.kv_value_bytes)
            # b tokens touch at most b times the active share of the weights, and never more than all of them
            touched = min(1.0, query.model.active_b / query.model.params_b * max(query.requests, 1))
            return 2 * query.model.active_params * query.requests / (weights * touched + caches)
        case Phase.STEP:
            raise Unpredictable("a serving query has no training step; ask training_roofline")
        case _:
            assert_never(phase)


def roofline(query: ServingQuery) -> Roofline:
    """Return the roof of the query's GPU at its precision with both phases placed under it."""
    gpu = query.gpu
    peak = gpu.tflops(compute_precision(gpu, FORMATS[query.stored].compute)) or gpu.fp32_tflops
    # FLOPs a byte at which bandwidth and tensor rate take equally long
    ridge = peak * FLOPS_PER_TFLOPS / (gpu.mem_bw_gb_s * BYTES_PER_GB)
    points = tuple(_point(phase, intensity(query, phase), peak, ridge) for phase in (Phase.PREFILL, Phase.DECODE))
    return Roofline(gpu=gpu, peak_tflops=peak, ridge_flop_per_byte=ridge, points=points)


def training_roofline(plan: Training, gpu: Gpu) -> Roofline:
    """Return the roof of a GPU at its 16-bit rate with a training step placed under it.

    A step does 6 FLOPs a parameter and token (8 with full recomputation, 2 fewer where only adapters get gradients). It reads
    and writes weights, gradients and states once, and each kept activation once on the way forward and once on the way back: a
    lower bound of the traffic, so an upper one of the intensity.
    """
    peak = gpu.tflops(native_precision(gpu)) or gpu.fp32_tflops
    ridge = peak * FLOPS_PER_TFLOPS / (gpu.mem_bw_gb_s * BYTES_PER_GB)
    # 2 for the forward pass, 2 for gradients of activations, 2 for those of weights, which a frozen base skips
    per_token = (6 if plan.trains_all else 4) + (2 if plan.recompute is Recompute.FULL else 0)
    flops = per_token * plan.model.active_params * plan.micro_batch * plan.sequence
    moved = 2 * training_footprint(plan).total_gib * BYTES_PER_GIB
    return Roofline(
        gpu=gpu, peak_tflops=peak, ridge_flop_per_byte=ridge, points=(_point(Phase.STEP, flops / moved, peak, ridge),)
    )


def _point(phase: Phase, found: float, peak_tflops: float, ridge: float) -> Point:
    return Point(
        phase=phase,
        flop_per_byte=found,
        # left of the ridge the rate rises with the intensity; right of it is the flat roof
        attainable_tflops=peak_tflops * min(1.0, found / ridge),
        binding=Binding.COMPUTE if found >= ridge else Binding.MEMORY,
    )

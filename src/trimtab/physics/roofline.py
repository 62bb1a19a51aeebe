"""Rooflines: arithmetic intensity of prefill and decode, what a GPU can do with it, and which side binds.

Intensity is FLOPs over bytes moved. Prefill of t tokens reads the weights once: 2 A t FLOPs over the weight bytes. A decode
step over b requests does 2 A b FLOPs and reads the weights and b caches: about one FLOP a byte at batch 1 in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import Gpu
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.formats import FORMATS, compute_precision
from trimtab.physics.kv import kv_bytes
from trimtab.physics.serving import ServingQuery
from trimtab.physics.transfer import Binding
from trimtab.units import BYTES_PER_GB, FLOPS_PER_TFLOPS


class Phase(Enum):
    """The two phases of generating text."""

    PREFILL = "prefill"
    DECODE = "decode"


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
            context = query.input_tokens + query.output_tokens / 2
            caches = query.requests * kv_bytes(query.model, context, query.kv_value_bytes)
            touched = min(1.0, query.model.active_b / query.model.params_b * max(query.requests, 1))
            return 2 * query.model.active_params * query.requests / (weights * touched + caches)


def roofline(query: ServingQuery) -> Roofline:
    """Return the roof of the query's GPU at its precision with both phases placed under it."""
    gpu = query.gpu
    peak = gpu.tflops(compute_precision(gpu, FORMATS[query.stored].compute)) or gpu.fp32_tflops
    ridge = peak * FLOPS_PER_TFLOPS / (gpu.mem_bw_gb_s * BYTES_PER_GB)
    points = tuple(_point(query, phase, peak, ridge) for phase in Phase)
    return Roofline(gpu=gpu, peak_tflops=peak, ridge_flop_per_byte=ridge, points=points)


def _point(query: ServingQuery, phase: Phase, peak_tflops: float, ridge: float) -> Point:
    found = intensity(query, phase)
    return Point(
        phase=phase,
        flop_per_byte=found,
        attainable_tflops=peak_tflops * min(1.0, found / ridge),
        binding=Binding.COMPUTE if found >= ridge else Binding.MEMORY,
    )

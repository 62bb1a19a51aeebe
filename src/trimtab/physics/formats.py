"""Number formats of weights and caches: what a value costs in memory, and at which rate its products run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import Gpu, Precision
from trimtab.errors import UnknownName


class WeightFormat(Enum):
    """How weights are stored, in the words of the engines that store them so."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    NF4 = "nf4"
    NF4_DQ = "nf4-dq"
    FP4 = "fp4"
    Q4_K_M = "q4_k_m"
    Q8_0 = "q8_0"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFacts:
    """Bytes of a stored weight, scales included, whether embeddings stay in 16 bits, and the products' precision."""

    weight_bytes: float
    head_16_bit: bool
    compute: Precision
    source: str


FORMATS: dict[WeightFormat, FormatFacts] = {
    WeightFormat.FP32: FormatFacts(weight_bytes=4, head_16_bit=False, compute=Precision.TF32, source="by definition"),
    WeightFormat.BF16: FormatFacts(weight_bytes=2, head_16_bit=False, compute=Precision.BF16, source="by definition"),
    WeightFormat.FP16: FormatFacts(weight_bytes=2, head_16_bit=False, compute=Precision.FP16, source="by definition"),
    WeightFormat.FP8: FormatFacts(
        weight_bytes=1, head_16_bit=True, compute=Precision.FP8, source="OCP FP8, tensor scales"
    ),
    WeightFormat.INT8: FormatFacts(weight_bytes=1, head_16_bit=True, compute=Precision.INT8, source="row scales"),
    WeightFormat.INT4: FormatFacts(
        weight_bytes=0.52,
        head_16_bit=True,
        compute=Precision.FP16,
        source="AWQ, GPTQ: groups of 128 with a 16-bit scale",
    ),
    WeightFormat.NF4: FormatFacts(
        weight_bytes=0.5625, head_16_bit=True, compute=Precision.BF16, source="arXiv 2305.14314: 32-bit scale per 64"
    ),
    WeightFormat.NF4_DQ: FormatFacts(
        weight_bytes=0.516, head_16_bit=True, compute=Precision.BF16, source="arXiv 2305.14314: 0.127 bit of scales"
    ),
    WeightFormat.FP4: FormatFacts(
        weight_bytes=0.5625, head_16_bit=True, compute=Precision.FP4, source="NVFP4: 8-bit scale per 16 values"
    ),
    WeightFormat.Q4_K_M: FormatFacts(
        weight_bytes=0.606, head_16_bit=False, compute=Precision.FP16, source="llama.cpp: 4.85 bits a weight"
    ),
    WeightFormat.Q8_0: FormatFacts(
        weight_bytes=1.0625, head_16_bit=False, compute=Precision.FP16, source="llama.cpp: 8.5 bits a weight"
    ),
}

# The first match wins, so a spelling stands before those that it contains: nf4-dq before nf4, bf16 before f16.
_WORDS: tuple[tuple[str, WeightFormat], ...] = (
    (r"nf4-dq|nf4dq", WeightFormat.NF4_DQ),
    (r"nf4(?!p)|bnb", WeightFormat.NF4),
    (r"q4_k|q4km", WeightFormat.Q4_K_M),
    (r"q8_0", WeightFormat.Q8_0),
    (r"nvfp4|mxfp4|fp4", WeightFormat.FP4),
    (r"int4|uint4|awq|gptq|w4", WeightFormat.INT4),
    (r"fp8|mxfp8|e4m3|f8", WeightFormat.FP8),
    (r"int8|w8", WeightFormat.INT8),
    (r"bf16|bfloat16", WeightFormat.BF16),
    (r"fp16|float16|f16|half", WeightFormat.FP16),
    (r"fp32|tf32|float32|f32", WeightFormat.FP32),
)


def weight_format(text: str) -> WeightFormat:
    """Read a format in any engine's spelling (`awq-int4`, `bnb.nf4`, `amp_bf16`, `MXFP8`); raises UnknownName."""
    folded = text.casefold().strip()
    for pattern, found in _WORDS:
        if re.search(pattern, folded):
            return found
    raise UnknownName("number format", text, (weight.value for weight in WeightFormat))


def compute_precision(gpu: Gpu, wanted: Precision) -> Precision:
    """Return the precision at which the products really run: the wanted one, or the widest 16-bit path the GPU has."""
    # without a path of its own a narrow format is widened before the product
    for precision in (wanted, Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32):
        if gpu.tflops(precision) is not None:
            return precision
    return Precision.FP32

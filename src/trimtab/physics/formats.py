"""Number formats of weights and caches: what a value costs in memory, which generation of GPUs runs it, what makes it.

What a method does to the answers depends on the model: only an evaluation tells. What it costs is known: bytes a weight
(`formats.FORMATS`), and what must be run to make the weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from trimtab.catalog import Gpu, Precision
from trimtab.errors import InputError, UnknownName


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


ENGINE_CAPABILITY = 7.0
"""vLLM, SGLang and TensorRT-LLM start at Volta (vllm, docs/getting_started: compute capability 7.0 or higher)."""
FLASH_ATTENTION_CAPABILITY = 8.0
"""FlashAttention-2 runs from Ampere on (Dao-AILab/flash-attention, README: Ampere, Ada, Hopper)."""
WEIGHT_ONLY_CAPABILITY = 7.5
"""AWQ and Marlin kernels of vLLM start at Turing (vllm, docs/features/quantization: supported hardware)."""
FP8_MARLIN_CAPABILITY = 8.0
"""On Ampere vLLM runs FP8 weights as weight-only through Marlin; below it cannot."""
CUDA_BY_ARCHITECTURE: dict[str, tuple[str, str]] = {
    "Volta": ("9.0", "384.81"),
    "Turing": ("10.0", "410.48"),
    "Ampere": ("11.0", "450.36"),
    "Ada": ("11.8", "520.61"),
    "Hopper": ("11.8", "520.61"),
    "Blackwell": ("12.8", "570.26"),
    "Blackwell Ultra": ("12.9", "575.51"),
}
"""Oldest CUDA toolkit that knows an architecture and the Linux driver it came with (CUDA release notes, table 3)."""


def native_precision(gpu: Gpu) -> Precision:
    """Return the 16-bit precision that a GPU's tensor path has: bf16 from Ampere on, fp16 on Volta and Turing."""
    return Precision.BF16 if gpu.tflops(Precision.BF16) else Precision.FP16


def why_not(gpu: Gpu, stored: WeightFormat) -> str:
    """Return why an engine cannot run weights stored so on a GPU; empty where it can."""
    capability = gpu.compute_capability
    # capabilities are NVIDIA's: boards of others are not judged by them
    if capability is None:
        return ""
    if capability < ENGINE_CAPABILITY:
        return f"serving engines need compute capability {ENGINE_CAPABILITY}; {gpu.name} is {capability}"
    match stored:
        case WeightFormat.BF16 if not gpu.tflops(Precision.BF16):
            return f"{gpu.name} (compute capability {capability}) has no bf16 path: use fp16"
        case WeightFormat.FP8 if capability < FP8_MARLIN_CAPABILITY:
            return f"FP8 needs Ada or Hopper, or Ampere for weight-only kernels; {gpu.name} is {capability}"
        case WeightFormat.FP4 if not gpu.tflops(Precision.FP4):
            return f"FP4 products need Blackwell; {gpu.name} is {gpu.architecture}"
        case WeightFormat.INT4 | WeightFormat.NF4 | WeightFormat.NF4_DQ if capability < WEIGHT_ONLY_CAPABILITY:
            return f"4-bit weight-only kernels need compute capability {WEIGHT_ONLY_CAPABILITY}; {gpu.name} is {capability}"
        case _:
            return ""


def too_old(gpu: Gpu, *, driver: str | None, cuda: str | None) -> str:
    """Return why an installed driver or CUDA does not run a GPU; empty where it does, or nothing was said."""
    # nothing is known of the drivers of other architectures: they are not ruled out
    if gpu.architecture not in CUDA_BY_ARCHITECTURE:
        return ""
    oldest_cuda, oldest_driver = CUDA_BY_ARCHITECTURE[gpu.architecture]
    for what, have, needs in (("driver", driver, oldest_driver), ("CUDA", cuda, oldest_cuda)):
        if have is not None and _version(have) < _version(needs):
            return f"{gpu.architecture} needs {what} {needs} or newer, yours is {have}"
    return ""


def _version(text: str) -> tuple[int, ...]:
    """Read a version such as 535.104.05; raises InputError."""
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        raise InputError(f"{text!r} is not a version; write 535.104 or 12.4") from None


def notes(gpu: Gpu) -> tuple[str, ...]:
    """Return what a user of a GPU should know: missing kernels, oldest CUDA and driver."""
    found = []
    if gpu.compute_capability is not None and gpu.compute_capability < FLASH_ATTENTION_CAPABILITY:
        found.append("no FlashAttention-2 (needs compute capability 8.0): attention runs on slower kernels")
    if (oldest := oldest_software(gpu)) is not None:
        found.append(oldest)
    return tuple(found)


def oldest_software(gpu: Gpu) -> str | None:
    """Return the oldest CUDA and driver that run a GPU, in words; None where they are not known."""
    if gpu.architecture not in CUDA_BY_ARCHITECTURE:
        return None
    cuda, driver = CUDA_BY_ARCHITECTURE[gpu.architecture]
    return f"CUDA {cuda} and driver {driver} or newer"


def is_four_bit(stored: WeightFormat) -> bool:
    """Return whether weights are stored in about 4 bits."""
    return FORMATS[stored].weight_bytes < 1


def asked_formats(gpu: Gpu) -> tuple[WeightFormat, ...]:
    """Return the formats that a person would ask about on a GPU, widest first; some it may not run."""
    # where bf16 has no path it is asked for all the same, so that the answer says why not
    wide = (WeightFormat.BF16,) if native_precision(gpu) is Precision.BF16 else (WeightFormat.BF16, WeightFormat.FP16)
    return (*wide, WeightFormat.FP8, WeightFormat.INT4, WeightFormat.FP4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """One method: the format that it stores, what it takes to make the weights, and where that is stated."""

    name: str
    stored: WeightFormat
    takes: str
    source: str


AWQ = Quantizer(
    name="AWQ",
    stored=WeightFormat.INT4,
    takes="a small calibration set; scales are searched layer by layer, without gradients",
    source="Lin et al., arXiv 2306.00978",
)
GPTQ = Quantizer(
    name="GPTQ",
    stored=WeightFormat.INT4,
    takes="128 calibration sequences of 2,048 tokens; about 4 hours on one A100 for 175 billion weights",
    source="Frantar et al., arXiv 2210.17323",
)
FP8 = Quantizer(
    name="FP8",
    stored=WeightFormat.FP8,
    takes="no calibration data with dynamic scales of activations",
    source="docs.vllm.ai, features/quantization/fp8",
)
QAT = Quantizer(
    name="QAT",
    stored=WeightFormat.INT4,
    takes="a fine-tuning run of all weights with rounding in the loop (8 billion weights: at least 6 GPUs of 80 GB)",
    source="pytorch/torchtune, recipes/qat_distributed",
)


def next_quantizers(rejected: str) -> tuple[Quantizer, ...]:
    """Return what to try after a method or format whose answers were refused, least work first.

    The same bytes rounded in another way come first, then more bits, then training in the refused format. Empty for training
    itself. Raises UnknownName for what is no format.

    >>> [method.name for method in next_quantizers("awq")], [method.name for method in next_quantizers("fp8")]
    (['GPTQ', 'FP8', 'QAT'], ['QAT'])
    """
    trained = replace(QAT, stored=weight_format(rejected.casefold().replace("qat", "int4")))
    if "qat" in rejected.casefold():
        return (FP8,)
    narrow = FORMATS[trained.stored].weight_bytes < FORMATS[WeightFormat.FP8].weight_bytes
    ladder = (AWQ, GPTQ, FP8, trained) if narrow else (FP8, trained)
    return tuple(
        method
        for method in ladder
        if method.name.casefold() not in rejected.casefold() and (method is not FP8 or trained.stored is not FP8.stored)
    )

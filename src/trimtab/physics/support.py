"""What a GPU's generation can run: number formats, attention kernels, and the oldest driver and CUDA it needs."""

from __future__ import annotations

from trimtab.catalog import Gpu, Precision
from trimtab.errors import InputError
from trimtab.physics.formats import WeightFormat

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
        raise InputError(f"{text!r} is no version; write 535.104 or 12.4") from None


def notes(gpu: Gpu) -> tuple[str, ...]:
    """Return what a user of a GPU should know: missing kernels, oldest CUDA and driver."""
    found = []
    if gpu.compute_capability is not None and gpu.compute_capability < FLASH_ATTENTION_CAPABILITY:
        found.append("no FlashAttention-2 (needs compute capability 8.0): attention runs on slower kernels")
    if gpu.architecture in CUDA_BY_ARCHITECTURE:
        cuda, driver = CUDA_BY_ARCHITECTURE[gpu.architecture]
        found.append(f"CUDA {cuda} and driver {driver} or newer")
    return tuple(found)


def asked_formats(gpu: Gpu) -> tuple[WeightFormat, ...]:
    """Return the formats that a person would ask about on a GPU, widest first; some it may not run."""
    # where bf16 has no path it is asked for all the same, so that the answer says why not
    wide = (WeightFormat.BF16,) if native_precision(gpu) is Precision.BF16 else (WeightFormat.BF16, WeightFormat.FP16)
    return (*wide, WeightFormat.FP8, WeightFormat.INT4, WeightFormat.FP4)

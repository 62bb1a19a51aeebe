"""GPUs by their data sheets, and how fast a piece of work truly is on each.

Dense half-precision rates and memory bandwidths are the vendors' (NVIDIA data sheets of T4, V100, A10/A10G, A100, L4, L40S,
H100 SXM, H200, B200, RTX PRO 6000 Blackwell Server Edition; sparsity never counted).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What a data sheet says of a GPU."""

    tflops: float
    """Dense, half precision, tensor cores."""
    bandwidth_gb_s: float
    memory_gib: float


GPUS = {
    "T4": Gpu(tflops=65, bandwidth_gb_s=320, memory_gib=15.0),
    "V100-SXM2-16GB": Gpu(tflops=125, bandwidth_gb_s=900, memory_gib=16.0),
    "V100-SXM2-32GB": Gpu(tflops=125, bandwidth_gb_s=900, memory_gib=32.0),
    "A10G": Gpu(tflops=70, bandwidth_gb_s=600, memory_gib=22.5),
    "L4": Gpu(tflops=121, bandwidth_gb_s=300, memory_gib=22.5),
    "L40S": Gpu(tflops=362, bandwidth_gb_s=864, memory_gib=44.7),
    "RTX-PRO-6000-Server": Gpu(tflops=468, bandwidth_gb_s=1597, memory_gib=95.6),
    "A100-SXM4-40GB": Gpu(tflops=312, bandwidth_gb_s=1555, memory_gib=40.0),
    "A100-SXM4-80GB": Gpu(tflops=312, bandwidth_gb_s=2039, memory_gib=80.0),
    "H100-SXM5-80GB": Gpu(tflops=989, bandwidth_gb_s=3350, memory_gib=79.6),
    "H200-SXM5-141GB": Gpu(tflops=989, bandwidth_gb_s=4800, memory_gib=140.4),
    "B200-SXM-180GB": Gpu(tflops=2250, bandwidth_gb_s=7700, memory_gib=178.0),
}


def relative_speed(gpu: str, home: str, *, compute_frac: float, host_frac: float = 0.0) -> float | None:
    """Return how many times as fast work runs on a GPU as at home; None for a GPU that the world does not have.

    Of its time at home, `host_frac` is spent on the host (the same everywhere), `compute_frac` in arithmetic, the rest in
    moving data: the roofline, part by part.
    """
    there, here = GPUS.get(gpu), GPUS.get(home)
    if there is None or here is None:
        return None
    time = host_frac + compute_frac * here.tflops / there.tflops
    time += (1 - host_frac - compute_frac) * here.bandwidth_gb_s / there.bandwidth_gb_s
    return 1 / time

"""The machines that demonstration fleets rent: what one node holds, and its list price.

Prices are on-demand list prices, AWS us-east-1 as of 2026-07-20 and GCP us-central1 as of 2026-08-03; memory is what
nvidia-smi shows; board power is the data sheet's limit; idle power is what DCGM typically reads on a GPU that runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One instance type: its GPUs and its on-demand list price."""

    provider: str
    instance_type: str
    region: str
    gpu: str
    gpu_product: str
    gpu_count: int
    memory_gib: float
    idle_w: float
    board_w: float
    on_demand_usd_hr: float

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones of the region that nodes are spread over, as the provider spells them."""
        dash = "-" if self.provider == "gcp" else ""
        return tuple(f"{self.region}{dash}{letter}" for letter in "abcf")


P4D = Machine(
    provider="aws",
    instance_type="p4d.24xlarge",
    region="us-east-1",
    gpu="A100-SXM4-40GB",
    gpu_product="NVIDIA-A100-SXM4-40GB",
    gpu_count=8,
    memory_gib=40.0,
    idle_w=55.0,
    board_w=400.0,
    on_demand_usd_hr=21.957642,
)
P3_8XLARGE = Machine(
    provider="aws",
    instance_type="p3.8xlarge",
    region="us-east-1",
    gpu="V100-SXM2-16GB",
    gpu_product="Tesla-V100-SXM2-16GB",
    gpu_count=4,
    memory_gib=16.0,
    idle_w=42.0,
    board_w=300.0,
    on_demand_usd_hr=12.24,
)
G5_12XLARGE = Machine(
    provider="aws",
    instance_type="g5.12xlarge",
    region="us-east-1",
    gpu="A10G",
    gpu_product="NVIDIA-A10G",
    gpu_count=4,
    memory_gib=22.49,
    idle_w=20.0,
    board_w=300.0,
    on_demand_usd_hr=5.672,
)
G5_XLARGE = Machine(
    provider="aws",
    instance_type="g5.xlarge",
    region="us-east-1",
    gpu="A10G",
    gpu_product="NVIDIA-A10G",
    gpu_count=1,
    memory_gib=22.49,
    idle_w=20.0,
    board_w=300.0,
    on_demand_usd_hr=1.006,
)
A2_HIGHGPU_1G = Machine(
    provider="gcp",
    instance_type="a2-highgpu-1g",
    region="us-central1",
    gpu="A100-SXM4-40GB",
    gpu_product="NVIDIA-A100-SXM4-40GB",
    gpu_count=1,
    memory_gib=40.0,
    idle_w=55.0,
    board_w=400.0,
    on_demand_usd_hr=3.673385,
)
A2_HIGHGPU_4G = Machine(
    provider="gcp",
    instance_type="a2-highgpu-4g",
    region="us-central1",
    gpu="A100-SXM4-40GB",
    gpu_product="NVIDIA-A100-SXM4-40GB",
    gpu_count=4,
    memory_gib=40.0,
    idle_w=55.0,
    board_w=400.0,
    on_demand_usd_hr=14.69354,
)
G2_STANDARD_8 = Machine(
    provider="gcp",
    instance_type="g2-standard-8",
    region="us-central1",
    gpu="L4",
    gpu_product="NVIDIA-L4",
    gpu_count=1,
    memory_gib=22.49,
    idle_w=16.0,
    board_w=72.0,
    on_demand_usd_hr=0.853624,
)

"""`three-small-models`: three models of about 1,000 requests a day, each alone on an A100. 8,044.71 USD a month on demand.

Three a2-highgpu-1g in GCP us-central1 (3.673385 USD/h each). Together the models need 28 of one GPU's 40 GiB and less than a
tenth of its time. No targets are declared.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trimtab.sources.demo.demand import SIX_WEEKS, DayCurve, DemoService, LatencyLaw, Noise
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import A2_HIGHGPU_1G
from trimtab.sources.demo.placement import add_static

NAME = "three-small-models"
SPAN = SIX_WEEKS
_OFFICE = DayCurve(peak_hr=18.0, floor_frac=0.05, sharpness=1.5, weekend_frac=0.3)
_NOISE = Noise(sd_frac=0.2, memory_min=30, bursts_per_day=0.3, burst_gain=(1.5, 3.0), burst_min=(5, 20))

SPEECH = DemoService(
    workload="apps/speech-to-text",
    team="support",
    replicas=1,
    requests_per_day=1_000,
    mean_util_frac=0.046,
    curve=_OFFICE,
    noise=_NOISE,
    latency=LatencyLaw(base_s=3.8, sigma=0.4),
    memory_gib=5.0,
    tensor_of_sm=0.4,
    dram_of_sm=0.7,
)
IMAGES = DemoService(
    workload="apps/image-draft",
    team="design",
    replicas=1,
    requests_per_day=900,
    mean_util_frac=0.03,
    curve=_OFFICE,
    noise=_NOISE,
    latency=LatencyLaw(base_s=2.6, sigma=0.2),
    memory_gib=9.0,
    tensor_of_sm=0.6,
    dram_of_sm=0.65,
)
ANSWERS = DemoService(
    workload="apps/handbook-answers",
    team="people",
    replicas=1,
    requests_per_day=1_100,
    mean_util_frac=0.008,
    curve=_OFFICE,
    noise=_NOISE,
    latency=LatencyLaw(base_s=1.9, sigma=0.35),
    input_tokens=900,
    output_tokens=140,
    memory_gib=14.0,
    tensor_of_sm=0.3,
    dram_of_sm=0.9,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeSmallModels:
    """Everything that is set about the fleet beside its services."""

    services: tuple[DemoService, ...] = (SPEECH, IMAGES, ANSWERS)
    models: tuple[str, ...] = (
        "openai/whisper-large-v3",
        "stabilityai/sdxl-turbo",
        "microsoft/Phi-3-mini-4k-instruct",
    )
    cold_start_s: tuple[float, ...] = (60.0, 75.0, 90.0)
    growth_frac: float = 0.05


FLEET = ThreeSmallModels()


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    for service in FLEET.services:
        add_static(draft, service, A2_HIGHGPU_1G, "apps", growth_frac=FLEET.growth_frac)
    return draft.tables(), workloads(), meta(NAME, SPAN)


def workloads() -> dict[str, object]:
    """Return what the teams declared, as the content of workloads.yaml."""
    facts = zip(FLEET.services, FLEET.models, FLEET.cold_start_s, strict=True)
    declared = {
        service.workload: {"model": model, "cold_start_s": cold_start_s} for service, model, cold_start_s in facts
    }
    return {"version": 1, "workloads": declared}

"""`ninety-k-peak`: a shop's inference cluster sized for its peak, 30 % used on average. 89,738.14 USD a month on demand.

33 a2-highgpu-1g in GCP us-central1 (3.673385 USD/h each: 88,491.84 USD a month) serve three services with as many replicas as
the busiest evening needs, all day and all night; two g2-standard-8 (0.853624 USD/h each: 1,246.29 USD) hold notebooks.
In the proof window demand is 5 % higher and a sale doubles `shop/recommend` for three hours of a morning.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from trimtab.sources.demo.demand import SIX_WEEKS, DayCurve, DemoService, LatencyLaw, Noise
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import A2_HIGHGPU_1G, G2_STANDARD_8
from trimtab.sources.demo.placement import Intensity, Notebook, Surge, add_notebook, add_static

NAME = "ninety-k-peak"
SPAN = SIX_WEEKS

ASSISTANT = DemoService(
    workload="shop/assistant",
    team="shop",
    replicas=20,
    requests_per_day=4_900_000,
    mean_util_frac=0.30,
    curve=DayCurve(peak_hr=0.0, floor_frac=0.1, sharpness=1.4, weekend_frac=1.1),
    noise=Noise(sd_frac=0.05, memory_min=40, bursts_per_day=0.4, burst_gain=(1.05, 1.2), burst_min=(5, 20)),
    latency=LatencyLaw(base_s=1.4, sigma=0.33),
    ttft=LatencyLaw(base_s=0.12, load_gain=0.8, sigma=0.4),
    input_tokens=540,
    output_tokens=95,
    memory_gib=36.0,
    tensor_of_sm=0.3,
    dram_of_sm=0.88,
    kv_cache=True,
)
RECOMMEND = DemoService(
    workload="shop/recommend",
    team="shop",
    replicas=9,
    requests_per_day=32_000_000,
    mean_util_frac=0.31,
    curve=DayCurve(peak_hr=0.5, floor_frac=0.12, sharpness=1.3, weekend_frac=1.15),
    noise=Noise(sd_frac=0.06, memory_min=30, bursts_per_day=0.5, burst_gain=(1.05, 1.25), burst_min=(5, 20)),
    latency=LatencyLaw(base_s=0.04, sigma=0.3),
    input_tokens=120,
    memory_gib=12.0,
    tensor_of_sm=0.5,
    dram_of_sm=0.75,
)
VISUAL = DemoService(
    workload="shop/visual-search",
    team="search",
    replicas=4,
    requests_per_day=6_500_000,
    mean_util_frac=0.28,
    curve=DayCurve(peak_hr=23.0, floor_frac=0.1, sharpness=1.4, weekend_frac=1.1),
    noise=Noise(sd_frac=0.07, memory_min=30, bursts_per_day=0.5, burst_gain=(1.05, 1.25), burst_min=(5, 15)),
    latency=LatencyLaw(base_s=0.09, sigma=0.32),
    memory_gib=9.0,
    tensor_of_sm=0.55,
    dram_of_sm=0.65,
)
_IDLING = Intensity(sm_frac=0.12, busy_frac=0.3, memory_gib=6.0, tensor_of_sm=0.3, dram_of_sm=0.6, noise_frac=0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class NinetyKPeak:
    """Everything that is set about the fleet beside its services."""

    services: tuple[DemoService, ...] = (ASSISTANT, RECOMMEND, VISUAL)
    growth_frac: float = 0.05
    surge_service: str = RECOMMEND.workload
    surge_start: datetime = datetime(2026, 10, 27, 14, tzinfo=UTC)
    surge_min: int = 180
    surge_gain: float = 2.0
    assistant_latency_p95_s: float = 4.0
    cold_start_s: tuple[float, ...] = (180.0, 90.0, 120.0)
    notebook_users: tuple[str, ...] = ("ines", "jonas")
    sensor_gaps: int = 3


FLEET = NinetyKPeak()


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    sale = Surge(start=FLEET.surge_start, minutes=FLEET.surge_min, gain=FLEET.surge_gain)
    for service in FLEET.services:
        add_static(
            draft,
            service,
            A2_HIGHGPU_1G,
            "serving",
            growth_frac=FLEET.growth_frac,
            sensor_gaps=FLEET.sensor_gaps,
            surge=sale if service.workload == FLEET.surge_service else None,
        )
    for user in FLEET.notebook_users:
        notebook = Notebook(
            workload=f"notebooks/{user}",
            team="shop",
            sessions_per_day=3.0,
            session_min=(15.0, 80.0),
            office_hours_utc=(14, 23),
            intensity=_IDLING,
        )
        add_notebook(draft, notebook, G2_STANDARD_8, draft.node(G2_STANDARD_8, "notebooks"))
    return draft.tables(), workloads(), meta(NAME, SPAN)


def workloads() -> dict[str, object]:
    """Return what the teams declared, as the content of workloads.yaml."""
    limit = {"metric": "latency", "quantile": 0.95, "limit_s": FLEET.assistant_latency_p95_s}
    declared: dict[str, dict[str, object]] = {
        service.workload: {"cold_start_s": cold_start_s}
        for service, cold_start_s in zip(FLEET.services, FLEET.cold_start_s, strict=True)
    }
    declared[ASSISTANT.workload] |= {"model": "mistralai/Mistral-7B-Instruct-v0.3", "targets": [limit]}
    return {"version": 1, "workloads": declared}

"""`moderation`: a million images a day, judged in real time though four hours would do. 5,875.04 USD a month on demand.

Eight g5.xlarge in AWS us-east-1 (1.006 USD/h each), one replica each, static for the evening's peak; mean use 24 %. A replica
judges an image in 0.16 s when they come singly, but 64 at once in 1.9 s (the team's profile, under batching in workloads.yaml).
The only promise is that an image is judged within four hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from trimtab.sources.demo.demand import SIX_WEEKS, DayCurve, DemoService, LatencyLaw, Noise
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import G5_XLARGE
from trimtab.sources.demo.placement import Surge, add_static
from trimtab.units import S_PER_HR

NAME = "moderation"
SPAN = SIX_WEEKS
BATCH_TIME_S: tuple[tuple[int, float], ...] = ((1, 0.16), (4, 0.24), (16, 0.58), (64, 1.90), (128, 3.70))
"""Batch size and the time that one batch takes, as the team measured it on this GPU."""
JUDGE = DemoService(
    workload="trust/image-moderation",
    team="trust",
    replicas=8,
    requests_per_day=1_000_000,
    mean_util_frac=0.24,
    curve=DayCurve(peak_hr=20.0, floor_frac=0.15, sharpness=1.3, weekend_frac=1.1),
    noise=Noise(sd_frac=0.08, memory_min=25, bursts_per_day=1.0, burst_gain=(1.1, 1.5), burst_min=(5, 25)),
    latency=LatencyLaw(base_s=0.16, load_gain=0.0, sigma=0.12),
    memory_gib=6.0,
    tensor_of_sm=0.45,
    dram_of_sm=0.7,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moderation:
    """Everything that is set about the fleet beside its service."""

    service: DemoService = JUDGE
    growth_frac: float = 0.07
    surge_start: datetime = datetime(2026, 10, 30, 17, tzinfo=UTC)
    surge_min: int = 120
    surge_gain: float = 1.7
    promised_hr: float = 4.0
    cold_start_s: float = 60.0
    batch_item_gib: float = 0.05
    model: str = "google/vit-huge-patch14-224-in21k"


FLEET = Moderation()


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    surge = Surge(start=FLEET.surge_start, minutes=FLEET.surge_min, gain=FLEET.surge_gain)
    add_static(draft, FLEET.service, G5_XLARGE, "trust", growth_frac=FLEET.growth_frac, sensor_gaps=2, surge=surge)
    return draft.tables(), workloads(), meta(NAME, SPAN)


def workloads() -> dict[str, object]:
    """Return what the team declared, as the content of workloads.yaml."""
    profile = ", ".join(f"{size}: {time_s:.2f}" for size, time_s in BATCH_TIME_S)
    judge = {
        "model": FLEET.model,
        "targets": [{"metric": "latency", "quantile": 0.99, "limit_s": FLEET.promised_hr * S_PER_HR}],
        "cold_start_s": FLEET.cold_start_s,
        # what is promised in four hours may wait for another replica to start
        "min_replicas": 1,
        "batching": {"seconds": dict(BATCH_TIME_S), "item_gib": FLEET.batch_item_gib},
        "notes": f"may be judged in windows; measured seconds by batch size: {profile}",
    }
    return {"version": 1, "workloads": {FLEET.service.workload: judge}}

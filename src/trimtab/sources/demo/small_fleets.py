"""Four small demonstration fleets, the parameters of each before what builds it.

`ninety-k-peak`: a shop's inference cluster sized for its peak, 30 % used on average. 89,738.14 USD a month on demand.
33 a2-highgpu-1g in GCP us-central1 (3.673385 USD/h each: 88,491.84 USD a month) serve three services with as many replicas as
the busiest evening needs, all day and all night; two g2-standard-8 (0.853624 USD/h each: 1,246.29 USD) hold notebooks.
In the proof window demand is 5 % higher and a sale doubles `shop/recommend` for three hours of a morning.

`three-small-models`: three models of about 1,000 requests a day, each alone on an A100. 8,044.71 USD a month on demand.
Three a2-highgpu-1g in GCP us-central1 (3.673385 USD/h each). Together the models need 28 of one GPU's 40 GiB and less than a
tenth of its time. No targets are declared.

`finetune-7b`: one node of eight A100s for fine-tuning a 7B model, idle at night. 16,029.08 USD a month on demand.
One p4d.24xlarge in AWS us-east-1 (21.957642 USD/h), kept day and night. Runs take all eight GPUs, are submitted in office
hours, take about four hours, and save checkpoints; they could be interrupted. Nights and weekends are mostly idle.

`moderation`: a million images a day, judged in real time though four hours would do. 5,875.04 USD a month on demand.
Eight g5.xlarge in AWS us-east-1 (1.006 USD/h each), one replica each, static for the evening's peak; mean use 24 %. A replica
judges an image in 0.16 s when they come singly, but 64 at once in 1.9 s (the team's profile, under batching in workloads.yaml).
The only promise is that an image is judged within four hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from trimtab.sources.demo.demand import SIX_WEEKS, DayCurve, DemoService, LatencyLaw, Noise
from trimtab.sources.demo.draft import CheckpointTimes, FleetDraft, JobClass, meta
from trimtab.sources.demo.machines import A2_HIGHGPU_1G, G2_STANDARD_8, G5_XLARGE, P4D
from trimtab.sources.demo.placement import Intensity, Notebook, Surge, add_notebook, add_pool, add_static
from trimtab.units import S_PER_HR

NINETY_K_PEAK = "ninety-k-peak"
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


_NINETY_K_PEAK = NinetyKPeak()


def build_ninety_k_peak(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NINETY_K_PEAK, SPAN, seed)
    sale = Surge(start=_NINETY_K_PEAK.surge_start, minutes=_NINETY_K_PEAK.surge_min, gain=_NINETY_K_PEAK.surge_gain)
    for service in _NINETY_K_PEAK.services:
        add_static(
            draft,
            service,
            A2_HIGHGPU_1G,
            "serving",
            growth_frac=_NINETY_K_PEAK.growth_frac,
            sensor_gaps=_NINETY_K_PEAK.sensor_gaps,
            surge=sale if service.workload == _NINETY_K_PEAK.surge_service else None,
        )
    for user in _NINETY_K_PEAK.notebook_users:
        notebook = Notebook(
            workload=f"notebooks/{user}",
            team="shop",
            sessions_per_day=3.0,
            session_min=(15.0, 80.0),
            office_hours_utc=(14, 23),
            intensity=_IDLING,
        )
        add_notebook(draft, notebook, G2_STANDARD_8, draft.node(G2_STANDARD_8, "notebooks"))
    return draft.tables(), _workloads_ninety_k_peak(), meta(NINETY_K_PEAK, SPAN)


def _workloads_ninety_k_peak() -> dict[str, object]:
    """Return what the teams declared, as the content of workloads.yaml."""
    limit = {"metric": "latency", "quantile": 0.95, "limit_s": _NINETY_K_PEAK.assistant_latency_p95_s}
    declared: dict[str, dict[str, object]] = {
        service.workload: {"cold_start_s": cold_start_s}
        for service, cold_start_s in zip(_NINETY_K_PEAK.services, _NINETY_K_PEAK.cold_start_s, strict=True)
    }
    declared[ASSISTANT.workload] |= {"model": "mistralai/Mistral-7B-Instruct-v0.3", "targets": [limit]}
    return {"version": 1, "workloads": declared}


THREE_SMALL_MODELS = "three-small-models"
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


_THREE_SMALL_MODELS = ThreeSmallModels()


def build_three_small_models(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(THREE_SMALL_MODELS, SPAN, seed)
    for service in _THREE_SMALL_MODELS.services:
        add_static(draft, service, A2_HIGHGPU_1G, "apps", growth_frac=_THREE_SMALL_MODELS.growth_frac)
    return draft.tables(), _workloads_three_small_models(), meta(THREE_SMALL_MODELS, SPAN)


def _workloads_three_small_models() -> dict[str, object]:
    """Return what the teams declared, as the content of workloads.yaml."""
    facts = zip(_THREE_SMALL_MODELS.services, _THREE_SMALL_MODELS.models, _THREE_SMALL_MODELS.cold_start_s, strict=True)
    declared = {
        service.workload: {"model": model, "cold_start_s": cold_start_s} for service, model, cold_start_s in facts
    }
    return {"version": 1, "workloads": declared}


FINETUNE_7B = "finetune-7b"
SAVES = CheckpointTimes(interval_s=1800, save_s=75, restore_s=240)
TUNING = JobClass(
    workload="ml/finetune-7b",
    team="assistant",
    jobs_per_weekday=1.7,
    weekend_frac=0.1,
    office_hours_utc=(13, 20),
    office_share=0.97,
    median_hr=4.0,
    sigma=0.4,
    failed_frac=0.05,
    gpus_requested=8,
    gpus_used=8,
    sm_frac=(0.78, 0.88),
    memory_gib=(33.0, 36.5),
    steps_per_s=0.36,
    checkpoints=SAVES,
    tensor_of_sm=0.5,
    dram_of_sm=0.7,
    tokens_per_s=23_500.0,
)

MEMORY_PLAN: tuple[tuple[str, str | int], ...] = (
    ("method", "full"),
    ("optimizer", "adamw"),
    ("recompute", "full"),
    ("sharding", 3),
    ("sequence", 4096),
    ("micro_batch", 6),
    ("global_batch", 96),
)
"""How the runs use memory, as the team's launch script has it: what 33 to 36.5 GiB a GPU and 23,500 tokens a second are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finetune7b:
    """Everything that is set about the fleet beside its job class."""

    jobs: JobClass = TUNING
    growth_frac: float = 0.1
    sensor_gaps: int = 2
    model: str = "meta-llama/Llama-2-7b-hf"


_FINETUNE_7B = Finetune7b()


def build_finetune_7b(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(FINETUNE_7B, SPAN, seed)
    home = draft.node(P4D, "tuning")
    add_pool(
        draft,
        (_FINETUNE_7B.jobs,),
        P4D,
        [home],
        growth_frac=_FINETUNE_7B.growth_frac,
        sensor_gaps=_FINETUNE_7B.sensor_gaps,
    )
    return draft.tables(), _workloads_finetune_7b(), meta(FINETUNE_7B, SPAN)


def _workloads_finetune_7b() -> dict[str, object]:
    """Return what the team declared, as the content of workloads.yaml."""
    checkpoint = {"interval_s": SAVES.interval_s, "save_s": SAVES.save_s, "restore_s": SAVES.restore_s}
    tuning = {
        "model": _FINETUNE_7B.model,
        "interruptible": True,
        "checkpoint": checkpoint,
        "training": dict(MEMORY_PLAN),
    }
    return {"version": 1, "workloads": {_FINETUNE_7B.jobs.workload: tuning}}


MODERATION = "moderation"
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


_MODERATION = Moderation()


def build_moderation(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(MODERATION, SPAN, seed)
    surge = Surge(start=_MODERATION.surge_start, minutes=_MODERATION.surge_min, gain=_MODERATION.surge_gain)
    add_static(
        draft, _MODERATION.service, G5_XLARGE, "trust", growth_frac=_MODERATION.growth_frac, sensor_gaps=2, surge=surge
    )
    return draft.tables(), _workloads_moderation(), meta(MODERATION, SPAN)


def _workloads_moderation() -> dict[str, object]:
    """Return what the team declared, as the content of workloads.yaml."""
    profile = ", ".join(f"{size}: {time_s:.2f}" for size, time_s in BATCH_TIME_S)
    judge = {
        "model": _MODERATION.model,
        "targets": [{"metric": "latency", "quantile": 0.99, "limit_s": _MODERATION.promised_hr * S_PER_HR}],
        "cold_start_s": _MODERATION.cold_start_s,
        # what is promised in four hours may wait for another replica to start
        "min_replicas": 1,
        "batching": {"seconds": dict(BATCH_TIME_S), "item_gib": _MODERATION.batch_item_gib},
        "notes": f"may be judged in windows; measured seconds by batch size: {profile}",
    }
    return {"version": 1, "workloads": {_MODERATION.service.workload: judge}}

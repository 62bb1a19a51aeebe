"""`two-hundred-k`: a mid-sized company's GPU fleet on AWS us-east-1, everything on demand, about $200k a month.

The bill of the fit window, scaled to 730 hours, at the list prices of `machines`:

| what | nodes | USD/h each | USD/month |
|---|---|---|---|
| serving | 5 p4d.24xlarge | 21.957642 | 80,145.39 |
| experiments | 9 p3.8xlarge | 12.24 | 80,416.80 |
| production training | 1 p4d.24xlarge | 21.957642 | 16,029.08 |
| unheld | 1 p3.8xlarge | 12.24 | 8,935.20 |
| notebooks | 8 g5.xlarge | 1.006 | 5,875.04 |
| weekly evaluation | 2 p4d.24xlarge, 24 h a week | 21.957642 | 4,579.74 |
| nightly batch | 1 g5.12xlarge | 5.672 | 4,140.56 |
| **sum** | | | **200,121.81** |

42 days from Monday 2026-09-21 to 2026-11-02 (UTC); the last 14 are the proof window, which differs: demand and submissions
are 8 % higher, `prod/search-rank` has two hours at twice its load, a service is new, a notebook and its node are gone.
The parameters were set before any planning code read this fleet, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from trimtab.sources.demo.demand import MIN_PER_HR, SIX_WEEKS, DayCurve, DemoService, LatencyLaw, Noise, demand_rate
from trimtab.sources.demo.draft import CheckpointTimes, FleetDraft, JobClass, JobRun, meta
from trimtab.sources.demo.machines import G5_12XLARGE, G5_XLARGE, P3_8XLARGE, P4D
from trimtab.sources.demo.placement import (
    Calendar,
    Intensity,
    Notebook,
    add_empty,
    add_nightly,
    add_notebook,
    add_pool,
    add_service,
    add_training,
    add_weekly,
    nodes,
)

NAME = "two-hundred-k"
SPAN = SIX_WEEKS

CHAT = DemoService(
    workload="prod/chat-api",
    team="assistant",
    replicas=24,
    requests_per_day=4_000_000,
    mean_util_frac=0.205,
    curve=DayCurve(peak_hr=19.0, floor_frac=0.12, sharpness=1.5, weekend_frac=0.6),
    noise=Noise(sd_frac=0.06, memory_min=30, bursts_per_day=0.5, burst_gain=(1.1, 1.4), burst_min=(5, 20)),
    latency=LatencyLaw(base_s=1.6),
    ttft=LatencyLaw(base_s=0.14, load_gain=0.8, sigma=0.4),
    input_tokens=620,
    output_tokens=110,
    memory_gib=36.0,
    tensor_of_sm=0.3,
    dram_of_sm=0.88,
    kv_cache=True,
)
SEARCH = DemoService(
    workload="prod/search-rank",
    team="search",
    replicas=8,
    requests_per_day=25_000_000,
    mean_util_frac=0.19,
    curve=DayCurve(peak_hr=1.0, floor_frac=0.15, sharpness=1.4, weekend_frac=0.85),
    noise=Noise(sd_frac=0.07, memory_min=25, bursts_per_day=0.7, burst_gain=(1.1, 1.5), burst_min=(5, 25)),
    latency=LatencyLaw(base_s=0.045, sigma=0.3),
    input_tokens=380,
    memory_gib=11.0,
    tensor_of_sm=0.55,
    dram_of_sm=0.65,
)
EMBED = DemoService(
    workload="prod/embed-api",
    team="search",
    replicas=8,
    requests_per_day=21_000_000,
    mean_util_frac=0.195,
    curve=DayCurve(peak_hr=15.0, floor_frac=0.1, sharpness=1.3, weekend_frac=0.5),
    noise=Noise(sd_frac=0.08, memory_min=20, bursts_per_day=0.6, burst_gain=(1.1, 1.5), burst_min=(5, 15)),
    latency=LatencyLaw(base_s=0.03, sigma=0.3),
    input_tokens=210,
    memory_gib=8.0,
    tensor_of_sm=0.6,
    dram_of_sm=0.7,
)
NEWCOMER = DemoService(
    workload="prod/moderate-text",
    team="trust",
    replicas=2,
    requests_per_day=900_000,
    mean_util_frac=0.22,
    curve=DayCurve(peak_hr=20.0, floor_frac=0.15, sharpness=1.3, weekend_frac=0.8),
    noise=Noise(sd_frac=0.07, memory_min=25, bursts_per_day=0.3, burst_gain=(1.1, 1.4), burst_min=(5, 15)),
    latency=LatencyLaw(base_s=0.06),
    input_tokens=150,
    memory_gib=7.5,
    tensor_of_sm=0.5,
    dram_of_sm=0.7,
)
VISION_SAVES = CheckpointTimes(interval_s=1800, save_s=60, restore_s=180)
VISION = JobClass(
    workload="research/vision-exp",
    team="vision",
    jobs_per_weekday=15.5,
    weekend_frac=0.3,
    office_hours_utc=(13, 22),
    office_share=0.85,
    median_hr=5.0,
    sigma=0.7,
    failed_frac=0.06,
    gpus_requested=4,
    gpus_used=1,
    sm_frac=(0.4, 0.75),
    memory_gib=(6.0, 11.0),
    steps_per_s=6.5,
    checkpoints=VISION_SAVES,
    queue="experiments",
)
NLP = JobClass(
    workload="research/nlp-exp",
    team="nlp",
    jobs_per_weekday=11.5,
    weekend_frac=0.35,
    office_hours_utc=(13, 22),
    office_share=0.8,
    median_hr=5.0,
    sigma=0.75,
    failed_frac=0.05,
    gpus_requested=4,
    gpus_used=1,
    sm_frac=(0.35, 0.7),
    memory_gib=(6.5, 10.5),
    steps_per_s=3.2,
    checkpoints=None,
    queue="experiments",
)

TRAINING = Intensity(sm_frac=0.85, busy_frac=0.97, memory_gib=35.0, tensor_of_sm=0.55, dram_of_sm=0.7)
NIGHTLY = Calendar(
    workload="data/nightly-embed",
    team="data-platform",
    first_day=0,
    every_days=1,
    start_hr=1.0,
    run_hr=6.0,
    items_per_run=18_000_000,
    intensity=Intensity(sm_frac=0.7, busy_frac=0.92, memory_gib=14.0, tensor_of_sm=0.6, dram_of_sm=0.7),
)
EVALUATION = Calendar(
    workload="eval/weekly-eval",
    team="assistant",
    first_day=5,
    every_days=7,
    start_hr=0.5,
    run_hr=8.0,
    items_per_run=240_000,
    intensity=Intensity(sm_frac=0.62, busy_frac=0.9, memory_gib=31.0, tensor_of_sm=0.45, dram_of_sm=0.75),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHundredK:
    """Everything that is set about the fleet beside its services and job classes."""

    services: tuple[DemoService, ...] = (CHAT, SEARCH, EMBED)
    experiments: tuple[JobClass, ...] = (VISION, NLP)
    experiment_nodes: int = 9
    growth_frac: float = 0.08
    burst_service: str = SEARCH.workload
    burst_start: datetime = datetime(2026, 10, 29, 20, tzinfo=UTC)
    burst_gain: float = 2.0
    burst_hr: int = 2
    rollout: datetime = datetime(2026, 10, 7, 14, tzinfo=UTC)
    newcomer: DemoService = NEWCOMER
    newcomer_start: datetime = datetime(2026, 10, 23, tzinfo=UTC)
    leaver_end: datetime = datetime(2026, 10, 21, tzinfo=UTC)
    chat_latency_p95_s: float = 4.0
    cold_start_s: tuple[tuple[str, float], ...] = (
        (CHAT.workload, 180.0),
        (SEARCH.workload, 120.0),
        (EMBED.workload, 120.0),
        (NEWCOMER.workload, 120.0),
    )
    training: Intensity = TRAINING
    nightly: Calendar = NIGHTLY
    evaluation: Calendar = EVALUATION
    evaluation_nodes: int = 2
    evaluation_held_hr: int = 24
    notebook_users: tuple[str, ...] = ("ana", "bo", "chen", "dmitri", "emeka", "farid", "grace", "hana")
    leaver: str = "dmitri"
    sensor_gaps: int = 4


FLEET = TwoHundredK()
GPU_TAINT = {"nvidia.com/gpu": "present:NoSchedule"}


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    _add_services(draft)
    _add_experiments(draft)
    trainer = draft.node(P4D, "training", taints={"dedicated": "training:NoSchedule", **GPU_TAINT})
    add_training(draft, "ml/ranker-train", "search", P4D, trainer, FLEET.training)
    batch = draft.node(G5_12XLARGE, "batch")
    add_nightly(draft, FLEET.nightly, G5_12XLARGE, batch)
    draft.pod("monitoring/log-shipper", "platform", "StatefulSet", batch[0], (), start=SPAN.start)
    add_weekly(draft, FLEET.evaluation, P4D, FLEET.evaluation_nodes, "evaluation", FLEET.evaluation_held_hr)
    _add_notebooks(draft)
    return draft.tables(), workloads(), meta(NAME, SPAN)


def _add_services(draft: FleetDraft) -> None:
    for service in FLEET.services:
        expected = demand_rate(service, SPAN, FLEET.growth_frac, draft.stream(f"demand/{service.workload}"))
        if service.workload == FLEET.burst_service:
            first = SPAN.minute_of(FLEET.burst_start)
            expected[first : first + FLEET.burst_hr * MIN_PER_HR] *= FLEET.burst_gain
        taints = None if service is SEARCH else GPU_TAINT
        homes = nodes(draft, P4D, "serving", service.replicas // P4D.gpu_count, taints)
        add_service(
            draft,
            service,
            P4D,
            homes,
            expected,
            rollouts=(FLEET.rollout,),
            sensor_gaps=FLEET.sensor_gaps,
            unprofiled=(3,) if service is EMBED else (),
        )
        if service is SEARCH:
            draft.pod("web/session-cache", "web", "StatefulSet", homes[0][0], (), start=SPAN.start)
    _add_newcomer(draft)


def _add_newcomer(draft: FleetDraft) -> None:
    service, start = FLEET.newcomer, FLEET.newcomer_start
    homes = [draft.node(G5_XLARGE, "serving-small", start=start) for _ in range(service.replicas)]
    expected = demand_rate(service, SPAN, 0.0, draft.stream(f"demand/{service.workload}"))
    add_service(draft, service, G5_XLARGE, homes, expected, first_minute=SPAN.minute_of(start))


def _add_experiments(draft: FleetDraft) -> None:
    homes = nodes(draft, P3_8XLARGE, "research", FLEET.experiment_nodes)
    growth_frac, sensor_gaps = FLEET.growth_frac, FLEET.sensor_gaps
    runs = add_pool(draft, FLEET.experiments, P3_8XLARGE, homes, growth_frac=growth_frac, sensor_gaps=sensor_gaps)
    _add_queue(draft, runs)
    for home in homes[:2]:
        draft.pod("data/feature-etl", "data-platform", "Deployment", home[0], (), start=SPAN.start)
    add_empty(draft, P3_8XLARGE, draft.node(P3_8XLARGE, "research-old"))


def _add_queue(draft: FleetDraft, runs: Sequence[JobRun]) -> None:
    """Have the experiments wait in a queue of Kueue whose quota is the pool without the old node."""
    running = [run for run in runs if run.start_s is not None and run.end_s is None]
    told = {"pending": sum(run.start_s is None for run in runs), "admitted": len(running)}
    draft.standing_queue(
        {"kind": "LocalQueue", "namespace": "research", "name": "experiments", "parent": "research", **told}
    )
    draft.standing_queue(
        {
            "kind": "ClusterQueue",
            "namespace": None,
            "name": "research",
            "parent": None,
            "resource": "nvidia.com/gpu",
            "flavor": "v100",
            "flavor_labels": {"node.kubernetes.io/instance-type": P3_8XLARGE.instance_type},
            "quota_gpus": float(FLEET.experiment_nodes * P3_8XLARGE.gpu_count),
            "used_gpus": float(sum(run.job_class.gpus_requested for run in running)),
            **told,
        }
    )


def _add_notebooks(draft: FleetDraft) -> None:
    rng = draft.stream("notebooks")
    for user in FLEET.notebook_users:
        end = FLEET.leaver_end if user == FLEET.leaver else None
        notebook = Notebook(
            workload=f"notebooks/{user}",
            team="vision" if user < "e" else "nlp",
            sessions_per_day=float(rng.uniform(2.0, 4.0)),
            session_min=(15.0, 80.0),
            office_hours_utc=(13, 22),
            intensity=Intensity(
                sm_frac=float(rng.uniform(0.06, 0.2)),
                busy_frac=float(rng.uniform(0.25, 0.45)),
                memory_gib=float(rng.uniform(2.0, 9.0)),
                tensor_of_sm=0.3,
                dram_of_sm=0.6,
                noise_frac=0.25,
            ),
        )
        add_notebook(draft, notebook, G5_XLARGE, draft.node(G5_XLARGE, "notebooks", end=end), end=end)


def workloads() -> dict[str, object]:
    """Return what the teams declared, as the content of workloads.yaml."""
    cold = dict(FLEET.cold_start_s)
    limit = {"metric": "latency", "quantile": 0.95, "limit_s": FLEET.chat_latency_p95_s}
    saves = VISION_SAVES
    checkpoint = {"interval_s": saves.interval_s, "save_s": saves.save_s, "restore_s": saves.restore_s}
    declared: dict[str, object] = {
        CHAT.workload: {
            "model": "mistralai/Mistral-7B-Instruct-v0.3",
            "targets": [limit],
            "cold_start_s": cold[CHAT.workload],
            "interruptible": False,
        },
        SEARCH.workload: {"model": "BAAI/bge-reranker-v2-m3", "cold_start_s": cold[SEARCH.workload]},
        EMBED.workload: {"model": "BAAI/bge-m3", "cold_start_s": cold[EMBED.workload]},
        NEWCOMER.workload: {"cold_start_s": cold[NEWCOMER.workload]},
        VISION.workload: {"interruptible": True, "checkpoint": checkpoint},
        "ml/ranker-train": {"interruptible": False, "notes": "retrains the ranker without a break"},
    }
    return {"version": 1, "workloads": declared}

"""`finetune-7b`: one node of eight A100s for fine-tuning a 7B model, idle at night. 16,029.08 USD a month on demand.

One p4d.24xlarge in AWS us-east-1 (21.957642 USD/h), kept day and night. Runs take all eight GPUs, are submitted in office
hours, take about four hours, and save checkpoints; they could be interrupted. Nights and weekends are mostly idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trimtab.sources.demo.demand import SIX_WEEKS
from trimtab.sources.demo.draft import CheckpointTimes, FleetDraft, JobClass, meta
from trimtab.sources.demo.machines import P4D
from trimtab.sources.demo.placement import add_pool

NAME = "finetune-7b"
SPAN = SIX_WEEKS
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


FLEET = Finetune7b()


def build(seed: int) -> tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]:
    """Return the fleet's tables, the content of its workloads.yaml, and its bundle's meta data."""
    draft = FleetDraft(NAME, SPAN, seed)
    home = draft.node(P4D, "tuning")
    add_pool(draft, (FLEET.jobs,), P4D, [home], growth_frac=FLEET.growth_frac, sensor_gaps=FLEET.sensor_gaps)
    return draft.tables(), workloads(), meta(NAME, SPAN)


def workloads() -> dict[str, object]:
    """Return what the team declared, as the content of workloads.yaml."""
    checkpoint = {"interval_s": SAVES.interval_s, "save_s": SAVES.save_s, "restore_s": SAVES.restore_s}
    tuning = {"model": FLEET.model, "interruptible": True, "checkpoint": checkpoint, "training": dict(MEMORY_PLAN)}
    return {"version": 1, "workloads": {FLEET.jobs.workload: tuning}}

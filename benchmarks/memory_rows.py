"""Measured peaks of device memory (columns of memory.csv) as questions to the memory model."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.perf_rows import board_of
from trimtab.catalog import Gpu
from trimtab.errors import UnknownName
from trimtab.physics.footprint import Parallel
from trimtab.physics.formats import WeightFormat, weight_format
from trimtab.physics.models import Architecture, resolve_model
from trimtab.physics.training import Method, Optimizer, Recompute, Sharding, Training

UNSTATED_SEQUENCE = {"HF SFTTrainer/fms-acceleration": 4096, "PEFT/Accelerate": 512, "torchtune": 1024}
"""Tokens of a row that states none: the script's packed length, a short classification prompt, a padded Alpaca batch."""
DEFAULT_SEQUENCE = 1024
CAPACITY_NOTE = "AT CAPACITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One measured peak, or a run that did not fit (`peak_gb` is None)."""

    id: str
    kind: str
    method: str
    model: Architecture
    board: Gpu
    gpus: int
    stored: WeightFormat
    framework: str
    version: str
    batch: int
    sequence: int
    recompute: Recompute
    parallelism: str
    peak_gb: float | None
    oom: bool
    at_capacity: bool
    group: str

    @property
    def seen_by_device(self) -> bool:
        """Say whether the peak is nvidia-smi's and not torch's allocation."""
        return self.framework.startswith("HF SFTTrainer")


def read_memory(path: Path) -> list[MemoryRow]:
    """Read the rows of a memory.csv; those of boards, models or formats that nobody described are skipped and told."""
    rows: list[MemoryRow] = []
    strange: list[str] = []
    with path.open(encoding="utf-8", newline="") as stream:
        for cells in csv.DictReader(stream):
            try:
                rows.append(_row(cells))
            except UnknownName as error:
                strange.append(f"{cells['id']} ({error})")
    if strange:
        print(f"{len(strange)} rows are abstentions: {'; '.join(strange[:5])}")
    return rows


def _row(cells: dict[str, str]) -> MemoryRow:
    framework = cells["framework"]
    return MemoryRow(
        id=cells["id"],
        kind=cells["kind"],
        method=cells["method"],
        model=resolve_model(cells["model"], float(cells["params_b"]) if cells["params_b"] else None),
        board=board_of(cells["gpu"], cells["gpu_chip"]),
        gpus=int(float(cells["n_gpus"] or 1)),
        stored=_stored(cells),
        framework=framework,
        version=cells["framework_version"],
        batch=int(float(cells["batch"] or 1)),
        sequence=int(float(cells["seq_len"] or UNSTATED_SEQUENCE.get(framework, DEFAULT_SEQUENCE))),
        recompute=_recompute(cells["act_ckpt"]),
        parallelism=cells["parallelism"],
        peak_gb=float(cells["peak_memory_gb"]) if cells["peak_memory_gb"] else None,
        oom=cells["oom"] == "True" or cells["oom"].startswith("suspected"),
        at_capacity=CAPACITY_NOTE in cells["metric_note"],
        group=cells["group"],
    )


def _stored(cells: dict[str, str]) -> WeightFormat:
    if cells["framework"] in ("AutoGPTQ", "AutoAWQ"):
        return WeightFormat.INT4
    if cells["framework"] == "PEFT/Accelerate" and "offload" not in cells["method"]:
        return WeightFormat.FP32  # its README's table predates 16-bit loading; the offloading script loads bf16
    text = cells["quant"] or cells["precision"] or "bf16"
    return WeightFormat.BF16 if cells["method"] == "full" else weight_format(text)


def _recompute(text: str) -> Recompute:
    if text.startswith("full"):
        return Recompute.FULL
    return Recompute.SELECTIVE if text.startswith("selective") else Recompute.NONE


def _degree(parallelism: str, name: str) -> int:
    found = re.search(rf"{name}(\d+)", parallelism)
    return int(found[1]) if found else 1


METHODS = (("QLoRA", Method.QLORA), ("LoRA", Method.LORA), ("Adapter", Method.ADAPTER))
PADDING_FREE_FRAC = 0.5
"""Tokens left when padded batches of instruction data are packed without padding (Alpaca lengths vary about twofold)."""


def _method(row: MemoryRow) -> Method:
    method = next((one for word, one in METHODS if row.method.startswith(word)), Method.FULL)
    quantized = row.stored not in (WeightFormat.BF16, WeightFormat.FP16, WeightFormat.FP32)
    return Method.QLORA if method is Method.LORA and quantized else method


def training_of(row: MemoryRow) -> Training:
    """Return how a training row was run.

    What the rows leave open is read off the scripts: Hugging Face's trainer uses an optimizer that is not fused and, on more
    than two GPUs, fp32 states; lit-gpt's FSDP script of 2023 recomputes and gathers the model as one unit; Liger's fused loss
    has no effect under FSDP; torchtune's recipes for one card recompute, page the optimizer's states and step in the backward
    pass.
    """
    shards = _degree(row.parallelism, "FSDP")
    stages, tensor, context = (_degree(row.parallelism, name) for name in ("PP", "TP", "CP"))
    sharded = shards > 1 or context > 1
    hugging_face = row.seen_by_device
    torchtune = row.framework == "torchtune"
    sharded_lit = row.framework == "litgpt" and sharded
    packed = PADDING_FREE_FRAC if "padding-free" in row.version else 1.0
    return Training(
        model=row.model,
        method=_method(row),
        stored=row.stored,
        optimizer=Optimizer.ADAMW,
        master_weights=row.gpus > 2 if hugging_face else sharded or row.stored is WeightFormat.FP32,
        recompute=Recompute.FULL if sharded_lit or torchtune else row.recompute,
        sharding=Sharding.WEIGHTS if sharded or "ZeRO-3" in row.method else Sharding.NONE,
        parallel=Parallel(tensor=tensor, pipeline=stages, data=shards),
        context_parallel=context,
        micro_batch=row.batch,
        sequence=max(1, round(row.sequence * packed)),
        fused_loss="liger" in row.version and not sharded,
        fused_optimizer=not hugging_face,
        upcast_base="baseline" in row.version,
        offload_states="offload" in row.method or torchtune,
        steps_in_backward=torchtune,
        gathers_whole=sharded_lit and _method(row) is not Method.FULL,
        # what litgpt and fms-acceleration's scenarios adapt, or less
        adapts_all=False,
    )

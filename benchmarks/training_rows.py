"""Training rows and other networks' rows of the measured data, as questions to physics."""

from __future__ import annotations

import re

from benchmarks.perf_rows import Row, language_model, mig_frac, year_of
from trimtab.errors import UnknownName
from trimtab.physics.formats import weight_format
from trimtab.physics.measured_models import WorkloadQuery
from trimtab.physics.models import resolve_model
from trimtab.physics.training import Method, Recompute, TrainingQuery, TrainPrecision
from trimtab.units import MS_PER_S

ALPACA_TOKENS = 300
"""Mean length of an Alpaca example with its answer, for rows that count iterations (tatsu-lab/stanford_alpaca)."""
SLICES = 7
"""Smallest MIG slices of a card; seven together run seven batches at once."""
BERT_IN_FP8 = "Hopper"
"""The architecture on which MLPerf's BERT at 99.9 % runs in FP8, although rows call it fp16: NVIDIA's settings, which other
submitters take, say `precision = "fp16"` and `use_fp8 = True` there (mlcommons/inference_results_v4.1,
closed/NVIDIA/configs/bert/Server/__init__.py). Such rows reach 0.87 of INT8's speed, those of A100 and L40 0.53 and 0.47."""
OTHER_SOURCES = ("mlp", "lam", "dle", "fat")


def _stated(row: Row, pattern: str) -> float | None:
    found = re.search(pattern, row.notes)
    return float(found[1]) if found else None


def _precision(row: Row) -> TrainPrecision:
    text = row.precision.casefold()
    if "nvfp4" in text:
        return TrainPrecision.FP4
    if "mx" in text:
        return TrainPrecision.MXFP8
    if "fp8" in text:
        return TrainPrecision.FP8
    if any(word in text for word in ("nf4", "gptq", "bnb")):
        return TrainPrecision.QUANTIZED_BASE
    return TrainPrecision.BF16


def _recompute(row: Row) -> Recompute:
    if re.search(r"act_ckpt=(full|true)", row.notes, re.IGNORECASE):
        return Recompute.FULL
    return Recompute.SELECTIVE if "act_ckpt=selective" in row.notes else Recompute.NONE


def _unstated_sequence(row: Row) -> float:
    """Return the tokens of a sequence where the row leaves them open: an Alpaca example, packed 4k, 2k."""
    if row.metric == "train_iterations":
        return ALPACA_TOKENS
    return 4096 if row.source == "fms" else 2048


def training_query(row: Row) -> TrainingQuery | None:
    """Return the question of a row that trains a language model; None for other rows and unknown models."""
    if row.kind == "inference" or row.source in ("lam", "dle"):
        return None
    try:
        model = language_model(row) or resolve_model(row.model, row.params_b)
    except UnknownName:
        return None
    methods = {"LoRA": Method.LORA, "QLoRA": Method.QLORA, "Adapter": Method.ADAPTER}
    return TrainingQuery(
        model=model,
        gpu=row.board,
        gpus=max(row.gpus, 1),
        precision=_precision(row),
        method=methods.get(row.mode, Method.FULL),
        framework=row.framework,
        version=row.version.split(" ")[0],
        recompute=_recompute(row),
        sequence=row.input_len or _unstated_sequence(row),
        micro_batch=row.batch or 1,
        global_batch=_stated(row, r"(?:GBS|global_batch)=(\d+)"),
        tensor=max(1, int(row.tensor or 1)),
        pipeline=max(1, int(row.pipeline or 1)),
        expert=max(1, int(row.expert or 1)),
        context=int(_stated(row, r"CP=?(\d+)") or 1),
        virtual_stages=max(1, int(_stated(row, r"VP=(\d+)") or 1)),
        cpu_offload="cpu_offload=True" in row.notes,
        lora_rank=int(_stated(row, r"lora r=(\d+)") or 16),
        # the other frameworks of these rows keep adapters as wide as the base; fms-acceleration's scenarios adapt the attention
        # of bf16 models by PEFT, under autocast (scripts/benchmarks/scenarios-liger.yaml)
        adapter_bits=32 if row.source == "fms" else 16,
        adapts_all=row.source != "fms",
    )


def tokens_per_count(row: Row) -> float:
    """Return the tokens that one unit of a training row's metric is worth."""
    return ALPACA_TOKENS * (row.batch or 1) if row.metric == "train_iterations" else 1.0


def _workload_precision(row: Row) -> str:
    if row.precision.startswith("fp32(tf32") or row.precision == "tf32":
        return "tf32"
    if row.precision == "fp16" and "benchmark=bert-99.9" in row.notes and row.board.architecture == BERT_IN_FP8:
        return "fp8"
    try:
        stored = weight_format(row.precision).value
    except UnknownName:
        return "int8"
    return "fp16" if stored == "bf16" else stored


RESNET_50_GFLOP = 8.2
"""Work of one image in the forward pass: 4.1 billion multiply-adds (He et al., arXiv 1512.03385)."""


def sample_gflop(row: Row) -> float:
    """Return the work of one image or sequence; 0 for networks whose level only measurements fix.

    BERT-base: 85 million parameters and 12 layers of attention over 768 values (Devlin et al., arXiv 1810.04805). Training
    costs three forward passes.
    """
    passes = 1 if row.kind == "inference" else 3
    if row.model == "resnet50":
        return passes * RESNET_50_GFLOP
    if row.model == "bert-base" and row.input_len:
        return passes * (0.17 * row.input_len + 3.7e-5 * row.input_len**2)
    return 0.0


def workload_query(row: Row) -> WorkloadQuery | None:
    """Return the question of a row of another network; None for language models and unknown sources."""
    if language_model(row) is not None or not row.source.startswith(OTHER_SOURCES):
        return None
    mlperf = row.source.startswith("mlp")
    sample = sample_gflop(row) if row.source in ("dle", "fat") else 0.0
    step = sample * (row.batch or 1)
    slices = SLICES if "-7xMIG1g" in row.gpu else 1
    return WorkloadQuery(
        task=row.model,
        gpu=row.board,
        gpus=max(row.gpus, 1),
        precision=_workload_precision(row),
        domain="mlp" if mlperf else row.source + row.kind,
        mode=row.mode,
        metric=row.metric,
        device_frac=mig_frac(row),
        unit_gflop=(step * MS_PER_S if row.metric == "latency" else sample) or 1.0,
        step_gflop=step * slices,
    )


def era_of(row: Row) -> int:
    """Return the year of a row's software."""
    return year_of(row)

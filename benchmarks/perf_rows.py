"""Read measured rows (columns of the perf data set) into the questions that physics answers.

Traps of the data are handled here and nowhere else: units differ by source, GPU counts of some rows are the square of the
expert-parallel degree, MLPerf rows state no lengths, and some precisions are labels of the submission and not of the weights.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trimtab.catalog import Gpu
from trimtab.errors import UnknownName
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.formats import WeightFormat, weight_format
from trimtab.physics.models import Architecture, find_model, generic_model, resolve_model
from trimtab.physics.offers import all_boards
from trimtab.physics.serving_query import Load, ServingQuery, kv_value_bytes
from trimtab.units import BYTES_PER_GIB

MLPERF_TOKENS: dict[str, tuple[float, float]] = {
    "llama-2-70b": (294, 294),
    "llama-3.1-405b": (9428, 684),
    "llama-3-8b": (778, 73),
    "gpt-j-6b": (620, 73),
    "deepseek-v3": (800, 3880),
    "mixtral-8x7b": (425, 145),
}
"""Mean input and output tokens of MLPerf's data sets (mlcommons/inference reference implementations, `language/*`)."""

PARALLEL_ATTENTION_FILL_FRAC = 0.62
"""Weights above this share of memory call for another GPU when a deployment's tensor parallelism is not stated."""
ENGINES: tuple[tuple[str, str], ...] = (
    ("llama.cpp", "llama.cpp"),
    ("ctransformers", "llama.cpp"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("trtllm", "trtllm"),
    ("tensorrt", "trtllm"),
    ("optimum", "trtllm"),
    ("deepspeed", "deepspeed"),
    ("litgpt", "torch"),
    ("lightning", "torch"),
    ("transformers", "torch"),
    ("gptq", "gptq"),
    ("awq", "gptq"),
    ("exllama", "exllama"),
    ("ctranslate", "ctranslate"),
    ("onnx", "onnx"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured row; None where a cell is empty."""

    id: str
    kind: str
    model: str
    family: str
    params_b: float | None
    gpu: str
    chip: str
    board: Gpu
    gpus: int
    tensor: float | None
    pipeline: float | None
    expert: float | None
    precision: str
    kv_dtype: str
    framework: str
    version: str
    mode: str
    batch: float | None
    input_len: float | None
    output_len: float | None
    metric: str
    unit: str
    value: float
    notes: str
    date: str
    group: str

    @property
    def source(self) -> str:
        """Return the source's prefix (anl, ifx, mlp51)."""
        return self.id.split("-")[0]

    @property
    def is_nvidia(self) -> bool:
        """Say whether the row's GPU is NVIDIA's."""
        return self.board.vendor == "NVIDIA"


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a measured.csv that hold a value; rows of boards that nobody described are skipped and told."""
    with path.open(encoding="utf-8", newline="") as stream:
        measured = [cells for cells in csv.DictReader(stream) if cells["value"]]
    known = [cells for cells in measured if is_known(cells["gpu"], cells["gpu_chip"])]
    if len(known) < len(measured):
        strange = sorted({cells["gpu"] for cells in measured} - {cells["gpu"] for cells in known})
        print(f"{len(measured) - len(known)} rows of unknown boards are abstentions: {', '.join(strange)}")
    return [_row(cells) for cells in known]


@lru_cache(maxsize=256)
def is_known(gpu: str, chip: str) -> bool:
    """Say whether a SKU of the data means a described board."""
    try:
        board_of(gpu, chip)
    except UnknownName:
        return False
    return True


def _number(cell: str) -> float | None:
    return float(cell) if cell not in ("", "nan", "NaN") else None


def _row(cells: dict[str, str]) -> Row:
    return Row(
        id=cells["id"],
        kind=cells["kind"],
        model=cells["model"],
        family=cells["model_family"],
        params_b=_number(cells["params_b"]),
        gpu=cells["gpu"],
        chip=cells["gpu_chip"],
        board=board_of(cells["gpu"], cells["gpu_chip"]),
        gpus=int(float(cells["n_gpus"] or 1)),
        tensor=_number(cells["tp"]),
        pipeline=_number(cells["pp"]),
        expert=_number(cells["ep"]),
        precision=cells["precision"],
        kv_dtype=cells["kv_dtype"],
        framework=cells["framework"],
        version=cells["framework_version"],
        mode=cells["mode"],
        batch=_number(cells["batch_or_concurrency"]),
        input_len=_number(cells["input_len"]),
        output_len=_number(cells["output_len"]),
        metric=cells["metric"],
        unit=cells["unit"],
        value=float(cells["value"]),
        notes=cells["notes"],
        date=cells["date"],
        group=cells["group"],
    )


@lru_cache(maxsize=256)
def board_of(gpu: str, chip: str) -> Gpu:
    """Return the board that a SKU of the data means, by name, else by chip, form factor and nearest memory."""
    name = re.sub(r"-(\d+x)?MIG.*", "", gpu)
    try:
        return all_boards().find(name)
    except UnknownName:
        pass
    family = [board for board in all_boards().gpus if _fold(board.name).startswith(_fold(chip))]
    if not family:
        raise UnknownName("GPU", gpu, (board.name for board in all_boards().gpus))
    stated = re.search(r"(\d+)GB", name)
    form = next((form for form in ("PCIe", "NVL", "SXM") if form in name), "")

    def distance(board: Gpu) -> tuple[bool, float]:
        return form.casefold() not in board.name.casefold(), abs(board.memory_gb - float(stated[1])) if stated else 0.0

    return min(family, key=distance)


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def mig_frac(row: Row) -> float:
    """Return the share of the card's compute that the row's devices are: 1/7 for one smallest slice."""
    return 1 / 7 if "-MIG1g" in row.gpu else 1.0


def language_model(row: Row) -> Architecture | None:
    """Return the row's decoder architecture; None for encoders and other networks."""
    found = find_model(row.model)
    if found is None and row.params_b and _counts_tokens(row):
        return generic_model(row.params_b, name=row.model)
    if found is None or found.encoder:
        return None
    return resolve_model(row.model, row.params_b)


def _counts_tokens(row: Row) -> bool:
    """Say whether a row measures generated or trained tokens, so that its unknown network is a language model."""
    return row.metric.startswith(("ttft", "tpot")) or ("tokens" in row.unit.casefold() and "mel" not in row.unit)


def engine_of(row: Row) -> str:
    """Return the serving engine that a framework's name means."""
    name = row.framework.casefold()
    return next((engine for word, engine in ENGINES if word in name), "other")


def year_of(row: Row) -> int:
    """Return the last year that the row's date names, 2023 to 2026."""
    years = re.findall(r"20\d\d", row.date)
    return min(max(int(years[-1]), 2023), 2026) if years else 2024


def release_of(row: Row) -> str:
    """Return the engine's version to two numbers; empty where a row states none."""
    found = re.match(r"v?(\d+\.\d+)", row.version)
    return found[1] if found else ""


def load_of(row: Row) -> Load | None:
    """Return how requests came; None for runs with offloading, which physics does not predict."""
    mode = row.mode
    if "offload" in mode:
        return None
    if mode.startswith("MLPerf"):
        return Load(f"mlp-{mode.removeprefix('MLPerf ').lower()}")
    if "max load" in mode:
        return Load.MAXIMUM
    if "online" in mode:
        return Load.ONLINE
    if "prefill" in mode:
        return Load.PREFILL
    if mode == "decode" or "decode batch 1" in mode:
        return Load.DECODE
    return Load.STATIC


def _stored(row: Row, model: Architecture) -> WeightFormat:
    if row.source == "mlp41" and row.is_nvidia:
        return WeightFormat.FP8  # the submissions label their accuracy class fp16; their engines ran FP8
    if model.name.startswith("gpt-oss"):
        return WeightFormat.FP4  # published in MXFP4 only
    return weight_format(row.precision) if row.precision else WeightFormat.BF16


def least_tensor_parallel(model: Architecture, stored: WeightFormat, gpu: Gpu, most: int) -> int:
    """Return the smallest power of two of GPUs whose memory the weights fill to at most 62 %, up to `most`."""
    degree = 1
    need = weight_bytes(model, stored)
    while need > PARALLEL_ATTENTION_FILL_FRAC * degree * gpu.memory_gib * BYTES_PER_GIB and degree < most:
        degree *= 2
    return degree


def _degrees(row: Row, model: Architecture, stored: WeightFormat, engine: str) -> tuple[int, int, int, int]:
    """Return GPUs, tensor, pipeline and expert degrees."""
    pipeline = max(1, int(row.pipeline or 1))
    tensor = max(1, int(row.tensor or row.gpus))
    expert = max(1, int(row.expert or 1))
    gpus = row.gpus or tensor
    squared = expert > 1 and gpus == expert**2 and row.source == "ifx"
    if squared and weight_bytes(model, stored) < 0.85 * expert * row.board.memory_gib * BYTES_PER_GIB:
        gpus, tensor = expert, min(tensor, expert)
    if row.mode.startswith("MLPerf"):
        return gpus, least_tensor_parallel(model, stored, row.board, gpus), 1, 1
    if engine in ("llama.cpp", "torch"):
        return gpus, 1, gpus, 1
    if expert > tensor:
        return expert, tensor, 1, expert
    return gpus, tensor, pipeline, expert


def serving_query(row: Row) -> ServingQuery | None:
    """Return the serving question of an inference row, None when it is not one that physics answers."""
    model, load = language_model(row), load_of(row)
    if row.kind != "inference" or model is None or load is None:
        return None
    stored, engine, year = _stored(row, model), engine_of(row), year_of(row)
    gpus, tensor, pipeline, expert = _degrees(row, model, stored, engine)
    mlperf = row.mode.startswith("MLPerf")
    lengths = (
        MLPERF_TOKENS.get(model.name, (512.0, 256.0)) if mlperf else (row.input_len or 128.0, row.output_len or 256.0)
    )
    return ServingQuery(
        model=model,
        gpu=row.board,
        stored=stored,
        engine=engine,
        year=year,
        load=load,
        requests=1.0 if row.metric == "decode_throughput" else max(row.batch or 1.0, 1.0),
        input_tokens=max(lengths[0], 1.0),
        output_tokens=max(lengths[1], 1.0),
        kv_value_bytes=1 if row.kv_dtype == "fp8" else kv_value_bytes(stored, engine, year, row.board),
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        expert=expert,
        release=release_of(row),
        workload=f"{load.value}|{model.name}|{row.source}" if mlperf else "",
    )


def is_ttft(row: Row) -> bool:
    """Say whether the row measures time to first token."""
    return row.metric.startswith("ttft")


def groups_of(rows: Iterable[Row]) -> list[str]:
    """Return the groups of the rows, in order, each once."""
    return sorted({row.group for row in rows})

"""Models that generate no text: what was measured of them in public, carried over to other GPUs, and the search over all.

`data/measured_models.csv` says under which names they go, what was measured with what, and in which unit. Encoders that share
BERT-large's layers, width and heads do its arithmetic on a sequence; their own speed was not measured. Limits at p99 are those
of MLPerf's Server scenario (mlcommons/inference, `mlperf.conf`), which its throughput keeps. The published rows of Whisper call
their unit samples; it is tokens of the transcript: 349 a second on an L4 would be about 6 times its peak rate if they were
clips of 30 s (2 TFLOP each).

Their throughput was measured on many boards. The logarithm is a sum of the workload's own level, slopes on what a board offers
(tensor rate at the precision, bandwidth, FP32 rate, power, memory), a slope on the number of GPUs, and what remains of an
architecture, chip or board (`data/workloads.json`). Slopes per task lean on the slope of all tasks.

A replica is one GPU. What was never measured is rejected as unknown: chips without any row, boards with less memory than the
smallest on which the model ran, formats in which it was not run, limits on latency below the one that was kept.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

from trimtab.catalog import BuyingOption, Gpu, Precision
from trimtab.errors import Unpredictable
from trimtab.physics.ask import FitMarket, accepted_caveats, runnable
from trimtab.physics.fitted import Floats, Keys, Terms, board_class, class_keys, number_columns
from trimtab.physics.found_ways import Rejected, Unmet
from trimtab.physics.offers import Caveat, NodeOffer, caveats_of, nodes_for, plain_and_cheapest, replicas_for
from trimtab.physics.predict import Model, knows, packaged
from trimtab.physics.serving_query import chip_of, has_switched_nvlink
from trimtab.provenance import Estimate
from trimtab.units import GFLOPS_PER_TFLOPS, S_PER_HR

MLPERF = "mlp"
"""The domain of MLPerf's rows in the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """One such model."""

    name: str
    hub_id: str
    """On the Hugging Face hub; empty where it is not there."""
    kind: str
    task: str
    unit: str
    """What throughput counts."""
    has_server: bool
    server_p99_s: float | None
    chips_by_format: Mapping[str, frozenset[str]]
    """The chips on which it was measured, by precision."""
    transfers: bool
    """Whether its speed is told on other chips: intervals held on groups kept back (`python -m benchmarks.other_models`)."""
    least_gib: float
    """Memory of the smallest board on which it was measured."""
    measured_with: str
    source: str

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the precisions in which it was measured."""
        return tuple(self.chips_by_format)

    @property
    def chips(self) -> frozenset[str]:
        """Return the chips on which it was measured."""
        return frozenset().union(*self.chips_by_format.values())

    def mode(self, *, online: bool) -> str:
        """Return the scenario that answers: at the limit where requests come one by one and it was measured, else in bulk."""
        return "MLPerf Server" if online and self.has_server else "MLPerf Offline"


@lru_cache(maxsize=1)
def measured_models() -> Mapping[str, MeasuredModel]:
    """Return the models by name."""
    return {row["name"]: _from_row(row) for row in _rows()}


@lru_cache(maxsize=1)
def _by_alias() -> Mapping[str, str]:
    found = {}
    for row in _rows():
        for alias in (row["name"], row["hub_id"], *row["aliases"].split(";")):
            if alias:
                found[_folded(alias)] = row["name"]
    return found


def find_measured_model(name: str) -> MeasuredModel | None:
    """Return the model that a name means, or None; organisation and case are ignored, a suffix never.

    A suffix here is another network: `whisper-large-v3-turbo` has 4 decoder layers where `whisper-large-v3` has 32.
    """
    known = _by_alias().get(_folded(name))
    return measured_models()[known] if known else None


def relative_of(name: str) -> MeasuredModel | None:
    """Return the model whose name, with a suffix more, is this one: another network of its kind (`sdxl-turbo` of `sdxl`)."""
    folded = _folded(name)
    nearest = max((alias for alias in _by_alias() if folded.startswith(f"{alias}-")), key=len, default=None)
    return None if nearest is None else measured_models()[_by_alias()[nearest]]


def _folded(name: str) -> str:
    return name.rsplit("/", 1)[-1].strip().casefold().replace("_", "-")


def _rows() -> list[dict[str, str]]:
    text = files("trimtab.physics").joinpath("data/measured_models.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _chips_by_format(row: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Read formats: `int8` was measured on all chips of the row, `fp8@H100+H200` on these."""
    found = {}
    for entry in row["formats"].split(";"):
        form, _, chips = entry.partition("@")
        found[form] = frozenset(chips.split("+") if chips else row["chips"].split(";"))
    return found


def _from_row(row: Mapping[str, str]) -> MeasuredModel:
    return MeasuredModel(
        name=row["name"],
        hub_id=row["hub_id"],
        kind=row["kind"],
        task=row["task"],
        unit=row["unit"],
        has_server=row["server"] == "1",
        server_p99_s=float(row["server_p99_s"]) if row["server_p99_s"] else None,
        chips_by_format=_chips_by_format(row),
        transfers=row["transfers"] == "1",
        least_gib=float(row["least_gib"]),
        measured_with=row["measured_with"],
        source=f"{row['source']} ({row['as_of']})",
    )


FITTED = "workloads"
"""The packaged fit."""
ASKED = "workload"
"""The class of these answers' intervals."""

LAUNCHES_S = 2e-3
"""Time of a step's launches, in time at the peak rate: a few hundred kernels from Python, at half of the peak."""
FUSED_LAUNCHES_S = 2e-4
"""The same from a compiled engine with fused layers."""
TYPICAL_L2_MB = 40.0
TYPICAL_SMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery:
    """One question: the throughput of a public benchmark on some boards.

    `domain` is the benchmark's kind (mlp, lam, ...), `precision` one of fp32, tf32, fp16, int8, fp8, fp4, `device_frac` the
    share of the board that was used (a MIG slice).
    """

    task: str
    gpu: Gpu
    gpus: int
    precision: str
    domain: str
    mode: str
    metric: str
    device_frac: float = 1.0
    unit_gflop: float = 1.0
    """Work of what the throughput counts (an image, a sequence); 1 where its own measurements alone fix the level."""
    step_gflop: float = 0.0
    """Work of one step, whose launches bound small batches; 0 for a step that fills the GPU."""

    @property
    def is_one_batch(self) -> bool:
        """Say whether the question fixes the batch, so that work is known."""
        return self.step_gflop > 0

    @property
    def units_of_work(self) -> float:
        """Return what the fitted speed multiplies: the share of the board over the work of a unit."""
        return self.device_frac / self.unit_gflop


def rate_tflops(gpu: Gpu, precision: str) -> float:
    """Return the rate at which a board computes in a precision, or in the nearest one that it has."""
    half = gpu.tflops(Precision.FP16) or gpu.fp32_tflops
    match precision:
        case "fp32":
            return gpu.fp32_tflops
        case "tf32":
            return gpu.tflops(Precision.TF32) or gpu.fp32_tflops
        case "int8":
            whole = gpu.tflops(Precision.INT8)
            return whole if whole and whole > 0.9 * half else gpu.tflops(Precision.FP8) or half
        case "fp8":
            return gpu.tflops(Precision.FP8) or gpu.tflops(Precision.INT8) or half
        case "fp4":
            return gpu.tflops(Precision.FP4) or gpu.tflops(Precision.FP8) or half
        case _:
            return half


def workload_keys(query: WorkloadQuery) -> Keys:
    """Return the levels by which throughput differs."""
    counted = ("batch",) if query.is_one_batch else (query.mode, query.metric, query.domain)
    workload = "/".join((query.task, *counted))
    return {
        "workload": workload,
        "workload_precision": f"{workload}/{query.precision}",
        "task": query.task,
        "precision": query.precision,
        "domain": query.domain,
        "suite": "" if query.is_one_batch else query.domain,
        "count": str(query.gpus),
        "board": query.gpu.name,
        "chip": chip_of(query.gpu),
        "architecture": query.gpu.architecture,
    }


def _launches(query: WorkloadQuery, launches_s: float) -> float:
    """Return ln(1 + launches over work) of a step: large for one image or one short sequence, 0 for a full GPU."""
    if not query.is_one_batch:
        return 0.0
    at_peak_s = query.step_gflop / (rate_tflops(query.gpu, query.precision) * GFLOPS_PER_TFLOPS)
    return math.log1p(launches_s / at_peak_s)


def _numbers(query: WorkloadQuery) -> dict[str, float]:
    gpu = query.gpu
    gpus = math.log(max(query.gpus, 1))
    rate = math.log(rate_tflops(gpu, query.precision) / 100)
    bandwidth = math.log(gpu.mem_bw_gb_s / 1000)
    return {
        "ln_rate": rate,
        "ln_rate_squared": rate**2,
        "ln_bandwidth": bandwidth,
        "ln_bandwidth_squared": bandwidth**2,
        "ln_fp32": math.log(gpu.fp32_tflops / 20),
        "ln_power": math.log(gpu.tdp_w / 300),
        "ln_memory": math.log(gpu.memory_gib / 40),
        "ln_l2": math.log((gpu.l2_mb or TYPICAL_L2_MB) / TYPICAL_L2_MB),
        "ln_sms": math.log((gpu.sm_count or TYPICAL_SMS) / TYPICAL_SMS),
        "ln_gpus": gpus,
        "ln_gpus_over_pcie": 0.0 if has_switched_nvlink(gpu) else gpus,
        "slice": float(query.device_frac < 1),
        "launches": _launches(query, LAUNCHES_S),
        "fused_launches": _launches(query, FUSED_LAUNCHES_S),
    }


def workload_columns(queries: Sequence[WorkloadQuery]) -> dict[str, Floats]:
    """Return the numbers that terms multiply, `(n,)` each."""
    return number_columns([_numbers(query) for query in queries])


def workload_support(tables: Mapping[str, Terms], keys: Keys) -> int:
    """Return how near measurements are: the workload itself, and the chip."""
    scale = tables["throughput"]
    return int(knows(scale, ("workload",), keys["workload"])) + int(knows(scale, ("chip",), keys["chip"]))


def workload_classes(query: WorkloadQuery, tables: Mapping[str, Terms]) -> tuple[str, ...]:
    """Return the interval classes of another workload's question."""
    return class_keys(ASKED, workload_support(tables, workload_keys(query)), board_class(query.gpu))


def predict_workload(query: WorkloadQuery, model: Model | None = None) -> Estimate:
    """Predict the throughput of a public benchmark; raises Unpredictable for one that was never measured."""
    model = model or packaged(FITTED)
    keys = workload_keys(query)
    if not any(query.task in term.values for term in model.tables["throughput"].terms if term.by == ("task",)):
        raise Unpredictable(f"no measurement of {query.task!r} on any board: measure it once, then transfer")
    log = model.tables["throughput"].at([keys], workload_columns([query]))[0]
    speed = float(np.exp(log)) * query.units_of_work
    return model.intervals.estimate(speed, workload_classes(query, model.tables), because=model.source)


UNITS_PRICED = 1_000_000
"""A cost is that of a million units, as that of tokens is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDemand:
    """What is asked: units a second at the peak and on average (None: one GPU at full load), a limit, headroom."""

    online: bool
    rate_units_s: float | None = None
    mean_units_s: float | None = None
    latency_s: float | None = None
    headroom_frac: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOption:
    """One GPU that serves the model: how fast one is, how many it takes, what they cost."""

    gpu: Gpu
    format: str
    units_s: Estimate
    """Of one GPU."""
    on_this_chip: bool
    """Whether the model itself was measured on this chip; else the chip was measured with others."""
    gpus: int
    offer: NodeOffer
    nodes: int
    stranded_gpus: int
    usd_hr: float
    usd_per_munit: Estimate
    usd_hr_by_option: Mapping[BuyingOption, float]
    caveats: tuple[Caveat, ...] = ()
    """Why this option is ranked after those without caveats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """GPUs that serve the model, cheapest first, and those that do not or of which nothing is known."""

    found: tuple[MeasuredOption, ...]
    rejected: tuple[Rejected, ...]


def measured_answer(
    model: MeasuredModel, demand: MeasuredDemand, market: FitMarket, *, formats: Sequence[str] = ()
) -> MeasuredAnswer:
    """Search all GPUs on offer; raises Unpredictable for a limit on latency that was not measured."""
    _check_latency(model, demand)
    candidates, rejected = runnable(market)
    found: list[MeasuredOption] = []
    for gpu, offers in candidates:
        why = _unknown(model, gpu)
        if why:
            rejected.append(Rejected(gpu=gpu.name, what=model.name, reason=Unmet.UNKNOWN, because=why))
            continue
        for form in model.formats:
            if formats and form not in formats:
                continue
            if not gpu.tflops(Precision(form)):
                because = f"it was measured in {form}, for which this has no arithmetic"
                rejected.append(Rejected(gpu=gpu.name, what=form, reason=Unmet.FORMAT, because=because))
                continue
            priced = sorted(
                _priced(model, demand, market, gpu, form, offers), key=lambda sold: (sold.usd_hr, sold.offer.where)
            )
            if priced:
                found += plain_and_cheapest(priced)
            else:
                because = f"no provider sells {gpu.name} {market.option.value} there"
                rejected.append(Rejected(gpu=gpu.name, what=form, reason=Unmet.PRICE, because=because))
    if formats and not set(formats) & set(model.formats):
        raise Unpredictable(
            f"{model.name} was measured in {' and '.join(model.formats)} only: its speed in {', '.join(formats)} is unknown"
        )
    found.sort(key=lambda way: (bool(way.caveats), way.usd_per_munit.value, way.usd_hr, way.gpus, way.gpu.name))
    return MeasuredAnswer(found=tuple(found), rejected=tuple(rejected))


def _check_latency(model: MeasuredModel, demand: MeasuredDemand) -> None:
    limit = demand.latency_s
    if limit is None:
        return
    if model.server_p99_s is None:
        raise Unpredictable(
            f"{model.name} was measured in bulk only: its latency is unknown on any GPU; leave out --latency"
        )
    if limit < model.server_p99_s:
        raise Unpredictable(
            f"{model.name} was measured at a p99 of {model.server_p99_s:g} s: whether any GPU keeps {limit:g} s is unknown. "
            f"Give --latency {model.server_p99_s:g}s or more, or measure it"
        )


def _unknown(model: MeasuredModel, gpu: Gpu) -> str:
    """Return why nothing is known of the model on a board; empty where something is."""
    table = packaged(FITTED).tables["throughput"]
    if gpu.vendor != "NVIDIA" or not knows(table, ("chip",), chip_of(gpu)):
        return "no model of these kinds was measured on it"
    if not model.transfers and chip_of(gpu) not in model.chips:
        return (
            f"it was measured on {', '.join(sorted(model.chips))} only, and its speed elsewhere could not be predicted"
        )
    # what is listed may lie a little below what is sold under the same number of gigabytes
    if gpu.memory_gib < 0.97 * model.least_gib:
        return f"it was never run in less than {model.least_gib:.0f} GiB, and this has {gpu.memory_gib:.0f}"
    return ""


def _query(model: MeasuredModel, gpu: Gpu, form: str, *, online: bool) -> WorkloadQuery:
    return WorkloadQuery(
        task=model.task,
        gpu=gpu,
        gpus=1,
        precision=form,
        domain=MLPERF,
        mode=model.mode(online=online),
        metric="throughput",
    )


def _priced(
    model: MeasuredModel,
    demand: MeasuredDemand,
    market: FitMarket,
    gpu: Gpu,
    form: str,
    offers: Sequence[NodeOffer],
) -> Iterator[MeasuredOption]:
    query = _query(model, gpu, form, online=demand.online)
    speed = predict_workload(query)
    gpus = replicas_for(demand.rate_units_s or 0.0, speed.value, headroom_frac=demand.headroom_frac)
    for offer in offers:
        bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else market.option
        if bought not in offer.usd_hr:
            continue
        nodes = nodes_for(gpus, 1, offer.gpus)
        by_option = {
            way: rate
            * nodes.nodes
            * (market.losses.serving_factor(offer.interruption) if way is BuyingOption.SPOT else 1)
            for way, rate in offer.usd_hr.items()
        }
        served = demand.mean_units_s or demand.rate_units_s or speed.value * gpus
        cost = by_option[bought] / (served * S_PER_HR) * UNITS_PRICED
        yield MeasuredOption(
            gpu=gpu,
            format=form,
            units_s=speed,
            on_this_chip=chip_of(gpu) in model.chips_by_format[form],
            gpus=gpus,
            offer=offer,
            nodes=nodes.nodes,
            stranded_gpus=nodes.stranded_gpus,
            usd_hr=by_option[bought],
            usd_per_munit=Estimate(
                value=cost,
                low=cost * speed.value / speed.high,
                high=cost * speed.value / speed.low,
                basis=speed.basis,
                because=speed.because,
            ),
            usd_hr_by_option=by_option,
            caveats=caveats_of(gpu, offer, accepted_caveats(market)),
        )
